"""Transcripts in, events out: each line of `transcripts/NAME.jsonl` beside a line of `NAME.events.jsonl`.

Those whose names begin with `syncmaven` were said by destinations and enrichments. On Syncmaven's own kits they are of
`twitter-ads` (kit 0.0.11), and of `facebook-ads` and `resend` as npm has them (the old kit, which loses rows).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.masking import UnmaskedText
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.destination import Echo, StreamResult
from dagster_airbyte_proto.protocols.events import CatalogEvent, Event, RecordLine, StateEvent
from dagster_airbyte_proto.protocols.singer.source import SingerSource
from dagster_airbyte_proto.protocols.syncmaven import enrichment
from dagster_airbyte_proto.protocols.syncmaven.destination import SyncmavenDestination
from dagster_airbyte_proto.protocols.syncmaven.messages import EnrichmentReply

_TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"
_NAMES = [
    "chatter",
    "checks_and_specs",
    "hard_lines",
    "record_dialects",
    "singer_hard_lines",
    "singer_python_read",
    "singer_sdk_read",
    "source_faker_ask",
    "source_faker_read",
    "source_file_read",
    "state_after_complete",
    "state_scopes",
    "syncmaven_enrich_hard_lines",
    "syncmaven_enrich_kit",
    "syncmaven_hard_lines",
    "syncmaven_kit_write",
    "syncmaven_old_kit_write",
    "traces_and_control",
]
_Found = Event | Echo | StreamResult | EnrichmentReply
_READERS: dict[str, Callable[[bytes], _Found]] = {
    "singer_": SingerSource().event,
    "syncmaven_enrich_": enrichment.reply,
    "syncmaven_": SyncmavenDestination().reply,
    "": AirbyteSource().event,
}


def _lines(name: str) -> list[bytes]:
    return (_TRANSCRIPTS / f"{name}.jsonl").read_bytes().splitlines()


def told(event: _Found) -> dict[str, Any]:
    """An event as a reader would tell it: what is at its default is left out, lines are left to other tests."""
    fields: dict[str, Any] = event._asdict()
    fields.pop("line", None)
    fields.pop("frame", None)
    fields = {key: _as_json(part) for key, part in fields.items()}
    if isinstance(event, StateEvent):
        state = fields.pop("state")
        fields |= {"scope": state.scope, "stream": state.stream, "is_reset": state.is_reset or None}
        fields["is_provisional"] = event.is_provisional or None
    if isinstance(event, CatalogEvent):
        fields["catalog"] = [str(stream.id) for stream in event.catalog.streams]
    parts = {key: json.loads(json.dumps(part)) for key, part in fields.items() if part not in (None, "", ())}
    return {"event": type(event).__name__, **parts}


def _as_json(part: Any) -> Any:
    if isinstance(part, UnmaskedText):
        return part.unmasked
    return part.decode() if isinstance(part, bytes) else part


def _event(name: str, line: bytes) -> _Found:
    return next(read for start, read in _READERS.items() if name.startswith(start))(line)


def _expected(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_TRANSCRIPTS / f"{name}.events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", _NAMES)
def test_a_transcript_gives_the_events_beside_it(name: str) -> None:
    events = [told(_event(name, line + b"\n")) for line in _lines(name)]
    assert events == _expected(name)


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("ending", [b"", b"\r\n", b"  \t\n"], ids=["nothing", "windows", "spaces"])
def test_a_line_may_end_in_many_ways(name: str, ending: bytes) -> None:
    events = [told(_event(name, line + ending)) for line in _lines(name)]
    # A record with its type at the end is told by how its line ends: no run, so here the slow way has to know it.
    assert events == _expected(name)


@pytest.mark.parametrize("name", _NAMES)
def test_records_keep_their_bytes_and_gain_a_newline(name: str) -> None:
    for line in _lines(name):
        event = _event(name, line)
        if isinstance(event, RecordLine):
            assert event.line == line.removeprefix(b"\xef\xbb\xbf") + b"\n"


def test_every_transcript_is_tested() -> None:
    recorded = {path.stem for path in _TRANSCRIPTS.glob("*.jsonl") if not path.stem.endswith(".events")}
    assert {name for name in recorded if (_TRANSCRIPTS / f"{name}.events.jsonl").exists()} == set(_NAMES)
