#!/usr/bin/env python3
"""A Singer tap that follows the scenario of `fake_source.py`: the same streams, records, states and failures.

Bookmarks are {"next": the id that comes next}. Of the keys there, it has no statuses, counts, late states and lines of
Airbyte's. Keys of the scenario in addition:
    tap                 "sdk" (default); "python": as taps of singer-python, with spaces and no `--about`; "old": the
                        same, with `--properties` and no `--catalog`; or "bare": with neither, and no `--discover`
    first_state         the value of a STATE that comes before all else
    currently_syncing   true: STATEs name the stream that is being sent
    log                 lines for stderr
    new_config          written into the file of its config before it reads: text unchanged, anything else as JSON
    discover_config     written there when it discovers
Keys of a stream in addition:
    message_name        the stream's name in its messages
    catalog_name        the stream's `stream` in the catalog
    declared            JSON schema of properties that its SCHEMA has beside those of the catalog
    declared_at         [[id, properties], …]: before the record of this id, a SCHEMA that has these too. One
                        that is null is left out from then on
    no_schema           true: no SCHEMA
    bookmarked          the `bookmark_properties` of its SCHEMA
    unsupported         properties that the catalog marks as unsupported
    unsorted            true: its bookmark is in `progress_markers` until the stream has come to its end
    method              a forced replication method
    version             it is in each RECORD and in the bookmark, and ACTIVATE_VERSION comes at the end
    batch               files that a BATCH names before the records; `encoding` is by default JSON lines with gzip
    extracted           the `time_extracted` of each RECORD; null: none has it
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if __name__ == "__main__" and not TYPE_CHECKING:
    # Run by its path, also compiled: it takes its neighbour alone, and does not wait for imports of the package.
    sys.path.insert(0, os.path.realpath(__file__).partition("/__pycache__/")[0].removesuffix("/fake_tap.py"))
    import fake_source
else:
    from dagster_airbyte_proto.testing import fake_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

_POSITION = "next"
_SETTINGS = {
    "type": "object",
    "properties": {
        "scenario": {"type": ["string", "object"]},
        "password": {"type": ["string", "null"], "secret": True, "writeOnly": True},
        "count": {"type": ["integer", "null"], "minimum": 1},
    },
}
_HELP = """usage: tap [-h] -c CONFIG [-s STATE] {chosen}

options:
  -c CONFIG, --config CONFIG
  -s STATE, --state STATE
  {chosen}
"""


_CHOSEN = {
    "python": "[--catalog CATALOG] [-d] --discover",
    "old": "[-p PROPERTIES] --properties [-d] --discover",
    "bare": "",
}


def command(scenario: Path | None = None) -> list[str]:
    """The command line that runs this tap."""
    from dagster_airbyte_proto.testing.programs import command_line

    return command_line(globals(), scenario)


class TapOutput(fake_source.SourceOutput):
    """Writes messages with spaces, as singer-python does, or without."""

    def __init__(self, failure: dict[str, Any] | None, *, spaced: bool) -> None:
        self._separators = (", ", ": ") if spaced else (",", ":")
        super().__init__(failure)

    def encoded(self, message: dict[str, Any]) -> bytes:
        return json.dumps(message, separators=self._separators).encode() + b"\n"


class TapRead:
    """One read: the selected streams, one after the other or in turn, with what they all share as their state."""

    def __init__(self, scenario: dict[str, Any], catalog: Any, state: Any, output: TapOutput) -> None:
        is_old = scenario.get("tap") == "old"
        self._scenario, self._output = scenario, output
        self._streams = selected(scenario, catalog, state, is_old=is_old)
        self._left_out = {each["tap_stream_id"]: left_out(each, is_old=is_old) for each in catalog["streams"]}
        self._value: dict[str, Any] = dict(state)
        self._value["bookmarks"] = dict(self._value.get("bookmarks", {}))
        self._every: int = scenario.get("state_every", 10)

    def run(self) -> None:
        if "first_state" in self._scenario:
            self._output.write({"type": "STATE", "value": self._scenario["first_state"]})
        fake_source.take_turns([self._turns(stream) for stream in self._streams], self._scenario)

    def _turns(self, stream: fake_source.FakeStream) -> Iterator[None]:
        """Sends the stream, pausing after each record."""
        written = stream.written
        message_name, declared_at = (
            written.get("message_name", stream.name),
            dict(map(tuple, written.get("declared_at", []))),
        )
        properties = {**_properties(stream.name, written), **written.get("declared", {})}
        if not written.get("no_schema"):
            self._schema(stream, message_name, properties)
        if "batch" in written:
            encoding = written.get("encoding", {"format": "jsonl", "compression": "gzip"})
            self._output.write(
                {"type": "BATCH", "stream": message_name, "encoding": encoding, "manifest": written["batch"]}
            )
        while stream.position < stream.end:
            if stream.position in declared_at:
                merged = {**properties, **declared_at[stream.position]}
                properties = {name: rule for name, rule in merged.items() if rule is not None}
                self._schema(stream, message_name, properties)
            emitted_at, data = fake_source.record_of(stream.name, written, stream.position)
            data = {name: part for name, part in data.items() if name not in self._left_out.get(stream.name, ())}
            message: dict[str, Any] = {"type": "RECORD", "stream": message_name, "record": data}
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
            self._output.write({"type": "ACTIVATE_VERSION", "stream": message_name, "version": written["version"]})
        self._state(None, ended=stream)

    def _schema(self, stream: fake_source.FakeStream, message_name: str, properties: dict[str, Any]) -> None:
        keys = ["key" if "keys" in stream.written else "id"]
        schema = {"type": "object", "properties": properties}
        message = {"type": "SCHEMA", "stream": message_name, "schema": schema, "key_properties": keys}
        if self._scenario.get("tap") == "bare" and stream.incremental:
            message["bookmark_properties"] = ["updated_at"]
        if "bookmarked" in stream.written:
            message["bookmark_properties"] = stream.written["bookmarked"]
        self._output.write(message)

    def _state(self, now: fake_source.FakeStream | None, ended: fake_source.FakeStream | None = None) -> None:
        for each in self._streams:
            each.unstated = 0
            if each.incremental and (each.position or each is ended):
                version = {"version": each.written["version"]} if "version" in each.written else {}
                bookmark = {_POSITION: each.position, **version}
                is_under_way = each.written.get("unsorted") and each.position < each.end
                before = {
                    name: part
                    for name, part in self._value["bookmarks"].get(each.name, {}).items()
                    if name != "progress_markers"
                }
                kept = {**before, "progress_markers": bookmark} if is_under_way else bookmark
                self._value["bookmarks"][each.name] = kept
        if self._scenario.get("currently_syncing"):
            self._value["currently_syncing"] = now.name if now else None
        self._output.write({"type": "STATE", "value": self._value})


def _properties(name: str, written: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = fake_source.catalog_stream(name, written)["json_schema"]["properties"]
    return found


def catalog_entry(name: str, written: dict[str, Any]) -> dict[str, Any]:
    """The stream as `--discover` has it."""
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
    found = {"tap_stream_id": name, "stream": written.get("catalog_name", name), "schema": schema}
    return {**found, "metadata": [*metadata, {"breadcrumb": [], "metadata": root}]}


def everything(scenario: dict[str, Any]) -> dict[str, Any]:
    """The catalog with each stream selected."""
    entries = [catalog_entry(name, stream) for name, stream in scenario["streams"].items()]
    for entry in entries:
        entry["metadata"][-1]["metadata"]["selected"] = True
    return {"streams": entries}


def _inclusion(name: str, key: str, written: dict[str, Any]) -> str:
    if name in written.get("unsupported", ()):
        return "unsupported"
    return "automatic" if name == key else "available"


def selected(scenario: dict[str, Any], catalog: Any, state: Any, *, is_old: bool) -> list[fake_source.FakeStream]:
    """The streams that the host chose, in the order of the catalog it sent."""
    streams = []
    for chosen in catalog["streams"]:
        root = next(each["metadata"] for each in chosen["metadata"] if not each["breadcrumb"])
        if not (chosen["schema"].get("selected") if is_old else root.get("selected")):
            continue
        name = chosen["tap_stream_id"]
        incremental = root.get("replication-method") != "FULL_TABLE"
        position = state.get("bookmarks", {}).get(name, {}).get(_POSITION, 0)
        streams.append(
            fake_source.FakeStream(name, scenario["streams"][name], incremental=incremental, position=position)
        )
    return streams


def left_out(chosen: Any, *, is_old: bool) -> set[str]:
    """The properties of a stream that the host did not choose."""
    if is_old:
        return {name for name, rule in chosen["schema"]["properties"].items() if not rule.get("selected")}
    rules = {each["breadcrumb"][-1]: each["metadata"] for each in chosen["metadata"] if each["breadcrumb"]}
    return {name for name, rule in rules.items() if rule.get("selected") is False}


def main(arguments: list[str]) -> int:
    options: dict[str, str] = {}
    flags = {"--about", "--help", "--discover", "--test", "--format=json"}
    words = iter(arguments)
    for word in words:
        options[word] = "" if word in flags else next(words)
    scenario = fake_source.scenario_of(options)
    kind = scenario.get("tap", "sdk")
    for line in scenario.get("log", []):
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - a connector logs to stderr
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
        sys.stdout.write(_HELP.format(chosen=_CHOSEN[kind]))
    elif verb == "discover":
        if "discover_config" in scenario:
            _write(options["--config"], scenario["discover_config"])
        entries = [catalog_entry(name, stream) for name, stream in scenario["streams"].items()]
        sys.stdout.write(json.dumps({"streams": entries}, indent=2) + "\n")
    elif verb == "read":
        catalog_option = "--properties" if kind == "old" else "--catalog"
        state = fake_source.content(options["--state"]) if "--state" in options else {}
        if "new_config" in scenario:
            _write(options["--config"], scenario["new_config"])
        catalog = everything(scenario) if kind == "bare" else fake_source.content(options[catalog_option])
        TapRead(scenario, catalog, state, TapOutput(scenario.get("failure"), spaced=kind != "sdk")).run()
        return int(scenario.get("exit_code", 0))
    return 0


def _write(path: str, written: Any) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(written if isinstance(written, str) else json.dumps(written, indent=2))


if __name__ == "__main__":
    fake_source.run(main)
