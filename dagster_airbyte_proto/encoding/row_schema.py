"""Checks rows against the JSON Schema that a destination gives for them, as the JSON text that it would get.

A reason names the path of the value at fault, and never the value. What one schema may cost is bounded: patterns are
searched in linear time, or with a limit on backtracking where they need an engine that does, and no reference to
another place is followed.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError

_ROW = msgspec.json.Decoder()
_MAX_REASON = 300


class RowSchema:
    """The schema of the rows of one stream. Raises ConfigError if it is not valid."""

    def __init__(self, schema: Mapping[str, Any], stream: str) -> None:
        doing = f"reading the schema of the rows of stream {stream}"
        try:
            import jsonschema_rs  # An extra.
        except ImportError as error:
            remedy = 'pip install "dagster-airbyte-proto[syncmaven]"'
            raise ConfigError(doing, "the package jsonschema-rs is not installed", remedy=remedy) from error
        bounded: dict[str, Any] = {"mask": "its value", "validate_formats": True, "retriever": _refused}
        try:
            self._schema = jsonschema_rs.validator_for(
                dict(schema), pattern_options=jsonschema_rs.RegexOptions(), **bounded
            )
        except ValueError:
            try:
                self._schema = jsonschema_rs.validator_for(dict(schema), **bounded)
            except ValueError as error:
                raise ConfigError(
                    doing,
                    f"it is no valid JSON Schema: {str(error).partition(chr(10))[0][:_MAX_REASON]}",
                    remedy="It is the destination's own: ask for it by `airbyte-proto discover`.",
                ) from error

    def faults(self, objects: pa.Array) -> dict[int, str]:
        """Returns the place of each row at fault, with the reason. The rows are texts of JSON objects."""
        found = {}
        for place, text in enumerate(objects):
            row = _ROW.decode(memoryview(text.as_buffer()))
            if not self._schema.is_valid(row):
                found[place] = self._reason(row)
        return found

    def _reason(self, row: Any) -> str:
        error = next(iter(self._schema.iter_errors(row)))
        path = ".".join(map(str, error.instance_path)) or "the row"
        return f"{path}: {error.message}"[:_MAX_REASON]


def _refused(address: str) -> Any:
    raise ValueError(f"a reference to {address[:80]} is not followed")
