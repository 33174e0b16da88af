"""A source in this process: it has the records that a simulation gave it, and sends them as any connector does."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.launchers.process import ExitReport
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb

KEYS = 3
"""The keys of an upserted stream: record `i` is of the key `i % KEYS`."""

_RECORDS_A_STATE = 2


@dataclass
class SourceContent:
    """What the source has: the number of records of each stream, and how it sends them.

    `state` is "stream", "global" or "legacy". A source that `breaks_after` so many records ends there with an error.
    """

    records: dict[str, int]
    state: str
    breaks_after: int | None = None

    def messages(self, positions: Mapping[str, int], only: Mapping[str, bool]) -> Iterator[Mapping[str, Any]]:
        """The messages of a read of these streams. Those that are not incremental (False) have no states."""
        reached = dict(positions)
        count = 0
        for stream, incremental in only.items():
            number = self.records[stream]
            for record in range(reached.get(stream, 0) if incremental else 0, number):
                if count == self.breaks_after:
                    return
                count += 1
                yield _record(stream, record)
                if incremental and (record % _RECORDS_A_STATE == _RECORDS_A_STATE - 1 or record == number - 1):
                    reached[stream] = record + 1
                    yield {"type": "STATE", "state": self._state(stream, reached)}
            yield _complete(stream)

    def _state(self, stream: str, reached: Mapping[str, int]) -> Mapping[str, Any]:
        parts = [
            {"stream_descriptor": {"name": name}, "stream_state": {"next": reached[name]}}
            for name in ([stream] if self.state == "stream" else sorted(reached))
        ]
        if self.state == "legacy":
            return {"data": {name: {"next": position} for name, position in reached.items()}}
        if self.state == "global":
            return {"type": "GLOBAL", "global": {"shared_state": {"at": sum(reached.values())}, "stream_states": parts}}
        return {"type": "STREAM", "stream": parts[0]}


def positions_in(states: object) -> dict[str, int]:
    """The position of each stream in the states that the source is given."""
    if isinstance(states, dict):  # legacy
        return {stream: part["next"] for stream, part in states.items()}
    assert isinstance(states, list)
    found: dict[str, int] = {}
    for state in states:
        if "data" in state and "type" not in state:
            found |= positions_in(state["data"])
            continue
        parts = [state["stream"]] if state["type"] == "STREAM" else state.get("global", {}).get("stream_states", [])
        for part in parts:
            if part.get("stream_state"):
                found[part["stream_descriptor"]["name"]] = part["stream_state"]["next"]
        if state["type"] == "LEGACY":
            found |= positions_in(state["data"])
    return found


class ScriptedLauncher:
    """Answers for the source."""

    def __init__(self, content: SourceContent) -> None:
        self._content = content

    def identity(self) -> str:
        return "scripted"

    def host_place(self) -> None:
        return

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> "ScriptedConnector":  # noqa: ARG002 - no program runs that would read it
        match invocation.verb:
            case Verb.SPEC:
                return ScriptedConnector([{"type": "SPEC", "spec": {"connectionSpecification": {}}}])
            case Verb.DISCOVER:
                streams = [_catalog_stream(name) for name in self._content.records]
                return ScriptedConnector([{"type": "CATALOG", "catalog": {"streams": streams}}])
            case Verb.READ:
                return self._read(invocation)
        raise ConnectorError("running the scripted source", f"it has no {invocation.verb}")

    def _read(self, invocation: Invocation) -> "ScriptedConnector":
        state_file = next((content for name, content in invocation.files.items() if "state" in name), b"[]")
        [catalog] = [content for name, content in invocation.files.items() if "catalog" in name]
        chosen = {each["stream"]["name"]: each["sync_mode"] == "incremental" for each in json.loads(catalog)["streams"]}
        messages = list(self._content.messages(positions_in(json.loads(state_file)), chosen))
        is_broken = not messages or messages[-1]["type"] != "TRACE"
        return ScriptedConnector(messages, code=int(is_broken))


class ScriptedConnector:
    """A connector whose output is there at once."""

    def __init__(self, messages: list[Mapping[str, Any]], *, code: int = 0) -> None:
        self._chunks = [b"".join(json.dumps(message).encode() + b"\n" for message in messages)]
        self._code = code

    def read(self, timeout_seconds: float) -> bytes | None:  # noqa: ARG002 - it never waits
        return self._chunks.pop() if self._chunks else b""

    def write(self, data: bytes | memoryview, timeout_seconds: float) -> int:  # noqa: ARG002 - takes no input
        raise ConnectorError("writing to the scripted source", "it takes no input")

    def close_input(self) -> None:
        """Does nothing: there is no input."""

    def request_stop(self) -> None:
        self.stop()

    def stop(self) -> None:
        self._chunks = []

    def wait(self, timeout_seconds: float) -> ExitReport | None:  # noqa: ARG002 - it has ended already
        return ExitReport(self._code, None, stopped=False, seconds=0.0)

    def rewritten_file(self) -> bytes | None:
        return None


def _catalog_stream(name: str) -> Mapping[str, Any]:
    properties = {"id": {"type": "integer"}, "version": {"type": "integer"}}
    return {
        "name": name,
        "json_schema": {"type": "object", "properties": properties},
        "supported_sync_modes": ["full_refresh", "incremental"],
        "source_defined_cursor": True,
        "default_cursor_field": ["version"],
        "source_defined_primary_key": [["id"]],
    }


def _record(stream: str, number: int) -> Mapping[str, Any]:
    return {
        "type": "RECORD",
        "record": {"stream": stream, "emitted_at": 1, "data": {"id": number % KEYS, "version": number}},
    }


def _complete(stream: str) -> Mapping[str, Any]:
    status = {"stream_descriptor": {"name": stream}, "status": "COMPLETE"}
    return {"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": status}}
