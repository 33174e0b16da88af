"""A table's columns, in Iceberg's own JSON for a schema, and as pyarrow sees them.

The JSON is what tables keep in their logs: every field, nested ones too, has an id that stays with it for life, so a
file written under a name is still read right after a rename. Names compare without case, as Spark compares them.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from dagster_airbyte_proto.errors import TableError

FIELD_ID = b"PARQUET:field_id"
COMMENT = b"comment"

Columns = dict[str, Any]
"""`{"type": "struct", "fields": [{"id", "name", "required", "type", "doc"?}, ...]}`"""

_Type = str | Columns

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
}
_WIDER = {("int", "long"), ("float", "double")}
_SIZED = re.compile(r"(decimal|fixed)[(\[]\s*(\d+)\s*(?:,\s*(\d+)\s*)?[)\]]")


class Difference(NamedTuple):
    """A column that a table and a stream see differently."""

    column: str
    in_table: str
    in_stream: str


def columns_of(schema: pa.Schema) -> Columns:
    """The columns of a new table, with ids of their own. All optional. Raises TableError for a type no table has."""
    names = [name.casefold() for name in schema.names]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TableError("preparing a table", f"columns differ by case alone, which tables do not tell apart: {twice}")
    return _struct(list(schema), itertools.count(1))


def arrow_schema(columns: Columns) -> pa.Schema:
    """How a file for the table is written. An optional column of a type that Parquet lacks is left to read as null."""
    return pa.schema([_arrow_field(field) for field in columns["fields"] if _is_writable(field)])


def with_text(columns: Columns, name: str | None) -> Columns:
    """The columns of a new table, and one of text behind them. None adds none."""
    if name is None:
        return columns
    if any(field["name"].casefold() == name.casefold() for field in columns["fields"]):
        raise TableError("preparing a table", f"column {name} is the table's own, and the stream has one of that name")
    added = {"id": _last_id(columns) + 1, "name": name, "required": False, "type": "string"}
    return {**columns, "fields": [*columns["fields"], added]}


def without(columns: Columns, name: str | None) -> Columns:
    """The columns but for one."""
    return {**columns, "fields": [field for field in columns["fields"] if field["name"] != name]}


def optional(kind: Any) -> Any:
    """A schema in which every field, nested ones too, may be null, but for the keys of maps."""
    if isinstance(kind, list):
        return [optional(item) for item in kind]
    if not isinstance(kind, dict):
        return kind
    required = ("required", "element-required", "value-required")
    return {name: False if name in required else optional(value) for name, value in kind.items()}


def differences(existing: Columns, wanted: Columns) -> Iterator[Difference]:
    """What stands in the way of writing `wanted` into a table of `existing` columns, once it has been widened."""
    yield from _struct_differences(existing, wanted, "")


def refuse_differences(doing: str, existing: Columns, wanted: Columns) -> None:
    """Raises TableError with every difference and the way out, if there is one."""
    if found := list(differences(existing, wanted)):
        raise TableError(
            doing,
            "; ".join(f"column {d.column} is {d.in_table} in the table and {d.in_stream} in the stream" for d in found),
            remedy="Drop the table and sync with --refresh, or give the stream another table by `rename` in the "
            "connection file.",
        )


def united(existing: Columns, wanted: Columns, last_id: int) -> tuple[Columns, int]:
    """`existing` with what it lacks of `wanted`, and the last id given out. Equal to `existing` when it lacks nothing.

    Call it only where there are no `differences`.
    """
    ids = itertools.count(last_id + 1)
    columns = _united(existing, wanted, ids)
    return columns, next(ids) - 1


def key_ids(columns: Columns, keys: tuple[str, ...]) -> list[int]:
    """The field ids of key columns. Raises TableError for a key that is no column."""
    by_name = {field["name"].casefold(): int(field["id"]) for field in columns["fields"]}
    if missing := [key for key in keys if key.casefold() not in by_name]:
        raise TableError("finding the key columns", f"the table has no column {', '.join(missing)}")
    return [by_name[key.casefold()] for key in keys]


def _struct(fields: list[pa.Field], ids: Iterator[int]) -> Columns:
    return {"type": "struct", "fields": [_field(field, ids) for field in fields]}


def _field(field: pa.Field, ids: Iterator[int]) -> Columns:
    column = {"id": next(ids), "name": field.name, "required": False, "type": _type(field.type, field.name, ids)}
    if comment := (field.metadata or {}).get(COMMENT):
        column["doc"] = comment.decode()
    return column


def _type(kind: pa.DataType, name: str, ids: Iterator[int]) -> _Type:
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


def _arrow_field(field: Columns) -> pa.Field:
    return _numbered(field["name"], field["type"], field["id"], required=field["required"])


def _numbered(name: str, kind: _Type, field_id: int, *, required: bool) -> pa.Field:
    return pa.field(name, _arrow(kind), nullable=not required, metadata={FIELD_ID: str(field_id).encode()})


def _arrow(kind: _Type) -> pa.DataType:
    if isinstance(kind, str):
        return _sized(kind) or _ARROW[kind]
    if kind["type"] == "struct":
        return pa.struct([_arrow_field(field) for field in kind["fields"]])
    if kind["type"] == "list":
        return pa.list_(_numbered("element", kind["element"], kind["element-id"], required=kind["element-required"]))
    return pa.map_(
        _numbered("key", kind["key"], kind["key-id"], required=True),
        _numbered("value", kind["value"], kind["value-id"], required=kind["value-required"]),
    )


def _sized(kind: str) -> pa.DataType | None:
    if not (match := _SIZED.fullmatch(kind)):
        return None
    size, scale = int(match[2]), int(match[3] or 0)
    return pa.decimal128(size, scale) if match[1] == "decimal" else pa.binary(size)


def _is_writable(field: Columns) -> bool:
    """False for an optional column that holds what Parquet from here cannot (variant, geometry, nanoseconds)."""
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


def _last_id(kind: _Type) -> int:
    """The highest id that is given out in a type."""
    if isinstance(kind, str):
        return 0
    if kind["type"] == "struct":
        return max((max(int(field["id"]), _last_id(field["type"])) for field in kind["fields"]), default=0)
    parts = ("element",) if kind["type"] == "list" else ("key", "value")
    return max(max(int(kind[f"{part}-id"]), _last_id(kind[part])) for part in parts)


def _by_name(columns: Columns) -> dict[str, Columns]:
    return {field["name"].casefold(): field for field in columns["fields"]}


def _struct_differences(existing: Columns, wanted: Columns, prefix: str) -> Iterator[Difference]:
    old, new = _by_name(existing), _by_name(wanted)
    for name, field in old.items():
        column = prefix + field["name"]
        if name in new:
            yield from _type_differences(field["type"], new[name]["type"], column)
        elif field["required"]:
            yield Difference(column, f"{_said(field['type'])} not null", "nothing")


def _type_differences(old: _Type, new: _Type, column: str) -> Iterator[Difference]:
    if isinstance(old, str) or isinstance(new, str):
        if old != new and not _widens(old, new) and not _widens(new, old):
            yield Difference(column, _said(old), _said(new))
    elif old["type"] != new["type"]:
        yield Difference(column, _said(old), _said(new))
    elif old["type"] == "struct":
        yield from _struct_differences(old, new, f"{column}.")
    else:
        for part in ("element",) if old["type"] == "list" else ("key", "value"):
            yield from _type_differences(old[part], new[part], f"{column}.{part}")


def _widens(narrow: _Type, wide: _Type) -> bool:
    if not (isinstance(narrow, str) and isinstance(wide, str)):
        return False
    small, big = _SIZED.fullmatch(narrow), _SIZED.fullmatch(wide)
    if small and big and small[1] == big[1] == "decimal":
        return small[3] == big[3] and int(small[2]) < int(big[2])
    return (narrow, wide) in _WIDER


def _united(existing: Columns, wanted: Columns, ids: Iterator[int]) -> Columns:
    old, new = _by_name(existing), _by_name(wanted)
    fields = [_united_field(field, new[name], ids) if name in new else field for name, field in old.items()]
    added = [_renumbered_field(field, ids) for name, field in new.items() if name not in old]
    return {**existing, "fields": fields + added}


def _united_field(old: Columns, new: Columns, ids: Iterator[int]) -> Columns:
    return {**old, "required": False, "type": _united_type(old["type"], new["type"], ids)}


def _united_type(old: _Type, new: _Type, ids: Iterator[int]) -> _Type:
    if isinstance(old, str) or isinstance(new, str):
        return new if _widens(old, new) else old
    if old["type"] == "struct":
        return _united(old, new, ids)
    parts = ("element",) if old["type"] == "list" else ("value",)
    return {**old, **{part: _united_type(old[part], new[part], ids) for part in parts}}


def _renumbered_field(field: Columns, ids: Iterator[int]) -> Columns:
    return {**field, "id": next(ids), "type": _renumbered(field["type"], ids)}


def _renumbered(kind: _Type, ids: Iterator[int]) -> _Type:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return {**kind, "fields": [_renumbered_field(field, ids) for field in kind["fields"]]}
    parts = ("element",) if kind["type"] == "list" else ("key", "value")
    return {
        **kind,
        **{f"{part}-id": next(ids) for part in parts},
        **{part: _renumbered(kind[part], ids) for part in parts},
    }


def _said(kind: _Type) -> str:
    """A type as a user writes it in SQL, near enough to recognise it."""
    if isinstance(kind, str):
        return {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}.get(kind, kind)
    if kind["type"] == "struct":
        return "struct<" + ", ".join(f"{field['name']}: {_said(field['type'])}" for field in kind["fields"]) + ">"
    if kind["type"] == "list":
        return f"array<{_said(kind['element'])}>"
    return f"map<{_said(kind['key'])}, {_said(kind['value'])}>"
