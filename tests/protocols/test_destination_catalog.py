"""The catalog of an Airbyte destination: objects, modes and matching keys, and the streams that fit none."""

import json
from typing import Any

import pytest

from dagster_airbyte_proto.model import PushMode, StreamId
from dagster_airbyte_proto.protocols.airbyte.destination import AirbyteDestination
from dagster_airbyte_proto.protocols.conversation import Transcript, Verb
from dagster_airbyte_proto.protocols.destination import PushedStream, WriteRequest
from dagster_airbyte_proto.protocols.events import OperationsEvent

_LISTED = [
    {"object_name": "contacts", "sync_mode": "update", "json_schema": {}, "matching_keys": [["id"], ["site", "email"]]},
    {"object_name": "contacts", "sync_mode": "append", "json_schema": {}},
    {"object_name": "companies", "sync_mode": "append_dedup", "json_schema": {}, "matching_keys": None},
    {"object_name": 7, "sync_mode": "append"},
    "junk",
]
_MESSAGE = {"type": "DESTINATION_CATALOG", "destination_catalog": {"operations": _LISTED}}


def test_a_catalog_is_found_among_other_lines() -> None:
    output = b"\n".join([b"text", b"{", json.dumps(_MESSAGE).encode(), b'{"type":"LOG"}'])
    events = AirbyteDestination().events_of_answer(Verb.DISCOVER, Transcript(output, ended_cleanly=True))
    found = [event for event in events if isinstance(event, OperationsEvent)]
    assert len(found) == 1
    names = [each.object_name for each in AirbyteDestination().operations(found[0].message)]
    assert names == ["contacts", "contacts", "companies"]


def test_a_source_answers_with_the_streams_that_it_reads() -> None:
    streams: list[dict[str, object]] = [
        {"name": name, "json_schema": {}, "supported_sync_modes": ["full_refresh"]} for name in ("a", "b")
    ]
    for listed in (streams, []):
        output = json.dumps({"type": "CATALOG", "catalog": {"streams": listed}}).encode()
        events = list(AirbyteDestination().events_of_answer(Verb.DISCOVER, Transcript(output, ended_cleanly=True)))
        found = [each.read_streams for each in events if isinstance(each, OperationsEvent)]
        assert found == ([("a", "b")] if listed else [])


def test_an_object_has_the_schema_of_its_rows() -> None:
    schemas = [{"type": "object"}, {}, True, None, "text"]
    listed = [{"object_name": "contacts", "sync_mode": "append", "json_schema": each} for each in schemas]
    operations = AirbyteDestination().operations(json.dumps({"operations": listed}).encode())
    assert [each.row_schema for each in operations] == [{"type": "object"}, None, None, None, None]


@pytest.mark.parametrize("message", [b"null", b"{}", b'{"operations":{}}', b"[]"])
def test_a_catalog_of_nothing_has_no_objects(message: bytes) -> None:
    assert AirbyteDestination().operations(message) == ()


@pytest.mark.parametrize(
    ("name", "mode", "keys", "mismatch"),
    [
        ("contacts", PushMode.UPDATE, ("id",), None),
        ("contacts", PushMode.UPDATE, ("email", "site"), None),
        ("contacts", PushMode.APPEND, (), None),
        ("contacts", PushMode.INSERT, ("name",), None),
        ("companies", PushMode.MIRROR, ("domain",), None),
        (
            "contacts",
            PushMode.UPDATE,
            ("email",),
            "object contacts finds its rows by id, site+email, and the stream has email",
        ),
        (
            "contacts",
            PushMode.UPSERT,
            ("id",),
            "mode upsert needs the sync mode append_dedup of object contacts, which has update, append",
        ),
        ("people", PushMode.APPEND, (), "the destination has no object people; it has contacts, companies"),
    ],
)
def test_a_stream_fits_an_object(name: str, mode: PushMode, keys: tuple[str, ...], mismatch: str | None) -> None:
    protocol = AirbyteDestination()
    operations = protocol.operations(json.dumps({"operations": _LISTED}).encode())
    assert protocol.mismatch(operations, PushedStream(StreamId.of(name), {}, mode, keys)) == mismatch


def test_the_configured_stream_names_its_object() -> None:
    for has_object in (True, False):
        stream = PushedStream(StreamId.of("contacts"), {}, PushMode.UPDATE, ("id",), has_object=has_object)
        assert _configured(stream).get("destination_object_name") == ("contacts" if has_object else None)


@pytest.mark.parametrize(
    ("cursor", "schema", "configured"),
    [
        ("at", {"properties": {"at": {}}}, ["at"]),
        ("at", {"properties": {"id": {}}}, []),
        ("at", {"properties": True}, []),
        ("at", {}, []),
        (None, {"properties": {"at": {}}}, []),
    ],
)
def test_the_configured_stream_has_its_key_and_the_cursor_that_its_schema_declares(
    cursor: str | None, schema: dict[str, Any], configured: list[str]
) -> None:
    found = _configured(PushedStream(StreamId.of("users"), schema, PushMode.UPSERT, ("id",), cursor=cursor))
    assert (found["cursor_field"], found["stream"].get("default_cursor_field", [])) == (configured, configured)
    assert (found["primary_key"], found["stream"]["source_defined_primary_key"]) == ([["id"]], [["id"]])


def test_the_configured_stream_says_which_sync_it_is_and_which_generations_go() -> None:
    """An Airbyte destination replaces what is older than `minimum_generation_id`."""
    for mode, oldest in ((PushMode.OVERWRITE, 3), (PushMode.APPEND, 0)):
        found = _configured(PushedStream(StreamId.of("users"), {}, mode, generation_id=3), sync_id=8)
        assert (found["sync_id"], found["generation_id"], found["minimum_generation_id"]) == (8, 3, oldest)


def _configured(stream: PushedStream, sync_id: int = 1) -> dict[str, Any]:
    [found] = json.loads(AirbyteDestination().write(WriteRequest({}, stream, sync_id)).files["catalog.json"])["streams"]
    return dict(found)
