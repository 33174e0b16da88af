"""Any bytes give an event, and nothing else; of Syncmaven's two readers, an event or a message of its own."""

import json
from pathlib import Path
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.protocols.destination import StreamResult
from dagster_airbyte_proto.protocols.events import Event
from dagster_airbyte_proto.protocols.singer.source import SingerSource
from dagster_airbyte_proto.protocols.syncmaven import enrichment, messages

_TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"
_EVENTS = get_args(Event)
_OF_SYNCMAVEN = (*_EVENTS, StreamResult, *get_args(messages.EnrichmentReply))
_PROTOCOLS: tuple[SourceProtocol, ...] = (AirbyteSource(), SingerSource())
_COUNTS = {"received": 3, "success": 2, "skipped": 0, "failed": 1}

_MESSAGES = [
    line
    for path in sorted(_TRANSCRIPTS.glob("*.jsonl"))
    if not path.name.endswith(".events.jsonl")
    for line in path.read_bytes().splitlines()
    if len(line) < 3000
]
_MESSAGES += [
    messages.line("spec", {"roles": ["destination"], "connectionCredentials": {"type": "object"}}).strip(),
    b'{"type":"connection-spec","credentialsSchema":{"type":"object"}}',
    messages.line("stream-spec", {"defaultStream": "a", "streams": [{"name": "a", "rowType": {}}]}).strip(),
    messages.line("stream-result", {**_COUNTS, "people": _COUNTS}).strip(),
    messages.line("enrichment-response", {"row": {"id": 1, "city": "Graz"}}).strip(),
    b'{"type":"enrichment-reply","row":{"id":1}}',
    messages.line("log", {"level": "info", "message": "begins", "params": [{"a": 1}, None]}).strip(),
    messages.line("halt", {"status": "error", "message": "full\n at add", "data": {"code": 7}}).strip(),
    b'{"status":"ok","message":"ready"}',
]

# Values where a field of another type is expected; integers too large for a float among them.
_any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def _give_an_event(line: bytes) -> bool:
    """In every protocol, whose ever the line is."""
    replies = messages.reply(line), enrichment.reply(line)
    return all(isinstance(protocol.event(line), _EVENTS) for protocol in _PROTOCOLS) and all(
        isinstance(found, _OF_SYNCMAVEN) for found in replies
    )


@given(st.binary(max_size=200))
def test_any_bytes_give_an_event(line: bytes) -> None:
    assert _give_an_event(line)


@given(st.sampled_from(_MESSAGES), st.data())
@settings(max_examples=300)
def test_a_message_with_bytes_changed_gives_an_event(line: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(start, min(len(line), start + 10)))
    junk = data.draw(st.binary(max_size=6) | st.sampled_from([b"NaN", b"\\ud800", b"\xff", b"1e999", b"{", b"]", b'"']))
    assert _give_an_event(line[:start] + junk + line[end:])


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


def test_every_beginning_of_every_message_gives_an_event() -> None:
    for line in _MESSAGES:
        for length in range(min(len(line), 300)):
            assert _give_an_event(line[:length])
