"""A real source that plays a file: spec, check, discover, read. Every contender runs this very program. To a host that
calls it with flags it is a tap.

It imports the standard library's lightest, and copies by `sendfile`, so that it costs next to nothing itself.
`repeat` plays the file that many times in one read, between one set of STARTED and COMPLETE statuses. With
`bytes_per_second` it writes 8 KiB at a time and no faster, as sources do that ask a server and print: that costs more.
"""

import json
import os
import sys
import time
from typing import Any

_PIECE_BYTES = 1 << 20
_SMALL_PIECE_BYTES = 8 << 10
_FIELDS = {
    "recording": {"type": "string"},
    "catalog": {"type": "string"},
    "repeat": {"type": "integer", "default": 1},
    "bytes_per_second": {"type": "integer", "default": 0},
}


def main(arguments: list[str]) -> int:
    if arguments[0].startswith("--"):
        return _tap(arguments)
    command, options = arguments[0], dict(zip(arguments[1::2], arguments[2::2], strict=False))
    if command == "spec":
        schema = {"type": "object", "required": ["recording", "catalog"], "properties": _FIELDS}
        _say({"type": "SPEC", "spec": {"connectionSpecification": schema, "supports_incremental": True}})
        return 0
    config = _read_json(options["--config"])
    if command == "check":
        _say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
    elif command == "discover":
        _play(config["catalog"], 1)
    else:
        names = [entry["stream"]["name"] for entry in _read_json(options["--catalog"])["streams"]]
        _statuses(names, "STARTED")
        if rate := config.get("bytes_per_second", 0):
            _play_slowly(config["recording"], rate)
        else:
            _play(config["recording"], int(config.get("repeat", 1)))
        _statuses(names, "COMPLETE")
    return 0


def _tap(arguments: list[str]) -> int:
    if arguments[0] == "--about":
        settings = {"type": "object", "required": ["recording", "catalog"], "properties": _FIELDS}
        _say({"name": "tap-replay", "capabilities": ["catalog", "discover", "state"], "settings": settings})
        return 0
    config = _read_json(arguments[arguments.index("--config") + 1])
    if "--discover" in arguments:
        offered = _read_json(config["catalog"])["catalog"]["streams"]
        metadata = [{"breadcrumb": [], "metadata": {"valid-replication-keys": ["id"], "table-key-properties": ["id"]}}]
        _say({"streams": [
            {"tap_stream_id": each["name"], "stream": each["name"], "schema": each["json_schema"], "metadata": metadata}
            for each in offered
        ]})  # fmt: skip
    elif "--test" not in arguments:
        _play(config["recording"], int(config.get("repeat", 1)))
    return 0


def _statuses(names: list[str], status: str) -> None:
    for name in names:
        about = {"stream_descriptor": {"name": name}, "status": status}
        _say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 0, "stream_status": about}})


def _play(path: str, repeat: int) -> None:
    sys.stdout.flush()
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib costs a third of the start-up
        for _ in range(repeat):
            at = 0
            while sent := os.sendfile(1, file.fileno(), at, _PIECE_BYTES):
                at += sent


def _play_slowly(path: str, bytes_per_second: int) -> None:
    sys.stdout.flush()
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
        at, began = 0, time.monotonic()
        while sent := os.sendfile(1, file.fileno(), at, _SMALL_PIECE_BYTES):
            at += sent
            time.sleep(max(0.0, began + at / bytes_per_second - time.monotonic()))


def _read_json(path: str) -> Any:
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        return json.load(file)


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
