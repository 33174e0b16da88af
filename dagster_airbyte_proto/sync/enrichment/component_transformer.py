"""The components among a connection's transforms. The rows of a load go through one process, batch by batch.

Nothing in the protocol says that a batch is answered but the end of the run; a component that asks for the next batch
has most likely answered the one before. These rules make that safe:

1. No row lands before the run that made it has ended well, without a row that came too late: `finish`, before each cut.
2. If rows of a batch are missing when the next is asked for, the process is ended, to see whether they still come. If
   they do, the component collects rows over batches, and each batch gets a process of its own. If none come they were
   dropped, and so are those that are missing later on.
3. What a component keeps goes from process to process by us, so a process may be ended after any batch. What it keeps
   for the stream belongs to the rows, and is saved with them; the rest is saved when the run of the connection ends
   well.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from dagster_airbyte_proto.encoding.arrow_frames import as_sent, stream_columns
from dagster_airbyte_proto.errors import ConnectorError, TransformError
from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.destination import StreamColumn
from dagster_airbyte_proto.protocols.rapidbyte import transform as protocol
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.enrichment.component_process import TRANSFORMING, ComponentProcess
from dagster_airbyte_proto.sync.state_server.component_values import Kept, changed_values
from dagster_airbyte_proto.sync.telemetry.sent_metrics import SentMetrics
from dagster_airbyte_proto.transforms.component import ComponentReplies, row_numbers
from dagster_airbyte_proto.transforms.enrichment import ROW_NUMBER

MAX_PROCESSES = 4
"""The processes of one component that live at the same time. A source may send the rows of many streams in turns, and
each process may have the whole memory that the component is granted."""


class ComponentTransformer:
    """Starts processes of a component. `shared` are the values that it keeps for no stream, by scope.

    It belongs to one thread, as the streams whose rows it sends do.
    """

    def __init__(self, connector: Destination, name: str, shared: Kept, cancel: threading.Event | None = None) -> None:
        self.name, self.shared, self._shared_before = name, shared, shared
        self.connector, self._cancel = connector, cancel
        self._living: list[ComponentExchange] = []

    @property
    def changed(self) -> Kept:
        """The values for no stream that are new, by scope."""
        return changed_values(self._shared_before, self.shared)

    @property
    def metrics(self) -> SentMetrics:
        return self.connector.metrics

    def exchange(self, on_error: str, state: TransformState, stream: StreamId | None = None) -> "ComponentExchange":
        return ComponentExchange(self, on_error, state, stream)

    def started(self, exchange: "ComponentExchange", columns: Sequence[StreamColumn]) -> ComponentProcess:
        """Starts a process for an exchange, from its state. Others that have waited longest end theirs."""
        while len(self._living) >= MAX_PROCESSES:
            self._living[0].finish_for_another()
        state = exchange.state
        kept = protocol.KeptByTransform(state.checkpoint, state.values, self.shared)
        config = self.connector.config.current
        invocation = protocol.invocation(config, columns, exchange.on_error, kept, exchange.stream)
        running = self.connector.connector.launch(invocation, {})
        process = ComponentProcess(self.connector, running, self._cancel, exchange.stream)
        self._living.append(exchange)
        return process

    def note_use(self, exchange: "ComponentExchange") -> None:
        self._living.remove(exchange)
        self._living.append(exchange)

    def note_end(self, exchange: "ComponentExchange") -> None:
        self._living.remove(exchange)

    def keep(self, given: Kept, kept: Kept) -> None:
        """Keeps the values for no stream that a process has changed, which was `given` others at its start."""
        shared = {name: each for name, each in kept.items() if name != "stream"}
        for scope, values in changed_values(given, shared).items():
            self.shared = {**self.shared, scope: {**self.shared.get(scope, {}), **values}}


class ComponentExchange:
    """The way of one stream's rows through a component, from process to process. `state` is that after them."""

    def __init__(
        self, transformer: ComponentTransformer, on_error: str, state: TransformState, stream: StreamId | None = None
    ) -> None:
        self.on_error, self.state, self.stream = on_error, state, stream
        self._transformer = transformer
        self._process: ComponentProcess | None = None
        self._columns: tuple[StreamColumn, ...] = ()
        self._shared: Kept = {}
        self._answers_at_once = False
        self._fault: TransformError | None = None

    def transform(self, batch: pa.RecordBatch) -> ComponentReplies:
        columns = stream_columns(batch.schema)
        if columns != self._columns:
            self.finish()
        with self._failing():
            process = self._living_process(columns)
            replies = process.answer(batch)
            self._note(process)
            if process.has_ended:
                self._forget(process)
            elif not self._answers_at_once and not _is_whole(replies, batch):
                late = self._ended(process)
                self._answers_at_once = not _has_rows(late)
                replies = ComponentReplies(
                    [*replies.batches, *late.batches],
                    {**late.rejected, **replies.rejected},
                    [*replies.unnamed, *late.unnamed],
                )
        return replies

    def as_sent(self, column: pa.Array) -> pa.Array:
        return as_sent(column)

    def finish(self) -> None:
        with self._failing():
            late = ComponentReplies((), {}) if self._process is None else self._ended(self._process)
            if late.unnamed and self.on_error == "fail":
                raise TransformError(TRANSFORMING, f"it rejected a row at the end of its run: {late.unnamed[0]}")
            if _has_rows(late):
                raise TransformError(
                    TRANSFORMING,
                    "rows came back at the end of its run, after the component had asked for the batch after theirs",
                    remedy="Let the component send all rows of a batch before it asks for the next one.",
                )

    def finish_for_another(self) -> None:
        """Ends the process, since another stream needs one. An error of it is raised where this stream goes on."""
        try:
            self.finish()
        except TransformError as error:
            self._fault = error

    def discard(self) -> None:
        if self._process is not None:
            self._forget(self._process)

    def _living_process(self, columns: tuple[StreamColumn, ...]) -> ComponentProcess:
        if self._process is None:
            self._process = self._transformer.started(self, columns)
            # As the process got them: one that made room for it may have kept others only then.
            self._columns, self._shared = columns, self._transformer.shared
        self._transformer.note_use(self)
        return self._process

    def _ended(self, process: ComponentProcess) -> ComponentReplies:
        """Returns what still comes back at the end of a process."""
        found = process.end()
        self._note(process)
        self._forget(process)
        return found

    def _note(self, process: ComponentProcess) -> None:
        """Notes what the component keeps by now."""
        checkpoint = process.checkpoint or self.state.checkpoint
        values = process.kept.get("stream", self.state.values)
        self.state = TransformState(self._transformer.name, checkpoint, values)
        self._transformer.keep(self._shared, process.kept)
        self._shared = process.kept or self._shared  # Each change counts once: others may have changed it since.

    def _forget(self, process: ComponentProcess) -> None:
        self._process = None
        self._transformer.note_end(self)
        process.stop()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """After any error no process is left."""
        if self._fault is not None:
            raise self._fault
        try:
            yield
        except ConnectorError as error:
            self.discard()
            text = self._transformer.connector.mask.text(error.found)
            raise TransformError(TRANSFORMING, text, remedy=error.remedy, retryable=error.retryable) from error
        except BaseException:
            self.discard()
            raise


def _is_whole(replies: ComponentReplies, batch: pa.RecordBatch) -> bool:
    """True if no row of a batch can be missing."""
    came = row_numbers(replies.batches)
    if came is None and replies.batches:
        return bool(sum(each.num_rows for each in replies.batches) == batch.num_rows)
    sent = batch.column(ROW_NUMBER).to_numpy()
    missing = sent if came is None else sent[~np.isin(sent, came)]
    return all(int(number) in replies.rejected for number in missing)


def _has_rows(replies: ComponentReplies) -> bool:
    return bool(replies.rejected) or any(each.num_rows for each in replies.batches)
