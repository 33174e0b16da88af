#!/usr/bin/env python3
"""A Singer tap that follows a scenario, the same that `fake_source.py` takes: the same streams, records, states and
failures by another protocol. Bookmarks are {"next": the id that comes next}.

Of the whole, beside what is told there (statuses, counts, late states and messages of Airbyte's it has none):
    tap             "sdk" (default), "python": as singer-python's taps speak, with spaces and no `--about`; or "old":
                    that, with `--properties` and no `--catalog`
    first_state     the value of a STATE that comes before all else
    currently       true: STATEs name the stream that is being sent as `currently_syncing`
    log             lines that go to stderr
    new_config      what it writes into its config's file before it reads: text as it is, else as JSON
    asked_config    what it writes there when it is asked for its catalog
Of a stream:
    said            what its messages call it
    named           its `stream` in the catalog
    told            JSON schema of properties that its SCHEMA has beside those of the catalog
    told_at         [[id, properties], …]: before the record of this id, a SCHEMA that has these too
    unsaid          true: no SCHEMA
    unsupported     properties that its catalog says it never sends
    unsorted        true: its bookmark is in `progress_markers` until the stream has come to its end
    method          a forced replication method
    version         it is in each RECORD, and ACTIVATE_VERSION comes at the end
    batch           files that a BATCH names before the records; `encoding` is of JSON lines with gzip
    extracted       what each RECORD has as `time_extracted`; null: none has it
"""

from __future__ import annotations

import json
import os
import sys

# It may be run alone, and compiled: then it knows of no folder but the standard library's.
if __name__ == "__main__":
    sys.path.insert(0, os.path.realpath(__file__).rpartition("/tests/")[0])

from tests.support import fake_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

_KEPT = "next"
_SETTINGS = {
    "type": "object",
    "properties": {
        "scenario": {"type": ["string", "object"]},
        "password": {"type": ["string", "null"], "secret": True, "writeOnly": True},
        "count": {"type": ["integer", "null"], "minimum": 1},
    },
}
_HELP = """usage: tap [-h] -c CONFIG [-s STATE] {chosen} [-d]

options:
  -c CONFIG, --config CONFIG
  -s STATE, --state STATE
  {chosen}
  -d, --discover        Do schema discovery
"""


def command(scenario: Path | None = None) -> list[str]:
    """What to launch, as `fake_source.command` has it."""
    return fake_source.launched(globals(), scenario)


class Output(fake_source.Output):
    """Writes messages with spaces, as singer-python does, or without."""

    def __init__(self, failure: dict[str, Any] | None, *, spaced: bool) -> None:
        self._separators = (", ", ": ") if spaced else (",", ":")
        super().__init__(failure)

    def encoded(self, message: dict[str, Any]) -> bytes:
        return json.dumps(message, separators=self._separators).encode() + b"\n"


class Read:
    """One read: the selected streams, one after the other or in turn, with what they all share as their state."""

    def __init__(self, scenario: dict[str, Any], catalog: Any, told: Any, output: Output) -> None:
        is_old = scenario.get("tap") == "old"
        self._scenario, self._output = scenario, output
        self._streams = selected(scenario, catalog, told, is_old=is_old)
        self._left_out = {each["tap_stream_id"]: left_out(each, is_old=is_old) for each in catalog["streams"]}
        self._value: dict[str, Any] = dict(told)
        self._value["bookmarks"] = dict(self._value.get("bookmarks", {}))
        self._every: int = scenario.get("state_every", 10)

    def run(self) -> None:
        if "first_state" in self._scenario:
            self._output.write({"type": "STATE", "value": self._scenario["first_state"]})
        fake_source.take_turns([self._turns(stream) for stream in self._streams], self._scenario)

    def _turns(self, stream: fake_source.Stream) -> Iterator[None]:
        """Sends the stream, pausing after each record."""
        written = stream.written
        said, told_at = written.get("said", stream.name), dict(map(tuple, written.get("told_at", [])))
        properties = {**_properties(stream.name, written), **written.get("told", {})}
        if not written.get("unsaid"):
            self._schema(stream, said, properties)
        if "batch" in written:
            encoding = written.get("encoding", {"format": "jsonl", "compression": "gzip"})
            self._output.write({"type": "BATCH", "stream": said, "encoding": encoding, "manifest": written["batch"]})
        while stream.position < stream.end:
            if stream.position in told_at:
                properties = {**properties, **told_at[stream.position]}
                self._schema(stream, said, properties)
            emitted_at, data = fake_source.record_of(stream.name, written, stream.position)
            data = {name: part for name, part in data.items() if name not in self._left_out.get(stream.name, ())}
            message: dict[str, Any] = {"type": "RECORD", "stream": said, "record": data}
            if "version" in written:
                message["version"] = written["version"]
            extracted = written.get("extracted", f"2023-11-14T22:13:20.{emitted_at % 1000:03}000Z")
            if extracted is not None:
                message["time_extracted"] = extracted
            stream.position += 1
            stream.unstated += 1
            self._output.write(message)
            if sum(each.unstated for each in self._streams if each.incremental) >= self._every:
                self._state(stream)
            yield
        if "version" in written:
            self._output.write({"type": "ACTIVATE_VERSION", "stream": said, "version": written["version"]})
        self._state(None, ended=stream)

    def _schema(self, stream: fake_source.Stream, said: str, properties: dict[str, Any]) -> None:
        keys = ["key" if "keys" in stream.written else "id"]
        schema = {"type": "object", "properties": properties}
        self._output.write({"type": "SCHEMA", "stream": said, "schema": schema, "key_properties": keys})

    def _state(self, now: fake_source.Stream | None, ended: fake_source.Stream | None = None) -> None:
        for each in self._streams:
            each.unstated = 0
            if each.incremental and (each.position or each is ended):
                bookmark = {_KEPT: each.position}
                is_under_way = each.written.get("unsorted") and each.position < each.end
                before = {
                    name: part
                    for name, part in self._value["bookmarks"].get(each.name, {}).items()
                    if name != "progress_markers"
                }
                kept = {**before, "progress_markers": bookmark} if is_under_way else bookmark
                self._value["bookmarks"][each.name] = kept
        if self._scenario.get("currently"):
            self._value["currently_syncing"] = now.name if now else None
        self._output.write({"type": "STATE", "value": self._value})


def _properties(name: str, written: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = fake_source.offered(name, written)["json_schema"]["properties"]
    return found


def entry(name: str, written: dict[str, Any]) -> dict[str, Any]:
    """The stream as `--discover` shows it."""
    key, is_incremental = "key" if "keys" in written else "id", written.get("incremental", True)
    properties = _properties(name, written)
    metadata: list[dict[str, Any]] = [
        {"breadcrumb": ["properties", each], "metadata": {"inclusion": _inclusion(each, key, written)}}
        for each in properties
    ]
    root: dict[str, Any] = {"table-key-properties": [key], "selected-by-default": True}
    if is_incremental:
        root["valid-replication-keys"] = ["updated_at"]
    if "method" in written:
        root["forced-replication-method"] = written["method"]
    schema = {"type": "object", "properties": properties}
    found = {"tap_stream_id": name, "stream": written.get("named", name), "schema": schema}
    return {**found, "metadata": [*metadata, {"breadcrumb": [], "metadata": root}]}


def _inclusion(name: str, key: str, written: dict[str, Any]) -> str:
    if name in written.get("unsupported", ()):
        return "unsupported"
    return "automatic" if name == key else "available"


def selected(scenario: dict[str, Any], catalog: Any, told: Any, *, is_old: bool) -> list[fake_source.Stream]:
    """The streams that the host chose, in the order of the catalog it sent."""
    streams = []
    for chosen in catalog["streams"]:
        root = next(each["metadata"] for each in chosen["metadata"] if not each["breadcrumb"])
        if not (chosen["schema"].get("selected") if is_old else root.get("selected")):
            continue
        name = chosen["tap_stream_id"]
        incremental = root.get("replication-method") != "FULL_TABLE"
        position = told.get("bookmarks", {}).get(name, {}).get(_KEPT, 0)
        streams.append(fake_source.Stream(name, scenario["streams"][name], incremental=incremental, position=position))
    return streams


def left_out(chosen: Any, *, is_old: bool) -> set[str]:
    """The properties of a stream that the host did not choose."""
    if is_old:
        return {name for name, rule in chosen["schema"]["properties"].items() if not rule.get("selected")}
    told = {each["breadcrumb"][-1]: each["metadata"] for each in chosen["metadata"] if each["breadcrumb"]}
    return {name for name, about in told.items() if about.get("selected") is False}


def main(arguments: list[str]) -> int:
    options: dict[str, str] = {}
    flags = {"--about", "--help", "--discover", "--test", "--format=json"}
    words = iter(arguments)
    for word in words:
        options[word] = "" if word in flags else next(words)
    scenario = fake_source.scenario_of(options)
    kind = scenario.get("tap", "sdk")
    for line in scenario.get("log", []):
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - stderr is what is asked for
    verb = next((flag[2:] for flag in ("--about", "--help", "--discover", "--test") if flag in options), "read")
    if verb in scenario.get("answers", {}):
        return fake_source.answered(scenario["answers"][verb])
    if verb == "about":
        if kind != "sdk":
            return 2
        capabilities = ["catalog", "state", "discover", "about", "stream-maps"]
        about = {"name": "tap-fake", "version": "1.0", "capabilities": capabilities, "settings": _SETTINGS}
        sys.stdout.write(json.dumps(about, indent=2) + "\n")
    elif verb == "help":
        sys.stdout.write(
            _HELP.format(chosen="[-p PROPERTIES] --properties" if kind == "old" else "[--catalog CATALOG]")
        )
    elif verb == "discover":
        if "asked_config" in scenario:
            _write(options["--config"], scenario["asked_config"])
        entries = [entry(name, stream) for name, stream in scenario["streams"].items()]
        sys.stdout.write(json.dumps({"streams": entries}, indent=2) + "\n")
    elif verb == "read":
        chosen = "--properties" if kind == "old" else "--catalog"
        told = fake_source.content(options["--state"]) if "--state" in options else {}
        if "new_config" in scenario:
            _write(options["--config"], scenario["new_config"])
        catalog = fake_source.content(options[chosen])
        Read(scenario, catalog, told, Output(scenario.get("failure"), spaced=kind != "sdk")).run()
        return int(scenario.get("exit_code", 0))
    return 0


def _write(path: str, written: Any) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(written if isinstance(written, str) else json.dumps(written, indent=2))


if __name__ == "__main__":
    fake_source.run(main)
