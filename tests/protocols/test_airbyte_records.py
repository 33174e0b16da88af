"""Both parsers give the same rows for records."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.events import RecordLine
from dagster_airbyte_proto.staging.lines.demux import Demux, RecordLines

_TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"
_source = AirbyteSource()


def _head(line: bytes) -> re.Match[bytes] | None:
    return _source.record_wire.match_head(line, 0, len(line))


def _plain(**fields: object) -> bytes:
    return json.dumps({"type": "RECORD", "record": fields}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _runs(lines: bytes) -> list[tuple[str, int]]:
    """(stream, lines) of each run."""
    return [
        (json.loads(run.stream), run.records)
        for run in Demux(_source.record_wire).feed(lines)
        if isinstance(run, RecordLines)
    ]


def _corpus() -> list[bytes]:
    names = ("record_dialects", "hard_lines", "source_faker_read", "source_file_read")
    return [line for name in names for line in (_TRANSCRIPTS / f"{name}.jsonl").read_bytes().splitlines(keepends=True)]


@pytest.mark.parametrize("line", _corpus())
def test_what_a_run_matches_is_a_record_of_the_same_stream(line: bytes) -> None:
    match = _head(line)
    if match is None:
        return
    event = _source.event(line)
    assert isinstance(event, RecordLine)
    assert event.stream.name == json.loads(match["stream"])
    if match["namespace"] is not None:
        assert event.stream.namespace == (json.loads(match["namespace"]) or None)


_names = st.text(max_size=8)
_spacings = st.sampled_from([(",", ":"), (", ", ": "), (",", ": ")])


@given(name=_names, namespace=st.none() | _names, spacing=_spacings, escaped=st.booleans(), data=st.data())
def test_both_parsers_name_the_same_stream_however_a_line_is_spelt(
    name: str, namespace: str | None, spacing: tuple[str, str], escaped: bool, data: st.DataObject
) -> None:
    fields: list[tuple[str, object]] = [("stream", name), ("data", {"stream": "x"}), ("emitted_at", 1)]
    if namespace is not None or data.draw(st.booleans()):
        fields.append(("namespace", namespace))
    record = dict(data.draw(st.permutations(fields)))
    parts = dict(data.draw(st.permutations([("type", "RECORD"), ("record", record)])))
    line = json.dumps(parts, separators=spacing, ensure_ascii=escaped).encode("utf-8") + b"\n"

    event = _source.event(line)

    assert isinstance(event, RecordLine)
    assert event.stream == StreamId.of(name, namespace)
    if match := _head(line):
        assert json.loads(match["stream"]) == name
        assert match["namespace"] is None or json.loads(match["namespace"]) == namespace


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"RECORD","record":{"stream":"users","data":{"id":1},"emitted_at":1}}\n',
        b'{"type":"RECORD","record":{"stream":"users","namespace":"a","data":{},"emitted_at":1}}\n',
        b'{"type": "RECORD", "record": {"namespace": null, "stream": "users", "data": {"id": 1}, "emitted_at": 1}}\n',
        b'{"record":{"stream":"users","data":{"id":1},"emitted_at":1},"type":"RECORD"}\n',
        b'{"record": {"stream": "users", "data": {"id": 1}, "emitted_at": 1}, "type": "RECORD"}\n',
        b'{"type":"RECORD","record":{"stream":"users","emitted_at":1,"data":{"id":1}}}\n',
    ],
)
def test_the_common_spellings_take_the_fast_road(line: bytes) -> None:
    assert _runs(line * 3) == [("users", 3)]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"STATE","state":{"data":{}}}\n',
        b'{"record":{"stream":"users","data":{}},"type":"STATE"}\n',
        b'{"record":{"stream":"users","data":{"type":"RECORD"}},"type":"STATE","x":{"type":"RECORD"}}\n',
        b'{"type":"RECORD","record":{"stream":"us\\u0065rs","data":{}}}\n',
        b'{"type":"RECORD","record":{"stream":"users","namespace":"\\u0061","data":{}}}\n',
        b'{"type":"RECORD","record":{"stream":"\xff","data":{}}}\n',
    ],
)
def test_what_a_run_cannot_be_sure_of_takes_the_slow_road(line: bytes) -> None:
    assert _head(line) is None


def test_a_run_ends_where_another_stream_begins() -> None:
    users, more = _plain(stream="users", data={}, emitted_at=1), _plain(stream="users2", data={}, emitted_at=1)
    assert _runs(users * 2 + more * 3 + users) == [("users", 2), ("users2", 3), ("users", 1)]


def test_a_run_ends_where_the_namespace_changes() -> None:
    lines = [
        _plain(stream="users", data={}, emitted_at=1),
        _plain(stream="users", namespace="a", data={}, emitted_at=1),
        _plain(stream="users", namespace="ab", data={}, emitted_at=1),
        _plain(namespace="a", stream="users", data={}, emitted_at=1),
    ]
    assert _runs(b"".join(lines)) == [("users", 1)] * 4


def test_a_run_ends_before_a_line_that_turns_out_to_be_no_record() -> None:
    record = b'{"record":{"stream":"users","data":{}},"type":"RECORD"}\n'
    state = b'{"record":{"stream":"users","data":{}},"type":"STATE"}\n'
    assert _runs(record + record + state) == [("users", 2)]


def test_a_run_begins_at_the_start_of_a_line_only() -> None:
    line = b'{"type":"RECORD","record":{"data":' + _plain(stream="users", data={})[:-1] + b',"stream":"outer"}}\n'
    assert _runs(line) == []


def test_a_record_too_deep_for_any_parser_is_still_a_record() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    line = b'{"type":"RECORD","record":{"emitted_at":1,"data":{"a":' + deep + b'},"stream":"users","namespace":"n"}}\n'
    assert _source.event(line) == RecordLine(StreamId("n", "users"), line)
