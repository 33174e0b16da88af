"""A Syncmaven destination that can misbehave in every way that real ones were seen to, for tests.

It writes rows to a file, a line each, and puts them there before it sends its result. The credentials say how:

- `path`: the file. `dialect`: `packages`, or `seed`, the names of the specification.
- `dies_after`, `hangs_after`, `halts_after`: so many rows; once only where `once` names a file that it then makes. It
  exits with `halts_with`, or 1, after a halt.
- `fails`, `skips`: rows whose field `bad` is true are counted as failed, or as skipped, and not written.
- `result`: `counts`, `named` (by name), `empty` (no payload), `early` (empty, and at its first row), `wrong` (one row
  too few), `never`; with `chatters` it logs for ever in its place.
- `keeps`: it keeps the name of each row under `["row", id]` by the state server, before it writes the row; a text
  takes the place of `row`.
- `chats`: it logs for ever after it has described its streams, or refused to.
- `stays`: it does not end after its result, nor after it has described itself.
"""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, NoReturn

_NAMES = {"spec": "connection-spec", "stream-spec": "streams-spec"}
_ROW = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string", "maxLength": 40},
        "score": {"type": "number"},
    },
    "required": ["id"],
    "additionalProperties": False,
}
_OPTIONS = {"type": "object", "properties": {"list": {"type": "string"}}, "additionalProperties": False}


def main() -> None:
    stream: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for line in sys.stdin:
        message = json.loads(line)
        kind, payload = message["type"], message.get("payload", {})
        if kind == "describe":
            credentials = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
            _say("log", {"level": "debug", "message": "describes itself", "params": [{"a": 1}]})
            _say("spec", {"roles": ["destination"], "connectionCredentials": credentials})
        elif kind == "describe-streams":
            config = payload["credentials"]
            if config.get("refuses"):
                _say("halt", {"status": "error", "message": "the key was refused"})
                _chat(config)
                sys.exit(1)
            streams = [{"name": "contacts", "rowType": _ROW, "streamOptions": _OPTIONS}]
            _say(_name("stream-spec", config), {"defaultStream": "contacts", "streams": streams})
            _chat(config)
            _stay(config)
        elif kind == "start-stream":
            stream = payload
            _note(stream, {"message": message})
        elif kind == "row":
            rows.append(payload["row"])
            if len(rows) == 1 and stream["connectionCredentials"].get("result") == "early":
                _say("stream-result", None)
            _misbehave(stream, rows)
        elif kind == "end-stream":
            _end(stream, rows)


def _end(stream: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    config = stream["connectionCredentials"]
    if config.get("keeps"):
        for row in rows:
            segment = "row" if config["keeps"] is True else config["keeps"]
            _call("state.set", {"key": [segment, str(row["id"])], "value": row["name"]})
    bad = [row for row in rows if (config.get("fails") or config.get("skips")) and row.get("bad")]
    for row in rows:
        if row not in bad:
            _note(stream, {"row": row})
    counts = {"received": len(rows), "success": len(rows) - len(bad), "skipped": 0, "failed": 0}
    counts["failed" if config.get("fails") else "skipped"] = len(bad)
    result = config.get("result", "counts")
    while config.get("chatters"):
        _say("log", {"level": "info", "message": "rate limit exceeded, retrying"})
        time.sleep(0.05)
    if result == "wrong":
        counts["received"] -= 1
    if result not in ("never", "early"):
        _say("stream-result", None if result == "empty" else {"all": counts} if result == "named" else counts)
    _stay(config)


def _misbehave(stream: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    config = stream["connectionCredentials"]
    if len(rows) == config.get("dies_after", 0) and _has_turn(config):
        _die(stream, rows)
    if len(rows) == config.get("hangs_after", 0) and _has_turn(config):
        time.sleep(3600)
    if len(rows) == config.get("halts_after", 0) and _has_turn(config):
        _say("halt", {"status": "error", "message": "the list is full\n    at List.add"})
        _stay(config)
        sys.exit(config.get("halts_with", 1))


def _die(stream: dict[str, Any], rows: list[dict[str, Any]]) -> NoReturn:
    for row in rows:
        _note(stream, {"row": row})
    os._exit(7)


def _has_turn(config: dict[str, Any]) -> bool:
    """True each time, or the first time only where a file remembers it."""
    once = config.get("once")
    if once is None:
        return True
    if Path(once).exists():
        return False
    Path(once).touch()
    return True


def _chat(config: dict[str, Any]) -> None:
    while config.get("chats"):
        _say("log", {"level": "info", "message": "still here"})
        time.sleep(0.05)


def _stay(config: dict[str, Any]) -> None:
    if config.get("stays"):
        time.sleep(3600)


def _note(stream: dict[str, Any], line: dict[str, Any]) -> None:
    with Path(stream["connectionCredentials"]["path"]).open("a") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _call(method: str, body: dict[str, Any]) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{os.environ['RPC_URL']}/{method}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _name(kind: str, config: dict[str, Any]) -> str:
    return _NAMES[kind] if config.get("dialect") == "seed" else kind


def _say(kind: str, payload: Any) -> None:
    message = {"type": kind} if payload is None else {"type": kind, "payload": payload}
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
