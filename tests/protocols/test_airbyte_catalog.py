from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.model import ReadMode, Stream, StreamId
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.events import CatalogEvent

_TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"
_source = AirbyteSource()


def _stream(raw: bytes) -> Stream:
    (stream,) = _source.catalog(b'{"streams":[' + raw + b"]}").streams
    return stream


def test_the_catalog_of_a_real_source_is_read_whole() -> None:
    lines = (_TRANSCRIPTS / "source_faker_ask.jsonl").read_bytes().splitlines()
    (catalog,) = [event.catalog for event in map(_source.event, lines) if isinstance(event, CatalogEvent)]
    users = catalog.streams[1]
    assert users.id == StreamId(None, "users")
    assert users.read_modes == (ReadMode.FULL_REFRESH, ReadMode.INCREMENTAL)
    assert users.primary_key == (("id",),)
    assert users.cursor == ("updated_at",)
    assert users.is_cursor_fixed
    assert users.is_resumable
    assert not users.is_file_based
    assert users.json_schema["properties"]["address"]["properties"]["city"] == {"type": "string"}


def test_a_stream_keeps_its_bytes_through_the_cache() -> None:
    raw = b'{"name" : "users","json_schema":{"maximum":1.50},"zz":{ "x":null}}'
    stream = _stream(raw)
    assert stream.raw == raw
    catalog = _source.catalog(_source.catalog_message(_source.catalog(b'{"streams":[' + raw + b"]}")))
    assert catalog.streams == (stream,)


def test_a_whole_message_is_a_catalog_too() -> None:
    assert _source.catalog(b'{"type":"CATALOG","catalog":{"streams":[]}}').streams == ()


def test_a_bare_stream_is_read_in_full_by_default() -> None:
    stream = _stream(b'{"name":"users","supported_sync_modes":[],"namespace":""}')
    assert stream.id == StreamId(None, "users")
    assert stream.read_modes == (ReadMode.FULL_REFRESH,)
    assert stream.json_schema == {}
    assert (stream.primary_key, stream.cursor, stream.is_cursor_fixed) == ((), (), False)


def test_composite_and_nested_keys_are_paths() -> None:
    stream = _stream(
        b'{"name":"a","source_defined_primary_key":[["id"],["address","city"]],"default_cursor_field":["m","at"]}'
    )
    assert stream.primary_key == (("id",), ("address", "city"))
    assert stream.cursor == ("m", "at")


def test_bare_names_stand_for_paths_of_one() -> None:
    stream = _stream(b'{"name":"a","source_defined_primary_key":["id",[]],"default_cursor_field":"at"}')
    assert stream.primary_key == (("id",),)
    assert stream.cursor == ("at",)


def test_nulls_are_as_good_as_absent() -> None:
    names = ("namespace", "json_schema", "supported_sync_modes", "source_defined_cursor", "default_cursor_field")
    nulls = ",".join(
        f'"{name}":null' for name in (*names, "source_defined_primary_key", "is_resumable", "is_file_based")
    )
    bare = _stream(b'{"name":"a"}')
    assert _stream(b'{"name":"a",' + nulls.encode() + b"}").id == bare.id


def test_unknown_read_modes_are_passed_over() -> None:
    stream = _stream(b'{"name":"a","supported_sync_modes":["telepathic","incremental"]}')
    assert stream.read_modes == (ReadMode.INCREMENTAL,)


def test_the_older_spelling_of_the_schema_is_read() -> None:
    assert _stream(b'{"name":"a","schema":{"type":"object"}}').json_schema == {"type": "object"}


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (b"", "no list of streams"),
        (b'{"streams":{}}', "no list of streams"),
        (b'{"streams":[{"name":"a"},{"name":null}]}', "stream number 2 has no name"),
        (b'{"streams":[1]}', "stream number 1 has no name"),
        (
            b'{"streams":[{"name":"a","json_schema":' + b"[" * 5000 + b"]" * 5000 + b"}]}",
            "stream number 1 cannot be read",
        ),
    ],
)
def test_a_broken_catalog_is_a_violation_that_says_where(message: bytes, found: str) -> None:
    with pytest.raises(ProtocolViolation, match=found):
        _source.catalog(message)


@pytest.mark.parametrize("schema", [b'"string"', b"true", b"[1]"])
def test_a_stream_whose_schema_is_no_object_is_there_without_one(schema: bytes) -> None:
    bad = b'{"name":"a","json_schema":' + schema + b',"source_defined_primary_key":[["id"]]}'
    catalog = _source.catalog(b'{"streams":[' + bad + b',{"name":"b"}]}')
    first, second = catalog.streams
    assert (first.id.name, first.json_schema, first.primary_key, first.raw) == ("a", {}, (("id",),), bad)
    assert (second.id.name, catalog.unreadable) == ("b", (first.id,))
    assert _source.catalog(_source.catalog_message(catalog)) == catalog
