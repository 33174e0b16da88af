"""Handing over what a sync landed, before the states of its last load move: for who records it elsewhere first."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.model import PlannedStream, StreamId, TableName
from dagster_airbyte_proto.sync.report import StreamReport


class Delivered(NamedTuple):
    """A complete stream, all of whose rows are in its table. `part` is what the last load, `load_id`, brought it.
    `connector` names the very version that it came from, `planned` says what was chosen for it. `location` is the
    table's folder or URI, as in a TableTarget; the rows of this sync have `sync_id` in their `_airbyte_meta`. `lacking`
    are columns of the stream that the table does not have, by its policy."""

    stream: StreamId
    table: TableName
    report: StreamReport
    load_id: str | None
    part: StagedRows | None
    connector: str = ""
    planned: PlannedStream | None = None
    location: str = ""
    sync_id: int = 0
    lacking: frozenset[str] = frozenset()


class Delivery(Protocol):
    def deliver(self, streams: Sequence[Delivered]) -> None:
        """Called once, by the thread that syncs, when the last load is in and its states have not moved. Raising leaves
        that load announced: the next run of the connection ends it."""
        ...


class Undelivered:
    """Nobody records it elsewhere."""

    def deliver(self, streams: Sequence[Delivered]) -> None: ...
