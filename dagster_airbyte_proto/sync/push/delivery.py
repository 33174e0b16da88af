"""Delivers the rows of a sealed plan to one process of a destination, and takes in what it acknowledges.

- A batch is announced in the store before its first byte is written. So after a crash no row counts as unsent that the
  destination may have.
- Rows that JSON or the destination cannot take are refused here, and written down with the position: what a destination
  drops in silence it would also acknowledge.
- One thread writes and reads in turn. A destination that does not read holds us up by a full pipe, and nothing is kept
  in memory but the batch and the positions of the states that are out.
- A position counts when its state came back, and not with a count of fewer rows than were sent. The end of a process
  counts when it also exited with 0.
- A push that is cancelled ends the batch that it is writing, if the destination takes it: without their state its rows
  would be unknown. Then it asks the process to end, and reads on until it has: some targets then write all that they
  have, and only then send their state.
"""

import time
from contextlib import suppress
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.deliveries import AcknowledgedRows, asset_of
from dagster_airbyte_proto.errors import Cancelled, ConnectorError, TooManyRejected
from dagster_airbyte_proto.launchers.process import ExitReport, RunningConnector
from dagster_airbyte_proto.loads.push import RejectedRow, SealedPlan
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.model import PushMode
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.protocols.acknowledgements import Acknowledgements
from dagster_airbyte_proto.protocols.destination import PushedStream, SentPosition, WriteRequest
from dagster_airbyte_proto.sync.push.content.kept_scopes import KeptScopes
from dagster_airbyte_proto.sync.push.content.paced_batches import paced_batches
from dagster_airbyte_proto.sync.push.content.refused_rows import RefusedRows
from dagster_airbyte_proto.sync.push.content.rejected_records import RejectedRecords
from dagster_airbyte_proto.sync.push.content.stream_encoder import StreamEncoder
from dagster_airbyte_proto.sync.push.destination_output import DestinationOutput
from dagster_airbyte_proto.sync.push.plan.plan_rows import plan_batches
from dagster_airbyte_proto.sync.push.push_context import DeliveryContext
from dagster_airbyte_proto.sync.push.row_rules import RowRules
from dagster_airbyte_proto.sync.push.written_batches import WrittenBatches, written_batches
from dagster_airbyte_proto.sync.state_server.served_values import ServedValues, served_values
from dagster_airbyte_proto.sync.telemetry.delivery_metrics import DeliveryMetrics
from dagster_airbyte_proto.transforms.transform import DROPPED

_WAIT_SECONDS = 0.25
_LAST_BATCH_SECONDS = 1.0
_ACKNOWLEDGE_SECONDS = 0.5
_DRAIN_SECONDS = 8.0
_LAST_WORDS_SECONDS = 2.0
_END_SECONDS = 10.0
_EXIT_REMEDY = "If it never sends states back, set `acknowledge: exit`: then its exit code 0 counts for all."
_LACKING_REMEDY = (
    "None of these rows counts as acknowledged. Look at the destination and its log: it drops rows, or counts wrongly."
    " If you know that it has them, set `acknowledge: exit`: then its exit code 0 counts, and its counts do not."
)
# Where a result is part of the protocol, an exit without one is seen of connectors that have lost all rows.
_SILENT_REMEDY = "It has to send a result of its rows before it ends, with their number. The log has what it said."


class RowRange(NamedTuple):
    """The part of a plan that one process gets: from a position to another."""

    start: int
    end: int


class ProcessDelivery:
    """The delivery of one part, by one `run`. Its counts are right however it ends. A later one `may_fare_better`."""

    def __init__(
        self, context: DeliveryContext, plan: SealedPlan, stream: PushedStream, rules: RowRules, storage: Storage
    ) -> None:
        self._context, self._plan, self._rules, self._storage = context, plan, rules, storage
        self._protocol = context.destination.protocol
        self._stream = stream
        self._acks = Acknowledgements(plan.plan_id, 0)
        self._rejected_records = RejectedRecords(rules, stream.keys)
        self._output = DestinationOutput(context.destination, plan.stream, self._acks, self._rejected_records)
        self.encoder = StreamEncoder(self._protocol, stream, rules)
        self._noted_at, self._trusts_exit = 0.0, context.connection.acknowledge == "exit"
        self._has_ended_well = self.may_fare_better = False
        self._cancelled_at: float | None = None
        self._served, self._kept = ServedValues(), KeptScopes(context, plan)
        self._metrics = DeliveryMetrics(context.meter, plan.stream)
        self._files: WrittenBatches | None = None
        self.refused = RefusedRows()
        self.sent = self.acknowledged = self._rejected_before = 0

    @property
    def unnamed(self) -> int:
        """The rows that the destination says it rejected, and does not name."""
        return self._acks.rejected + self._rejected_records.unnamed

    @property
    def unnamed_for_good(self) -> int:
        """Those of a process that failed: its rows that are not proved go again, and are counted then."""
        return self.unnamed - self._rejected_records.waiting

    def run(self, part: RowRange, *, rejected_before: int = 0) -> None:
        """Sends the rows of a part and waits for the end of the process. Raises ConnectorError if it took not all.

        `rejected_before` are the rows of the plan that were rejected before this part.
        """
        self._rejected_before = rejected_before
        context, plan = self._context, self._plan
        self.sent = self.acknowledged = part.start
        self._acks.begin(part.start)
        self._check_cancelled()  # Not once it has started: one that replaces rows may begin with those that are there.
        context.store.begin_delivery(context.lease, plan, part.start)
        request = WriteRequest(
            context.destination.config.current,
            self._stream,
            context.sync_id,
            plan.asset_name,
            context.connection.on_error,
            self._kept.before(),
        )
        check, others = context.renewal.check, context.value_owners
        with (
            served_values(context.destination, context.store, asset_of(plan), check, others) as self._served,
            written_batches(context.connection) as self._files,
        ):
            self.encoder.files = self._files
            running = context.destination.connector.launch(self._protocol.write(request), self._served.variables)
            report = self._delivered(running, request, part)
        self._check_end(report, part)
        self._kept.keep_at_end(self._output.kept)

    def _delivered(self, running: RunningConnector, request: WriteRequest, part: RowRange) -> ExitReport | None:
        try:
            self._write(running, self._protocol.opening_lines(request))
            self._send(running, part)
            return self._end(running, part)
        except Cancelled:
            self._read_on(running, _LAST_BATCH_SECONDS, until_proved=True)  # Many end at once when they are asked to.
            running.request_stop()
            self._read_on(running, _DRAIN_SECONDS)  # It is killed before, after the launcher's grace.
            raise
        except ConnectorError as error:
            if self._lacks_rows and self._output.error is None:
                raise
            raise self._explained(error, running) from error
        finally:
            running.stop()
            self._note(force=True)
            self._metrics.end(self.sent, self.acknowledged, self.encoder.encoded_bytes)
            self._context.destination.keep_config_of(running, self._context.store, self._context.lease)

    def _explained(self, error: ConnectorError, running: RunningConnector) -> ConnectorError:
        """The error of a destination that reads no more, with its last words. One stopped for its rows has none."""
        seconds = min(_LAST_WORDS_SECONDS, self._context.options.timeouts.exit_seconds)
        goes_on = self._read_on(running, seconds, until_proved=isinstance(error, TooManyRejected))
        found = self._reason(running.wait(0.0 if goes_on else seconds), "")
        if not found:
            return error
        retryable = error.retryable or self._output.is_transient
        explained = type(error)(error.doing, f"{error.found}: {found}", remedy=error.remedy, retryable=retryable)
        explained.pauses_seconds = self._output.pauses_seconds
        return explained

    def _read_on(self, running: RunningConnector, seconds: float, *, until_proved: bool = False) -> bool:
        """Takes in what the process still sends before it ends. True if it goes on."""
        ends_at, goes_on = time.monotonic() + seconds, False
        with suppress(ConnectorError):
            while not goes_on and (chunk := running.read(_WAIT_SECONDS)) != b"":
                self._output.feed(chunk or b"")
                goes_on = time.monotonic() > ends_at or (until_proved and not self._acks.waiting)
            if not (goes_on and until_proved):
                self._output.finish()
        return goes_on

    def _send(self, running: RunningConnector, part: RowRange) -> None:
        began_at = time.monotonic()
        for batch in paced_batches(self._context, self._plan, self._storage, part.start, part.end):
            self._wait_for_rate(running, batch.end - part.start, began_at)
            self._check_cancelled()
            rows, refused = self.encoder.sendable(batch)
            for each in refused:
                self._reject(each)
            self._context.store.announce_rows(self._context.lease, self._plan, batch.end)
            reach("push.announced")
            self.sent = batch.end
            for piece in self.encoder.pieces(rows, batch):
                self._write(running, piece, until_batch_ends=True)
            # Before it is written: it may come back while we still write.
            self._acks.sent(batch.end, rows.num_rows)
            position = SentPosition(self._plan.plan_id, batch.end, rows.num_rows)
            self._write(running, self._protocol.state_line(self._stream, position), until_batch_ends=True)
            reach("push.sent")
            self._read(running, 0.0)
        # Rows to write and removals each end a stream, as its destination sees it.
        is_end = part.end in (self._plan.rows, self._plan.rows_to_write)
        self._output.awaits_result = True
        self._write(running, self._protocol.closing_lines(self._stream, time.time_ns() // 1_000_000, is_end=is_end))

    def _reject(self, rows: list[RejectedRow]) -> None:
        self.refused.add(rows)
        if not (rows := [each for each in rows if each.reason != DROPPED]):
            return  # The user wants it so: it is no fault, and no limit counts it.
        if self._context.connection.on_error == "fail":
            raise TooManyRejected("encoding the rows of a push", f"row {rows[0].row + 1} of the plan: {rows[0].reason}")
        self._check_rejected("cannot be sent", f"; the last: {rows[-1].reason}")

    def _check_rejected(self, what: str, last: str = "", unproved: int = 0) -> None:
        """Raises ConnectorError when more rows were rejected, by us and by the destination, than the user allows."""
        rejected, on_error = self.refused.count + self.unnamed + unproved, self._context.connection.on_error
        rejected += self._rejected_before if rejected else 0
        if not rejected or on_error == "skip":
            return
        if on_error == "fail" or not self._rules.max_rejected.allows(rejected, self._plan.rows):
            limit = "`on_error: fail`" if on_error == "fail" else f"max_rejected ({self._rules.max_rejected})"
            raise TooManyRejected(
                "delivering rows to the destination",
                f"{rejected:,} of {self._plan.rows:,} rows {what}, more than {limit} allows{last}",
                remedy="Mend the rows or the mapping, or raise max_rejected for this stream.",
            )

    def _wait_for_rate(self, running: RunningConnector, rows: int, began_at: float) -> None:
        rate = None if self._stream.activates else self._context.connection.rate
        while rate is not None and (left := began_at + rows / rate.rows_per_second - time.monotonic()) > 0:
            self._check_cancelled()
            chunk = running.read(min(left, _WAIT_SECONDS))
            if chunk:
                self._take_output(chunk)
            elif chunk is not None:  # Its output has ended: no read waits any more.
                self._context.options.cancel.wait(min(left, _WAIT_SECONDS))

    def _write(self, running: RunningConnector, data: bytes | memoryview, *, until_batch_ends: bool = False) -> None:
        view, moved_at = memoryview(data), time.monotonic()
        while view:
            self._check_cancelled(_LAST_BATCH_SECONDS if until_batch_ends else 0.0)
            taken = running.write(view, _WAIT_SECONDS)
            view = view[taken:]
            has_spoken = self._read(running, 0.0)
            if taken or (has_spoken and not self._protocol.proves_by_result):
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > self._hang_seconds:
                raise ConnectorError("writing to the destination", "it reads nothing any more", retryable=True)

    @property
    def _hang_seconds(self) -> float:
        """The seconds without progress after which the destination counts as hung.

        Where rows are proved by one result at the end, words are no progress: a connector was seen to send one row
        again and again for ever, and to tell of it each time.
        """
        timeouts, named = self._context.options.timeouts, self._context.destination.connection.connector.timeouts
        if not self._protocol.proves_by_result:
            return timeouts.heartbeat_seconds
        return named.result_seconds or timeouts.result_seconds

    def _read(self, running: RunningConnector, timeout_seconds: float) -> bool:
        """Takes in what the destination has written. True if there was something."""
        chunk = running.read(timeout_seconds)
        if chunk:
            self._take_output(chunk)
        return bool(chunk)

    def _take_output(self, chunk: bytes) -> None:
        self._output.feed(chunk)
        self._note()
        self._check_counts()
        self._check_rejected("were rejected here or by the destination")
        if self._has_halted:
            raise ConnectorError("delivering rows to the destination", "it halted")

    def _note(self, *, force: bool = False) -> None:
        """Writes down the acknowledged position, with the rows that were refused before it."""
        proved = self._acks.rows
        if (self._plan.mode is PushMode.OVERWRITE or self._stream.activates) and not self._has_ended_well:
            return  # The rows are shown, or gone, at the end if at all.
        if proved <= self.acknowledged or (not force and time.monotonic() - self._noted_at < _ACKNOWLEDGE_SECONDS):
            return
        self._name_rejected(proved)
        refused = self.refused.before(proved)
        reach("push.acknowledged")
        kept = self._output.kept
        values = self._kept.changes(kept) if kept else self._served.changes
        unsure = [(self.acknowledged, proved)] if self._rejected_records.unnamed else self._acks.unsure
        acknowledged = AcknowledgedRows(proved, refused, values, unsure)
        self._context.store.acknowledge_rows(self._context.lease, self._plan, acknowledged)
        reach("push.noted")
        self._acks.unsure.clear()
        self._kept.noted(kept)
        self.refused.stored(proved)
        if self._files is not None:
            self._files.remove_until(proved)
        self.acknowledged, self._noted_at = proved, time.monotonic()

    def _name_rejected(self, proved: int) -> None:
        """Finds the rows that the destination rejected, among those that it proves now."""
        if self._rejected_records.unnamed:
            batches = plan_batches(self._plan, self._storage, self.acknowledged, proved)
            self.refused.add(self._rejected_records.rows(batches))

    def _end(self, running: RunningConnector, part: RowRange) -> ExitReport | None:
        """Closes the input, and reads on until the process has ended."""
        self._check_cancelled()  # Many destinations write what they hold at the end of their input.
        running.close_input()
        moved_at = time.monotonic()
        while (chunk := running.read(_WAIT_SECONDS)) != b"":
            self._check_cancelled()
            had_result = self._output.result is not None
            if chunk:
                self._take_output(chunk)
            has_result = self._output.result is not None
            if has_result != had_result or (chunk and not self._protocol.proves_by_result):
                moved_at = time.monotonic()
            elif has_result and time.monotonic() - moved_at > min(_END_SECONDS, self._hang_seconds / 2):
                running.stop()  # It has said all that counts.
            elif time.monotonic() - moved_at > self._hang_seconds:
                raise ConnectorError("waiting for the destination's end", "it hangs", retryable=True)
        self._output.finish()
        self._take_result()
        self._check_counts()
        self._check_rejected("were rejected here or by the destination", unproved=self._acks.unproved_rejected)
        if self._acks.miscount:
            # Only a count that is too small proves that rows are missing.
            self._context.destination.warn(
                f"the destination's counts of {self._plan.stream} differ: {self._acks.miscount}"
            )
        report = running.wait(self._context.options.timeouts.exit_seconds)
        self._has_ended_well = report is not None and (report.ended_cleanly or self._has_proof_of_all)
        if report is not None and report.ended_cleanly and self._trusts_exit and self._output.error is None:
            self._check_took_rows(part)
            self._acks.take_exit(part.end)
        return report

    @property
    def _lacks_rows(self) -> bool:
        """True if its counts say that rows are missing, and nothing else can prove them."""
        return bool(self._acks.shortfall) and not self._trusts_exit

    def _check_counts(self) -> None:
        if self._lacks_rows:
            raise ConnectorError(
                "delivering rows to the destination",
                f"it sent a state back with too small a count: {self._acks.shortfall}",
                remedy=_LACKING_REMEDY,
            )

    def _check_took_rows(self, part: RowRange) -> None:
        """Raises ConnectorError for a process that read on its own, and ends as well as one that took the rows."""
        if self._output.has_records and self._acks.rows == part.start:
            raise ConnectorError(
                "delivering rows to the destination",
                "it sent records itself, as a source does, so its exit does not say that it took any",
                remedy="Is it a source or a tap? Name a destination.",
            )

    @property
    def _has_proof_of_all(self) -> bool:
        """True if the destination's result counts all rows: then it does not matter how its process ended."""
        return self._output.has_counted and self._output.error is None

    @property
    def _has_halted(self) -> bool:
        """True if the destination's error is its last word: nothing that its process got counts then."""
        return self._output.error is not None and self._protocol.proves_by_result

    def _take_result(self) -> None:
        """Takes the destination's result for its acknowledgement, unless it refused more rows than the user allows."""
        result = self._output.result
        if result is not None and self._output.error is None:
            self._check_rejected("were rejected here or by the destination", unproved=result.failed)
            self._acks.ended(result)

    def _check_end(self, report: ExitReport | None, part: RowRange) -> None:
        doing = "delivering rows to the destination"
        error = self._output.error
        if self._has_halted:
            raise ConnectorError(doing, error or "")
        has_failed = report is None or not (report.ended_cleanly or self._has_proof_of_all)
        if has_failed or (error is not None and self.acknowledged < part.end):
            found = self._reason(report, "it closed its output and did not end")
            failure = ConnectorError(doing, found, retryable=self._output.is_transient)
            failure.pauses_seconds = self._output.pauses_seconds
            raise failure
        if self.acknowledged < part.end:
            proved = f"acknowledged {self.acknowledged - part.start:,} of {part.end - part.start:,} rows"
            raise ConnectorError(
                doing,
                ": ".join(filter(None, (f"it ended well, and {proved}", self._acks.miscount, self._output.strangers))),
                remedy=_SILENT_REMEDY if self._protocol.proves_by_result else _EXIT_REMEDY,
            )

    def _reason(self, report: ExitReport | None, without_report: str) -> str:
        """The destination's own error, else how it ended; of one that was ended for a limit, which one that was."""
        ended = self._context.destination.mask.text(report.how_it_ended_and_why) if report else without_report
        has_failed = report is not None and not (report.ended_cleanly or report.stopped or report.is_over_limit)
        self.may_fare_better = has_failed and not self._output.is_final
        return ended if report is not None and report.is_over_limit else self._output.error or ended

    def _check_cancelled(self, seconds_more: float = 0.0) -> None:
        """Raises Cancelled if the push is cancelled, and has been for so many seconds."""
        self._metrics.look(self.sent, self.acknowledged, self.encoder.encoded_bytes)
        if not self._context.is_cancelled():
            return
        if self._cancelled_at is None:
            self._cancelled_at = time.monotonic()
        if time.monotonic() - self._cancelled_at >= seconds_more:
            raise Cancelled("delivering rows to the destination", "it was cancelled")
