"""Makes what a destination gets of a batch of rows: record lines, a file of records and its name, or Arrow."""

import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from dagster_airbyte_proto.encoding.arrow_frames import arrow_frame
from dagster_airbyte_proto.encoding.record_lines import RecordFrame
from dagster_airbyte_proto.encoding.sendable import unsendable_rows
from dagster_airbyte_proto.loads.plan_query import LEFT_OUT
from dagster_airbyte_proto.loads.push import RejectedRow
from dagster_airbyte_proto.model import PushMode
from dagster_airbyte_proto.protocols.destination import DestinationProtocol, PushedStream
from dagster_airbyte_proto.sync.connector.destination_catalog import opened_row_schema
from dagster_airbyte_proto.sync.push.plan.plan_rows import PlanBatch
from dagster_airbyte_proto.sync.push.row_rules import RowRules
from dagster_airbyte_proto.sync.push.written_batches import WrittenBatches


class StreamEncoder:
    """The encoding of one stream. `files` are those in which records go, if they go so.

    `encoded_bytes` are those of the records so far, in files too.
    """

    def __init__(self, protocol: DestinationProtocol, stream: PushedStream, rules: RowRules) -> None:
        self._protocol, self._stream, self._rules = protocol, stream, rules
        self._schema = opened_row_schema(protocol, rules.schema, stream)
        self.files: WrittenBatches | None = None
        self.encoded_bytes = 0

    @property
    def has_schema(self) -> bool:
        """True if rows are held against a schema of the destination's."""
        return self._schema is not None

    def sendable(self, batch: PlanBatch) -> tuple[pa.RecordBatch, list[list[RejectedRow]]]:
        """Returns the rows of a batch that can be sent, as they are sent, and those that cannot, by the look that found
        them."""
        if batch.is_removal and self._stream.version:
            return self._removed_by_version(batch)
        rows = self._rules.columns_of(batch.rows)
        numbers: Sequence[int] = range(batch.start, batch.end)
        if batch.is_removal:
            deleted_at = pa.array([time.time_ns() // 1000] * rows.num_rows, pa.timestamp("us", "UTC"))
            rows = rows.append_column(self._protocol.deletion_column, deleted_at)
        finders: Sequence[Callable[[pa.RecordBatch], dict[int, str]]]
        finders = (lambda _: _left_out(batch), self._unsendable, self._misfits)
        refused = []
        for find_faults in finders:
            if faults := find_faults(rows):
                refused.append([RejectedRow(numbers[place], reason) for place, reason in faults.items()])
                kept = [place for place in range(rows.num_rows) if place not in faults]
                rows, numbers = rows.take(pa.array(kept, pa.int64())), [numbers[place] for place in kept]
        return rows, refused

    def _removed_by_version(self, batch: PlanBatch) -> tuple[pa.RecordBatch, list[list[RejectedRow]]]:
        """Returns no rows: the version removes them once it is activated, unless they are kept."""
        kept = range(batch.start, batch.end) if self._rules.reason_to_keep else ()
        refused = [RejectedRow(number, self._rules.reason_to_keep) for number in kept]
        return batch.rows.slice(0, 0), [refused] if refused else []

    def pieces(self, rows: pa.RecordBatch, batch: PlanBatch) -> Iterator[bytes | memoryview]:
        """Yields the bytes to write for these rows of a batch."""
        if not rows.num_rows:
            return
        if self._protocol.takes_batches:
            frame = arrow_frame(rows)
            self.encoded_bytes += frame.nbytes
            yield self._protocol.batch_head(self._stream, rows.num_rows, len(frame))
            yield frame
            return
        files = self._files_for(batch)
        framed = ("", "") if files else self._protocol.record_frame(self._stream, time.time_ns() // 1_000_000)
        lines = self._rules.lines(rows, RecordFrame(*framed))
        self.encoded_bytes += lines.nbytes
        yield self._protocol.batch_line(self._stream, files.write(lines, batch.end)) if files else lines

    def _files_for(self, batch: PlanBatch) -> WrittenBatches | None:
        """The files, if the rows of a batch go by them: bare records carry no version, and targets read no deletion."""
        has_version = self._stream.mode is PushMode.OVERWRITE or self._stream.version
        is_bare = not has_version and not batch.is_removal
        return self.files if is_bare else None

    def _unsendable(self, rows: pa.RecordBatch) -> dict[int, str]:
        """The rows that no JSON can carry. Of Arrow that is what becomes JSON there, and text."""
        if not self._protocol.takes_batches:
            return {**unsendable_rows(rows), **self._rules.lost_records(rows)}
        return unsendable_rows(rows.select([field.name for field in rows.schema if _is_text_or_json(field.type)]))

    def _misfits(self, rows: pa.RecordBatch) -> dict[int, str]:
        if self._schema is None or self._rules.are_proved(rows, self._schema):
            return {}
        return self._schema.faults(self._rules.objects(rows))


def _is_text_or_json(kind: pa.DataType) -> bool:
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return bool(is_text or pa.types.is_dictionary(kind) or pa.types.is_nested(kind))


def _left_out(batch: PlanBatch) -> dict[int, str]:
    """Returns the rows that a transform left out when they were planned, with the reasons."""
    if LEFT_OUT not in batch.rows.schema.names:
        return {}
    reasons = batch.rows.column(LEFT_OUT)
    return {} if reasons.null_count == len(reasons) else {n: why for n, why in enumerate(reasons.to_pylist()) if why}
