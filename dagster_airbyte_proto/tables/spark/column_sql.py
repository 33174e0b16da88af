"""Columns in Spark's SQL: those of a new table, and the changes of an existing one. The same for every format."""

from collections.abc import Iterator, Sequence

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.schema.evolution import IcebergSchema, IcebergType
from dagster_airbyte_proto.schema.names import case_folded
from dagster_airbyte_proto.tables.sql_names import quoted, text_literal

_SQL = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "variant": "variant",
}


def column_list(columns: IcebergSchema) -> str:
    """Returns the columns as `create table` has them. Raises TableError for a type that Spark SQL has not."""
    return _fields(columns, " ")


def column_changes(existing: IcebergSchema, wanted: IcebergSchema) -> Iterator[str]:
    """Yields what `alter table` is to do until there are all `wanted` columns: each adds columns, widens one, or allows
    it to be null."""
    return _changes((), existing, wanted)


def _changes(path: tuple[str, ...], existing: IcebergType, wanted: IcebergType) -> Iterator[str]:
    if isinstance(existing, str) or isinstance(wanted, str):
        if existing != wanted:
            yield f"alter column {_path(path)} type {_type(wanted, ': ')}"
        return
    if existing["type"] != "struct":
        for part in ("element", "value"):
            if part in existing:
                yield from _changes((*path, part), existing[part], wanted[part])
        return
    known = {case_folded(str(field["name"])): field for field in existing["fields"]}
    for field in wanted["fields"]:
        if before := known.get(case_folded(str(field["name"]))):
            here = (*path, str(before["name"]))
            if before["required"] and not field["required"]:
                yield f"alter column {_path(here)} drop not null"
            yield from _changes(here, before["type"], field["type"])
        else:
            yield f"add column {_path((*path, str(field['name'])))} {_type(field['type'], ': ')}{_comment(field)}"


def _path(path: Sequence[str]) -> str:
    return ".".join(map(quoted, path))


def _type(kind: IcebergType, separator: str) -> str:
    if isinstance(kind, str):
        if kind not in _SQL and not kind.startswith("decimal"):
            remedy = "Leave the column out, have it as text, or sync on a session that is not one of Spark Connect."
            raise TableError("preparing a table", f"Spark SQL has no type for columns of {kind}", remedy=remedy)
        return _SQL.get(kind, kind.replace(" ", ""))
    if kind["type"] == "struct":
        return f"struct<{_fields(kind, separator)}>"
    if kind["type"] == "list":
        return f"array<{_type(kind['element'], separator)}>"
    return f"map<{_type(kind['key'], separator)}, {_type(kind['value'], separator)}>"


def _fields(columns: IcebergSchema, separator: str) -> str:
    return ", ".join(
        f"{quoted(str(field['name']))}{separator}{_type(field['type'], ': ')}{_comment(field)}"
        for field in columns["fields"]
    )


def _comment(field: IcebergSchema) -> str:
    return f" comment {text_literal(str(field['doc']))}" if "doc" in field else ""
