"""What is chosen for each stream, as a user writes it. What is left open here, the plan takes from the catalog."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from dagster_airbyte_proto.connection.launch import Text
from dagster_airbyte_proto.connection.types import TypeOptions
from dagster_airbyte_proto.connection.validation import AlsoWritten, Written
from dagster_airbyte_proto.model import FieldPath, Merge, ReadMode, SchemaPolicy, WriteMode

OTHERS = "*"
"""The name under which a user says what the streams get that are not named."""

_NAME = {"type": "string"}
_NAMES = {"type": "array", "items": _NAME}
_PATHS = {"type": "array", "items": {"anyOf": [_NAME, _NAMES]}}


def _path(column: Any) -> FieldPath | None:
    """A column as a path: `id`, or `[address, city]` for a nested one. None when it is neither."""
    if isinstance(column, str) and column:
        return (column,)
    is_path = isinstance(column, list | tuple) and column and all(isinstance(part, str) and part for part in column)
    return tuple(column) if is_path else None


def _one_path(cursor: Any) -> FieldPath:
    path = _path(cursor)
    if path is None:
        raise ValueError("must be a column, or a list of names that leads to a nested one")
    return path


def _paths(key: Any) -> tuple[FieldPath, ...]:
    paths = tuple(_path(column) for column in key) if isinstance(key, list | tuple) and key else (None,)
    whole = tuple(path for path in paths if path is not None)
    if len(whole) < len(paths):
        raise ValueError("must be a list of columns: names, or lists of names that lead to nested ones")
    if len(set(whole)) < len(whole):
        raise ValueError("names a column twice")
    return whole


_Texts = Annotated[tuple[Text, ...], Field(min_length=1)]
_Paths = Annotated[tuple[FieldPath, ...], BeforeValidator(_paths), AlsoWritten(_PATHS)]


def _formerly(names: Any) -> Any:
    if not isinstance(names, Mapping) or not all(isinstance(old, str) and old for old in names.values()):
        raise ValueError("must be a mapping of each field's name of today to its old one")
    if len(set(names.values())) < len(names):
        raise ValueError("says of two fields that they had one name")
    if twice := sorted(set(names) & set(names.values())):
        raise ValueError(f"has {twice[0]} as a new name and as an old one")
    return names


class StreamOptions(Written):
    """None means: as the catalog has it, or the connection. `rename` names the table, `rename_columns` its columns.
    `formerly` is for what the source renamed: the old name of a field, by the one that it has today.

    Columns are named as the source names them, whatever they are called in the table.
    """

    read: ReadMode | None = None
    write: WriteMode | None = None
    merge: Merge | None = None
    primary_key: _Paths | None = None
    cursor: Annotated[FieldPath, BeforeValidator(_one_path), AlsoWritten(_NAME)] | None = None
    select: _Paths | None = None
    exclude: _Paths | None = None
    rename: Text | None = None
    rename_columns: Annotated[dict[Text, Text], Field(min_length=1)] | None = None
    hash: _Paths | None = None
    filter: Text | None = None
    partition_by: _Texts | None = None
    sort_by: _Texts | None = None
    cluster: _Texts | None = None
    types: TypeOptions = TypeOptions()
    schema_policy: SchemaPolicy | None = None
    formerly: Annotated[dict[str, str], BeforeValidator(_formerly)] | None = None


def _by_name(streams: Any) -> Any:
    if isinstance(streams, Mapping):
        return {name: {} if options is None else options for name, options in streams.items()}
    if not isinstance(streams, list | tuple):
        return streams
    if not all(isinstance(name, str) for name in streams):
        raise ValueError("must be a list of names, or a mapping of names to their options")
    if len(set(streams)) < len(streams):
        raise ValueError(f"{next(name for name in streams if streams.count(name) > 1)} is named twice")
    return {name: {} for name in streams}


Streams = Annotated[dict[str, StreamOptions], Field(min_length=1), BeforeValidator(_by_name), AlsoWritten(_NAMES)]
