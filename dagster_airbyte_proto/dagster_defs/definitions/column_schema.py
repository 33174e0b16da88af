"""The column schema, column lineage and code version of a stream's asset."""

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import dagster as dg
import msgspec
import pyarrow as pa

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.launch import LocalLaunch
from dagster_airbyte_proto.loads.table import SLICE_COLUMN
from dagster_airbyte_proto.model import DEDUPLICATING, PlannedStream, TypeChoices, WriteMode
from dagster_airbyte_proto.schema.columns import Columns, ValueType, column_type
from dagster_airbyte_proto.transforms.transform_choice import described_transforms

SOURCE_ASSET = "airbyte_proto/source_asset"

_KEY = ["primary key"]
_SLICE = dg.TableColumn(SLICE_COLUMN, "string", "Partition of the row")


class DescribedColumn(NamedTuple):
    """A column of an existing table, with its SQL type."""

    name: str
    type: str
    comment: str = ""


def table_schema(columns: Columns, *, write: WriteMode | None = None, is_partitioned: bool = False) -> dg.TableSchema:
    """The planned columns of a table, metadata columns last. A key of one column is marked unique if `write` keeps it
    unique in the whole table: a partitioned table may repeat a key in another partition."""
    is_unique = write in DEDUPLICATING and len(columns.keys) == 1 and not is_partitioned
    key = dg.TableColumnConstraints(nullable=True, unique=is_unique, other=_KEY)
    return dg.TableSchema(
        [
            dg.TableColumn(
                column.name,
                _value_type(column.type),
                column.comment or None,
                constraints=key if column.name in columns.keys else None,
            )
            for column in columns.all
        ]
        + _metadata_columns(columns.sdc)
        + ([_SLICE] if is_partitioned else [])
    )


def described_schema(found: Iterable[DescribedColumn], planned: dg.TableSchema) -> dg.TableSchema:
    """The columns of an existing table. Keys, and comments that the table lacks, come from the `planned` columns."""
    known = {column.name: column for column in planned.columns}
    return dg.TableSchema([_table_column(column, known.get(column.name)) for column in found])


def source_asset(metadata: Mapping[str, Any]) -> dg.AssetKey | None:
    """The asset that a stream reads from, if the metadata names one: as a key, or as a string like in the UI."""
    found = metadata.get(SOURCE_ASSET)
    key = getattr(found, "asset_key", getattr(found, "value", found))
    return dg.AssetKey.from_user_string(key) if isinstance(key, str) else key


def column_lineage(columns: Columns, upstream: dg.AssetKey) -> dg.TableColumnLineage:
    """Each column with the field of `upstream` that it comes from, under the source's name for it. Metadata columns,
    columns of whole records, and new ones that a transform made have no such field and are left out."""
    fields = {column.path for column in columns.as_parsed.all}
    derived = [] if columns.is_schemaless else [column for column in columns.all if column.path in fields]
    return dg.TableColumnLineage(
        {column.name: [dg.TableColumnDep(asset_key=upstream, column_name=column.path[0])] for column in derived}
    )


def code_version(connection: Connection, planned: PlannedStream) -> str:
    """A hash that changes with everything that changes the table: the connector's version, the schema, modes, keys and
    name."""
    parts = (
        (connection.connector.protocol, _program(connection)),
        planned.stream.json_schema,
        (planned.read, planned.write, planned.primary_key, planned.cursor, planned.table),
        *([planned.shaping] if planned.shaping else []),
        *([planned.types] if planned.types != TypeChoices() else []),
        *(["sdc_columns"] if planned.sdc_columns else []),
        *([described_transforms(planned.transforms)] if planned.transforms else []),
    )
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:16]


def _program(connection: Connection) -> Mapping[str, Any]:
    """The connector's program and its version. One beside the connection file stays the same in another folder: that of
    the next release, say."""
    launch = connection.connector.launch
    found = launch.model_dump(include={"kind", "command", "package", "executable", "version", "image"})
    if isinstance(launch, LocalLaunch) and connection.origin:
        program, *arguments = launch.command
        found["command"] = [program.removeprefix(f"{connection.origin.parent.absolute()}/"), *arguments]
    return found


def _table_column(column: DescribedColumn, planned: dg.TableColumn | None) -> dg.TableColumn:
    comment = column.comment or (planned.description if planned else None)
    return dg.TableColumn(column.name, column.type, comment, constraints=planned.constraints if planned else None)


@cache
def _value_type(kind: ValueType) -> str:
    return column_type(kind.table_type)


@cache
def _metadata_columns(sdc: tuple[str, ...]) -> list[dg.TableColumn]:
    return [_column(field) for field in Columns((), sdc=sdc).metadata]


def _column(field: pa.Field) -> dg.TableColumn:
    comment = (field.metadata or {}).get(b"comment", b"").decode()
    return dg.TableColumn(field.name, column_type(field.type), comment or None)
