"""A Syncmaven enrichment that can misbehave, for tests.

It adds a `city` to each row, which it keeps by the state server under the row's id; it answers nothing to rows whose id
is a multiple of 3, and twice to those whose id is one less. The credentials say how:

- `dialect`: `packages`, or `seed`, the names of the specification.
- `halts_at`, `dies_at`: the id of a row. `halt_status`: `error`, or `ok`, with which it ends well. `halt_type`:
  "" for a message without a type.
- `greets`: it begins with the status `ok`, in a message without a type.
- `replies_of`: it sends back this value in the place of the city; `prints`, this text in the place of its JSON.
- `replies`: the number of replies to each row. `is_bare`: they have nothing but the city.
- `tallies`: the city is the number of rows so far, which it keeps by the state server under ["rows"].
- `chatters`: it logs for ever in the place of its replies to the row with this id.
- `notes`: a file, to which it writes the id of each row that it gets; `notes_of`, another field of the row.
- `once`: a file; once it is there, it neither halts nor dies, and it makes it before it does.
"""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any


def main() -> None:
    config: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for line in sys.stdin:
        message = json.loads(line)
        payload = message.get("payload", {})
        match message["type"]:
            case "describe" if os.environ.get("FAKE_DIALECT") == "seed":
                print(json.dumps({"type": "connection-spec", "credentialsSchema": {"type": "object"}}), flush=True)  # noqa: T201
            case "describe":
                _say("spec", {"roles": ["enrichment"], "connectionCredentials": {"type": "object"}})
            case "enrichment-connect" | "start-enrichment":
                config, options = payload["credentials"], payload["options"]
                if config.get("greets"):
                    print(json.dumps({"status": "ok", "message": "ready"}), flush=True)  # noqa: T201
                _say("log", {"level": "info", "message": f"began by {message['type']} for {payload['syncId']}"})
            case "enrichment-request":
                _enrich(payload["row"], config, options)


def _enrich(row: dict[str, Any], config: dict[str, Any], options: dict[str, Any]) -> None:
    number = row["id"]
    if "notes" in config:
        with Path(config["notes"]).open("a") as file:
            file.write(f"{row.get(config.get('notes_of', 'id'))}\n")
    if number == config.get("halts_at") and _has_turn(config):
        status = config.get("halt_status", "error")
        halt = {"status": status, "message": "no more credits"}
        if config.get("halt_type") == "":
            print(json.dumps(halt), flush=True)  # noqa: T201
        else:
            _say("halt", halt)
        sys.exit(0 if status == "ok" else 1)
    if number == config.get("dies_at") and _has_turn(config):
        os._exit(7)
    key = {"key": ["city", str(number)]}
    _call("state.set", {**key, "value": f"{options.get('prefix', '')}city {number}"})
    kept = _call("state.get", key)
    city = kept["value"] if isinstance(kept, dict) and "value" in kept else kept
    if config.get("tallies"):
        seen = _call("state.get", {"key": ["rows"]})
        city = str((seen if isinstance(seen, int) else 0) + 1)
        _call("state.set", {"key": ["rows"], "value": int(city)})
    while config.get("chatters") == number:
        _say("log", {"level": "info", "message": "rate limit exceeded, retrying"})
        time.sleep(0.05)
    replies = config.get("replies", 0 if number % 3 == 0 else 2 if number % 3 == 2 else 1)
    for _ in range(replies):
        made = {"city": config.get("replies_of", city)}
        _say("enrichment-response", {"row": made if config.get("is_bare") else {**row, **made}}, config.get("prints"))


def _has_turn(config: dict[str, Any]) -> bool:
    once = config.get("once")
    if once is None:
        return True
    if Path(once).exists():
        return False
    Path(once).touch()
    return True


def _call(method: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(f"{os.environ['RPC_URL']}/{method}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _say(kind: str, payload: Any, printed: str | None = None) -> None:
    text = json.dumps({"type": kind, "payload": payload})
    if printed is not None:
        text = text.replace(json.dumps(payload["row"]["city"]), printed)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
