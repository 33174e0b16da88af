"""The types of columns that an enrichment fills, and how the values of its replies become values of them."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa


class FilledType(NamedTuple):
    """The type of a column that is filled. `of_json` raises ValueError or TypeError for a value that does not fit."""

    arrow: pa.DataType
    of_json: Callable[[Any], Any]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _whole(value: Any) -> int:
    if isinstance(value, bool) or value != int(value) or not -(2**63) <= value < 2**63:
        raise ValueError(value)
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return float(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _instant(value: Any) -> datetime:
    found = datetime.fromisoformat(value)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


FILLED_TYPES = {
    "string": FilledType(pa.string(), _text),
    "bigint": FilledType(pa.int64(), _whole),
    "double": FilledType(pa.float64(), _number),
    "boolean": FilledType(pa.bool_(), _truth),
    "date": FilledType(pa.date32(), date.fromisoformat),
    "timestamp": FilledType(pa.timestamp("us", "UTC"), _instant),
}
