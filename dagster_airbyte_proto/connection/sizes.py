"""Sizes and durations, as people write them: `128 MiB`, `8 MB` or a number of bytes; `30 days`, `12 h` or a number of
seconds."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from dagster_airbyte_proto.connection.validation import AlternativeForm

_NUMBER = r"(?P<number>[0-9]{1,15}(\.[0-9]{1,15})?)"
"""Not more digits: a float that is infinite is no size."""
_SIZE = re.compile(rf"{_NUMBER} *((?P<unit>[kmgt])(?P<binary>i?))?b?", re.IGNORECASE)
_BINARY_SIZE = re.compile(rf"\s*{_NUMBER}\s*((?P<unit>[kmgt])i?)?b?\s*", re.IGNORECASE)


def _bytes(size: Any) -> Any:
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if match is None:
        if isinstance(size, int) and not isinstance(size, bool):
            return size
        raise ValueError('must be a size such as "128 MiB", or a number of bytes')
    return _multiplied(match, 1024 if match["binary"] else 1000)


def binary_size(written: int | str) -> int | None:
    """A size as Rapidbyte's manifests and pipelines write it: a number of bytes, or such as `128mb`, where mb is 1024
    times 1024. None for what is no size."""
    match = _BINARY_SIZE.fullmatch(str(written))
    return None if match is None else _multiplied(match, 1024)


def _multiplied(match: re.Match[str], thousand: int) -> int:
    return int(float(match["number"]) * thousand ** " kmgt".index((match["unit"] or " ").lower()))


Bytes = Annotated[
    int, Field(gt=0), BeforeValidator(_bytes), AlternativeForm({"type": "string", "examples": ["128 MiB"]})
]

_DURATION = re.compile(
    r"(?P<number>[0-9]+(\.[0-9]+)?) *((?P<s>s(ec(ond)?s?)?)|(?P<min>min(ute)?s?)|(?P<h>h(our)?s?)|(?P<d>d(ay)?s?))",
    re.IGNORECASE,
)
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


def _seconds(duration: Any) -> Any:
    match = _DURATION.fullmatch(duration.strip()) if isinstance(duration, str) else None
    if match is None:
        if isinstance(duration, int | float) and not isinstance(duration, bool):
            return duration
        raise ValueError('must be a duration such as "30 days", or a number of seconds')
    return float(match["number"]) * next(seconds for unit, seconds in _SECONDS.items() if match[unit])


Seconds = Annotated[
    float,
    Field(gt=0, allow_inf_nan=False, le=100 * 365 * 86400),
    BeforeValidator(_seconds),
    AlternativeForm({"type": "string", "examples": ["30 days"]}),
]
