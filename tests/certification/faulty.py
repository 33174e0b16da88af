"""A connector between us and a fake one, that breaks rules by their names: `faulty.py FAULT,FAULT PROGRAM… ARGUMENTS…`.

Without faults it is a good connector: unlike the fake one it refuses a config that its spec refuses. It imports
nothing of the package, for it starts a hundred times.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_VERBS = {"--about": "spec", "--help": "spec", "--test": "check", "--discover": "discover"}
ROTATED = "brand-new-of-the-source"
_NEW = f"{ROTATED}-{os.getpid()}"
_HOUR_SECONDS = 3600.0


class Faulty:
    """One run. `once` is a file by which a second run knows that it is one."""

    def __init__(self, faults: list[str], command: list[str]) -> None:
        self.faults = set(faults) - {""}
        self.command = command
        words = command[command.index("--") + 1 :] if "--" in command else []
        self.command = [word for word in command if word != "--"]
        self.is_singer = any(word in _VERBS for word in words) or "fake_tap" in " ".join(command)
        named = [word for word in words if word in ("spec", "check", "discover", "read")]
        self.verb = named[0] if named else next((_VERBS[word] for word in words if word in _VERBS), "read")
        self.is_resumed = "--state" in words
        self.config = self._content(words, "--config")
        self.seen_records = 0

    def _content(self, words: list[str], option: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(words[words.index(option) + 1]).read_text()) if option in words else {}
        return found

    def has(self, fault: str) -> bool:
        return fault in self.faults

    def run(self) -> int:
        if self.has("ignores_sigterm"):
            signal.signal(signal.SIGTERM, lambda *_: time.sleep(_HOUR_SECONDS))
        if self.verb == "read":
            return self.read()
        output = subprocess.run(self.command, stdout=subprocess.PIPE, check=False)
        text = self.answer(output.stdout.decode())
        sys.stdout.write(text)
        return output.returncode if self.verb != "check" or not self.is_singer else self.code

    def answer(self, text: str) -> str:
        if self.has(f"mute_{self.verb}"):
            return ""
        lines = [text] if self.is_singer else text.splitlines(keepends=True)
        return (
            "".join(json.dumps(self.changed(json.loads(line))) + "\n" for line in lines if line.strip()) or self.none()
        )

    code = 0

    def none(self) -> str:
        """A tap's check prints nothing: its exit code is its verdict."""
        if self.verb == "check":
            self.code = 0 if self.is_fit() else 1
        return ""

    def is_fit(self) -> bool:
        """True if the config is accepted."""
        is_good = isinstance(self.config.get("count"), int) and isinstance(self.config.get("password"), str)
        if not is_good and self.has("hangs_on_bad_config"):
            time.sleep(_HOUR_SECONDS)
        if self.has("logs_secret"):
            sys.stderr.write(f"connecting with {self.config.get('password')}\n")
        if self.has("refuses_all"):
            return False
        return is_good or self.has("accepts_all")

    def changed(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to a short request."""
        if self.verb == "spec":
            spec = message["settings"] if self.is_singer else message["spec"]["connectionSpecification"]
            self.change_spec(spec)
        elif self.verb == "check":
            status = "SUCCEEDED" if self.is_fit() else "FAILED"
            message["connectionStatus"] = {"status": status, "message": "by its config"}
            if self.has("rotates_in_check") and status == "FAILED":
                config = {"config": {**self.config, "password": _NEW}}
                control = {"type": "CONNECTOR_CONFIG", "emitted_at": 1.0, "connectorConfig": config}
                sys.stdout.write(json.dumps({"type": "CONTROL", "control": control}) + "\n")
                message["connectionStatus"]["message"] = f"refused {_NEW}"
        else:
            self.change_catalog(message if self.is_singer else message["catalog"])
        return message

    def change_spec(self, spec: dict[str, Any]) -> None:
        spec["required"] = ["count", "password"]
        if self.has("invalid_spec"):
            spec["properties"]["count"]["type"] = "a number"
        if self.has("unmarked_secret"):
            spec["properties"]["api_key"] = {"type": "string"}

    def change_catalog(self, catalog: dict[str, Any]) -> None:
        if self.has("empty_catalog"):
            catalog["streams"] = []
        if self.has("unstable_catalog"):
            schema = catalog["streams"][0]["schema" if self.is_singer else "json_schema"]
            schema["properties"][f"column_{random.randrange(10**9)}"] = {"type": "string"}
        if self.has("undeclared_key"):
            for stream in catalog["streams"]:
                if self.is_singer:
                    stream["key_properties"] = ["nowhere"]
                    for entry in stream.get("metadata", []):
                        if entry["breadcrumb"] == []:
                            entry["metadata"]["table-key-properties"] = ["nowhere"]
                else:
                    stream["source_defined_primary_key"] = [["nowhere"]]

    def read(self) -> int:
        if self.has("repeats_on_resume") and self.is_resumed:
            at = self.command.index("--state")
            del self.command[at : at + 2]
        with subprocess.Popen(self.command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None, "it has a pipe"
            for line in process.stdout:
                for message in self.messages(json.loads(line)):
                    sys.stdout.write(message if isinstance(message, str) else json.dumps(message) + "\n")
                    sys.stdout.flush()
        if self.has("hangs_at_end"):
            time.sleep(_HOUR_SECONDS)
        return 3 if self.has("fails_at_end") else process.returncode

    def messages(self, message: dict[str, Any]) -> list[dict[str, Any] | str]:
        """A message of the read, with what comes in its place."""
        if message["type"] != "RECORD":
            return self.other(message)
        record = message if self.is_singer else message["record"]
        data = record["record" if self.is_singer else "data"]
        self.seen_records += 1
        number = self.seen_records
        if self.has("loses_on_resume") and self.is_resumed and number <= 2:
            return []
        if self.has("wrong_type") and number % 5 == 0:
            data["id"] = f"number {data['id']}"
        if self.has("null_key") and number == 3:
            data["id"] = None
        if self.has("undeclared_stream") and number == 4:
            record["stream"] = "ghosts"
        if self.has("secret_in_records"):
            data["name"] = f"read with {self.config['password']}"
        if self.has("random_values"):
            data["name"] = f"{random.random()}"
        if self.has("random_rows"):
            data["id"] = random.randrange(10**9)
            data["key"] = data["id"]
        before: list[dict[str, Any] | str] = ["Loading...\n"] if self.has("prints") and number == 1 else []
        if self.has("broken_message") and number == 1:
            before.append({"type": "STATE"})
        return [*before, message]

    def other(self, message: dict[str, Any]) -> list[dict[str, Any] | str]:
        if message["type"] == "STATE":
            if self.has("no_states"):
                return []
            if self.has("slow"):
                time.sleep(0.05)
            if self.has("miscounts") and "sourceStats" in message["state"]:
                message["state"]["sourceStats"]["recordCount"] += 1
        if message["type"] == "SCHEMA" and self.has("no_schema"):
            return []
        if message["type"] == "TRACE" and self.has("incomplete"):
            status = message["trace"].get("stream_status")
            if status and status["status"] == "COMPLETE":
                status["status"] = "INCOMPLETE"
        return [message]


if __name__ == "__main__":
    code = Faulty(sys.argv[1].split(","), sys.argv[2:]).run()
    sys.stdout.flush()
    os._exit(code)
