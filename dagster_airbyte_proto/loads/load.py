"""A load: the staged files of its streams, and the states that these files free.

- A load is the unit of commit and of recovery. The state store keeps it as JSON from its announcement on, so every
  type here is a plain value, and a database that an older version wrote must still be read: a field that was renamed
  keeps its old name in JSON (`msgspec.field(name=...)`).
- One stream's share of a load is a part (`StagedRows`). Each part is committed to its own table.
- A part is usually visible to readers as soon as it is committed. A part that belongs to a longer refresh goes to a
  branch of the table first (`BranchPosition`), and the last part of that generation publishes the branch.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from dagster_airbyte_proto.model import (
    REPLACING,
    FieldPath,
    MergeMode,
    PartitionValue,
    PushMode,
    State,
    StreamId,
    TableName,
    WriteMode,
)

RELAY_ID_PREFIX = "relay "
"""The start of the identity that a destination has in the place of a table. No table has one that starts so."""


class FileContent(StrEnum):
    ROWS = "rows"
    EQUALITY_DELETES = "equality_deletes"
    POSITION_DELETES = "position_deletes"
    REJECTED_RECORDS = "rejected_records"


class StagedFile(msgspec.Struct, frozen=True):
    """A Parquet file in a table's data location. It belongs to the table only after a commit.

    All rows of the file, or all rows that it deletes, are in one `partition`. `partition` is None in a table without
    partitions, and for equality deletes, which apply to every partition.
    """

    path: str
    content: FileContent
    rows: int
    size_bytes: int
    partition: tuple[PartitionValue, ...] | None = None


class HighWaterMark(msgspec.Struct, frozen=True):
    """The greatest cursor value and the greatest emission time of a table's rows, as of its `version`.

    `values` is the cursor value as text. It has several items where the cursor column has no single type. `emitted_at`
    is a maximum of its own: it need not come from the row with the greatest cursor.
    """

    cursor: FieldPath
    values: tuple[str | None, ...]
    emitted_at: str
    version: str = ""


class BranchPosition(msgspec.Struct, frozen=True):
    """The place of a part on a branch of its table, where readers do not see it yet.

    `after` is the id of the load that comes directly before it on the branch; None starts the branch from scratch. The
    part that `publishes` replaces all that readers see by the rows of the branch, in one change, and removes the
    branch. `fingerprint` is equal for all attempts that may continue one generation: it covers the stream's plan, its
    columns and the connector's config. The files have the table's schema `schema_id`, which readers get when the branch
    is published; None stands for the schema that readers have now.
    """

    branch: str
    after: str | None = None
    publishes: bool = False
    fingerprint: str = msgspec.field(default="", name="likeness")
    schema_id: int | None = None


class TransformState(msgspec.Struct, frozen=True):
    """The state of one transform after certain rows: its last checkpoint, as JSON, and the values that it keeps.

    `transform` is its name among those of its stream. Both are empty for one that keeps nothing.
    """

    transform: str
    checkpoint: str = ""
    values: Mapping[str, str] = {}


class TransformedStream(msgspec.Struct, frozen=True):
    """The states of a stream's transforms after certain rows of a generation."""

    stream: StreamId
    generation_id: int
    states: tuple[TransformState, ...]
    partition: str = ""


class StagedRows(msgspec.Struct, frozen=True):
    """One part of a load: the staged files of one stream, with their counts and how to write them.

    `emitted + added == rows + rejected`: a transform has `added` rows where it made several of one. `rows` counts
    all rows in ROWS files, also the `duplicates` that a position delete of the same part removes again. `changed`
    rows have a value that was nulled or truncated; `nulled` counts, by column, the values that did not fit.
    `deleted` is the number of keys whose latest record is a deletion. `high_water_mark` is stored with the table at
    the commit, if the table is still at the version that the mark names.

    In a table with slices all rows are of one `slice`. The files have no column for it, and the part changes no other
    slice. `partitioned_by` lists the partition fields as a user writes them. Rows with a `branch_position` replace the
    table's rows when their generation is complete. `sources` are files of the connector that hold only these rows; they
    are deleted after the commit. `table_id` is the identity of the table for which the files were staged, `connection`
    the one whose load it is. No state covers a stream that is `read_whole`, also where its load moves a shared one.
    `transform_states` are those of the stream's transforms after these rows. Rows for a destination are shaped as
    `relayed_as` says (`RelayTarget.fingerprint`), and go there by `relay_mode`. A part that `resends` has the records,
    in this order, that are kept of earlier loads because a destination rejected them: rows of these loads.
    `log_position` is how far the table's log went before the load was announced, where a log is ever cut short. A part
    that `follows` a load counts on its rows: the table has to show them.
    """

    stream: StreamId
    table: TableName
    write: WriteMode
    generation_id: int = 0
    files: tuple[StagedFile, ...] = ()
    keys: tuple[str, ...] = ()
    emitted: int = 0
    rows: int = 0
    duplicates: int = 0
    deleted: int = 0
    changed: int = 0
    rejected: Mapping[str, int] = {}
    ignored_fields: Mapping[str, int] = {}
    record_bytes: int = 0
    slice: str | None = None
    partitioned_by: tuple[str, ...] = ()
    high_water_mark: HighWaterMark | None = msgspec.field(default=None, name="newest")
    merge: MergeMode = MergeMode.ON_READ
    branch_position: BranchPosition | None = msgspec.field(default=None, name="aside")
    sources: tuple[str, ...] = ()
    connection: str = ""
    table_id: str = ""
    read_whole: bool = False
    nulled: Mapping[str, int] = {}
    added: int = 0
    transform_states: tuple[TransformState, ...] = ()
    relayed_as: str = ""
    relay_mode: PushMode | None = None
    resends: Mapping[str, tuple[int, ...]] = {}
    log_position: int | None = None
    follows: str = ""

    @property
    def is_relayed(self) -> bool:
        """True if the part goes to a destination, and not to a table."""
        return self.table_id.startswith(RELAY_ID_PREFIX)

    @property
    def is_shown(self) -> bool:
        """True if readers see the part as soon as it is committed."""
        return self.branch_position is None or self.branch_position.publishes

    @property
    def changes_table(self) -> bool:
        """False if the part has nothing to add and replaces nothing: its table gets no commit of it."""
        return bool(self.files) or self.write in REPLACING

    @property
    def is_remembered(self) -> bool:
        """True if the store remembers its load as the last one of its table. Records that are sent again belong to
        loads before: no state covers them anew."""
        return self.is_shown and self.changes_table and not self.resends


class ResumePoint(msgspec.Struct, frozen=True):
    """A state from which an incomplete generation of a stream can be continued.

    It covers the rows on the branch and no row that readers see. So it must not be used as a state of the stream.
    """

    generation_id: int
    state: State


class Load(msgspec.Struct, frozen=True):
    """The unit of commit and recovery. It is stored before the commit, so that the next run finds it after a crash.

    `transformed` are the states of transforms whose rows are in no part: of a push they went to its destination.
    """

    load_id: str
    connection: str
    run_id: str
    parts: tuple[StagedRows, ...]
    states: tuple[State, ...]
    resume_points: tuple[ResumePoint, ...] = ()
    transformed: tuple[TransformedStream, ...] = ()


class TableTotals(msgspec.Struct, frozen=True):
    """The files that a reader of the whole table opens: `delete_files` are those for one data file.

    Deletion vectors do not count: a data file has one at most, which costs a reader little. `deleted_share` is the
    share of the stored rows that vectors delete.
    """

    data_files: int
    delete_files: int
    size_bytes: int
    deleted_share: float = 0.0


class CommittedRows(msgspec.Struct, frozen=True):
    """The result of a commit, as the table's log has it. `was_there` is true if an earlier attempt landed the part.

    `table_rows` is the number of rows that readers see. `totals` is None for formats that do not have these numbers at
    hand. `rejected` counts, by reason, the rows that a destination did not take. Loads that are announced later have a
    place in the table's log behind `log_position`.
    """

    stream: StreamId
    snapshot_id: str
    was_there: bool
    deleted: int = 0
    table_rows: int | None = None
    totals: TableTotals | None = None
    rejected: Mapping[str, int] = {}
    log_position: int | None = None
