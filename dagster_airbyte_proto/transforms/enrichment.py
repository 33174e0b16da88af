"""The transform by a connector that answers rows with rows: an enrichment fills columns of each.

- A row keeps all columns that the enrichment does not fill, with every digit: they go along by position, and not by way
  of its replies.
- Replies come in any order, and a row may have none or several. A reply finds its row by the row's number, a field
  that is sent with it, or by a key. Rows of one key go to the connector one after the other, in rounds.
- A row without a reply is dropped; one with several becomes several.
- With a cache, rows that are the same by its columns are one row for the connector, in this batch and in later ones.
  What came of them is kept as soon as the process that made it has ended well: not before, for until then a row may get
  more replies, and not with the rows, for they may fail for other reasons.
- A row by which the source deletes its key is not sent: often it has nothing but its key.
- What the connector keeps goes from process to process by us, and counts for a process only once all of its replies
  have found their rows. With a cache it keeps nothing: of the rows that come from there it knows nothing, and a tally
  or a list of what it has seen would lack them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError, TransformError
from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.model import EnrichmentSpec
from dagster_airbyte_proto.protocols.raw_json import members
from dagster_airbyte_proto.transforms.filled_types import FILLED_TYPES
from dagster_airbyte_proto.transforms.transform import (
    Positions,
    Rows,
    RowShape,
    TransformedRows,
    rejections,
)

ROW_NUMBER = "_airbyte_row"
"""The field with which a reply says to which row it belongs."""

_DOING = "enriching rows"
_VALUE = msgspec.json.Decoder(Any)
Row = Mapping[str, msgspec.Raw]


class Replies(NamedTuple):
    """The rows that came back, as JSON, and the reason for each row, by its position, that could not be sent. `kept`
    are the values that the connector keeps by then."""

    rows: Sequence[bytes]
    unsent: Mapping[int, str]
    kept: Mapping[str, str] = {}


class RowCache(Protocol):
    """A memory of what came of rows before: JSON by a digest of the row."""

    def digests(self, batch: pa.RecordBatch) -> Sequence[bytes]:
        """Returns a digest of each row. Rows with the same one are the same."""
        ...

    def rows(self, digests: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Returns what is known of these."""
        ...

    def keep(self, rows: Mapping[bytes, bytes]) -> None: ...


class Enricher(Protocol):
    """Sends rows to a connector. `name` tells what it keeps from what other transforms of the connection do."""

    name: str
    cache: RowCache | None

    def enrich(self, batch: pa.RecordBatch, kept: Mapping[str, str]) -> Replies:
        """Sends all rows to a connector that keeps these values, and returns all replies. Raises TransformError."""
        ...


class _SameRows(NamedTuple):
    """Rows of a batch that are one row for the connector, and their digest."""

    positions: Sequence[int]
    digest: bytes


_KEPT = msgspec.json.Decoder(list[list[msgspec.Raw]])
_NULL = msgspec.Raw(b"null")
_NO_VALUE = object()
_Made = Sequence[Sequence[msgspec.Raw]]


class Enrichment:
    """Fills columns of the rows of one stream by a connector. `states` are from before the first of them, `state` is
    what the connector keeps after those so far."""

    def __init__(self, spec: EnrichmentSpec, enricher: Enricher | None, states: Sequence[TransformState] = ()) -> None:
        self._spec, self._enricher = spec, enricher
        self._fields = {name: FILLED_TYPES[kind] for name, kind in spec.columns}
        self.state = TransformState("" if enricher is None else enricher.name)
        if enricher is not None and enricher.cache is None:
            self.state = next((each for each in states if each.transform == enricher.name), self.state)

    def finish(self) -> None:
        """Does nothing: no process outlives its rows."""

    def discard(self) -> None:
        """Does nothing: no process outlives its rows."""

    def shape(self, given: RowShape) -> RowShape:
        for name in self._spec.key:
            if name not in given.schema.names or name in self._fields:
                raise _misfit(f"its key {name} is no column of the rows that it gets")
            kind = given.schema.field(name).type
            if not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
                raise _misfit(f"its key {name} is {kind}, and replies are matched by whole numbers and texts")
        for name in self._spec.calls.cached_by:
            if name not in given.schema.names:
                raise _misfit(f"its cache is by {name}, which is no column of the rows that it gets")
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
        found = _Found({int(place): [[None] * len(self._fields)] for place in np.flatnonzero(is_deletion)}, {})
        sent = np.flatnonzero(~is_deletion)
        if self._enricher is None and len(sent):
            raise TransformError(_DOING, "no connector was started for it")
        cache = self._enricher.cache if self._enricher else None
        same: dict[int, _SameRows] = {}
        if cache is not None and len(sent):
            same = self._not_cached(batch, sent, cache, found)
            sent = np.array(sorted(same), np.int64)
        kept = self.state.values
        for positions in self._parts(batch, sent):
            made, kept = self._send(batch, positions, found.faults, kept)
            fresh: dict[bytes, bytes] = {}
            for place in positions.tolist():
                if place in found.faults:
                    continue
                group, own = same.get(place), made.get(place, ())
                fits = self._note(found, group.positions if group else (place,), own)
                if group is not None and fits:
                    fresh[group.digest] = msgspec.json.encode(own)
            if cache is not None and fresh:
                cache.keep(fresh)
        result = self._result(batch, found)
        self.state = TransformState(self.state.transform, "", kept)
        return result

    def _not_cached(
        self, batch: pa.RecordBatch, sent: Positions, cache: RowCache, found: "_Found"
    ) -> dict[int, _SameRows]:
        """Notes what is known of rows, and returns the others by the first of those that are the same."""
        groups: defaultdict[bytes, list[int]] = defaultdict(list)
        for place, digest in zip(sent, cache.digests(batch.take(pa.array(sent))), strict=True):
            groups[digest].append(int(place))
        known = cache.rows(list(groups))
        for digest, text in known.items():
            self._note(found, groups[digest], _KEPT.decode(text))
        return {
            positions[0]: _SameRows(positions, digest) for digest, positions in groups.items() if digest not in known
        }

    def _note(self, found: "_Found", positions: Sequence[int], made: _Made) -> bool:
        """Notes what came of rows. Returns whether it fits the columns."""
        values, fault = self._values(made)
        for place in positions:
            if fault:
                found.faults[place] = fault
            else:
                found.values[place] = values
        return not fault

    def _parts(self, batch: pa.RecordBatch, sent: Positions) -> Iterator[Positions]:
        """Returns the rows that one process gets: each key at most once, and no more than it may."""
        for positions in self._rounds(batch, sent):
            step = self._spec.calls.rows or len(positions)
            for start in range(0, len(positions), step):
                yield positions[start : start + step]

    def _rounds(self, batch: pa.RecordBatch, sent: Positions) -> Sequence[Positions]:
        if not self._spec.key:
            return [sent] if len(sent) else []
        keys = self._keys(batch.take(pa.array(sent)))
        rounds: list[list[int]] = []
        seen: defaultdict[tuple[Any, ...], int] = defaultdict(int)
        for position, key in zip(sent, keys, strict=True):
            same = tuple(map(_as_double, key))
            number = seen[same]
            seen[same] += 1
            if number == len(rounds):
                rounds.append([])
            rounds[number].append(int(position))
        return [np.array(each, np.int64) for each in rounds]

    def _keys(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        return list(zip(*(batch.column(name).to_pylist() for name in self._spec.key), strict=True))

    def _send(
        self, batch: pa.RecordBatch, positions: Positions, faults: dict[int, str], kept: Mapping[str, str]
    ) -> tuple[dict[int, _Made], Mapping[str, str]]:
        """Sends rows to one process, which begins with the values that are kept. Returns what came of each row, by its
        position, and the values after them."""
        assert self._enricher is not None
        rows, calls = batch.take(pa.array(positions)), self._spec.calls
        if not self._spec.key and not calls.is_one_at_a_time:
            rows = rows.append_column(ROW_NUMBER, pa.array(np.arange(len(positions))))
        found = self._enricher.enrich(rows, kept)
        faults.update({int(positions[row]): f"it cannot be sent: {reason}" for row, reason in found.unsent.items()})
        made: defaultdict[int, list[Sequence[msgspec.Raw]]] = defaultdict(list)
        replies = [_members(text) for text in found.rows]
        for reply, position in zip(replies, self._owners(rows, positions, replies, found.unsent), strict=True):
            if position is None:
                raise TransformError(_DOING, "a reply belongs to no row that was sent", remedy=self._remedy)
            made[position].append([reply.get(name, _NULL) for name in self._fields])
        return dict(made), found.kept

    def _owners(
        self, rows: pa.RecordBatch, positions: Positions, replies: Sequence[Row], unsent: Mapping[int, str]
    ) -> Iterator[int | None]:
        """Returns the position of the row to which each reply belongs."""
        if self._spec.calls.is_one_at_a_time:
            sent = [int(position) for row, position in enumerate(positions) if row not in unsent]
            yield from sent * len(replies) if self._spec.calls.rows == 1 else sent
        elif self._spec.key:
            by_key = {key: int(positions[row]) for row, key in enumerate(self._keys(rows))}
            for reply in replies:
                key = tuple(_member(reply, name) for name in self._spec.key)
                yield by_key.get(key) if all(map(_may_be_key, key)) else None
        else:
            for reply in replies:
                number = _member(reply, ROW_NUMBER)
                if isinstance(number, float) and number.is_integer():  # As pandas writes it.
                    number = int(number)
                is_number = isinstance(number, int) and not isinstance(number, bool)
                is_known = is_number and 0 <= number < len(positions)
                yield int(positions[number]) if is_known else None

    @property
    def _remedy(self) -> str:
        if self._spec.key:
            return f"Let the connector send back {', '.join(self._spec.key)} as it got them, or name another key."
        return f"Let the connector send back the field {ROW_NUMBER} that it gets, or name a key that it sends back."

    def _result(self, batch: pa.RecordBatch, found: "_Found") -> TransformedRows:
        if found.faults and self._spec.on_error == "fail":
            reason = next(iter(found.faults.values()))
            text = f"{len(found.faults):,} rows of a batch have faults; the first: {reason}"
            raise TransformError(_DOING, text, remedy="With on_error: reject, such rows are counted and left out.")
        origins: list[int] = []
        values: dict[str, list[Any]] = {name: [] for name in self._fields}
        for position, made in sorted(found.values.items()):
            origins += [position] * len(made)
            for row in made:
                for name, value in zip(self._fields, row, strict=True):
                    values[name].append(value)
        which = np.array(origins, np.int64)
        kept = batch.take(pa.array(which))
        arrays = {
            **{name: kept.column(name) for name in batch.schema.names if name not in self._fields},
            **{name: pa.array(values[name], kind.arrow) for name, kind in self._fields.items()},
        }
        rejected = rejections(found.faults, are_dropped=self._spec.on_error == "skip")
        return TransformedRows(pa.RecordBatch.from_pydict(arrays), which, rejected)

    def _values(self, rows: _Made) -> tuple[list[list[Any]], str]:
        """Returns the values of each row that came of one, and the fault of the first that does not fit its column."""
        made = []
        for row in rows:
            found = []
            for (name, kind), text in zip(self._fields.items(), row, strict=True):
                try:
                    value = _value(text)
                    found.append(None if value is None else kind.of_json(value))
                except (ValueError, TypeError, OverflowError):
                    return [], f"its {name} does not fit {dict(self._spec.columns)[name]}"
            made.append(found)
        return made, ""


def _members(text: bytes) -> Row:
    """Returns the members of a reply. Their values stay text: most are those that the row has already."""
    parts = members(text)
    if parts is None:
        raise TransformError(_DOING, "a reply is no JSON object")
    return {name: msgspec.Raw(part) for name, part in parts.items()}


def _member(reply: Row, name: str) -> Any:
    try:
        return _value(reply.get(name, _NULL))
    except ValueError:
        return _NO_VALUE


def _value(text: msgspec.Raw) -> Any:
    """Raises ValueError for what no column takes: NaN, half of a surrogate pair."""
    try:
        return _VALUE.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("no value of JSON") from None


class _Found(NamedTuple):
    """The outcome of the rows of a batch, by their positions: the values of each new row, or a fault."""

    values: dict[int, list[list[Any]]]
    faults: dict[int, str]


def _misfit(found: str) -> ConfigError:
    return ConfigError("planning an enrichment", found)


def _as_double(part: Any) -> Any:
    """The part of a key as a connector may send it back that has no numbers but doubles, as those in JavaScript: it may
    be that of another row."""
    return float(part) if isinstance(part, int) and abs(part) >= 2**53 else part


def _may_be_key(part: Any) -> bool:
    """True for a value that may be that of a key. Connectors that use pandas send whole numbers back as `1.0`. From
    2**53 on such a number may be that of another row."""
    if isinstance(part, float):
        return abs(part) < 2**53
    return isinstance(part, int | str | None) and not isinstance(part, bool)  # Python takes True for 1.
