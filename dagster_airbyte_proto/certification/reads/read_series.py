"""The reads of a certification: uninterrupted, once more, resumed from states, cancelled and resumed."""

from collections.abc import Callable
from typing import NamedTuple

from dagster_airbyte_proto.certification.evidence import Reply
from dagster_airbyte_proto.certification.reads.batch_reading import BatchCollector
from dagster_airbyte_proto.certification.reads.read_evidence import ReadEvidence
from dagster_airbyte_proto.certification.reads.reading import RecordCollector, run_read
from dagster_airbyte_proto.certification.reads.resumption import Continuation, merged_states, middle_state
from dagster_airbyte_proto.certification.watching.watched_launcher import WatchedConnector
from dagster_airbyte_proto.certification.watching.watched_source import WatchedSource
from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.model import Catalog, State
from dagster_airbyte_proto.protocols.conversation import ReadRequest
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest, planned_streams, with_generations
from dagster_airbyte_proto.sync.read.batch_policies import batch_policy

_DOING = "reading"


class LaterReads(NamedTuple):
    """The reads after the first."""

    second: Reply[ReadEvidence]
    resumed: Reply[Continuation]
    at_end: Reply[Continuation]
    cancelled_read: Reply[ReadEvidence]
    cancelled: Reply[Continuation]


class ReadSeries:
    """Reads from one connector, each time with the same streams."""

    def __init__(self, watched: WatchedSource, discover: Reply[Catalog]) -> None:
        self._watched, self._discover = watched, discover

    def first(self) -> Reply[ReadEvidence]:
        return self._watched.reply("read", lambda: self._read(()))

    def later(self, first: Reply[ReadEvidence]) -> LaterReads:
        """Reads again. Nothing follows from a first read that did not come to its end."""
        whole = first.answer
        if whole is None or not whole.is_whole:
            found = first.error.found if first.error else "the first read did not come to its end"
            missing = ConnectorError(_DOING, found)
            return LaterReads(
                Reply(None, missing), Reply(None, missing), Reply(None, missing), Reply(None, missing),
                Reply(None, missing),
            )  # fmt: skip
        reply, states = self._watched.reply, self._watched.source.protocol.states
        middle, last = middle_state(states, whole), len(whole.states) - 1
        second = reply("second read", lambda: self._read(()))
        resumed = reply("read resumed from a state", lambda: self._resumed(whole, middle))
        at_end = reply("read resumed from the last state", lambda: self._resumed(whole, last if last >= 0 else None))
        cancelled_read = reply("cancelled read", lambda: self._cancelled(whole, middle))
        cancelled = reply("read resumed after the cancelled one", lambda: self._resumed_after(cancelled_read))
        return LaterReads(second, resumed, at_end, cancelled_read, cancelled)

    def _resumed(self, begun: ReadEvidence, state_at: int | None) -> Continuation:
        if self._watched.is_replay:
            raise ConnectorError(_DOING, "a recording gives its answers whatever the state")
        if state_at is None:
            raise ConnectorError(_DOING, "no state has records before it and after it")
        states = merged_states(self._watched.source.protocol.states, begun, state_at)
        return Continuation(begun, state_at, self._read(states))

    def _resumed_after(self, cancelled: Reply[ReadEvidence]) -> Continuation:
        begun = cancelled.required
        usable = [number for number, point in enumerate(begun.states) if not point.is_provisional]
        if not usable:
            raise ConnectorError(_DOING, "no state came before the read was cancelled")
        return self._resumed(begun, usable[-1])

    def _cancelled(self, whole: ReadEvidence, middle: int | None) -> ReadEvidence:
        """Cancels a read behind its middle state, or in the middle of its records if there is no such state."""
        if self._watched.is_replay:
            raise ConnectorError(_DOING, "nothing runs that could be cancelled")
        wanted_states, wanted_rows = (middle or 0) + 1, whole.rows // 2

        def is_enough(collector: RecordCollector) -> bool:
            rows = sum(len(records.contents) for records in collector.streams.values())
            if middle is None:
                return rows >= wanted_rows
            # A record behind the state: it must come again.
            return len(collector.states) >= wanted_states and rows > sum(collector.states[-1].rows.values())

        return self._read((), is_enough)

    def _read(
        self, states: tuple[State, ...], is_enough: Callable[[RecordCollector], bool] = lambda _collector: False
    ) -> ReadEvidence:
        source = self._watched.source
        request = self._request(states)
        collector = self._collector(request)
        connector = source.connector.launch(source.protocol.read(request))
        assert isinstance(connector, WatchedConnector), "it is launched by the watched launcher"
        seconds = self._watched.options.bounds.read_seconds
        return run_read(connector, collector, request, timeout_seconds=seconds, is_enough=is_enough)

    def _collector(self, request: ReadRequest) -> RecordCollector:
        source, watch = self._watched.source, self._watched.watch
        if not source.protocol.sends_batches:
            return RecordCollector(source.protocol, request, watch, self._watched.take_config)
        found = {planned.id: batch_policy(source.connection, planned, None) for planned in request.streams}
        policies = {stream: each for stream, each in found.items() if each is not None}
        return BatchCollector(source.protocol, request, watch, self._watched.take_config, policies)

    def _request(self, states: tuple[State, ...]) -> ReadRequest:
        source, catalog = self._watched.source, self._discover.required
        try:
            planned = planned_streams(source.connection, catalog, SyncRequest())
        except ConfigError as error:
            if source.connection.streams:
                raise
            # Nobody chose these streams: it is the catalog that cannot be read from.
            raise ConnectorError(_DOING, error.found) from error
        streams = with_generations(planned, {stream.id: 1 for stream in planned})
        return ReadRequest(source.config.current, streams, states, sync_id=1, available=catalog.streams)
