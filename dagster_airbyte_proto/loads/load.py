"""A load: the staged files of its streams and the states that they free. Values only, written down as JSON."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from dagster_airbyte_proto.model import FieldPath, Merge, PartitionValue, State, StreamId, TableName, WriteMode


class FileContent(StrEnum):
    ROWS = "rows"
    EQUALITY_DELETES = "equality_deletes"
    POSITION_DELETES = "position_deletes"


class StagedFile(msgspec.Struct, frozen=True):
    """A Parquet file that lies in a table's data location; part of the table only once committed.

    All its rows are of one `partition`, or are deleted in that one alone; None where the table's rows are not parted,
    and for deletes that reach into each.
    """

    path: str
    content: FileContent
    rows: int
    size_bytes: int
    partition: tuple[PartitionValue, ...] | None = None


class Newest(msgspec.Struct, frozen=True):
    """How new the rows of a table are at the most: the greatest `cursor`, as text (several values where it is of no
    single type), and apart from it the greatest time of emission. It was so when the table was at `version`."""

    cursor: FieldPath
    values: tuple[str | None, ...]
    emitted_at: str
    version: str = ""


class Aside(msgspec.Struct, frozen=True):
    """A place where the loads of a generation land out of readers' sight: a branch of the table.

    `after` is the load that came before on the branch; None begins it anew. With the part that `publishes`, the branch
    takes the place of all that readers see, at once, and is no more. `likeness` is what all its attempts share. The
    files are of the table's schema `schema_id`, which is the readers' from then on; None is that which they have.
    """

    branch: str
    after: str | None = None
    publishes: bool = False
    likeness: str = ""
    schema_id: int | None = None


class StagedRows(msgspec.Struct, frozen=True):
    """What one stream adds to a load.

    `emitted == rows + rejected`. `rows` counts the rows in ROWS files, also those that a position delete
    of the same part takes out again (`duplicates` of them). `changed` rows have a value nulled or truncated.
    `deleted` is the number of keys whose latest record is a deletion. `newest` is what the table says of itself once
    the part is in, if it is still at that version.
    All rows are of one `slice`, where the table has slices: it is no column of the files, and nothing that the part
    does reaches beyond it. `partitioned_by` is what the rows were parted by, as a user writes it. Rows that are put
    `aside` replace the table's once all of their generation are there. `sources` are files of the connector's that
    hold nothing but these rows, and are to go once they are in.
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
    newest: Newest | None = None
    merge: Merge = Merge.ON_READ
    aside: Aside | None = None
    sources: tuple[str, ...] = ()

    @property
    def is_shown(self) -> bool:
        """Whether readers see it once it has landed."""
        return self.aside is None or self.aside.publishes


class ResumePoint(msgspec.Struct, frozen=True):
    """A state of a stream whose generation is not complete: the state covers what has landed aside, and no row that
    readers see. With it the generation can be gone on with, and for nothing else is it of use."""

    generation_id: int
    state: State


class Load(msgspec.Struct, frozen=True):
    """The unit of commit and recovery: written down before it is committed, found again after a crash."""

    load_id: str
    connection: str
    run_id: str
    parts: tuple[StagedRows, ...]
    states: tuple[State, ...]
    resume_points: tuple[ResumePoint, ...] = ()


class TableTotals(msgspec.Struct, frozen=True):
    """What a reader of a whole table has to open."""

    data_files: int
    delete_files: int
    size_bytes: int


class CommittedRows(msgspec.Struct, frozen=True):
    """What a table says after a commit. `was_there` when an earlier attempt had already landed it.

    `table_rows` are those that readers see. `totals` are told where the format has them at hand, and files ever pile
    up.
    """

    stream: StreamId
    snapshot_id: str
    was_there: bool
    deleted: int = 0
    table_rows: int | None = None
    totals: TableTotals | None = None
