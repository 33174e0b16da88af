"""The catalog of a tap that has no `--discover`, made of the SCHEMA messages of a run.

Singer 0.3.0 asks a tap for its config, a state and a catalog that it may ignore. Such a tap sends all its streams, and
says of each what it is before its first record: the schema, the key, and the properties that it bookmarks.
"""

import msgspec

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.events import SchemaEvent
from dagster_airbyte_proto.protocols.singer.messages import event


def catalog_of_run(output: bytes) -> bytes | None:
    """The catalog with the newest schema of each stream in a tap's output; None if there is no schema in it."""
    newest: dict[StreamId, SchemaEvent] = {}
    for line in output.splitlines():
        found = event(line)
        if isinstance(found, SchemaEvent):
            newest[found.stream] = found
    entries = [_entry(found) for found in newest.values()]
    return msgspec.json.encode({"streams": entries}) if entries else None


def _entry(found: SchemaEvent) -> dict[str, object]:
    root = {"selected-by-default": True, "valid-replication-keys": found.bookmarks}
    if not found.bookmarks:
        # A tap that bookmarks nothing sends every row each time.
        root = {"selected-by-default": True, "forced-replication-method": "FULL_TABLE"}
    return {
        "tap_stream_id": found.stream.name,
        "stream": found.stream.name,
        "schema": found.json_schema,
        "key_properties": [path[0] for path in found.primary_key],
        "metadata": [{"breadcrumb": [], "metadata": root}],
    }
