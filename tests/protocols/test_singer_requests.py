"""What a tap is started with, and what its answers mean."""

import json
from typing import Any

import pytest

from dagster_airbyte_proto.masking import UnmaskedText, secret_values
from dagster_airbyte_proto.model import PlannedStream, PushMode, ReadMode, StreamId, TableName, WriteMode
from dagster_airbyte_proto.protocols.conversation import FileArgument, ReadRequest, Transcript, Verb
from dagster_airbyte_proto.protocols.destination import PushedStream
from dagster_airbyte_proto.protocols.events import CatalogEvent, CheckEvent, PlainLine, SpecEvent, UnknownEvent
from dagster_airbyte_proto.protocols.singer.source import SingerSource
from dagster_airbyte_proto.protocols.singer.states import parse_state
from dagster_airbyte_proto.protocols.singer.target import SingerTarget

_CONFIG, _CATALOG, _STATE = (FileArgument(f"{name}.json") for name in ("config", "catalog", "state"))
_USAGE = b"""usage: tap-old [-h] -c CONFIG [-s STATE] [-p PROPERTIES] [-d]

  -s STATE, --state STATE
  -p PROPERTIES, --properties PROPERTIES
  -d, --discover        Do schema discovery
"""
_SETTINGS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": ["string"], "default": "."},
        "host": {"type": ["string"]},
        "token": {"type": ["string"], "secret": True, "writeOnly": True},
        "ssh": {"type": ["object", "null"], "properties": {"key": {"type": "string", "writeOnly": True}}},
        "maps": {"anyOf": [{"const": "__NULL__"}, {"type": "null"}, "null"]},
    },
    "required": ["path", "host"],
}


def _about(**more: Any) -> bytes:
    return json.dumps({"name": "tap", "settings": _SETTINGS, **more}, indent=2).encode()


def _spec(output: bytes) -> SpecEvent:
    [event] = SingerSource().events_of_answer(Verb.SPEC, Transcript(output, ended_cleanly=True))
    assert isinstance(event, SpecEvent)
    return event


def _knowing(output: bytes) -> SingerSource:
    spec = _spec(output)
    return SingerSource().adapted_to(SingerSource().spec_from_message(json.loads(json.dumps(spec.message))))


_SDK, _OLD = _knowing(_about(capabilities=["catalog", "state", "discover", "about", "batch"])), _knowing(_USAGE)


def _request(state: dict[str, Any] | None = None) -> ReadRequest:
    [stream] = SingerSource().catalog(b'{"streams":[{"tap_stream_id":"users","schema":{}}]}').streams
    planned = PlannedStream(stream, TableName("shop", "users"), ReadMode.INCREMENTAL, WriteMode.APPEND)
    states = () if state is None else (parse_state(json.dumps({"type": "STATE", "value": state}).encode()),)
    return ReadRequest({"host": "here"}, (planned,), states, 1)


def test_a_tap_is_asked_what_it_is_and_then_for_its_usage() -> None:
    assert [way.arguments for way in SingerSource().spec()] == [("--about", "--format=json"), ("--help",)]


def test_the_settings_become_the_schema_of_the_config() -> None:
    schema = _spec(_about()).config_schema
    assert schema["required"] == ["host"]
    assert schema["properties"]["maps"] == {"anyOf": [{"const": "__NULL__"}, {"type": "null"}]}
    config = {"host": "h", "token": "t0ken", "ssh": {"key": "k3y"}, "path": "p"}
    assert secret_values(config, schema) == {"t0ken", "k3y"}


def test_chatter_before_an_answer_does_not_matter() -> None:
    assert _spec(b"Skipping parse of env var settings...\n{not json\n" + _about()).config_schema


def test_what_is_no_answer_is_chatter() -> None:
    for heard in (Transcript(_about(), ended_cleanly=False), Transcript(b"what?\n", ended_cleanly=True)):
        assert all(isinstance(event, PlainLine) for event in SingerSource().events_of_answer(Verb.SPEC, heard))


@pytest.mark.parametrize(("source", "flag"), [(_SDK, "--test"), (_OLD, "--discover"), (SingerSource(), "--discover")])
def test_a_check_is_a_test_where_there_is_one(source: SingerSource, flag: str) -> None:
    invocation = source.check({"count": 2**70})
    assert invocation.arguments == ("--config", _CONFIG, flag)
    assert json.loads(invocation.files["config.json"]) == {"count": 2**70}


def test_a_test_answers_by_how_it_ends() -> None:
    output = b'{"type":"RECORD","stream":"a","record":{}}\n'
    assert [*_SDK.events_of_answer(Verb.CHECK, Transcript(output, ended_cleanly=True))] == [CheckEvent(True)]
    failed, *_ = _SDK.events_of_answer(Verb.CHECK, Transcript(output, False, ("Traceback", "no such host")))
    assert failed == CheckEvent(False, UnmaskedText("Traceback\nno such host"))


def test_a_tap_without_a_test_is_checked_by_its_catalog() -> None:
    assert [*_OLD.events_of_answer(Verb.CHECK, Transcript(b'{"streams":[]}\n', ended_cleanly=True))] == [
        CheckEvent(True)
    ]
    failed, *_ = _OLD.events_of_answer(Verb.CHECK, Transcript(b"", False, ("CRITICAL no such host",)))
    assert failed == CheckEvent(False, UnmaskedText("CRITICAL no such host"))


def test_a_catalog_is_one_document_over_many_lines() -> None:
    output = json.dumps({"streams": [{"tap_stream_id": "users", "schema": {}}]}, indent=2).encode()
    [event] = _OLD.events_of_answer(Verb.DISCOVER, Transcript(output, ended_cleanly=True))
    assert isinstance(event, CatalogEvent)
    assert [str(stream.id) for stream in event.catalog.streams] == ["users"]
    [event] = _OLD.events_of_answer(Verb.DISCOVER, Transcript(b'{"streams":[{}]}', ended_cleanly=True))
    assert event == UnknownEvent("catalog", "stream number 1 has no tap_stream_id")


def test_a_tap_that_cannot_discover_is_run_for_its_schemas() -> None:
    source = _knowing(b"usage: tap --config CONFIG [--state STATE]\n")
    asked = source.discover({})
    assert (asked.arguments, asked.keeps_lines_with) == (("--config", _CONFIG), b"SCHEMA")
    output = b"".join(
        json.dumps(message).encode() + b"\n"
        for message in (
            {"type": "SCHEMA", "stream": "users", "schema": {}, "key_properties": []},
            {"type": "RECORD", "stream": "users", "record": {"type": "SCHEMA"}},
            {
                "type": "SCHEMA",
                "stream": "users",
                "schema": {"properties": {"id": {"type": "integer"}, "at": {"type": "string"}}},
                "key_properties": ["id"],
                "bookmark_properties": ["at"],
            },
            {"type": "SCHEMA", "stream": "names", "schema": {"properties": {}}, "key_properties": []},
        )
    )
    [found] = source.events_of_answer(Verb.DISCOVER, Transcript(output, ended_cleanly=True))
    assert isinstance(found, CatalogEvent)
    users, names = found.catalog.streams
    assert (users.id.name, users.primary_key, users.cursor) == ("users", (("id",),), ("at",))
    assert (names.id.name, names.primary_key, names.read_modes) == ("names", (), (ReadMode.FULL_REFRESH,))
    broken = list(source.events_of_answer(Verb.DISCOVER, Transcript(output, ended_cleanly=False)))
    assert not any(isinstance(event, CatalogEvent) for event in broken)
    [checked] = source.events_of_answer(Verb.CHECK, Transcript(output, ended_cleanly=True))
    assert checked == CheckEvent(True)
    assert source.read(_request()).arguments == ("--config", _CONFIG)


def test_read_hands_over_what_there_is() -> None:
    assert _SDK.read(_request()).arguments == ("--config", _CONFIG, "--catalog", _CATALOG)
    assert _SDK.read(_request({})).arguments == ("--config", _CONFIG, "--catalog", _CATALOG)
    invocation = _OLD.read(_request({"bookmarks": {"users": 1}}))
    assert invocation.arguments == ("--config", _CONFIG, "--properties", _CATALOG, "--state", _STATE)
    assert json.loads(invocation.files["state.json"]) == {"bookmarks": {"users": 1}}
    assert json.loads(invocation.files["config.json"]) == {"host": "here"}


@pytest.mark.parametrize(
    ("usage", "is_tap"),
    [
        ("usage: tap-exchangeratesapi [-h] [-c CONFIG] [-s STATE]", True),
        ("Usage: /opt/bin/tap-shop [OPTIONS] --config CONFIG", True),
        # On singer-python's parser for taps, as some targets are.
        (
            "usage: target-redshift [-h] -c CONFIG [-s STATE] [-p PROPERTIES] [--catalog CATALOG] [-d]\n  --discover",
            False,
        ),
        ("usage: tapestry.py [-h] [--config CONFIG] [--discover]", False),
        ("--config CONFIG, --discover", False),
    ],
)
def test_a_usage_text_tells_a_tap_by_its_name(usage: str, is_tap: bool) -> None:
    target = SingerTarget()
    text = usage if "--config" in usage else f"{usage}\n  -c CONFIG, --config CONFIG"
    [spec] = target.events_of_answer(Verb.SPEC, Transcript(text.encode(), ended_cleanly=True))
    assert isinstance(spec, SpecEvent)
    assert (target.refusal(spec, PushMode.UPSERT) is not None) is is_tap


def test_a_sent_record_has_the_time_at_which_it_was_extracted() -> None:
    stream = PushedStream(StreamId.of("users"), {}, PushMode.APPEND)
    head, tail = SingerTarget().record_frame(stream, 1_700_000_000_123)
    record = json.loads(f'{head}{{"id":1}}{tail}')
    assert record == {
        "type": "RECORD",
        "stream": "users",
        "time_extracted": "2023-11-14T22:13:20.123Z",
        "record": {"id": 1},
    }
