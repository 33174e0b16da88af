"""The report of a finished push. Names and values of its JSON are fixed: other people's programs read them."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from dagster_airbyte_proto.errors import CommitUnknown, ProtoError
from dagster_airbyte_proto.loads.push import PlannedCounts
from dagster_airbyte_proto.sync.report import SyncStatus, status_after
from dagster_airbyte_proto.transforms.transform import DROPPED


class PushedField(msgspec.Struct, frozen=True):
    """A field that the destination gets: its type as in Spark's SQL, and the columns that it comes from."""

    type: str
    columns: tuple[str, ...] = ()


class PushedStreamReport(msgspec.Struct, frozen=True, kw_only=True, rename={"origin": "from"}):
    """The report of one stream. Always `sent == acknowledged + rejected + unknown`.

    - `sent` are the rows of the plan that this run took to their end, or tried to.
    - `rejected` rows were refused, by us before they were sent or by the destination. `unnamed` of them the destination
      only counted: nobody knows which they are.
    - `unknown` rows were sent and not acknowledged. Where a person has to decide on them (`append`, `insert`), the
      status is unknown too; in the other modes the next push sends them again, and they are there once. It is also
      unknown where nobody can tell yet whether the delivered table has what is acknowledged: the next push finds out.
    - `resumed` rows of the plan were acknowledged by runs before.
    - `rejections_before` are the rejected rows of a plan that earlier runs did not bring to its end, by reason.
    - `bytes` are those of the records as they were sent; of attempts that failed, too.
    - `cursor` is the greatest value of the cursor column up to which rows were planned, `snapshot` the snapshot of the
      table. `fields` are those that the destination gets.
    - `version_before` is the version of the connection's states when the push began: a rollback to it undoes the push.
    - `metrics` are those that connectors sent of the stream, as in the report of a sync: of a `destination`, of a
      `transform NAME`.
    """

    status: SyncStatus
    origin: str
    planned: PlannedCounts = PlannedCounts()
    sent: int = 0
    acknowledged: int = 0
    rejected: int = 0
    unknown: int = 0
    unnamed: int = 0
    resumed: int = 0
    bytes: int = 0
    snapshot: str | None = None
    version_before: int | None = None
    error: str | None = None
    retryable: bool = False
    rejections: Mapping[str, int] = {}
    rejections_before: Mapping[str, int] = {}
    samples: Mapping[str, list[Mapping[str, Any]]] = {}
    table: str | None = None
    cursor: str | None = None
    fields: Mapping[str, PushedField] = {}
    metrics: Mapping[str, Mapping[str, float]] = {}

    @property
    def refused(self) -> int:
        """The rows among the rejected ones that no transform dropped: those are meant to be."""
        return max(0, self.rejected - self.rejections.get(DROPPED, 0))


def status_of(errors: Collection[ProtoError | None], undecided: int) -> SyncStatus:
    """The status of a stream whose push ended with these errors, and leaves so many rows for a person to decide on."""
    found = [error for error in errors if error is not None]
    if undecided or any(isinstance(error, CommitUnknown) for error in found):
        return SyncStatus.UNKNOWN
    if not found:
        return SyncStatus.COMPLETE
    return status_after(found[0])


class PushReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a whole push, or of one `partition`. `log` is the run's log.

    With `is_plan`, which JSON calls `plan`, nothing was sent. `warnings` tell of a destination whose counts differ from
    what was sent, `notes` of what it does not answer. `error` is why it ended before its first stream, or behind its
    last.
    """

    connection: str
    status: SyncStatus
    run_id: str
    recovered_loads: int
    streams: Mapping[str, PushedStreamReport]
    seconds: float
    connector: str = ""
    is_plan: bool = msgspec.field(default=False, name="plan")
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    log: str = ""
    partition: str = ""
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        value["seconds"] = round(value["seconds"], 3)
        return value


def failed_push(connection: str, run_id: str, error: ProtoError, log: str) -> PushReport:
    """The report of a push that failed, or was cancelled, before its first stream."""
    return PushReport(
        connection=connection,
        status=status_after(error),
        run_id=run_id,
        recovered_loads=0,
        streams={},
        seconds=0.0,
        log=log,
        error=str(error),
    )
