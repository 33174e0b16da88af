"""The transform by a component: it gets rows as Arrow, and fills columns of them.

- A row keeps all columns that the component does not fill. Those go along by position.
- Each row that comes back says by its number which row it was, if the component passes that column on. Otherwise as
  many rows have to come back as were sent, and in their order.
- A row that does not come back is dropped; one that comes back several times becomes several. A component has to have
  passed on numbers once, before a batch without an answer is one whose rows are dropped. Where it rejects each row of
  the batch by its number, nothing has to come back.
- A row by which the source deletes its key is not sent.
- Numbers go on from batch to batch, so a row that comes back with a later batch than its own is found out.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.errors import TransformError
from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.model import ComponentSpec, StreamId
from dagster_airbyte_proto.transforms.enrichment import ROW_NUMBER
from dagster_airbyte_proto.transforms.filled_types import FILLED_TYPES
from dagster_airbyte_proto.transforms.transform import Positions, Rows, RowShape, TransformedRows, rejections

_DOING = "transforming rows by a component"
MAX_MADE_BYTES = 1 << 30
"""The limit of the rows that a component makes of a batch: each has all columns of the row that it comes from."""
_FEW = 16


class ComponentReplies(NamedTuple):
    """The batches that came back, and the reason for each row that the component rejected, by its number. `unnamed`
    are the reasons for rows that it rejected without their number."""

    batches: Sequence[pa.RecordBatch]
    rejected: Mapping[int, str]
    unnamed: Sequence[str] = ()


class RowExchange(Protocol):
    """The rows of one stream on their way through a component, batch by batch, and what it keeps of them: see
    SupportsState."""

    @property
    def state(self) -> TransformState: ...

    def transform(self, batch: pa.RecordBatch) -> ComponentReplies:
        """Sends all rows, and returns what comes back of them. Raises TransformError."""
        ...

    def as_sent(self, column: pa.Array) -> pa.Array:
        """Returns a column in the form in which it goes out."""
        ...

    def finish(self) -> None: ...

    def discard(self) -> None: ...


@runtime_checkable
class BatchTransformer(Protocol):
    """Sends rows to a component. `name` tells its states from those of other transforms of the connection."""

    name: str

    def exchange(self, on_error: str, state: TransformState, stream: StreamId | None) -> RowExchange:
        """Returns the way of a stream's rows. `state` is from before the first of them."""
        ...


class ComponentTransform:
    """Fills columns of the rows of one stream by a component. `states` are from before the first of them."""

    def __init__(
        self,
        spec: ComponentSpec,
        transformer: BatchTransformer | None,
        states: Sequence[TransformState] = (),
        stream: StreamId | None = None,
    ) -> None:
        self._spec, self._sent, self._passes_numbers = spec, 0, False
        self._exchange: RowExchange | None = None
        self._fields = {name: FILLED_TYPES[kind].arrow for name, kind in spec.columns}
        if transformer is not None:
            before = next((each for each in states if each.transform == transformer.name), None)
            state = before or TransformState(transformer.name)
            self._exchange = transformer.exchange(spec.on_error, state, stream)

    @property
    def state(self) -> TransformState:
        return TransformState("") if self._exchange is None else self._exchange.state

    def finish(self) -> None:
        if self._exchange is not None:
            self._exchange.finish()

    def discard(self) -> None:
        if self._exchange is not None:
            self._exchange.discard()

    def shape(self, given: RowShape) -> RowShape:
        kept = [field for field in given.schema if field.name not in self._fields]
        schema = pa.schema([*kept, *self._fields.items()])
        return RowShape(schema, {name: of for name, of in given.passed_on.items() if name not in self._fields})

    def transform(self, rows: Rows) -> TransformedRows:
        batch = rows.batch
        is_deletion = np.zeros(batch.num_rows, bool)
        if rows.is_deletion is not None:
            is_deletion = rows.is_deletion.to_numpy(zero_copy_only=False)
        sent = np.flatnonzero(~is_deletion)
        numbers = pa.array(np.arange(len(sent)) + self._sent)
        numbered = batch.take(pa.array(sent)).append_column(ROW_NUMBER, numbers)
        origins, columns, faults = self._transformed(numbered) if len(sent) else (sent, self._nulls(0), {})
        positions = np.concatenate([sent[origins], np.flatnonzero(is_deletion)])
        filled = {
            name: pa.concat_arrays([columns[name], pa.nulls(len(positions) - len(origins), kind)])
            for name, kind in self._fields.items()
        }
        order = np.argsort(positions, kind="stable")
        which = positions[order]
        kept = batch.take(pa.array(which))
        arrays = {
            **{name: kept.column(name) for name in batch.schema.names if name not in self._fields},
            **{name: array.take(pa.array(order)) for name, array in filled.items()},
        }
        rejected = rejections(
            {int(sent[row]): reason for row, reason in faults.items()}, are_dropped=self._spec.on_error == "skip"
        )
        return TransformedRows(pa.RecordBatch.from_pydict(arrays), which, rejected)

    def _transformed(self, numbered: pa.RecordBatch) -> tuple[Positions, Mapping[str, pa.Array], dict[int, str]]:
        """Returns the rows that come back, by their places, their filled columns, and the faults of others."""
        if self._exchange is None:
            raise TransformError(_DOING, "no component was started for it")
        replies = self._exchange.transform(numbered)
        if replies.unnamed and self._spec.on_error == "fail":
            raise TransformError(_DOING, f"it rejected a row: {replies.unnamed[0]}")
        origins = self._origins(replies, numbered.num_rows)
        _check_repeated(origins, numbered)
        self._check_others(self._exchange, replies.batches, numbered.take(pa.array(origins)))
        columns = {name: self._column(replies.batches, name, kind) for name, kind in self._fields.items()}
        faults = {self._place(number, numbered.num_rows): reason for number, reason in replies.rejected.items()}
        self._sent += numbered.num_rows
        for name, (_, misfits) in columns.items():
            for place in misfits:
                faults.setdefault(int(origins[place]), f"its {name} does not fit {dict(self._spec.columns)[name]}")
        if faults and self._spec.on_error == "fail":
            found = f"{len(faults):,} rows of a batch have faults; the first: {next(iter(faults.values()))}"
            raise TransformError(_DOING, found, remedy="With on_error: reject, such rows are counted and left out.")
        kept = np.flatnonzero([int(number) not in faults for number in origins])
        arrays = {name: array.take(pa.array(kept)) for name, (array, _) in columns.items()}
        return origins[kept], arrays, faults

    def _check_others(self, exchange: RowExchange, batches: Sequence[pa.RecordBatch], sent: pa.RecordBatch) -> None:
        """Raises TransformError where a column that is not filled came back with other values: they would be lost, and
        what was to be masked would land as it was."""
        before = 0
        for batch in batches:
            for name, came in zip(batch.schema.names, batch.columns, strict=True):
                is_other = name in sent.schema.names and name not in self._fields and name != ROW_NUMBER
                if is_other and not _is_same(exchange, came, sent.column(name).slice(before, batch.num_rows)):
                    raise TransformError(
                        _DOING,
                        f"it changed the column {name}, which `columns` does not name: it would land as it was",
                        remedy=f"Name {name} in `columns`, or let the component pass it on unchanged.",
                    )
            before += batch.num_rows

    def _place(self, number: int, sent: int) -> int:
        place = number - self._sent
        if not 0 <= place < sent:
            raise TransformError(_DOING, f"it rejected a row {_NOT_OF_BATCH}", remedy=_REMEDY)
        return place

    def _origins(self, replies: ComponentReplies, sent: int) -> Positions:
        numbers, rows = row_numbers(replies.batches), sum(batch.num_rows for batch in replies.batches)
        if not replies.batches and (self._passes_numbers or self._are_rejected(replies, sent)):
            return np.array([], np.int64)
        if numbers is not None:
            self._passes_numbers = True
            origins = numbers - self._sent
            if not ((origins >= 0) & (origins < sent)).all():
                raise TransformError(_DOING, f"a row came back {_NOT_OF_BATCH}", remedy=_REMEDY)
            return origins
        if rows != sent:
            found = f"{rows:,} rows came back of {sent:,}, without the column {ROW_NUMBER}"
            raise TransformError(_DOING, found, remedy=_REMEDY)
        return np.arange(sent)

    def _are_rejected(self, replies: ComponentReplies, sent: int) -> bool:
        """True if the component rejects each of the rows by its number: then none has to come back."""
        return all(number in replies.rejected for number in range(self._sent, self._sent + sent))

    def _column(
        self, batches: Sequence[pa.RecordBatch], name: str, kind: pa.DataType
    ) -> tuple[pa.Array, Sequence[int]]:
        """Returns a column that came back, and the places of values that do not fit its type, which are null."""
        pieces, misfits, before = [pa.array([], kind)], list[int](), 0
        for batch in batches:
            if name not in batch.schema.names:
                raise TransformError(_DOING, f"it sends no column {name}", remedy="Name columns that it sends.")
            piece, places = _cast(batch.column(name), kind)
            pieces.append(piece)
            misfits += [before + place for place in places]
            before += batch.num_rows
        return pa.concat_arrays(pieces), misfits

    def _nulls(self, rows: int) -> Mapping[str, pa.Array]:
        return {name: pa.nulls(rows, kind) for name, kind in self._fields.items()}


_NOT_OF_BATCH = "that was not sent, or only after the component had asked for the next batch"
_REMEDY = f"Let the component pass on the column {ROW_NUMBER} that it gets, before it asks for the next batch."


def row_numbers(batches: Sequence[pa.RecordBatch]) -> Positions | None:
    """Returns the numbers of rows that came back; None if the component passes them not on. Raises TransformError."""
    if not batches or not all(ROW_NUMBER in batch.schema.names for batch in batches):
        return None
    try:
        found = pa.chunked_array([batch.column(ROW_NUMBER).cast(pa.int64()) for batch in batches])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        found = None
    if found is None or found.null_count:
        raise TransformError(_DOING, f"rows came back with another {ROW_NUMBER} than they had", remedy=_REMEDY)
    return np.asarray(found.to_numpy(), np.int64)


def _check_repeated(origins: Positions, sent: pa.RecordBatch) -> None:
    """Raises TransformError where the rows that are made of one would take too much memory: a number names a whole
    row."""
    counts = np.bincount(origins, minlength=sent.num_rows)
    # A few of each row are no more than a few times a batch.
    many = np.flatnonzero(counts > _FEW).tolist()
    if sum(int(counts[row]) * sent.slice(row, 1).nbytes for row in many) > MAX_MADE_BYTES:
        found = f"it made {len(origins):,} rows of {sent.num_rows:,}, which have more than {MAX_MADE_BYTES:,} bytes"
        raise TransformError(_DOING, found)


def _is_same(exchange: RowExchange, came: pa.Array, sent: pa.Array) -> bool:
    """True if both have the same values, in whatever form they came back."""
    try:
        came, sent = exchange.as_sent(came), exchange.as_sent(sent)
        came = came if came.type == sent.type else came.cast(sent.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    if came.equals(sent):
        return True
    if not pa.types.is_floating(sent.type):
        return False
    # Arrow takes no NaN for another one.
    nans = [pc.fill_null(pc.is_nan(each), False) for each in (came, sent)]
    values = [pc.if_else(nan, None, each) for nan, each in zip(nans, (came, sent), strict=True)]
    return bool(nans[0].equals(nans[1]) and values[0].equals(values[1]))


def _cast(array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Sequence[int]]:
    """Casts the whole, and where that fails value by value."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(array.type) and array.type.tz is None:
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    try:
        return array.cast(kind), ()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    values, misfits = [], []
    for place in range(len(array)):
        try:
            values.append(array.slice(place, 1).cast(kind)[0])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            values.append(pa.scalar(None, kind))
            misfits.append(place)
    return pa.array(values, kind), misfits
