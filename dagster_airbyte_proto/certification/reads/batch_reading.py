"""Collects the evidence of a read whose records come in Arrow batches. A batch is held against the columns that the
stream declares; its rows are compared as those of other reads are."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types

from dagster_airbyte_proto.certification.reads.read_evidence import OddLines
from dagster_airbyte_proto.certification.reads.reading import RecordCollector
from dagster_airbyte_proto.certification.watching.secret_watch import SecretWatch
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.conversation import ReadRequest, SourceProtocol
from dagster_airbyte_proto.protocols.events import ConfigEvent
from dagster_airbyte_proto.staging.arrow.batch_demux import ArrowContent, BatchDemux
from dagster_airbyte_proto.staging.arrow.batch_policy import DIFFERENCES, BatchPolicy
from dagster_airbyte_proto.staging.arrow.ipc_messages import record_batches
from dagster_airbyte_proto.staging.arrow.valid_values import is_valid

_INVALID = "no text, no day, no time of one day, or a decimal of too many digits"
_ROWS_AT_ONCE = 10_000
_PLAIN_WIDTHS = {32: pa.int32(), 64: pa.int64()}


class BatchCollector(RecordCollector):
    """The RecordCollector of a connector that sends Arrow. A line is one of its launcher's output; a batch follows one.

    `policies` know the columns that each stream declares.
    """

    def __init__(
        self,
        protocol: SourceProtocol,
        request: ReadRequest,
        watch: SecretWatch,
        take_config: Callable[[ConfigEvent], None],
        policies: Mapping[StreamId, BatchPolicy],
    ) -> None:
        super().__init__(protocol, request, watch, take_config)
        self._demux, self._policies = BatchDemux(), policies

    def feed(self, chunk: bytes) -> Iterator[None]:
        """Takes a chunk, and pauses after each line and each batch."""
        yield from self._taken(self._demux.feed(chunk))

    def finish(self) -> None:
        """Takes a last line without a newline. Raises ProtocolViolation if a batch is cut off."""
        for _ in self._taken(self._demux.finish()):
            pass

    def _taken(self, items: Iterable[ArrowContent | bytes]) -> Iterator[None]:
        for item in items:
            self.lines += 1
            if isinstance(item, ArrowContent):
                self._take_content(item)
            else:
                self._take_line(item, may_leak=self._watch.mask.data(item) != item)
            yield

    def _take_content(self, found: ArrowContent) -> None:
        if self._watch.mask.data(found.content) != found.content:
            self._watch.note("a value of the batch is a secret of the config", f"batch behind line {self.lines}")
        if found.stream not in self._planned:
            self.undeclared.add(self.lines, f"stream {found.stream}")
            return
        for batch in record_batches(found.content, found.stream):
            self._note_differences(found.stream, batch)
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                for row in _rows(batch.slice(start, _ROWS_AT_ONCE)):
                    self._take_data(found.stream, row)

    def _note_differences(self, stream: StreamId, batch: pa.RecordBatch) -> None:
        policy, misfits = self._policies.get(stream), self.streams[stream].misfits
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if not is_valid(column):
                text = f"{stream}.{name} has values that Arrow calls invalid"
                misfits.setdefault(f"{name}: {_INVALID}", OddLines()).add(self.lines, text)
        for difference, columns in policy.differences(batch).items() if policy else ():
            for column in columns:
                text = f"{stream}.{column} is {DIFFERENCES[difference]}"
                misfits.setdefault(f"{column}: {DIFFERENCES[difference]}", OddLines()).add(self.lines, text)


def _rows(batch: pa.RecordBatch) -> Iterator[Mapping[str, Any]]:
    for row in zip(*map(_values, batch.columns), strict=True):
        yield dict(zip(batch.schema.names, row, strict=True))


def _values(array: pa.Array) -> list[Any]:
    """The values as Python's. Times are numbers, also within others: Arrow has some for which Python has no word."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    plain = _without_times(array.type)
    array = array if plain == array.type else array.cast(plain)
    try:
        found: list[Any] = array.to_pylist()
    except (OverflowError, ValueError):  # A time in a type that is left as it is. Arrow writes any.
        found = [array.slice(row, 1).to_string() for row in range(len(array))]
    return found


def _without_times(kind: pa.DataType) -> pa.DataType:
    """The type with numbers of the same width for times. Views of lists stay: Arrow's cast to lists was seen to empty
    them (26.0)."""
    if types.is_temporal(kind):
        return _PLAIN_WIDTHS.get(kind.bit_width, kind)
    if types.is_dictionary(kind):
        return _without_times(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([_without_times_in(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(_without_times_in(kind.key_field), _without_times_in(kind.item_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_without_times_in(kind.value_field), kind.list_size)
    if types.is_list(kind):
        return pa.list_(_without_times_in(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_without_times_in(kind.value_field))
    return kind


def _without_times_in(field: pa.Field) -> pa.Field:
    return field.with_type(_without_times(field.type))
