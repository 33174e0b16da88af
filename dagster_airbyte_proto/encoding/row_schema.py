"""Checks rows against the JSON Schema that a destination gives for them, as the JSON text that it would get.

A reason names the path of the value at fault, and never the value. A removed row is little more than its key, and only
that is held against the schema. What one schema may cost is bounded: patterns are searched in linear time, or with a
limit on backtracking where they need an engine that does, and no reference to another place is followed.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.encoding.column_types import plain_schema
from dagster_airbyte_proto.errors import ConfigError

_ROW = msgspec.json.Decoder()
_MAX_REASON = 300
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
UNREADABLE_ROW: Final = "the row: not every reader takes it (too deep, a number beyond all doubles, half of a letter)"
"""The reason of a row that cannot be held against a schema. Half of a letter is half of a surrogate pair."""
_SHARED: Final[tuple[str, ...]] = ("$schema", "$defs", "definitions")
"""The parts of a schema that others of its parts may refer to."""


class RemovedRows(NamedTuple):
    """The form of a removed row: the column that marks it, and its key."""

    column: str
    keys: tuple[str, ...]


class RowSchema:
    """The schema of the rows of one stream. Raises ConfigError if it is not valid."""

    def __init__(self, schema: Mapping[str, Any], stream: str, removed: RemovedRows | None = None) -> None:
        doing = f"reading the schema of the rows of stream {stream}"
        self._removed_column = None if removed is None else removed.column
        self._of_removed: Any = None
        properties = schema.get("properties")
        if removed is not None and isinstance(properties, Mapping):
            # A schema that forbids other fields does not mean this one.
            schema = {**schema, "properties": {removed.column: {}, **properties}}
            keys = {key: properties[key] for key in removed.keys if key in properties}
            shared = {name: schema[name] for name in _SHARED if name in schema}
            self._of_removed = _validator({**shared, "properties": keys}, doing)
        self._schema = _validator(schema, doing)
        self._plain = plain_schema(schema)

    def fits_all(self, rows: pa.RecordBatch, *, omits_nulls: bool) -> bool:
        """True if the types of the columns alone prove that all rows fit. Else `faults` has to look at each."""
        has_removed = self._removed_column in rows.schema.names
        return self._plain is not None and not has_removed and self._plain.fits(rows, omits_nulls=omits_nulls)

    def faults(self, objects: pa.Array) -> dict[int, str]:
        """Returns the place of each row at fault, with the reason. The rows are texts of JSON objects."""
        found = {}
        decode, column = _ROW.decode, self._removed_column  # Looked up once: this runs for each row.
        for place, text in enumerate(objects.to_pylist()):
            try:
                row = decode(text)
                schema = self._schema if column is None else self._schema_for(row)
                if schema is not None and not schema.is_valid(row):
                    found[place] = _reason(schema, row)
            except _UNREADABLE:
                found[place] = UNREADABLE_ROW
        return found

    def _schema_for(self, row: Any) -> Any:
        is_removed = isinstance(row, dict) and row.get(self._removed_column) is not None
        return self._of_removed if is_removed else self._schema


def _validator(schema: Mapping[str, Any], doing: str) -> Any:
    try:
        import jsonschema_rs  # An extra.
    except ImportError as error:
        remedy = 'pip install "dagster_airbyte_proto[row-schemas]"'
        raise ConfigError(doing, "the package jsonschema-rs is not installed", remedy=remedy) from error
    bounded: dict[str, Any] = {"mask": "its value", "validate_formats": True, "retriever": _refused}
    try:
        return jsonschema_rs.validator_for(dict(schema), pattern_options=jsonschema_rs.RegexOptions(), **bounded)
    except ValueError:
        try:
            return jsonschema_rs.validator_for(dict(schema), **bounded)
        except ValueError as error:
            raise ConfigError(
                doing,
                f"it is no valid JSON Schema: {str(error).partition(chr(10))[0][:_MAX_REASON]}",
                remedy="It is the destination's own: ask for it by `airbyte-proto discover`.",
            ) from error


def _reason(schema: Any, row: Any) -> str:
    error = next(iter(schema.iter_errors(row)))
    path = ".".join(map(str, error.instance_path)) or "the row"
    return f"{path}: {error.message}"[:_MAX_REASON]


def _refused(address: str) -> Any:
    raise ValueError(f"a reference to {address[:80]} is not followed")
