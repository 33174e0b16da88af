"""What a connector is started with."""

import datetime
import json
from typing import Any

import msgspec
import pytest

from dagster_airbyte_proto.model import PlannedStream, ReadMode, TableName, WriteMode
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.conversation import FileArgument, ReadRequest, SourceProtocol

_source: SourceProtocol = AirbyteSource()
_RAW = b'{"name" : "users","json_schema":{"maximum":1.50},"namespace":"","zz":[ 1 ]}'


def _planned(raw: bytes = _RAW, write: WriteMode = WriteMode.APPEND_DEDUP) -> PlannedStream:
    (stream,) = _source.catalog(b'{"streams":[' + raw + b"]}").streams
    return PlannedStream(
        stream=stream,
        table=TableName("shop", "users"),
        read=ReadMode.INCREMENTAL,
        write=write,
        primary_key=(("id",), ("address", "city")),
        cursor=("updated_at",),
        generation_id=3,
        minimum_generation_id=2,
    )


def _catalog_file(planned: PlannedStream) -> bytes:
    return _source.read(ReadRequest(config={}, streams=(planned,), states=(), sync_id=11)).files["catalog.json"]


def _configured(planned: PlannedStream) -> dict[str, Any]:
    (configured,) = json.loads(_catalog_file(planned))["streams"]
    assert isinstance(configured, dict)
    return configured


def test_spec_needs_nothing() -> None:
    assert _source.spec()[0].arguments == ("spec",)
    assert _source.spec()[0].files == {}


@pytest.mark.parametrize("command", ["check", "discover"])
def test_check_and_discover_take_the_config(command: str) -> None:
    invocation = getattr(_source, command)({"count": 2**70})
    assert invocation.arguments == (command, "--config", FileArgument("config.json"))
    assert json.loads(invocation.files["config.json"]) == {"count": 2**70}


def test_a_date_in_the_config_is_written_as_text() -> None:
    config = {"start": datetime.date(2024, 1, 2)}
    assert json.loads(_source.check(config).files["config.json"]) == {"start": "2024-01-02"}


def test_read_leaves_the_state_out_when_there_is_none() -> None:
    invocation = _source.read(ReadRequest(config={"a": 1}, streams=(_planned(),), states=(), sync_id=1))
    config, catalog = FileArgument("config.json"), FileArgument("catalog.json")
    assert invocation.arguments == ("read", "--config", config, "--catalog", catalog)
    assert set(invocation.files) == {"config.json", "catalog.json"}


def test_read_hands_the_state_over_when_there_is_one() -> None:
    state = _source.states.from_value(_planned().id, {"cursor": 1})
    invocation = _source.read(ReadRequest(config={}, streams=(_planned(),), states=(state,), sync_id=1))
    assert invocation.arguments[-2:] == ("--state", FileArgument("state.json"))
    assert invocation.files["state.json"] == b"[" + state.message + b"]"


def test_a_configured_stream_carries_the_bytes_of_the_catalog() -> None:
    assert _catalog_file(_planned()).startswith(b'{"streams":[{"stream":' + _RAW + b",")


def test_a_configured_stream_carries_all_that_was_chosen() -> None:
    configured = _configured(_planned())
    del configured["stream"]
    assert configured == {
        "sync_mode": "incremental",
        "destination_sync_mode": "append_dedup",
        "cursor_field": ["updated_at"],
        "primary_key": [["id"], ["address", "city"]],
        "generation_id": 3,
        "minimum_generation_id": 2,
        "sync_id": 11,
    }


def test_files_are_included_for_file_based_streams_only() -> None:
    assert _configured(_planned(b'{"name":"a","is_file_based":true}'))["include_files"] is True
    assert "include_files" not in _configured(_planned(b'{"name":"a","is_file_based":false}'))


@pytest.mark.parametrize("write", list(WriteMode))
def test_a_source_hears_only_of_write_modes_that_every_model_knows(write: WriteMode) -> None:
    told = _configured(_planned(write=write))["destination_sync_mode"]
    assert told in ("append", "overwrite", "append_dedup")


def test_a_catalog_of_many_streams_is_one_json_document() -> None:
    planned = tuple(_planned(b'{"name":"s%d"}' % number) for number in range(3))
    files = _source.read(ReadRequest(config={}, streams=planned, states=(), sync_id=1)).files
    names = [configured["stream"]["name"] for configured in msgspec.json.decode(files["catalog.json"])["streams"]]
    assert names == ["s0", "s1", "s2"]
