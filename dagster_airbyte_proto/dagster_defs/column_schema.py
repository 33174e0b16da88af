"""A table's columns as Dagster shows them, where they come from, and what their change is called."""

import hashlib
from functools import cache

import dagster as dg
import msgspec
import pyarrow as pa

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import PlannedStream, WriteMode
from dagster_airbyte_proto.schema.columns import METADATA, Columns, ValueType

_TYPES = {
    pa.string(): "string",
    pa.large_string(): "string",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
}
_DEDUPLICATED = frozenset((WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP))
_KEY = ["primary key"]


def table_schema(columns: Columns, *, write: WriteMode | None = None) -> dg.TableSchema:
    """The table's columns, ours last. A key is said to be unique where `write` makes it so, and it is of one column."""
    is_unique = write in _DEDUPLICATED and len(columns.keys) == 1
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
        + _metadata_columns()
    )


def arrow_table_schema(schema: pa.Schema) -> dg.TableSchema:
    """The same of a table that is there, from how pyarrow sees it; comments are the fields' metadata `comment`."""
    return dg.TableSchema([_column(field) for field in schema])


def column_type(kind: pa.DataType) -> str:
    """A type as Spark's SQL writes it."""
    if (plain := _TYPES.get(kind)) is not None:
        return plain
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{column_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{column_type(kind.key_type)},{column_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        fields = (kind.field(number) for number in range(kind.num_fields))
        return f"struct<{','.join(f'{field.name}:{column_type(field.type)}' for field in fields)}>"
    return str(kind)


def column_lineage(columns: Columns, upstream: dg.AssetKey) -> dg.TableColumnLineage:
    """Each column and the field of `upstream` that it is made of, by the name that the source gives it."""
    return dg.TableColumnLineage(
        {column.name: [dg.TableColumnDep(asset_key=upstream, column_name=column.path[0])] for column in columns.all}
    )


def code_version(connection: Connection, planned: PlannedStream) -> str:
    """Changes with what changes the table: the connector's version, the schema, the modes, the keys, the name."""
    launch = connection.connector.launch
    program = launch.model_dump(include={"kind", "command", "package", "executable", "image"})
    parts = (
        (connection.connector.protocol, program),
        planned.stream.json_schema,
        (planned.read, planned.write, planned.primary_key, planned.cursor, planned.table),
    )
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:16]


@cache
def _value_type(kind: ValueType) -> str:
    return column_type(kind.in_table)


@cache
def _metadata_columns() -> list[dg.TableColumn]:
    return [_column(field) for field in METADATA]


def _column(field: pa.Field) -> dg.TableColumn:
    comment = (field.metadata or {}).get(b"comment", b"").decode()
    return dg.TableColumn(field.name, column_type(field.type), comment or None)
