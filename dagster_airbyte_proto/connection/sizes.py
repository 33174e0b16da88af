"""Sizes in bytes, as people write them: `128 MiB`, `8 MB`, or a number."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from dagster_airbyte_proto.connection.validation import AlternativeForm

_SIZE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) *((?P<unit>[kmgt])(?P<binary>i?))?b?", re.IGNORECASE)


def _bytes(size: Any) -> Any:
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if match is None:
        if isinstance(size, int) and not isinstance(size, bool):
            return size
        raise ValueError('must be a size such as "128 MiB", or a number of bytes')
    power = " kmgt".index((match["unit"] or " ").lower())
    return int(float(match["number"]) * (1024 if match["binary"] else 1000) ** power)


Bytes = Annotated[
    int, Field(gt=0), BeforeValidator(_bytes), AlternativeForm({"type": "string", "examples": ["128 MiB"]})
]
