"""A table as staging, tables and sync agree on it: what a stream needs, and where and how to write its files."""

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from dagster_airbyte_proto.loads.load import Newest
from dagster_airbyte_proto.loads.storage import LOCAL, Storage
from dagster_airbyte_proto.model import Ordering, PartitionField, TableName, WriteMode
from dagster_airbyte_proto.schema.evolution import Change, Columns, Misfit, Terms, Verdict, flat
from dagster_airbyte_proto.schema.names import folded

MODES = frozenset((WriteMode.APPEND, WriteMode.OVERWRITE, WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP))
"""The write modes that tables know."""

REPLACING = frozenset((WriteMode.OVERWRITE, WriteMode.OVERWRITE_DEDUP))
"""Those in which a part takes the place of all rows that a table, or its slice, has. One without files empties it."""

SLICE_COLUMN = "_airbyte_partition"
"""What the column is called that tells the slices of a table apart."""

DEDUPLICATING = frozenset((WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP))
"""Those that leave one row of each key."""

ASIDE_PREFIX = "airbyte_proto_"
"""What the names of branches begin with on which generations lie that are not complete."""


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
