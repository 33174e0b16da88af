"""The form of the records that staged rows become again, for a relay: a destination stands in the place of a table."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.model import RelayTarget

_METADATA_KEY = b"airbyte_proto.record_form"


class RecordForm(msgspec.Struct, frozen=True):
    """How the rows of a staged file are sent, and how their stream is described to the destination.

    Each row is sent with the fields of `columns`. Those of `json_columns` hold JSON text, which is sent as it is. With
    a `record_column` that column holds the JSON text of whole records, and there are no others.
    """

    target: RelayTarget
    json_schema: Mapping[str, Any]
    columns: tuple[str, ...] = ()
    json_columns: frozenset[str] = frozenset()
    record_column: str = ""

    def in_schema(self, schema: pa.Schema) -> pa.Schema:
        """Returns the schema of files whose rows have this form."""
        return schema.with_metadata({**(schema.metadata or {}), _METADATA_KEY: msgspec.json.encode(self)})

    @classmethod
    def of_schema(cls, schema: pa.Schema) -> "RecordForm | None":
        """The form of the rows of a file; None for a file that was not staged for a relay."""
        encoded = (schema.metadata or {}).get(_METADATA_KEY)
        return None if encoded is None else msgspec.json.decode(encoded, type=cls)
