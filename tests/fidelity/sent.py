"""What a connector sent, from its own bytes: read by the standard library, line by line."""

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dagster_airbyte_proto.model import StreamId
from tests.fidelity.expectation import parsed

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Sent(NamedTuple):
    """A record. `changes` are the entries that the source itself made: field, change, reason."""

    data: Mapping[str, Any]
    emitted_at: dt.datetime | None = None
    changes: tuple[tuple[str, str, str], ...] = ()


def sent_records(output: bytes) -> dict[StreamId, list[Sent]]:
    """The records of each stream in the order they came. Lines that are none are passed over."""
    found: dict[StreamId, list[Sent]] = {}
    for message in _records(output):
        record = message.get("record")
        if isinstance(record, dict) and isinstance(record.get("data"), dict):
            stream = StreamId.of(record["stream"], record.get("namespace"))
            found.setdefault(stream, []).append(_sent(record))
    return found


def sent_by_tap(output: bytes) -> dict[StreamId, list[Sent]]:
    """The same of a tap's output."""
    found: dict[StreamId, list[Sent]] = {}
    for message in _records(output):
        at = message.get("time_extracted")
        sent = Sent(message["record"], None if at is None else dt.datetime.fromisoformat(at))
        found.setdefault(StreamId.of(message["stream"]), []).append(sent)
    return found


def _records(output: bytes) -> Iterator[Mapping[str, Any]]:
    for line in output.split(b"\n"):
        try:
            message = parsed(line.decode("utf-8", "surrogateescape"))
        except ValueError:
            continue
        if isinstance(message, dict) and message.get("type") == "RECORD":
            yield message


def _sent(record: Mapping[str, Any]) -> Sent:
    changes = (record.get("meta") or {}).get("changes") or ()
    milliseconds = record.get("emitted_at")
    at = None if milliseconds is None else _EPOCH + dt.timedelta(microseconds=int(milliseconds * 1000))
    return Sent(record["data"], at, tuple((each["field"], each["change"], each["reason"]) for each in changes))
