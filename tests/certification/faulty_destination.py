"""A destination that breaks rules by their names: `faulty_destination.py PROTOCOL FAULT,FAULT ARGUMENTS…`.

Without faults it is a good one: it writes each record to the file that its config names, sends each state back when
the rows before it are there, refuses what does not fit the schema, and fails where a line cannot be read. It imports
nothing of the package, for it starts a hundred times.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_SPEC = {
    "type": "object",
    "required": ["path", "password"],
    "properties": {
        "path": {"type": "string"},
        "password": {"type": "string", "airbyte_secret": True},
        "account": {"type": "string", "airbyte_secret": True},
    },
}
ROTATED = "brand-new-of-the-destination"
_NEW = f"{ROTATED}-{os.getpid()}"
_HOUR_SECONDS = 3600.0
_KEPT_BYTES = 4 << 10


def say(message: Any) -> None:
    sys.stdout.write(message if isinstance(message, str) else json.dumps(message) + "\n")
    sys.stdout.flush()


class FaultyDestination:
    """One run."""

    def __init__(self, protocol: str, faults: set[str], words: list[str]) -> None:
        self.is_singer, self.faults, self.words = protocol == "singer", faults, words
        self.config = self.content("--config")
        catalog = self.content("--catalog")
        self.stream: dict[str, Any] = catalog["streams"][0]["stream"] if catalog else {}
        self.states: list[Any] = []
        self.rows: list[Any] = []
        self.count = self.rejected = self.all_rows = 0
        self.kept: list[bytes] = []

    def content(self, option: str) -> dict[str, Any]:
        found: dict[str, Any] = (
            json.loads(Path(self.words[self.words.index(option) + 1]).read_text()) if option in self.words else {}
        )
        return found

    def has(self, fault: str) -> bool:
        return fault in self.faults

    def run(self) -> int:
        if self.has("logs_secret") and self.config:
            sys.stderr.write(f"connecting with {self.config.get('password')}\n")
        if "spec" in self.words:
            modes = ["append"] if self.has("appends_only") else ["append", "append_dedup"]
            say({"type": "SPEC", "spec": {"connectionSpecification": _SPEC, "supported_destination_sync_modes": modes}})
        elif "--about" in self.words:
            say({"name": "faulty", "settings": _SPEC, "capabilities": []})
        elif "discover" in self.words and "object_schema" in self.config:
            schema = self.config["object_schema"]
            operation = {"object_name": "contacts", "json_schema": schema, "matching_keys": [["id"]]}
            operations = [{**operation, "sync_mode": mode} for mode in ("append", "append_dedup")]
            say({"type": "DESTINATION_CATALOG", "destination_catalog": {"operations": operations}})
        elif "discover" in self.words:
            unavailable = self.has("discover_fails")
            sys.stderr.write("503 from its service\n" if unavailable else "usage: faulty {spec,check,write}\n")
            return 3 if unavailable else 2
        elif not all(isinstance(self.config.get(name), str) for name in ("path", "password")):
            return self.refuse()
        elif "check" in self.words:
            say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
        else:
            return self.write()
        return 0

    def refuse(self) -> int:
        if self.has("accepts_all"):
            say(
                {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}} if not self.is_singer else ""
            )
            return 0
        if not self.is_singer:
            found = "by its config"
            if self.has("rotates_in_check"):
                self.rotate("password")
                found = f"refused {_NEW}"
            say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "FAILED", "message": found}})
            return 0
        return 1

    def rotate(self, name: str) -> None:
        config = {**self.config, name: _NEW}
        control = {"type": "CONNECTOR_CONFIG", "emitted_at": 1.0, "connectorConfig": {"config": config}}
        say({"type": "CONTROL", "control": control})

    def write(self) -> int:
        if self.has("starts_slowly"):
            time.sleep(3.0)
        if self.has("ignores_sigterm"):
            signal.signal(signal.SIGTERM, lambda *_: None)
        if self.has("drains"):
            signal.signal(signal.SIGTERM, lambda *_: os._exit(self.end()))
        if self.has("prints"):
            say("Loading...\n")
        for line in sys.stdin:
            if not line.endswith("\n"):
                return self.end_in_half()
            self.take(json.loads(line))
        if self.has("sends_records"):
            record = {"stream": "users", "record": {"id": 1}, "data": {"id": 1}, "emitted_at": 1}
            say({"type": "RECORD", **({"record": record} if not self.is_singer else record)})
        if self.has("hangs_at_end"):
            time.sleep(_HOUR_SECONDS)
        if self.has("rotates_in_write") and self.all_rows:
            sys.stderr.write(f"401 for {_NEW}\n")
            sys.stderr.flush()
            self.rotate("account")
            return 1
        if self.has("fails_empty") and not self.all_rows:
            return 4
        if self.has("state_on_empty") and not self.all_rows:
            say({"bookmarks": {"users": 1}} if self.is_singer else {"type": "STATE", "state": {"data": {"a": 1}}})
        return self.end()

    def end(self) -> int:
        self.flush()
        if self.has("echoes_last") or self.has("drains"):
            self.echo(self.states[-1:])
        if self.has("reverses_states"):
            self.echo(self.states[::-1])
        return 0

    def end_in_half(self) -> int:
        if self.has("hangs_on_half"):
            time.sleep(_HOUR_SECONDS)
        return self.end() if self.has("swallows_half") else 5

    def take(self, message: dict[str, Any]) -> None:
        if message["type"] == "SCHEMA":
            self.stream = {"json_schema": message["schema"], "name": message["stream"]}
        elif message["type"] == "RECORD":
            self.take_row(message["record"] if self.is_singer else message["record"]["data"])
        elif message["type"] == "STATE":
            self.take_state(message["value"] if self.is_singer else message["state"])

    def take_row(self, row: dict[str, Any]) -> None:
        self.all_rows += 1
        if self.has("keeps_rows"):
            self.kept.append(os.urandom(_KEPT_BYTES))
            time.sleep(0.0002)
        if self.has("slows_down") and self.all_rows > 7000:
            time.sleep(0.004)
        text = json.dumps(row)
        if "\\u0000" in text:
            if self.has("refuses_zero"):
                sys.exit("a zero byte in a text")
            if self.has("skips_zero"):
                return
            if self.has("drops_zero"):
                self.faults.add("never_echoes")
                return
        declared = self.stream["json_schema"]["properties"]
        if isinstance(row.get("score"), str) and "number" in declared.get("score", {}).get("type", ()):
            if self.has("hangs_on_misfit"):
                time.sleep(_HOUR_SECONDS)
            if self.has("drops_misfits"):
                return
            if not self.has("counts_misfits"):
                sys.exit("the score is no number")
            self.rejected += 1
            return
        self.count += 1
        self.rows.append(text)

    def take_state(self, state: Any) -> None:
        if any(self.has(fault) for fault in ("echoes_last", "reverses_states", "drains")):
            self.states.append(state)
        else:
            self.flush()
            self.echo([state])

    def flush(self) -> None:
        path = Path(self.config["path"]) / f"{self.stream.get('name', 'none')}.jsonl"
        held = (
            set(path.read_text().splitlines())
            if path.exists() and (self.has("fails_again") or self.has("mute_again"))
            else set()
        )
        if held & set(self.rows) and self.has("fails_again"):
            sys.exit("duplicate key")
        if held & set(self.rows):
            self.faults.add("never_echoes")
        with path.open("a") as file:
            file.write("".join(f"{row}\n" for row in self.rows))
        self.rows = []

    def echo(self, states: list[Any]) -> None:
        for state in () if self.has("never_echoes") else states:
            text = json.dumps(state)
            if self.has("changes_states"):
                text = text.replace('"rows"', '"at": "now", "rows"')
            if self.has("sends_strangers"):
                text = text.replace("certify-", "other-")
            found = json.loads(text)
            if self.is_singer:
                say(found)
            else:
                counts = {"recordCount": float(self.count + self.has("miscounts"))}
                found["destinationStats"] = {**counts, "rejectedRecordCount": float(self.rejected)}
                say(found if self.has("bare") else {"type": "STATE", "state": found})
            if self.has("floods_states"):
                sys.stdout.write((json.dumps({"type": "STATE", "state": found}) + "\n") * 2_500)
            if self.has("repeats_states"):
                say(found if self.is_singer else {"type": "STATE", "state": found})
            self.count = self.rejected = 0


if __name__ == "__main__":
    code = FaultyDestination(sys.argv[1], set(sys.argv[2].split(",")), sys.argv[3:]).run()
    sys.stdout.flush()
    os._exit(code)
