"""A push: the sealed plan of its rows, and how far they are delivered. Values that tables, store and sync agree on.

The state store keeps a plan as JSON until the next one, so every type here is a plain value, and a database that an
older version wrote must still be read.
"""

from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.model import IDEMPOTENT, PushMode, StreamId


class PlanFile(msgspec.Struct, frozen=True):
    """A Parquet file of a plan."""

    path: str
    rows: int


class PlanColumn(msgspec.Struct, frozen=True):
    """A field that the destination gets, and the column of a plan's files that it is read from."""

    field: str
    column: str


class TableSnapshot(msgspec.Struct, frozen=True):
    """A snapshot of an Iceberg or Delta table. Another `table_id` under the same name is another table.

    The id is empty for a table that has no snapshot yet.
    """

    table: str
    table_id: str
    snapshot_id: str


class PlannedCounts(msgspec.Struct, frozen=True):
    """The numbers of a plan, by what is to happen to the rows. None where nobody looked: the plan cannot tell.

    Where new rows cannot be told from changed ones, all that are to be written are `added`.
    """

    added: int = 0
    changed: int | None = 0
    removed: int | None = 0
    unchanged: int | None = 0

    @property
    def to_write(self) -> int:
        return self.added + (self.changed or 0)

    @property
    def to_send(self) -> int:
        return self.to_write + (self.removed or 0)


class SealedPlan(msgspec.Struct, frozen=True):
    """The rows of one push of one stream, in the order in which they are delivered: first those to write, then the keys
    to remove.

    A position is a number of rows of the plan. The rows are in `files`, one after the other; those of `removal_files`
    follow. A plan that `starts_over` takes nothing for delivered. `fingerprint` covers all that makes two plans of the
    same rows differ: fields, key and options. `mapping` is a digest of where the fields come from, empty without one;
    `selection` is one of that and of the table or query. `destination` is the program that the rows go to. Both are
    empty in plans of earlier releases. `cursor` is the greatest cursor value up to which rows are in the plan, and
    `after` the one of the plan before, both as text, of the column and the table that `cursor_of` names. So are
    `snapshot`, up to which the changes of the table are in the plan, and `snapshot_before`, which a plan of another
    mapping or mode has not: rows before it are in the plan too. With `keeps_snapshot` the next push looks for changes
    from there on. A plan of a `partition` has the rows of that one alone. The text of `json_fields` is JSON already.
    `transform_states` are those of the stream's transforms after all rows of the plan. With `columns` the files are the
    table's own, in its `snapshot`. The rows of a plan that `resends` are the rejected records that the store keeps in
    the name of the plan. `field_order` are the fields of the mapping in the order in which the rows have them, and
    `connectors` is a digest of the connectors of the transforms; both are empty in plans of earlier releases. Each
    attempt to deliver a replacement is a generation of its own for the destination, from `first_generation` on.
    `version` is that of the rows, of a stream that removes rows by versions; 0 for others.
    """

    plan_id: str
    connection: str
    stream: StreamId
    mode: PushMode
    folder: str
    files: tuple[PlanFile, ...]
    removal_files: tuple[PlanFile, ...]
    counts: PlannedCounts
    fingerprint: str
    starts_over: bool = False
    generation_id: int = 0
    cursor: str | None = None
    after: str | None = None
    snapshot: TableSnapshot | None = None
    snapshot_before: TableSnapshot | None = None
    keeps_snapshot: bool = False
    partition: str | None = None
    json_fields: tuple[str, ...] = ()
    mapping: str = ""
    transform_states: tuple[TransformState, ...] = ()
    columns: tuple[PlanColumn, ...] = ()
    cursor_of: str = ""
    resends: bool = False
    selection: str = ""
    destination: str = ""
    field_order: tuple[str, ...] = ()
    connectors: str = ""
    first_generation: int = 0
    version: int = 0

    @property
    def asset_name(self) -> str:
        """The name of what is delivered, the same in each run."""
        partition = "" if self.partition is None else f"[{self.partition}]"
        return f"{self.connection}.{self.stream}{partition}"

    @property
    def activates(self) -> bool:
        """True if its rows are all that there are, and a version that is activated at their end: that removes those
        that are gone."""
        return bool(self.version and self.counts.removed)

    @property
    def counts_at_end(self) -> bool:
        """True if none of its rows counts as delivered before all do: the destination may not show them before."""
        return self.mode is PushMode.OVERWRITE or self.activates

    @property
    def rows(self) -> int:
        return self.counts.to_send

    @property
    def moves_snapshot(self) -> bool:
        """True if the plan covers changes of the table that the one before did not, though no row may have to go."""
        return self.snapshot is not None and self.snapshot != self.snapshot_before

    @property
    def rows_to_write(self) -> int:
        return self.counts.to_write


def push_basis(mode: PushMode, fingerprint: str, mapping: str) -> str:
    """Returns what a plan has to share with the one before to look only at changes since that one's snapshot.

    Where it differs, rows that lie before the snapshot may have to be sent too. Another mapping is no other
    fingerprint: rows that come out as they were are not sent again.
    """
    return f"{mode}:{fingerprint}:{mapping}" if mapping else f"{mode}:{fingerprint}"


class RejectedRow(NamedTuple):
    """A row of a plan that was refused, by us or by the destination."""

    row: int
    reason: str


class Delivery(NamedTuple):
    """The progress of a plan at its destination. All are positions or counts of rows of the plan.

    Rows up to `announced` may be at the destination. Those up to `acknowledged` are, but for the rejected ones.
    """

    plan: SealedPlan
    announced: int
    acknowledged: int
    attempts: int

    @property
    def is_complete(self) -> bool:
        return self.acknowledged >= self.plan.rows

    @property
    def needed_snapshots(self) -> tuple[TableSnapshot, ...]:
        """The snapshots that the table has to keep: that whose files the plan is, until its end; and those from which
        the next push may look for changes: that of the plan, and until its end the last."""
        if self.plan.columns:
            return () if self.is_complete or self.plan.snapshot is None else (self.plan.snapshot,)
        ends = (self.plan.snapshot,) if self.is_complete else (self.plan.snapshot, self.plan.snapshot_before)
        return tuple(each for each in ends if each is not None and self.plan.keeps_snapshot)

    @property
    def unknown(self) -> int:
        """The rows of which nobody knows whether the destination has them."""
        return max(0, self.announced - self.acknowledged)

    @property
    def undecided(self) -> int:
        """The unknown rows on which a person has to decide: sent again, they might be there twice."""
        return 0 if self.plan.mode in IDEMPOTENT else self.unknown


class PushPosition(msgspec.Struct, frozen=True):
    """The state of a pushed stream: up to here the memory of the push, a table, has what was acknowledged.

    `cursor` is the value, and `snapshot` the snapshot of the table, up to which all rows were acknowledged: those of
    the plan once it is at its end. `basis` (`push_basis`), `cursor_of`, `destination` and `version` are the plan's. Of
    a mirror whose state was reset, `resent` are the partitions that were pushed since: the others are to be sent again.
    """

    plan_id: str
    rows: int
    of_rows: int
    cursor: str | None = None
    snapshot: TableSnapshot | None = None
    basis: str = ""
    cursor_of: str = ""
    resent: tuple[str, ...] | None = None
    destination: str = ""
    version: int = 0

    @classmethod
    def of(cls, state_value: object) -> "PushPosition | None":
        """The position in the value of a state; None if that is no state of a push."""
        try:
            return msgspec.convert(state_value, cls)
        except msgspec.ValidationError:
            return None

    def resends(self, partition: str | None) -> bool:
        """True if all rows of this partition, or of all for None, are to be sent again."""
        return self.resent is not None and partition not in self.resent

    @property
    def is_end(self) -> bool:
        return self.rows >= self.of_rows
