"""What a table is to the rest of the house.

Order of calls: `prepare` a stream's table, stage Parquet files under its `location` in its `schema`, then
`commit` them in the name of a load. A commit is idempotent on its load id, and fenced: however many writers
try, paused or dead ones among them, the rows of a load are in the table once or not at all.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from dagster_airbyte_proto.errors import InternalError, TableError
from dagster_airbyte_proto.model import (
    CommittedRows,
    FileContent,
    Merge,
    Newest,
    Ordering,
    PartitionField,
    StagedFile,
    StagedRows,
    TableName,
    WriteMode,
)
from dagster_airbyte_proto.schema.evolution import Change, Columns, Misfit, Terms, Verdict, flat
from dagster_airbyte_proto.schema.names import folded
from dagster_airbyte_proto.schema.partitioning import IDENTITY, TRANSFORMS
from dagster_airbyte_proto.tables.storage import LOCAL, Storage

MODES = frozenset((WriteMode.APPEND, WriteMode.OVERWRITE, WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP))
"""The write modes that tables know."""

REPLACING = frozenset((WriteMode.OVERWRITE, WriteMode.OVERWRITE_DEDUP))
"""Those in which a part takes the place of all rows that a table, or its slice, has. One without files empties it."""

SLICE_COLUMN = "_airbyte_partition"
"""What the column is called that tells the slices of a table apart."""

DEDUPLICATING = frozenset((WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP))
"""Those that leave one row of each key."""


class Abilities(NamedTuple):
    """What tables of a format can do. `format` is what the settings call it, `transforms` are what rows can be parted
    by. With `has_new_columns_with_rows` what replaces a table may change its columns too, in the change that shows its
    rows."""

    format: str
    modes: frozenset[WriteMode] = MODES
    has_slices: bool = True
    has_renames: bool = True
    transforms: frozenset[str] = frozenset()
    has_copy_on_write: bool = False
    has_clustering: bool = False
    has_new_columns_with_rows: bool = False
    has_variants: bool = False


ICEBERG = Abilities(
    "iceberg",
    transforms=TRANSFORMS,
    has_copy_on_write=True,
    has_clustering=True,
    has_new_columns_with_rows=True,
    has_variants=True,
)
FOLDER = Abilities("folder", transforms=TRANSFORMS, has_new_columns_with_rows=True, has_variants=True)
DELTA = Abilities("delta", transforms=frozenset((IDENTITY,)), has_new_columns_with_rows=True, has_variants=True)
PARQUET = Abilities(
    "parquet",
    frozenset((WriteMode.APPEND, WriteMode.OVERWRITE)),
    has_slices=False,
    has_renames=False,
    has_new_columns_with_rows=True,
)
FORMATS = {each.format: each for each in (ICEBERG, DELTA, PARQUET, FOLDER)}

# What ANSI SQL reserves, in Spark's list: `null` and `current_date`, unquoted, are no columns.
_RESERVED = re.compile(
    r"all|and|anti|any|as|authorization|both|case|cast|check|collate|collation|column|constraint|create|cross|"
    r"current_date|current_time|current_timestamp|current_user|distinct|else|end|escape|except|execute|exists|"
    r"false|fetch|filter|for|foreign|from|full|function|grant|group|having|in|inner|intersect|interval|into|is|"
    r"join|lateral|leading|left|localtimestamp|natural|not|null|offset|on|only|or|order|outer|overlaps|primary|"
    r"references|right|select|semi|session_user|some|sql|struct|table|then|time|to|trailing|true|union|unique|"
    r"unknown|user|using|values|when|where|window|with",
    re.IGNORECASE,
)

ASIDE_PREFIX = "airbyte_proto_"
"""What the names of branches begin with on which generations lie that are not complete."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TableSpec(NamedTuple):
    """A table as a stream needs it. Field metadata `comment` becomes the column's comment.

    With a `slice_column`, which is not in `schema`, the table is made of slices: each part that is committed is of one,
    and replaces or upserts rows of that slice alone. A table that stands with slices takes no part without, nor the
    other way round. `terms` say what becomes of a table that stands and has other columns. With `partitioning`, which
    goes with no slices, each file of rows is of one partition, and so is each of position deletes. `ordering` is what a
    format that has such a thing keeps up when it compacts the table.

    What `replaces` all rows may change the columns with them (`schema/replacing.py`), in tables that can. `begun` is
    the branch of the generation, where that is gone on with.
    """

    name: TableName
    schema: pa.Schema
    keys: tuple[str, ...] = ()
    comment: str = ""
    slice_column: str | None = None
    terms: Terms = Terms()
    partitioning: tuple[PartitionField, ...] = ()
    ordering: Ordering = Ordering()
    replaces: bool = False
    begun: str | None = None


class TableFit(NamedTuple):
    """How a table and a stream go together: what was changed in the table for it, what of the stream it does not take
    (to be left out of the files), and what it takes, by dotted names with their types. `beside` are the
    columns that nothing of the stream lands in."""

    changes: tuple[Change, ...] = ()
    withheld: tuple[Misfit, ...] = ()
    landed: Mapping[str, str] = {}
    beside: tuple[str, ...] = ()


class TableTarget(NamedTuple):
    """Where and how to write files for a table.

    `schema` has the table's own columns in its order, each (nested ones too) with `PARQUET:field_id` in its metadata
    where the format has ids. A column of the table that the stream lacks is there too, and is written as nulls. Not the
    slice column: readers have its value from the table, and nulls in a file would make them pass the file over.
    `qualified` is what a user writes in SQL.

    `location` is a folder for the table's files: an absolute path without a scheme where it is local, else a URI. A
    file's path is `location` + "/" + what you like, and goes verbatim into `StagedFile.path` and into the `file_path`
    of position deletes: tables compare the two letter by letter, so `/a` and `file:/a` would be two files. `storage`
    reaches it.

    With a `schema_id` the table knows of the schema, but readers have another until what is put aside by it (`Aside`)
    is published: then it is theirs, in the same change.
    """

    name: TableName
    schema: pa.Schema
    location: str
    qualified: str
    fit: TableFit = TableFit()
    storage: Storage = LOCAL
    schema_id: int | None = None


class Standing(NamedTuple):
    """What a table tells of its rows at no cost. `version` is another whenever rows have changed. `newest` is what the
    last change of them said; None where it said nothing, or was none of ours."""

    has_rows: bool
    version: str = ""
    newest: Newest | None = None


class Sought(NamedTuple):
    """`columns` of the rows whose key is among `keys` (a table of the key columns, each key once). With `since`, of
    those alone that have at least that value in a column."""

    keys: pa.Table
    columns: tuple[str, ...]
    since: tuple[str, pa.Scalar] | None = None


class TableWriter(Protocol):
    """Raises TableError when a table refuses, CommitUnknown when nobody knows whether it did."""

    @property
    def abilities(self) -> Abilities: ...

    @property
    def storage(self) -> Storage:
        """What reaches the files of its tables that are not on this machine's disk."""
        ...

    def prepare(self, spec: TableSpec) -> TableTarget:
        """Creates the table, or makes it what `schema/evolution.py` decides. Raises SchemaRefused where that is no."""
        ...

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        """Lands the part's files: append, upsert by keys, or replace, as its write mode says. May be called again.

        Readers see all of it or nothing: what is replaced is there until the new rows, without those that the part's
        position deletes take out, are.
        """
        ...

    def close(self) -> None:
        """Lets go of what it holds (a session it made itself, for one)."""
        ...


@runtime_checkable
class KnowsItsRows(Protocol):
    """What a writer can do beside, whose tables are asked whether they have newer rows of a key than those that come.
    Without it the later load wins. A writer that keeps rows aside is asked for those of a `branch` too."""

    def standing(self, name: TableName, branch: str | None = None) -> Standing:
        """What a prepared table tells of its rows now."""
        ...

    def greatest(self, name: TableName, columns: Sequence[str], branch: str | None = None) -> pa.Table:
        """One row: the greatest value of each of the columns, or null."""
        ...

    def rows_of(self, name: TableName, sought: Sought, branch: str | None = None) -> pa.Table:
        """What the table has now of some keys: null is a value in them. May read all of it."""
        ...


def fit_of(verdict: Verdict, wanted: Columns, terms: Terms) -> TableFit:
    """What is to be known of a verdict once the table is as it says."""
    own = set(map(folded, terms.own))
    stream = {folded(name) for name in flat(wanted)}
    out = {folded(misfit.column) for misfit in verdict.withheld}
    theirs = {name: kind for name, kind in flat(verdict.columns).items() if folded(name.partition(".")[0]) not in own}
    landed = {name: kind for name, kind in theirs.items() if folded(name) in stream - out}
    beside = tuple(name for name in theirs if name not in landed)
    changes = tuple(change for change in verdict.changes if folded(change.column.partition(".")[0]) not in own)
    return TableFit(changes, verdict.withheld, landed, beside)


@runtime_checkable
class KeepsAside(Protocol):
    """What a writer can do beside, whose tables have branches: `commit` parts that are put aside.

    Such a part lands once too, whoever tries, and only right behind the load that it says it comes after. The loads of
    a branch see nothing of what the table had, and upserts among them reach older loads of the branch alone.
    """

    def aside(self, name: TableName) -> Mapping[str, str]:
        """The branches that stand, each with the load that came last. None where there is no such table."""
        ...

    def drop_aside(self, name: TableName, branch: str) -> None:
        """Nothing of the branch is left, once its files are let go of. One that is not there, or whose table is not, is
        dropped already."""
        ...


def follows(part: StagedRows) -> bool:
    """Whether the part comes behind others on a branch, whose rows it may upsert."""
    return part.aside is not None and part.aside.after is not None


def refuse_aside(doing: str, part: StagedRows, newest: str | None) -> None:
    """Raises TableError where the branch does not end with the load that the part comes after, and InternalError for a
    part that cannot be put aside."""
    if part.aside is None:
        return
    if part.write not in REPLACING or part.slice is not None:
        raise InternalError(doing, "only what replaces a whole table is put aside", stream=str(part.stream))
    if part.aside.after is not None and part.aside.after != newest:
        found = f"ends with load {newest}" if newest else "is not there any more"
        raise TableError(
            doing,
            f"branch {part.aside.branch} {found}, and this one comes after load {part.aside.after}",
            remedy="Sync again: the generation is begun anew.",
            stream=str(part.stream),
        )


def landing(part: StagedRows, *, holds_rows: bool) -> tuple[StagedFile, ...]:
    """The files of a part that do something in a table. Raises InternalError for deletes in a mode that has none.

    An equality delete reaches only rows that were there before its load: none where the table `holds_rows` not, or is
    replaced, but by loads that come one after the other.
    """
    if part.write not in DEDUPLICATING and any(file.content is not FileContent.ROWS for file in part.files):
        raise InternalError("committing a load", f"{part.write} brings delete files", stream=str(part.stream))
    reaches_older_rows = holds_rows if part.write not in REPLACING else follows(part)
    return tuple(file for file in part.files if file.content is not FileContent.EQUALITY_DELETES or reaches_older_rows)


def newest_after(part: StagedRows, standing: Standing) -> Newest | None:
    """What a table, or a branch of it, may say of itself once a part is in that is committed onto rows as they are
    `standing`: nothing where others changed them since the part was made."""
    is_all_there_is = part.write in REPLACING and part.slice is None and not follows(part)
    is_as_it_was = part.newest is not None and part.newest.version == standing.version
    return part.newest if is_all_there_is or is_as_it_was else None


def refuse_mode(doing: str, abilities: Abilities, part: StagedRows) -> None:
    """Raises TableError for a part that is written in a way that the format has not."""
    if part.write not in abilities.modes:
        found = f"write mode {part.write} is not supported by tables of the format {abilities.format}"
        raise TableError(doing, found, stream=str(part.stream))
    if part.merge is Merge.COPY_ON_WRITE and not abilities.has_copy_on_write:
        found = f"merge: copy_on_write is not supported by tables of the format {abilities.format}"
        raise TableError(doing, found, stream=str(part.stream))


def quoted(name: str) -> str:
    """A name as Spark SQL takes it: in backticks where it needs them."""
    is_plain = _PLAIN_NAME.fullmatch(name) and not _RESERVED.fullmatch(name)
    return name if is_plain else "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """Text as Spark SQL takes it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def qualified(catalog: str, name: TableName) -> str:
    """A table as a user writes it in SQL."""
    return ".".join(quoted(part) for part in (catalog, *name))


def refuse_slices(doing: str, made_by: str | None, wanted: str | None, *, stream: str | None = None) -> None:
    """Raises TableError where a table's slice column and the wanted one are not the same."""
    if made_by == wanted:
        return
    if made_by is None:
        found = "the rows are of one partition, and the table was made without partitions"
    elif wanted is None:
        found = f"the table is partitioned by {made_by}, and the rows are of no partition of it"
    else:
        found = f"the table is partitioned by {made_by}, not by {wanted}"
    remedy = "Give them another table, or drop this one to have it made anew."
    raise TableError(doing, found, remedy=remedy, stream=stream)


def refuse_part(doing: str, made_by: str | None, part: StagedRows) -> None:
    """Raises TableError for a part of a slice where the table has none, and for one of none where it has."""
    wanted = None if part.slice is None else made_by or SLICE_COLUMN
    refuse_slices(doing, made_by, wanted, stream=str(part.stream))


def refuse_partitioning(
    doing: str, made_by: Sequence[str], wanted: Sequence[str], *, stream: str | None = None
) -> None:
    """Raises TableError where a table's rows are not parted by what is wanted, as a user writes it."""
    if [each.casefold() for each in made_by] == [each.casefold() for each in wanted]:
        return
    made, want = (f"by {', '.join(each)}" if each else "by nothing" for each in (made_by, wanted))
    raise TableError(
        doing,
        f"the table is partitioned {made}, and the stream {want}",
        remedy=(f"Set partition_by: [{', '.join(made_by)}], or drop" if made_by else "Leave out partition_by, or drop")
        + " the table to have it made anew.",
        stream=stream,
    )
