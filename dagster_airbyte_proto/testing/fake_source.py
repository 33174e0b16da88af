#!/usr/bin/env python3
"""An Airbyte source that follows a scenario: deterministic, quick to start, without dependencies.

`command()` is its command line. The scenario is in the connection's config under `scenario`, as an object or as the
path of a JSON file. `--scenario FILE` before the verb serves where there is no config, as for `spec`. Its keys are in
the docstring of `testing`. The same scenario always gives the same bytes:

    {"streams": {"users": {"records": 25}, "orders": {"records": 7}}, "state": "stream", "state_every": 10}

It is one file that imports nothing of the package, since tests run it by its path and copy it into containers.
"""

from __future__ import annotations

import json
import os
import signal
import sys

# Imports are most of its start, and tests start it thousands of times.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any, NoReturn

_EPOCH_MILLISECONDS = 1_700_000_000_000
_SPEC = {
    "connectionSpecification": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "scenario": {"type": ["string", "object"]},
            "password": {"type": "string", "airbyte_secret": True},
            "count": {"type": "integer", "minimum": 1},
        },
    }
}


def command(scenario: Path | None = None) -> list[str]:
    """The command line that runs this source."""
    from dagster_airbyte_proto.testing.programs import command_line

    return command_line(globals(), scenario)


class SourceOutput:
    """Writes messages, and fails as the scenario has it when the record is reached."""

    def __init__(self, failure: dict[str, Any] | None) -> None:
        self._out = sys.stdout.buffer
        once = failure and failure.get("once")
        self._failure = None if once and os.path.exists(once) else failure  # noqa: PTH110
        self._records = 0
        self._fail_if_due()

    def write(self, message: dict[str, Any]) -> None:
        self._out.write(self.encoded(message))
        if message["type"] == "RECORD":
            self._records += 1
            self._fail_if_due()
        else:
            self._out.flush()

    def encoded(self, message: dict[str, Any]) -> bytes:
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def line(self, text: str) -> None:
        self._out.write(text.encode() + b"\n")

    def _fail_if_due(self) -> None:
        if self._failure is not None and self._records >= self._failure.get("after", 0):
            failure, self._failure = self._failure, None
            if "once" in failure:
                os.close(os.open(failure["once"], os.O_CREAT))
            self._act_out(failure)

    def _act_out(self, failure: dict[str, Any]) -> NoReturn:
        kind = failure["kind"]
        if kind == "error":
            self.write(error(failure.get("message", "it broke"), failure.get("failure_type"), failure.get("stream")))
        if kind == "cut":
            self._out.write(b'{"type":"RECORD","record":{"stream":"')
        self._out.flush()
        if kind == "signal":
            os.kill(os.getpid(), failure.get("signal", signal.SIGKILL))
        if kind == "close":
            os.close(1)
        if kind == "ignore_sigterm":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if kind in ("hang", "ignore_sigterm", "close"):
            while True:
                signal.pause()
        os._exit(failure.get("code", 1))


class FakeStream:
    """One selected stream of a read. `position` is the id that comes next."""

    def __init__(self, name: str, written: dict[str, Any], *, incremental: bool, position: int) -> None:
        self.name = name
        self.incremental = incremental
        self.stateful = incremental or bool(written.get("resumable"))
        self.position = position if self.stateful else 0
        self.unstated = 0
        self.written = written
        self.end: int = min(total(written), written.get("incomplete_at", total(written)))

    @property
    def descriptor(self) -> dict[str, Any]:
        return descriptor(self.name, self.written)

    @property
    def state(self) -> dict[str, Any]:
        return {"stream_descriptor": self.descriptor, "stream_state": {"next": self.position}}

    def records(self) -> Iterator[dict[str, Any]]:
        """Each record's message. It counts as sent before it is yielded."""
        while self.position < self.end:
            emitted_at, data = record_of(self.name, self.written, self.position)
            self.position += 1
            self.unstated += 1
            record = {"stream": self.name, "data": data, "emitted_at": emitted_at}
            if self.written.get("namespace"):
                record["namespace"] = self.written["namespace"]
            yield {"type": "RECORD", "record": record}


class SourceRead:
    """One read: the selected streams, one after the other or in turn, with their states and statuses."""

    def __init__(self, scenario: dict[str, Any], streams: list[FakeStream], output: SourceOutput) -> None:
        self._scenario = scenario
        self._streams = streams
        self._output = output
        self._state = scenario.get("state", "stream")
        self._every: int = scenario.get("state_every", 10)

    def run(self) -> None:
        take_turns([self._turns(stream) for stream in self._streams], self._scenario)

    def _turns(self, stream: FakeStream) -> Iterator[None]:
        """Sends the stream, pausing after each record."""
        self._send_status(stream, "STARTED")
        for number, record in enumerate(stream.records()):
            if number == 0:
                self._send_status(stream, "RUNNING")
            self._output.write(record)
            if self._has_states(stream) and self._is_due(stream):
                self._send_state(stream)
            yield
        if stream.end < total(stream.written):
            self._fail(stream)
            return
        late = self._scenario.get("late_states", False)
        if late:
            self._send_status(stream, "COMPLETE")
        if self._has_states(stream):
            self._send_state(stream)
        if not late:
            self._send_status(stream, "COMPLETE")

    def _is_due(self, stream: FakeStream) -> bool:
        sent = stream.unstated if self._state == "stream" else sum(each.unstated for each in self._incremental)
        return sent >= self._every

    def _has_states(self, stream: FakeStream) -> bool:
        return stream.incremental or (stream.stateful and self._state == "stream")

    @property
    def _incremental(self) -> list[FakeStream]:
        return [stream for stream in self._streams if stream.incremental]

    def _send_state(self, stream: FakeStream) -> None:
        if self._state == "none":
            return
        covered = [stream] if self._state == "stream" else self._incremental
        if self._state == "stream":
            state: dict[str, Any] = {"type": "STREAM", "stream": stream.state}
        elif self._state == "global":
            positions = {"total": sum(each.position for each in covered)}
            whole = {"shared_state": positions, "stream_states": [each.state for each in covered]}
            state = {"type": "GLOBAL", "global": whole}
        else:
            state = {"data": {each.name: {"next": each.position} for each in covered}}
        if self._scenario.get("counts", True):
            count = sum(each.unstated for each in covered) + self._scenario.get("miscount", 0)
            state["sourceStats"] = {"recordCount": float(count)}
        for each in covered:
            each.unstated = 0
        self._output.write({"type": "STATE", "state": state})

    def _fail(self, stream: FakeStream) -> None:
        self._output.write(error(f"{stream.name} broke", None, stream.descriptor))
        self._send_status(stream, "INCOMPLETE")
        if stream.written.get("state_after_incomplete"):
            state = {"stream_descriptor": stream.descriptor, "stream_state": {"__ab_no_cursor_state_message": True}}
            self._output.write({"type": "STATE", "state": {"type": "STREAM", "stream": state}})

    def _send_status(self, stream: FakeStream, status: str) -> None:
        if self._scenario.get("statuses", True):
            body = {"stream_descriptor": stream.descriptor, "status": status}
            self._output.write(trace({"type": "STREAM_STATUS", "stream_status": body}))


def take_turns(turns: list[Iterator[None]], scenario: dict[str, Any]) -> None:
    """Sends the streams, one after the other or record by record."""
    if not scenario.get("interleave", False):
        for turn in turns:
            for _ in turn:
                pass
    while turns:
        turns = [turn for turn in turns if next(turn, turns) is not turns]


def descriptor(name: str, written: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "namespace": written.get("namespace")}


def trace(body: dict[str, Any]) -> dict[str, Any]:
    return {"type": "TRACE", "trace": {"emitted_at": float(_EPOCH_MILLISECONDS), **body}}


def error(message: str, failure_type: str | None, stream: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "message": message,
        "failure_type": failure_type or "system_error",
        "internal_message": "by its scenario",
    }
    if stream:
        body["stream_descriptor"] = {"name": stream} if isinstance(stream, str) else stream
    return trace({"type": "ERROR", "error": body})


def total(written: dict[str, Any]) -> int:
    """The number of records of a stream."""
    return len(written["rows"]) if "rows" in written else int(written["records"])


def record_of(name: str, written: dict[str, Any], number: int) -> tuple[int, dict[str, Any]]:
    """The emission time of the record with this number, and its data."""
    emitted_at = _EPOCH_MILLISECONDS + number
    if "rows" not in written:
        return emitted_at, record_data(name, written, number)
    row = written["rows"][number]
    return (row[0], row[1]) if isinstance(row, list) else (emitted_at, row)


def record_data(name: str, written: dict[str, Any], number: int) -> dict[str, Any]:
    """The record whose id is `number`, the same in each run."""
    day, second = divmod(number, 86_400)
    at = f"2024-{day // 28 % 12 + 1:02}-{day % 28 + 1:02}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
    key = number % written.get("keys", number + 1)
    data: dict[str, Any] = {"id": number, "key": key, "name": f"{name} {number}", "updated_at": at}
    if "deleted_every" in written:
        data["_ab_cdc_deleted_at"] = at if (number + 1) % written["deleted_every"] == 0 else None
    if "pad" in written:
        size = written["pad"]
        data["pad"] = _noise(number, size) if written.get("noise") else "x" * size
    data |= written.get("values", {})
    return data


def _noise(number: int, size: int) -> str:
    import random

    return random.Random(number).randbytes(size // 2).hex()


def catalog_stream(name: str, written: dict[str, Any]) -> dict[str, Any]:
    """The stream as `discover` has it."""
    own = {
        "id": {"type": "integer"},
        "key": {"type": "integer"},
        "name": {"type": ["null", "string"]},
        "updated_at": {"type": ["null", "string"], "format": "date-time"},
    }
    properties: dict[str, Any] = {} if "rows" in written else own
    if "deleted_every" in written:
        properties["_ab_cdc_deleted_at"] = {"type": ["null", "string"], "format": "date-time"}
    if "pad" in written:
        properties["pad"] = {"type": ["null", "string"]}
    properties |= written.get("properties", {})
    incremental = written.get("incremental", True)
    return {
        "name": name,
        "namespace": written.get("namespace"),
        "json_schema": {"type": "object", "properties": properties},
        "supported_sync_modes": ["full_refresh", "incremental"] if incremental else ["full_refresh"],
        "is_resumable": written.get("resumable", False),
        "source_defined_cursor": incremental,
        "default_cursor_field": written.get("cursor", ["updated_at"]) if incremental else [],
        "source_defined_primary_key": written.get("primary_key", [["key" if "keys" in written else "id"]]),
    }


def positions(states: Any) -> dict[tuple[str | None, str], int]:
    """The position of each stream, from the list of state messages that it is given, or from one legacy state."""
    if isinstance(states, dict):
        return {(None, name): position["next"] for name, position in states.items()}
    found: dict[tuple[str | None, str], int] = {}
    for state in states:
        parts = [state["stream"]] if state["type"] == "STREAM" else state["global"]["stream_states"]
        for part in parts:
            stream = part["stream_descriptor"]
            found[stream.get("namespace") or None, stream["name"]] = (part["stream_state"] or {}).get("next", 0)
    return found


def selected(scenario: dict[str, Any], catalog: Any, states: Any) -> list[FakeStream]:
    """The streams that the host chose, in the order of the catalog it sent."""
    started = positions(states)
    streams = []
    for chosen in catalog["streams"]:
        name = chosen["stream"]["name"]
        written = scenario["streams"][name]
        incremental = chosen["sync_mode"] == "incremental"
        # A legacy state knows no namespaces.
        position = started.get((written.get("namespace"), name)) or started.get((None, name), 0)
        streams.append(FakeStream(name, written, incremental=incremental, position=position))
    return streams


def main(arguments: list[str]) -> int:
    if "--help" in arguments:
        return usage(arguments[0])
    options: dict[str, str] = {}
    verbs = []
    words = iter(arguments)
    for word in words:
        if word.startswith("--"):
            options[word] = next(words)
        else:
            verbs.append(word)
    verb, scenario = verbs[0], scenario_of(options)
    if verb in scenario.get("answers", {}):
        return answered(scenario["answers"][verb])
    output = SourceOutput(scenario.get("failure") if verb == "read" else None)
    if verb == "spec":
        output.write({"type": "SPEC", "spec": _SPEC})
    elif verb == "check":
        output.write({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
    elif verb == "discover":
        streams = [catalog_stream(name, stream) for name, stream in scenario["streams"].items()]
        output.write({"type": "CATALOG", "catalog": {"streams": streams}})
    else:
        states = content(options["--state"]) if "--state" in options else []
        _read(scenario, selected(scenario, content(options["--catalog"]), states), output)
        return int(scenario.get("exit_code", 0))
    return 0


def usage(verb: str) -> int:
    """Prints the usage of a verb, as connectors on Airbyte's CDK do: they fail for one that they do not know."""
    if verb not in ("spec", "check", "discover", "read"):
        sys.stderr.write(f"error: argument command: invalid choice: '{verb}'\n")
        return 2
    sys.stdout.write(f"usage: source {verb} [-h] --config CONFIG --catalog CATALOG [--state STATE]\n")
    return 0


def scenario_of(options: Mapping[str, str]) -> dict[str, Any]:
    """The scenario in its config or on its command line."""
    config = content(options["--config"]) if "--config" in options else {}
    written = config.get("scenario", options.get("--scenario", {}))
    found: dict[str, Any] = content(written) if isinstance(written, str) else written
    return found


def answered(answer: dict[str, Any]) -> int:
    """Prints the lines that replace a verb's own answer."""
    sys.stdout.buffer.write("".join(f"{line}\n" for line in answer.get("lines", [])).encode())
    return int(answer.get("exit_code", 0))


def _read(scenario: dict[str, Any], streams: list[FakeStream], output: SourceOutput) -> None:
    for line in scenario.get("lines", []):
        output.line(line)
    for line in scenario.get("stderr", []):
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - a connector logs to stderr
    if "new_config" in scenario:
        control = {"type": "CONNECTOR_CONFIG", "connectorConfig": {"config": scenario["new_config"]}}
        output.write({"type": "CONTROL", "control": {"emitted_at": float(_EPOCH_MILLISECONDS), **control}})
    SourceRead(scenario, streams, output).run()


def content(path: str) -> Any:
    with open(path, "rb") as file:  # noqa: PTH123
        return json.loads(file.read())


def run(main: Callable[[list[str]], int]) -> NoReturn:
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.exit(code)


if __name__ == "__main__":
    run(main)
