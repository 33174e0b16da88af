"""Any bytes give an event, and nothing else; of Syncmaven's readers, an event or a message of its own. Any call to the
state server is answered, or refused."""

import json
from pathlib import Path
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.protocols.destination import StreamResult
from dagster_airbyte_proto.protocols.events import Event, OperationsEvent
from dagster_airbyte_proto.protocols.singer.source import SingerSource
from dagster_airbyte_proto.protocols.syncmaven import enrichment, messages
from dagster_airbyte_proto.protocols.syncmaven.destination import SyncmavenDestination
from dagster_airbyte_proto.protocols.syncmaven.state_calls import BadCall, answer
from dagster_airbyte_proto.sync.state_server.memory_values import LIMITS_OF_STATE, MemoryValues
from dagster_airbyte_proto.sync.state_server.pending_values import LimitExceeded

_TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"
_EVENTS = get_args(Event)
_OF_SYNCMAVEN = (*_EVENTS, StreamResult, *get_args(messages.EnrichmentReply))
_PROTOCOLS: tuple[SourceProtocol, ...] = (AirbyteSource(), SingerSource())
_SYNCMAVEN = SyncmavenDestination()
_CALLS = ("get", "set", "del", "delete", "deleteAll", "deleteByPrefix", "size", "list")

_MESSAGES = [
    line
    for path in sorted(_TRANSCRIPTS.glob("*.jsonl"))
    if not path.name.endswith(".events.jsonl")
    for line in path.read_bytes().splitlines()
    if len(line) < 3000
]

# Values where a field of another type is expected; integers too large for a float among them.
_any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def _give_an_event(line: bytes) -> bool:
    """In every protocol, whose ever the line is."""
    replies = messages.reply(line), enrichment.reply(line), _SYNCMAVEN.reply(line)
    streams = [_SYNCMAVEN.operations(found.message) for found in replies if isinstance(found, OperationsEvent)]
    assert all(isinstance(each.object_name, str) for found in streams for each in found)
    return all(isinstance(protocol.event(line), _EVENTS) for protocol in _PROTOCOLS) and all(
        isinstance(found, _OF_SYNCMAVEN) for found in replies
    )


@given(st.binary(max_size=200))
def test_any_bytes_give_an_event(line: bytes) -> None:
    assert _give_an_event(line)


@given(st.sampled_from(_MESSAGES), st.data())
@settings(max_examples=300)
def test_a_message_with_bytes_changed_gives_an_event(line: bytes, data: st.DataObject) -> None:
    assert _give_an_event(_changed(line, data))


@given(st.sampled_from(_MESSAGES), _any_json, st.data())
@settings(max_examples=300)
def test_a_message_with_a_value_of_another_type_gives_an_event(line: bytes, value: object, data: st.DataObject) -> None:
    try:
        message = json.loads(line)
    except ValueError:
        return
    place = message
    while isinstance(place, dict) and place:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or data.draw(st.booleans()):
            place[key] = value
            break
        place = place[key]
    assert _give_an_event(json.dumps(message).encode())


def _changed(line: bytes, data: st.DataObject) -> bytes:
    start = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(start, min(len(line), start + 10)))
    junk = data.draw(st.binary(max_size=6) | st.sampled_from([b"NaN", b"\\ud800", b"\xff", b"1e999", b"{", b"]", b'"']))
    return line[:start] + junk + line[end:]


@given(st.sampled_from(_CALLS), _any_json, st.booleans(), st.data())
@settings(max_examples=150)
def test_any_call_to_the_state_server_is_answered_with_json_or_refused(
    name: str, value: object, is_as_specified: bool, data: st.DataObject
) -> None:
    keyed = {data.draw(st.sampled_from(["key", "prefix", "value"])): value}
    body = json.dumps({"key": ["a", "ü"], "prefix": "a", "value": {"b": [1, None]}, **keyed}, indent=1).encode()
    values = MemoryValues({("a",): b"0", ("a", "\n"): b'{"x":\n1}'}, LIMITS_OF_STATE)
    try:
        for call in (f"state.{name}", "state.list"):
            found = answer(call, _changed(body, data), values, is_as_specified=is_as_specified)
            whole = b"".join(found.pieces)
            for line in whole.splitlines() if found.content_type.endswith("ndjson") else [whole]:
                json.loads(line)
    except (BadCall, LimitExceeded) as refused:
        assert str(refused)


def test_every_beginning_of_every_message_gives_an_event() -> None:
    for line in _MESSAGES:
        for length in range(min(len(line), 300)):
            assert _give_an_event(line[:length])
