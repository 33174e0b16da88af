"""Converts a table's columns between pyarrow and Iceberg's JSON for schemas.

- Tables keep the JSON in their logs. Every field, nested ones too, has an id that never changes. Because of the id, a
  file that was written under an old name is still read correctly after a rename.
- Names are compared without case, as Spark compares them.
- `schema/evolution.py` decides what happens to a table when its stream changes.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.schema.columns import VARIANT
from dagster_airbyte_proto.schema.evolution import IcebergSchema, IcebergType

FIELD_ID = b"PARQUET:field_id"
COMMENT = b"comment"

# The field ids that Iceberg's specification reserves for the columns of position deletes.
_FILE_PATH_ID = 2147483546
_POSITION_ID = 2147483545
POSITION_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={FIELD_ID: str(_FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID: str(_POSITION_ID)}),
    ]
)
"""The columns of a file of position deletes."""

_PLAIN: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.time64("us"): "time",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", "UTC"): "timestamptz",
    VARIANT: "variant",
}
_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "uuid": pa.binary(16),
    "variant": VARIANT,
}
_SIZED = re.compile(r"(decimal|fixed)[(\[]\s*(\d+)\s*(?:,\s*(\d+)\s*)?[)\]]")


def columns_of(schema: pa.Schema) -> IcebergSchema:
    """Returns the columns of a new table with fresh ids, all of them optional.

    Raises TableError for a type that no table has.
    """
    names = [name.casefold() for name in schema.names]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        found = f"columns differ only by case, which tables do not distinguish: {twice}"
        raise TableError("preparing a table", found, remedy="Rename one of them by `rename_columns`.")
    return _struct(list(schema), itertools.count(1))


def arrow_schema(columns: IcebergSchema) -> pa.Schema:
    """Returns the schema of the files for a table.

    It leaves out optional columns whose type we cannot write to Parquet: readers get null for them.
    """
    return pa.schema([_arrow_field(field) for field in columns["fields"] if _is_writable(field)])


def with_text_column(columns: IcebergSchema, name: str | None) -> IcebergSchema:
    """Returns the columns of a new table with a text column added at the end. Adds nothing if `name` is None."""
    if name is None:
        return columns
    if any(field["name"].casefold() == name.casefold() for field in columns["fields"]):
        found = f"column {name} is the table's own, and the stream has one of that name"
        raise TableError("preparing a table", found, remedy="Rename it by `rename_columns`.")
    added = {"id": _last_id(columns) + 1, "name": name, "required": False, "type": "string"}
    return {**columns, "fields": [*columns["fields"], added]}


def without_column(columns: IcebergSchema, name: str | None) -> IcebergSchema:
    """Returns the columns without the one of that name."""
    return {**columns, "fields": [field for field in columns["fields"] if field["name"] != name]}


def all_optional(kind: Any) -> Any:
    """Returns a schema in which every field may be null, nested ones too. Keys of maps stay required."""
    if isinstance(kind, list):
        return [all_optional(item) for item in kind]
    if not isinstance(kind, dict):
        return kind
    required = ("required", "element-required", "value-required")
    return {name: False if name in required else all_optional(value) for name, value in kind.items()}


def has_type(kind: IcebergType, name: str) -> bool:
    """True if a type is the named one, or contains it."""
    if isinstance(kind, str):
        return kind == name
    inside = [field["type"] for field in kind["fields"]] if kind["type"] == "struct" else list(kind.values())
    return any(has_type(each, name) for each in inside if isinstance(each, str | dict))


def key_ids(columns: IcebergSchema, keys: tuple[str, ...]) -> list[int]:
    """Returns the field ids of the key columns. Raises TableError for a key that is not a column."""
    by_name = {field["name"].casefold(): int(field["id"]) for field in columns["fields"]}
    if missing := [key for key in keys if key.casefold() not in by_name]:
        raise TableError("finding the key columns", f"the table has no column {', '.join(missing)}")
    return [by_name[key.casefold()] for key in keys]


def names_by_id(schema: pa.Schema) -> dict[int, str]:
    """Returns the name of each field that has an id, nested ones too, but for the elements of arrays and maps."""
    return dict(_named_fields(schema))


def _struct(fields: list[pa.Field], ids: Iterator[int]) -> IcebergSchema:
    return {"type": "struct", "fields": [_field(field, ids) for field in fields]}


def _field(field: pa.Field, ids: Iterator[int]) -> IcebergSchema:
    column = {"id": next(ids), "name": field.name, "required": False, "type": _type(field.type, field.name, ids)}
    if comment := (field.metadata or {}).get(COMMENT):
        column["doc"] = comment.decode()
    return column


def _type(kind: pa.DataType, name: str, ids: Iterator[int]) -> IcebergType:
    if plain := _PLAIN.get(kind):
        return plain
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_struct(kind):
        return _struct([kind.field(i) for i in range(kind.num_fields)], ids)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = next(ids)
        return {
            "type": "list",
            "element-id": element,
            "element": _type(kind.value_type, name, ids),
            "element-required": False,
        }
    if pa.types.is_map(kind):
        key, value = next(ids), next(ids)
        return {
            "type": "map",
            "key-id": key,
            "key": _type(kind.key_type, name, ids),
            "value-id": value,
            "value": _type(kind.item_type, name, ids),
            "value-required": False,
        }
    raise TableError("preparing a table", f"column {name} has the type {kind}, which tables do not have")


def _arrow_field(field: IcebergSchema) -> pa.Field:
    return _field_with_id(field["name"], field["type"], field["id"], required=field["required"])


def _field_with_id(name: str, kind: IcebergType, field_id: int, *, required: bool) -> pa.Field:
    return pa.field(name, _arrow(kind), nullable=not required, metadata={FIELD_ID: str(field_id).encode()})


def _arrow(kind: IcebergType) -> pa.DataType:
    if isinstance(kind, str):
        return _sized(kind) or _ARROW[kind]
    if kind["type"] == "struct":
        return pa.struct([_arrow_field(field) for field in kind["fields"]])
    if kind["type"] == "list":
        return pa.list_(
            _field_with_id("element", kind["element"], kind["element-id"], required=kind["element-required"])
        )
    return pa.map_(
        _field_with_id("key", kind["key"], kind["key-id"], required=True),
        _field_with_id("value", kind["value"], kind["value-id"], required=kind["value-required"]),
    )


def _sized(kind: str) -> pa.DataType | None:
    if not (match := _SIZED.fullmatch(kind)):
        return None
    size, scale = int(match[2]), int(match[3] or 0)
    return pa.decimal128(size, scale) if match[1] == "decimal" else pa.binary(size)


def _is_writable(field: IcebergSchema) -> bool:
    """False for an optional column of a type that we cannot write to Parquet (geometry, nanoseconds)."""
    try:
        _arrow(field["type"])
    except KeyError:
        if field["required"]:
            raise TableError(
                "preparing a table",
                f"column {field['name']} is required and of type {field['type']}, never written here",
            ) from None
        return False
    return True


def _last_id(kind: IcebergType) -> int:
    """Returns the highest field id in a type."""
    if isinstance(kind, str):
        return 0
    if kind["type"] == "struct":
        return max((max(int(field["id"]), _last_id(field["type"])) for field in kind["fields"]), default=0)
    parts = ("element",) if kind["type"] == "list" else ("key", "value")
    return max(max(int(kind[f"{part}-id"]), _last_id(kind[part])) for part in parts)


def _named_fields(fields: Iterable[pa.Field]) -> Iterator[tuple[int, str]]:
    for field in fields:
        if (number := (field.metadata or {}).get(FIELD_ID)) is not None:
            yield int(number), field.name
        yield from _named_fields(_members(field.type))


def _members(kind: pa.DataType) -> list[pa.Field]:
    """Returns the fields of a struct, or of those within an array or a map."""
    if pa.types.is_struct(kind):
        return [kind.field(number) for number in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [*_members(kind.key_type), *_members(kind.item_type)]
    return _members(kind.value_type) if pa.types.is_list(kind) or pa.types.is_large_list(kind) else []
