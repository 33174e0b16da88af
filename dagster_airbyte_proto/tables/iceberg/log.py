"""An Iceberg table's metadata file, and the history of loads that follows from it.

- The metadata is read in one trip to the JVM and kept until it changes.
- The summary of a snapshot has the id of the load that it landed.
- A load is in the table if its snapshot is an ancestor of the current one. A load that was rolled back is not.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import HighWaterMark, StagedRows, TableTotals
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, Freshness
from dagster_airbyte_proto.model import PartitionField
from dagster_airbyte_proto.schema.evolution import IcebergSchema
from dagster_airbyte_proto.schema.replacement import field_ids
from dagster_airbyte_proto.tables.formats import LOAD_ID
from dagster_airbyte_proto.tables.part_checks import check_partitioning, check_slice

COMPACTION = "airbyte-proto.compaction"
REWOUND_AT = "airbyte-proto.rewound-at-version"
REWOUND_TO = "airbyte-proto.rewound-to"
NOTHING = "nothing"
CONNECTION = "airbyte-proto.connection"
HIGH_WATER_MARK = "airbyte-proto.newest"


_WITH_VECTORS = 3
_TOTALS = (
    "total-records",
    "total-data-files",
    "total-delete-files",
    "total-files-size",
    "total-position-deletes",
    "total-equality-deletes",
)
_HIGH_WATER_MARK = msgspec.json.Decoder(HighWaterMark)


class Snapshot(msgspec.Struct, frozen=True, rename="kebab"):
    snapshot_id: int
    timestamp_ms: int = 0
    parent_snapshot_id: int | None = None
    summary: dict[str, str] = {}
    schema_id: int | None = None
    # Snapshots of format 1 have none.
    sequence_number: int = 0

    @property
    def load_id(self) -> str | None:
        return self.summary.get(LOAD_ID)

    @property
    def rows(self) -> int | None:
        """The number of rows that a reader finds; None if it does not follow from the totals.

        Equality deletes remove an unknown number of rows. Position deletes can be counted only if this snapshot added
        all of them: older ones may refer to files that were compacted away, and then delete nothing.
        """
        stored, positions = self.stored_rows, self._total("total-position-deletes")
        if stored is None or positions is None or self._total("total-equality-deletes") != 0:
            return None
        return stored - positions if positions == self._count("added-position-deletes") else None

    @property
    def changes_rows(self) -> bool:
        """False if the snapshot only rewrites rows, as a compaction does."""
        return self.summary.get("operation") != "replace"

    @property
    def high_water_mark(self) -> HighWaterMark | None:
        """The high-water mark of the table's rows, if the snapshot carries one."""
        text = self.summary.get(HIGH_WATER_MARK)
        return _HIGH_WATER_MARK.decode(text) if text else None

    @property
    def stored_rows(self) -> int | None:
        """The rows in all data files, deleted ones too; None if that is unknown. Zero only if the table has no rows."""
        return self._total("total-records")

    @property
    def may_have_deletes(self) -> bool:
        """False if the table has no delete files."""
        return self._total("total-delete-files") != 0

    @property
    def added_rows(self) -> int:
        """The rows in the data files that this snapshot added."""
        return self._count("added-records")

    @property
    def removed_rows(self) -> int:
        """The rows in the data files that this snapshot removed."""
        return self._count("deleted-records")

    def totals_for_readers(self, format_version: int) -> TableTotals | None:
        """The totals with the delete files that a reader has to open for a data file; None if they are unknown.

        That is none in a table with deletion vectors. Files of position deletes apply to one partition each, and a load
        adds one for each partition that it changes. Equality deletes apply to all: with them all files count.
        """
        if any(self._total(name) is None for name in _TOTALS):
            return None
        stored, data_files, delete_files, size, positions, equalities = map(self._count, _TOTALS)
        if equalities:
            return TableTotals(data_files, delete_files, size)
        if format_version >= _WITH_VECTORS:
            return TableTotals(data_files, 0, size, positions / max(stored, 1))
        partitions = max(self._count("added-position-delete-files"), 1)
        return TableTotals(data_files, delete_files // partitions, size)

    def _total(self, name: str) -> int | None:
        """Returns a total. The specification makes them optional, and not all writers have them: None is unknown."""
        found = self.summary.get(name)
        return None if found is None else int(found)

    def _count(self, name: str) -> int:
        """Returns what this snapshot added or removed, which is left out where it is none."""
        return int(self.summary.get(name, "0"))


class _PartitionField(msgspec.Struct, frozen=True, rename="kebab"):
    transform: str
    # Absent if the field is made of several columns.
    source_id: int | None = None


class _PartitionSpec(msgspec.Struct, frozen=True, rename="kebab"):
    spec_id: int
    fields: tuple[_PartitionField, ...] = ()


class _SortField(msgspec.Struct, frozen=True, rename="kebab"):
    source_id: int | None = None


class _SortOrder(msgspec.Struct, frozen=True, rename="kebab"):
    order_id: int = 0
    fields: tuple[_SortField, ...] = ()


class _Reference(msgspec.Struct, frozen=True, rename="kebab"):
    snapshot_id: int
    type: str = "branch"


class MetadataFile(msgspec.Struct, frozen=True, rename="kebab"):
    """The place of a table's metadata as it was before."""

    metadata_file: str


class _SnapshotLogEntry(msgspec.Struct, frozen=True, rename="kebab"):
    snapshot_id: int
    timestamp_ms: int


class TableLog(msgspec.Struct, frozen=True, rename="kebab"):
    """A table's metadata file, with the fields that we use."""

    format_version: int
    location: str
    last_column_id: int
    current_schema_id: int
    schemas: tuple[IcebergSchema, ...]
    default_spec_id: int
    partition_specs: tuple[_PartitionSpec, ...]
    # Tables of format 1 may have none.
    table_uuid: str = ""
    current_snapshot_id: int | None = None
    snapshots: tuple[Snapshot, ...] = ()
    refs: Mapping[str, _Reference] = {}
    sort_orders: tuple[_SortOrder, ...] = ()
    last_sequence_number: int = 0
    # The metadata files before this one, oldest first.
    metadata_log: tuple[MetadataFile, ...] = ()
    # The snapshots that readers saw, oldest first.
    snapshot_log: tuple[_SnapshotLogEntry, ...] = ()
    default_sort_order_id: int = 0

    @property
    def position(self) -> int | None:
        """The number of the table's newest snapshot, on whichever branch; None for format 1, which has no numbers."""
        return self.last_sequence_number if self.format_version > 1 else None

    @property
    def branches(self) -> Mapping[str, int]:
        """The last snapshot of each branch, `main` among them."""
        return {name: each.snapshot_id for name, each in self.refs.items() if each.type == "branch"}

    @property
    def shown(self) -> frozenset[int]:
        """The snapshots that readers saw."""
        return frozenset(each.snapshot_id for each in self.snapshot_log)

    @property
    def columns(self) -> IcebergSchema:
        return self.known_columns[self.current_schema_id]

    @property
    def known_columns(self) -> dict[int, IcebergSchema]:
        """The columns of each schema by its id: those of readers, of older snapshots, and of incomplete generations."""
        return {schema["schema-id"]: {"type": "struct", "fields": schema["fields"]} for schema in self.schemas}

    def columns_of(self, doing: str, schema_id: int | None) -> IcebergSchema:
        """Returns the columns of a schema, or those of readers for None. Raises TableError if the schema is gone."""
        if schema_id is None:
            return self.columns
        if (columns := self.known_columns.get(schema_id)) is None:
            remedy = "Sync again: the next run stages the rows again."
            raise TableError(doing, f"schema {schema_id}, with which the rows were staged, was removed", remedy=remedy)
        return columns

    def schema_of(self, branch: str) -> int | None:
        """Returns the id of the schema of a branch's last snapshot; None if there is no such branch."""
        head = self.branches.get(branch)
        return next((each.schema_id for each in self.snapshots if each.snapshot_id == head), None)

    @property
    def layout_column_ids(self) -> dict[str, set[int]]:
        """The columns by which the table is or ever was partitioned or sorted, with the field ids in use there.

        They must all stay in the schema: Spark cannot write to a table if any of its sort orders, even an old one,
        refers to a missing column.
        """
        used = {field.source_id for spec in self.partition_specs for field in spec.fields}
        used |= {field.source_id for order in self.sort_orders for field in order.fields}
        return {str(field["name"]): own for field in self.columns["fields"] if (own := field_ids(field) & used)}

    @property
    def is_sorted(self) -> bool:
        """True if writers and compactions are to sort the rows. Orders of before stay in the log."""
        return any(order.fields for order in self.sort_orders if order.order_id == self.default_sort_order_id)

    @property
    def is_partitioned(self) -> bool:
        return bool(self._partition_fields)

    @property
    def slice_column(self) -> str | None:
        """The column whose plain value is the table's only partition field; None in any other table."""
        if len(self._partition_fields) != 1 or self._partition_fields[0].transform != "identity":
            return None
        by_id = {field["id"]: str(field["name"]) for field in self.columns["fields"]}
        return by_id.get(self._partition_fields[0].source_id)

    @property
    def partitioning(self) -> tuple[PartitionField, ...]:
        """The partition fields in their order. A transform that we do not know keeps Iceberg's name."""
        return self.partitioning_in(self.columns)

    def partitioning_in(self, columns: IcebergSchema) -> tuple[PartitionField, ...]:
        """Returns the partition fields by the names in these columns, such as those of an incomplete generation."""
        by_id = {field["id"]: str(field["name"]) for field in columns["fields"]}
        return tuple(
            PartitionField(transform, by_id.get(field.source_id, "?"), int(width or 0))
            for field in self._partition_fields
            for transform, _, width in [field.transform.removesuffix("]").partition("[")]
        )

    @property
    def _partition_fields(self) -> tuple[_PartitionField, ...]:
        fields = next(spec.fields for spec in self.partition_specs if spec.spec_id == self.default_spec_id)
        # Format 1 keeps a dropped field in the spec, with the transform `void`.
        return tuple(field for field in fields if field.transform != "void")


class FullTableLog(TableLog, frozen=True, rename="kebab"):
    """A table's metadata, with its properties."""

    properties: Mapping[str, str] = {}


class History:
    """The last snapshot of a branch, and the loads that this snapshot and its ancestors landed.

    `oldest_kept` is its oldest ancestor in the log, if that one's own parent has expired; else None. A history is
    immutable: `after` returns the next one.
    """

    def __init__(
        self,
        current: Snapshot | None,
        loads: dict[str, Snapshot],
        oldest_kept: Snapshot | None,
        changed: Snapshot | None,
        emptied: frozenset[str] | None = None,
    ) -> None:
        self.current = current
        self.oldest_kept = oldest_kept
        self._loads = loads
        self._changed = changed
        self._emptied = emptied  # The loads whose rows a rollback to nothing has removed.

    @classmethod
    def from_log(cls, log: TableLog, branch: str | None = None) -> "History":
        """Returns the history of `main`, or of the named branch. It is empty if there is no such branch."""
        ancestors = list(lineage(log, log.branches.get(branch) if branch else log.current_snapshot_id))
        # Oldest first, so that a load id that occurs twice maps to its latest snapshot.
        loads = {load: snapshot for snapshot in reversed(ancestors) if (load := snapshot.load_id)}
        is_whole = not ancestors or ancestors[-1].parent_snapshot_id is None
        changed = next((snapshot for snapshot in ancestors if snapshot.changes_rows), None)
        emptied = _before_emptying(ancestors)
        oldest_kept = None if is_whole else ancestors[-1]
        return cls(ancestors[0] if ancestors else None, loads, oldest_kept, changed, emptied)

    @property
    def may_have_rows(self) -> bool:
        """False if the table has no rows."""
        return self.current is not None and self.current.stored_rows != 0

    @property
    def freshness(self) -> Freshness:
        version = "" if self._changed is None else str(self._changed.snapshot_id)
        return Freshness(self.may_have_rows, version, self._changed.high_water_mark if self._changed else None)

    def snapshot_of(self, load_id: str) -> Snapshot | None:
        """Returns the snapshot that landed a load. None: not landed, or its snapshot expired (`oldest_kept`)."""
        return self._loads.get(load_id)

    def shows(self, load_id: str) -> bool:
        """False if readers surely do not see the rows of a load: it was undone, or has never landed."""
        landed = self._loads.get(load_id)
        if landed is None:
            return not self.is_whole
        return REWOUND_TO not in landed.summary and load_id not in (self._emptied or ())

    def newest_load(self, connection: str) -> str | None:
        """Returns the last load of a connection that the log still has; None if there is none, or none since the table
        was taken back to nothing."""
        gone = self._emptied or ()
        own = (load for load, each in reversed(self._loads.items()) if each.summary.get(CONNECTION) == connection)
        return next((load for load in own if load not in gone), None)

    @property
    def is_whole(self) -> bool:
        """True if the log reaches back to the first change of the table, or to where it had no rows."""
        return self._emptied is not None or self.oldest_kept is None

    def after(self, snapshot: Snapshot) -> "History":
        """Returns the history with `snapshot`, a child of the current one, as its last snapshot."""
        load_id = snapshot.load_id
        loads = {**self._loads, load_id: snapshot} if load_id else self._loads
        changed = snapshot if snapshot.changes_rows else self._changed
        return History(snapshot, loads, self.oldest_kept, changed, self._emptied)


def _before_emptying(ancestors: Sequence[Snapshot]) -> frozenset[str] | None:
    """Returns the loads from before the last rollback to nothing; None if there was none. The newest ancestor is first.

    Their snapshots stay ancestors of the current one: such a rollback deletes the rows.
    """
    for number, each in enumerate(ancestors):
        if each.summary.get(REWOUND_TO) == NOTHING:
            return frozenset(load for older in ancestors[number:] if (load := older.load_id))
    return None


def lineage(log: TableLog, snapshot_id: int | None) -> Iterator[Snapshot]:
    """Yields a snapshot and its ancestors, as far as the log has them. Iceberg may write -1 for no snapshot."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in log.snapshots}
    while snapshot_id is not None and (snapshot := by_id.get(snapshot_id)) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id


def snapshots_since(log: TableLog, load_id: str, *, before: TableLog) -> Sequence[Snapshot] | None:
    """Returns all snapshots with a load that the table got since `before`; None if one may have expired already.

    They may be on any branch, or on none any more. Of a snapshot that expired others may have been made, which have its
    files: then the first one's parent is in neither log.
    """
    old = {each.snapshot_id for each in before.snapshots}
    new = [each for each in log.snapshots if each.snapshot_id not in old]
    known = {None, *old, *(each.snapshot_id for each in new)}
    if any(each.parent_snapshot_id not in known for each in new):
        return None
    return [each for each in new if each.load_id == load_id]


def partition_texts(partitioning: Sequence[PartitionField]) -> tuple[str, ...]:
    """Returns the partition fields as a user writes them."""
    return tuple(map(str, partitioning))


def check_placement(doing: str, log: TableLog, part: StagedRows) -> None:
    """Raises TableError if the part's files do not fit the table's current partitioning."""
    if part.partitioned_by or (part.files and log.is_partitioned and log.slice_column is None):
        schema_id = part.branch_position.schema_id if part.branch_position else None
        actual = partition_texts(log.partitioning_in(log.columns_of(doing, schema_id)))
        check_partitioning(doing, actual, part.partitioned_by, stream=str(part.stream))
    elif part.files or part.slice is not None or log.slice_column == SLICE_COLUMN:
        check_slice(doing, log.slice_column, part)
