"""The interface by which a sync announces its committed streams before the states of its last load are saved.

Dagster's materializations are recorded there: if recording fails, the states have not moved, the load stays announced,
and the next run ends it.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.model import PlannedStream, StreamId, TableName
from dagster_airbyte_proto.sync.report import StreamReport


class CommittedStream(NamedTuple):
    """A complete stream, all of whose rows are in its table, or at the destination of a relay.

    `part` is the stream's part of the last load, which is `load_id`; a relay has none that a table could confirm.
    `connector` names the connector and its version. `location` is the table's folder or URI, as in a TableTarget. The
    rows of this sync have `sync_id` in their `_airbyte_meta`. `missing_columns` are columns of the stream that the
    table lacks, by the stream's schema policy.
    """

    stream: StreamId
    table: TableName
    report: StreamReport
    load_id: str | None
    part: StagedRows | None
    connector: str = ""
    planned: PlannedStream | None = None
    location: str = ""
    sync_id: int = 0
    missing_columns: frozenset[str] = frozenset()

    @property
    def is_relayed(self) -> bool:
        """True if its rows went to a destination, and not to a table."""
        return self.planned is not None and self.planned.relay is not None


class CommitListener(Protocol):
    """Records a sync's committed streams elsewhere."""

    def committed(self, streams: Sequence[CommittedStream]) -> None:
        """Called by the thread that syncs, when the last load is in its tables and its states have not moved. It is
        called once, but on executors again after a cut connection (while the first call may still go on), and by each
        attempt that follows one which died after its call.

        If it raises, that load stays announced, and the next run of the connection ends it.
        """
        ...


class NoCommitListener:
    """A CommitListener that records nothing."""

    def committed(self, streams: Sequence[CommittedStream]) -> None: ...
