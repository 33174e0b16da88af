"""The values with which staging, tables and sync describe a table to each other.

`TableSpec` is the request (what a stream needs), `TableTarget` is the answer (where and how to write its files).
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.loads.load import HighWaterMark
from dagster_airbyte_proto.loads.storage import LOCAL, Storage
from dagster_airbyte_proto.model import MergeMode, Ordering, PartitionField, TableName
from dagster_airbyte_proto.schema.columns import RecordForm
from dagster_airbyte_proto.schema.evolution import (
    ColumnMismatch,
    EvolutionDecision,
    EvolutionRules,
    IcebergSchema,
    SchemaChange,
    column_types,
)
from dagster_airbyte_proto.schema.names import case_folded

SLICE_COLUMN = "_airbyte_partition"
"""The column that holds a row's slice, in a table with slices."""

BRANCH_PREFIX = "airbyte_proto_"
"""The start of the name of every branch that holds an incomplete generation."""


class TableSpec(NamedTuple):
    """A table as a stream needs it. Field metadata `comment` becomes the column's comment.

    With a `slice_column`, which is not in `schema`, the table consists of slices: each committed part belongs to one
    slice, and replaces or upserts rows of that slice only. An existing table with slices refuses parts without one, and
    the other way round. `evolution_rules` decide what happens to an existing table with other columns. With
    `partitioning`, which excludes slices, each file of rows or of position deletes lies in one partition. `ordering` is
    the sort order or clustering that a format applies when it compacts the table, if the format supports it.

    A stream that `replaces` all rows may change the columns in the same step (`schema/replacement.py`), in formats that
    can do so. `resumed_branch` is the branch of an incomplete generation that this run continues,
    `resumed_schema_id` the schema with which this run began its generation, before the stream gained columns. A new
    table is made fit for `merge`, the way that its rows are merged by key, if they are.
    """

    name: TableName
    schema: pa.Schema
    keys: tuple[str, ...] = ()
    comment: str = ""
    slice_column: str | None = None
    evolution_rules: EvolutionRules = EvolutionRules()
    partitioning: tuple[PartitionField, ...] = ()
    ordering: Ordering = Ordering()
    replaces: bool = False
    resumed_branch: str | None = None
    resumed_schema_id: int | None = None
    record_form: RecordForm | None = None
    merge: MergeMode | None = None


def spec_digest(spec: TableSpec, place: str) -> str:
    """Returns a digest of all that `prepare` depends on, in one `place` (a catalog and its warehouse)."""
    fields = [
        (field.name, str(field.type), field.nullable, sorted((field.metadata or {}).items())) for field in spec.schema
    ]
    # No digest ever had the last three, nor the last of the rules.
    rules, parts = spec.evolution_rules, spec._replace(schema=None, resumed_branch=None)[:-3]
    values = (place, fields, [part[:-1] if part is rules else part for part in parts])
    return hashlib.sha256(msgspec.msgpack.encode(values, order="deterministic")).hexdigest()[:16]


class TableFit(NamedTuple):
    """The differences between a stream and its table, after `prepare`.

    `changes` were made to the table for the stream. `excluded` columns of the stream do not fit, and are left out of
    the files. `landed` maps the dotted names of the columns that are written to their types. `unfilled_columns` are
    columns of the table that this stream does not fill.
    """

    changes: tuple[SchemaChange, ...] = ()
    excluded: tuple[ColumnMismatch, ...] = ()
    landed: Mapping[str, str] = {}
    unfilled_columns: tuple[str, ...] = ()


class TableTarget(NamedTuple):
    """Where and how to write files for a table.

    `schema` has the table's own columns in the table's order. Each of them, nested ones too, has `PARQUET:field_id` in
    its metadata if the format has ids. It includes columns that the stream lacks; they are written as nulls. It does
    not include the slice column: readers take that value from the table's metadata, and because of nulls in a file they
    would skip the file. `qualified` is the table's name in SQL.

    `location` is a folder for the table's files: an absolute path without a scheme if it is local, else a URI. A file's
    path is `location` + "/" + any name. It goes verbatim into `StagedFile.path` and into the `file_path` of position
    deletes, because tables compare the two as text: `/a` and `file:/a` would be two files. `storage` opens it.

    With a `schema_id` the table's metadata has this schema, but readers still have another one. They get this one in
    the change that publishes a branch with the same id (`BranchPosition.schema_id`).

    `table_id` is the table's identity, as far as the format has one. `log_position` is how far its log goes now, if
    others may cut it short: whatever lands from now on has a place behind it.
    """

    name: TableName
    schema: pa.Schema
    location: str
    qualified: str
    fit: TableFit = TableFit()
    storage: Storage = LOCAL
    schema_id: int | None = None
    table_id: str = ""
    log_position: int | None = None


class Witness(NamedTuple):
    """The word of a table's own log: its identity, and the newest load of one connection that the log still has.

    The identity is another for a table that was dropped and made again. If the log `is_whole`, it reaches back to the
    first change of the table: then a load that it lacks is not there.
    """

    table_id: str
    newest_load: str | None
    is_whole: bool


class Freshness(NamedTuple):
    """The newest rows of a table, as its log describes them without reading them.

    `version` differs whenever rows have changed. `high_water_mark` comes from the last change of rows; it is None if
    that change carried none, or was made by another program.
    """

    has_rows: bool
    version: str = ""
    high_water_mark: HighWaterMark | None = None


class KeyQuery(NamedTuple):
    """A query for `columns` of the rows whose key is among `keys` (a table of the key columns, each key once).

    `since` (a column and a value) limits it to the rows that have at least that value in the column.
    """

    keys: pa.Table
    columns: tuple[str, ...]
    since: tuple[str, pa.Scalar] | None = None


def table_fit(decision: EvolutionDecision, columns: IcebergSchema, rules: EvolutionRules) -> TableFit:
    """Returns the fit of a table that now has the columns of `decision`. It leaves out the package's own columns."""
    own = set(map(case_folded, rules.own_columns))
    stream = {case_folded(name) for name in column_types(columns)}
    excluded = {case_folded(each.column) for each in decision.excluded}
    of_users = {
        name: kind
        for name, kind in column_types(decision.columns).items()
        if case_folded(name.partition(".")[0]) not in own
    }
    landed = {name: kind for name, kind in of_users.items() if case_folded(name) in stream - excluded}
    unfilled = tuple(name for name in of_users if name not in landed)
    changes = tuple(change for change in decision.changes if case_folded(change.column.partition(".")[0]) not in own)
    return TableFit(changes, decision.excluded, landed, unfilled)
