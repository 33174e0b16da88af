"""What an Iceberg table says of itself: its metadata, read in one trip to the JVM and kept until it changes.

The load id stands in the summary of the snapshot that landed it. A load is in the table when that snapshot is an
ancestor of the current one: what was rolled back is not.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import Newest, StagedRows, TableTotals
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, Standing
from dagster_airbyte_proto.model import PartitionField
from dagster_airbyte_proto.schema.evolution import Columns
from dagster_airbyte_proto.schema.replacing import ids_of
from dagster_airbyte_proto.tables.part_checks import refuse_part, refuse_partitioning

LOAD_ID = "airbyte-proto.load-id"
NEWEST = "airbyte-proto.newest"


# Made here, in one thread: two that use a type for the first time at once can crash msgspec.
_NEWEST = msgspec.json.Decoder(Newest)


class Snapshot(msgspec.Struct, frozen=True, rename="kebab"):
    snapshot_id: int
    timestamp_ms: int = 0
    parent_snapshot_id: int | None = None
    summary: dict[str, str] = {}
    schema_id: int | None = None

    @property
    def load_id(self) -> str | None:
        return self.summary.get(LOAD_ID)

    @property
    def rows(self) -> int | None:
        """How many rows a reader finds; None where deletes leave that open.

        Position deletes count for what they say only in the snapshot that brings them all: once the files they speak
        of are compacted away they stay in the totals and delete nothing.
        """
        positions = self._total("total-position-deletes")
        if self._total("total-equality-deletes") or positions != self._total("added-position-deletes"):
            return None
        return self.stored_rows - positions

    @property
    def changes_rows(self) -> bool:
        """Not where it only writes them anew, as a compaction does."""
        return self.summary.get("operation") != "replace"

    @property
    def newest(self) -> Newest | None:
        """How new the table's rows are at the most, if whoever made the snapshot said so."""
        text = self.summary.get(NEWEST)
        return _NEWEST.decode(text) if text else None

    @property
    def stored_rows(self) -> int:
        """The rows in all data files, deleted ones too: zero only when the table has none."""
        return self._total("total-records")

    @property
    def added_rows(self) -> int:
        """The rows in the data files that this snapshot brought in."""
        return self._total("added-records")

    @property
    def removed_rows(self) -> int:
        """The rows in the data files that this snapshot took out."""
        return self._total("deleted-records")

    @property
    def totals(self) -> TableTotals:
        return TableTotals(
            self._total("total-data-files"), self._total("total-delete-files"), self._total("total-files-size")
        )

    def _total(self, name: str) -> int:
        return int(self.summary.get(name, "0"))


class _PartitionField(msgspec.Struct, frozen=True, rename="kebab"):
    transform: str
    # Absent where several columns make one field.
    source_id: int | None = None


class _PartitionSpec(msgspec.Struct, frozen=True, rename="kebab"):
    spec_id: int
    fields: tuple[_PartitionField, ...] = ()


class _SortField(msgspec.Struct, frozen=True, rename="kebab"):
    source_id: int | None = None


class _SortOrder(msgspec.Struct, frozen=True):
    fields: tuple[_SortField, ...] = ()


class _Reference(msgspec.Struct, frozen=True, rename="kebab"):
    snapshot_id: int
    type: str = "branch"


class TableLog(msgspec.Struct, frozen=True, rename="kebab"):
    """A table's metadata file, as far as we read it."""

    format_version: int
    location: str
    last_column_id: int
    current_schema_id: int
    schemas: tuple[Columns, ...]
    default_spec_id: int
    partition_specs: tuple[_PartitionSpec, ...]
    current_snapshot_id: int | None = None
    snapshots: tuple[Snapshot, ...] = ()
    refs: Mapping[str, _Reference] = {}
    sort_orders: tuple[_SortOrder, ...] = ()

    @property
    def branches(self) -> Mapping[str, int]:
        """The snapshot that each branch, `main` among them, ends with."""
        return {name: each.snapshot_id for name, each in self.refs.items() if each.type == "branch"}

    @property
    def columns(self) -> Columns:
        return self.known_columns[self.current_schema_id]

    @property
    def known_columns(self) -> dict[int, Columns]:
        """Those of readers, of older snapshots, and of generations that are to come, by the ids of their schemas."""
        return {schema["schema-id"]: {"type": "struct", "fields": schema["fields"]} for schema in self.schemas}

    def columns_of(self, doing: str, schema_id: int | None) -> Columns:
        """Those of a schema, or of readers. Raises TableError for one that is not there any more."""
        if schema_id is None:
            return self.columns
        if (columns := self.known_columns.get(schema_id)) is None:
            remedy = "Sync again: it is staged anew."
            raise TableError(doing, f"schema {schema_id}, by which it was staged, was taken out", remedy=remedy)
        return columns

    def schema_of(self, branch: str) -> int | None:
        """The schema by which a branch was written last; None for a branch that is not there."""
        head = self.branches.get(branch)
        return next((each.schema_id for each in self.snapshots if each.snapshot_id == head), None)

    @property
    def placing_ids(self) -> dict[str, set[int]]:
        """The columns that the table is, or ever was, parted or sorted by, with the ids of what is in use there. Each
        has to be in its schema: Spark writes to no table of which an order, also one of the past, speaks of a column
        that is not there."""
        used = {field.source_id for spec in self.partition_specs for field in spec.fields}
        used |= {field.source_id for order in self.sort_orders for field in order.fields}
        return {str(field["name"]): own for field in self.columns["fields"] if (own := ids_of(field) & used)}

    @property
    def is_partitioned(self) -> bool:
        return bool(self._partition_fields)

    @property
    def slice_column(self) -> str | None:
        """The column by whose value, and nothing else, the table is partitioned."""
        if len(self._partition_fields) != 1 or self._partition_fields[0].transform != "identity":
            return None
        by_id = {field["id"]: str(field["name"]) for field in self.columns["fields"]}
        return by_id.get(self._partition_fields[0].source_id)

    @property
    def partitioning(self) -> tuple[PartitionField, ...]:
        """What its rows are parted by, in the order of the fields; what we know no word for, as Iceberg writes it."""
        by_id = {field["id"]: str(field["name"]) for field in self.columns["fields"]}
        return tuple(
            PartitionField(transform, by_id.get(field.source_id, "?"), int(width or 0))
            for field in self._partition_fields
            for transform, _, width in [field.transform.removesuffix("]").partition("[")]
        )

    @property
    def _partition_fields(self) -> tuple[_PartitionField, ...]:
        fields = next(spec.fields for spec in self.partition_specs if spec.spec_id == self.default_spec_id)
        # A field that was dropped stays in the specs of format 1, as one that holds nothing.
        return tuple(field for field in fields if field.transform != "void")


class History:
    """The snapshot that a branch ends with, and the loads that its ancestors landed. Never changes: `after` makes the
    next one."""

    def __init__(
        self, current: Snapshot | None, loads: dict[str, Snapshot], expired_before_ms: int, changed: Snapshot | None
    ) -> None:
        self.current = current
        self.expired_before_ms = expired_before_ms
        self._loads = loads
        self._changed = changed

    @classmethod
    def of(cls, log: TableLog, branch: str | None = None) -> "History":
        """Of `main`, unless another branch is named. One that is not there has no history."""
        ancestors = list(lineage(log, log.branches.get(branch) if branch else log.current_snapshot_id))
        # Oldest first, so that a load id that stands twice is found where it came in last.
        loads = {load: snapshot for snapshot in reversed(ancestors) if (load := snapshot.load_id)}
        is_whole = not ancestors or ancestors[-1].parent_snapshot_id is None
        changed = next((snapshot for snapshot in ancestors if snapshot.changes_rows), None)
        return cls(ancestors[0] if ancestors else None, loads, 0 if is_whole else ancestors[-1].timestamp_ms, changed)

    @property
    def standing(self) -> Standing:
        has_rows = self.current is not None and self.current.stored_rows > 0
        version = "" if self._changed is None else str(self._changed.snapshot_id)
        return Standing(has_rows, version, self._changed.newest if self._changed else None)

    def landed(self, load_id: str) -> Snapshot | None:
        """The snapshot that landed a load. None means no, or that it expired: see `expired_before_ms`."""
        return self._loads.get(load_id)

    def after(self, snapshot: Snapshot) -> "History":
        """The history once `snapshot`, a child of the current one, is in."""
        load_id = snapshot.load_id
        loads = {**self._loads, load_id: snapshot} if load_id else self._loads
        changed = snapshot if snapshot.changes_rows else self._changed
        return History(snapshot, loads, self.expired_before_ms, changed)


def lineage(log: TableLog, snapshot_id: int | None) -> Iterator[Snapshot]:
    """A snapshot and its ancestors, as far as the log has them. Iceberg may write -1 for none."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in log.snapshots}
    while snapshot_id is not None and (snapshot := by_id.get(snapshot_id)) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id


def partition_words(partitioning: Sequence[PartitionField]) -> tuple[str, ...]:
    """As a user writes it."""
    return tuple(map(str, partitioning))


def refuse_misplaced(doing: str, log: TableLog, part: StagedRows) -> None:
    """Raises TableError where the part's files cannot lie in the table as it is parted now."""
    if part.partitioned_by or (part.files and log.is_partitioned and log.slice_column is None):
        refuse_partitioning(doing, partition_words(log.partitioning), part.partitioned_by, stream=str(part.stream))
    elif part.files or part.slice is not None or log.slice_column == SLICE_COLUMN:
        refuse_part(doing, log.slice_column, part)
