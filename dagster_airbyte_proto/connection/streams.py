"""The options of each stream in a connection file. The plan takes the options that are left out from the catalog."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from dagster_airbyte_proto.connection.launch import Text
from dagster_airbyte_proto.connection.types import TypeOptions
from dagster_airbyte_proto.connection.validation import AlternativeForm, StrictModel
from dagster_airbyte_proto.model import FieldPath, MergeMode, ReadMode, SchemaPolicy, WriteMode

OTHERS = "*"
"""The key for the options of all streams that are not named."""

_NAME = {"type": "string"}
_NAMES = {"type": "array", "items": _NAME}
_PATHS = {"type": "array", "items": {"anyOf": [_NAME, _NAMES]}}


def _path(column: Any) -> FieldPath | None:
    """Returns a column as a path: `id`, or `[address, city]` for a nested one. None if it is neither."""
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
_Paths = Annotated[tuple[FieldPath, ...], BeforeValidator(_paths), AlternativeForm(_PATHS)]


def _formerly(names: Any) -> Any:
    if not isinstance(names, Mapping) or not all(isinstance(old, str) and old for old in names.values()):
        raise ValueError("must be a mapping of each field's new name to its old one")
    if len(set(names.values())) < len(names):
        raise ValueError("gives two fields the same old name")
    if twice := sorted(set(names) & set(names.values())):
        raise ValueError(f"has {twice[0]} as a new name and as an old one")
    return names


class StreamOptions(StrictModel):
    """The options of one stream. None means the default of the connection, or else of the catalog.

    `rename` sets the table's name, `rename_columns` the names of its columns. `formerly` is for fields that the source
    renamed: it maps the new name to the old one. Columns have the source's names here, whatever the table calls them.
    `options` are those of the stream at the destination of a relay, where its protocol has such.
    """

    read: ReadMode | None = None
    write: WriteMode | None = None
    merge: MergeMode | None = None
    primary_key: _Paths | None = None
    cursor: Annotated[FieldPath, BeforeValidator(_one_path), AlternativeForm(_NAME)] | None = None
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
    options: dict[str, Any] = Field(default_factory=dict)


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


Streams = Annotated[dict[str, StreamOptions], Field(min_length=1), BeforeValidator(_by_name), AlternativeForm(_NAMES)]
