"""The transform by a connector that answers rows with rows: an enrichment fills columns of each.

- A row keeps all columns that the enrichment does not fill, with every digit: they go along by position, and not by way
  of its replies.
- Replies come in any order, and a row may have none or several. A reply finds its row by the row's number, a field
  that is sent with it, or by a key. Rows of one key go to the connector one after the other, in rounds.
- A row without a reply is dropped; one with several becomes several.
- A row by which the source deletes its key is not sent: often it has nothing but its key.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError, TransformError
from dagster_airbyte_proto.model import EnrichmentSpec
from dagster_airbyte_proto.transforms.transform import (
    DROPPED,
    Positions,
    Rejection,
    Rows,
    RowShape,
    TransformedRows,
)

ROW_NUMBER = "_airbyte_row"
"""The field with which a reply says to which row it belongs."""

_DOING = "enriching rows"
_REPLY = msgspec.json.Decoder(dict[str, msgspec.Raw])
_VALUE = msgspec.json.Decoder(Any)
Row = Mapping[str, msgspec.Raw]


class Replies(NamedTuple):
    """The rows that came back, as JSON, and the reason for each row, by its position, that could not be sent."""

    rows: Sequence[bytes]
    unsent: Mapping[int, str]


class Enricher(Protocol):
    """Sends rows to a connector."""

    def enrich(self, batch: pa.RecordBatch, options: str) -> Replies:
        """Sends all rows, and returns all replies. Raises TransformError."""
        ...


class Enrichment:
    """Fills columns of the rows of one stream by a connector."""

    def __init__(self, spec: EnrichmentSpec, enricher: Enricher | None) -> None:
        self._spec, self._enricher = spec, enricher
        self._fields = {name: _TYPES[kind] for name, kind in spec.columns}

    def shape(self, given: RowShape) -> RowShape:
        for name in self._spec.key:
            if name not in given.schema.names or name in self._fields:
                raise _misfit(f"its key {name} is no column of the rows that it gets")
            kind = given.schema.field(name).type
            if not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
                raise _misfit(f"its key {name} is {kind}, and replies are matched by whole numbers and texts")
        schema = pa.schema(
            [
                *(field for field in given.schema if field.name not in self._fields),
                *((name, kind.arrow) for name, kind in self._fields.items()),
            ]
        )
        passed_on = {name: source for name, source in given.passed_on.items() if name not in self._fields}
        return RowShape(schema, passed_on)

    def transform(self, rows: Rows) -> TransformedRows:
        batch = rows.batch
        is_deletion = np.zeros(batch.num_rows, bool)
        if rows.is_deletion is not None:
            is_deletion = rows.is_deletion.to_numpy(zero_copy_only=False)
        sent = np.flatnonzero(~is_deletion)
        replies: dict[int, list[Row]] = {int(position): [{}] for position in np.flatnonzero(is_deletion)}
        faults: dict[int, str] = {}
        for positions in self._rounds(batch, sent):
            self._send(batch, positions, replies, faults)
        return self._result(batch, replies, faults)

    def _rounds(self, batch: pa.RecordBatch, sent: Positions) -> Sequence[Positions]:
        """Returns the rows that are sent together: each key at most once."""
        if not self._spec.key:
            return [sent] if len(sent) else []
        keys = self._keys(batch.take(pa.array(sent)))
        rounds: list[list[int]] = []
        seen: defaultdict[tuple[Any, ...], int] = defaultdict(int)
        for position, key in zip(sent, keys, strict=True):
            number = seen[key]
            seen[key] += 1
            if number == len(rounds):
                rounds.append([])
            rounds[number].append(int(position))
        return [np.array(each, np.int64) for each in rounds]

    def _keys(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        return list(zip(*(batch.column(name).to_pylist() for name in self._spec.key), strict=True))

    def _send(
        self, batch: pa.RecordBatch, positions: Positions, replies: dict[int, list[Row]], faults: dict[int, str]
    ) -> None:
        if self._enricher is None:
            raise TransformError(_DOING, "no connector was started for it")
        rows = batch.take(pa.array(positions))
        if self._spec.key:
            by_key = {key: int(positions[row]) for row, key in enumerate(self._keys(rows))}
        else:
            rows = rows.append_column(ROW_NUMBER, pa.array(np.arange(len(positions))))
        found = self._enricher.enrich(rows, self._spec.options)
        faults.update({int(positions[row]): f"it cannot be sent: {reason}" for row, reason in found.unsent.items()})
        for text in found.rows:
            reply = _members(text)
            if self._spec.key:
                position = by_key.get(tuple(_member(reply, name) for name in self._spec.key))
            else:
                number = _member(reply, ROW_NUMBER)
                is_known = isinstance(number, int) and 0 <= number < len(positions)
                position = int(positions[number]) if is_known else None
            if position is None:
                raise TransformError(_DOING, "a reply belongs to no row that was sent", remedy=self._remedy)
            replies.setdefault(position, []).append(reply)

    @property
    def _remedy(self) -> str:
        if self._spec.key:
            return f"Let the connector send back {', '.join(self._spec.key)} as it got them, or name another key."
        return f"Let the connector send back the field {ROW_NUMBER} that it gets, or name a key that it sends back."

    def _result(
        self, batch: pa.RecordBatch, replies: Mapping[int, Sequence[Row]], faults: dict[int, str]
    ) -> TransformedRows:
        origins: list[int] = []
        values: dict[str, list[Any]] = {name: [] for name in self._fields}
        for position in sorted(replies.keys() - faults.keys()):
            made, fault = self._values(replies[position])
            if fault:
                faults[position] = fault
                continue
            origins += [position] * len(made)
            for row in made:
                for name, value in zip(self._fields, row, strict=True):
                    values[name].append(value)
        if faults and self._spec.on_error == "fail":
            reason = next(iter(faults.values()))
            found = f"{len(faults):,} rows of a batch have faults; the first: {reason}"
            raise TransformError(_DOING, found, remedy="With on_error: reject, such rows are counted and left out.")
        which = np.array(origins, np.int64)
        kept = batch.take(pa.array(which))
        arrays = {
            **{name: kept.column(name) for name in batch.schema.names if name not in self._fields},
            **{name: pa.array(values[name], kind.arrow) for name, kind in self._fields.items()},
        }
        return TransformedRows(pa.RecordBatch.from_pydict(arrays), which, self._rejections(faults))

    def _values(self, rows: Sequence[Row]) -> tuple[list[list[Any]], str]:
        """Returns the values of each reply, and the fault of the first that does not fit its column."""
        made = []
        for row in rows:
            found = []
            for name, kind in self._fields.items():
                try:
                    value = _member(row, name)
                    found.append(None if value is None else kind.of_json(value))
                except (ValueError, TypeError, OverflowError):
                    return [], f"its {name} does not fit {dict(self._spec.columns)[name]}"
            made.append(found)
        return made, ""

    def _rejections(self, faults: Mapping[int, str]) -> Sequence[Rejection]:
        by_reason: defaultdict[str, list[int]] = defaultdict(list)
        for position, reason in sorted(faults.items()):
            by_reason[DROPPED if self._spec.on_error == "skip" else reason].append(position)
        return [Rejection(reason, np.array(positions, np.int64)) for reason, positions in by_reason.items()]


def _members(text: bytes) -> Row:
    """Returns the members of a reply. Their values stay text: most are those that the row has already."""
    try:
        return _REPLY.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TransformError(_DOING, f"a reply is no JSON: {error}") from None


def _member(reply: Row, name: str) -> Any:
    value = reply.get(name)
    try:
        return None if value is None else _VALUE.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TransformError(_DOING, f"the field {name} of a reply is no JSON: {error}") from None


class _FilledType(NamedTuple):
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


_TYPES = {
    "string": _FilledType(pa.string(), _text),
    "bigint": _FilledType(pa.int64(), _whole),
    "double": _FilledType(pa.float64(), _number),
    "boolean": _FilledType(pa.bool_(), _truth),
    "date": _FilledType(pa.date32(), date.fromisoformat),
    "timestamp": _FilledType(pa.timestamp("us", "UTC"), _instant),
}


def _misfit(found: str) -> ConfigError:
    return ConfigError("planning an enrichment", found)
