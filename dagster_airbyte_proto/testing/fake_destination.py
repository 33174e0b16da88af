"""A destination of either protocol that can misbehave in every way that real ones were seen to, for tests.

It writes records to a file, a line each, and puts them there before it sends the state back. Records of a generation
(a version, of Singer) that replaces those before have its number. With `--takes-updates` it lists the mode `update`.
A state of Airbyte's has to say how many records came since the one before. The config says how:

- `path`: the file. `echo`: `each` state at once, `end`: the last one at the end, `never`.
- `form`: `envelope`, `bare`, `twice`, `stranger` or `global`, as destinations of Airbyte send states back.
- `dies_after`, `hangs_after`, `closes_after`: so many records; once only where `once` names a file that it then makes.
- `dies_at_version`: it dies when a version is to be activated, `before` or `after` that is done; once only with `once`.
- `lags`: it takes so many seconds for each record.
- `miscounts`: the `destinationStats` of each state say that so many records were read.
- `loses`: it neither writes nor counts records whose field `bad` is true, and counts all others.
- `rejects`: records whose field `bad` is true are counted in `destinationStats` and not written.
- `keeps_lines`: this file gets each line of the input as it came.
- `shows_catalog`: the file gets the configured stream of each process as a message.
- `operations`: the catalog that it answers `discover` with. Without them it knows no such command.
- `rotates`: a number, which each process writes back one greater, by a message or into its config file.
- `drains`: at SIGTERM it writes what it has, sends the last state and ends.
- `fails`: it sends an error of this kind (`transient_error`, `config_error`), then exits with 1, or with `exit_code`;
  where there is a `fails_stream`, only if that came last; once only with `once`.
"""

import gzip
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn, TextIO


def main(arguments: list[str]) -> None:
    if "spec" in arguments:
        modes = ["append", "append_dedup", "overwrite", *(["update"] if "--takes-updates" in arguments else [])]
        spec = {"connectionSpecification": {"type": "object"}, "supported_destination_sync_modes": modes}
        _say({"type": "SPEC", "spec": spec})
    elif "--about" in arguments:
        _say({"name": "fake", "settings": {"type": "object", "properties": {}}, "capabilities": []})
    elif "discover" in arguments:
        config = json.loads(Path(arguments[arguments.index("--config") + 1]).read_text())
        if "discover_error" in config and _is_away(config):
            _fail_for_a_moment(config["discover_error"])
        if "operations" not in config or _is_away(config):
            sys.exit(2)
        _say({"type": "DESTINATION_CATALOG", "destination_catalog": {"operations": config["operations"]}})
    elif "check" in arguments:
        config = json.loads(Path(arguments[arguments.index("--config") + 1]).read_text())
        if config.get("has_no_check"):
            sys.exit(2)
        if "check_error" in config and _is_away(config):
            _fail_for_a_moment(config["check_error"])
        fails = _is_away(config) and not config.get("is_there")
        status = {"status": "FAILED", "message": "it is away"} if fails else {"status": "SUCCEEDED"}
        _say({"type": "CONNECTION_STATUS", "connectionStatus": status})
    else:
        config_file = Path(arguments[arguments.index("--config") + 1])
        config = json.loads(config_file.read_text())
        if "rotates" in config:
            _rotate(config_file, {**config, "rotates": config["rotates"] + 1}, is_singer="write" not in arguments)
        [stream] = _configured_streams(arguments) if "write" in arguments else [None]
        destination = _Destination(config, is_singer=stream is None, generation=_replacing_generation(stream))
        if config.get("shows_catalog"):
            destination.show({"type": "CONFIGURED_STREAM", "stream": stream})
        destination.run(sys.stdin)


def _fail_for_a_moment(message: str) -> NoReturn:
    error = {"message": message, "failure_type": "transient_error"}
    _say({"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1, "error": error}})
    sys.exit(1)


def _is_away(config: dict[str, Any]) -> bool:
    """True while there is a file of this name."""
    return "away" in config and Path(config["away"]).exists()


class _Destination:
    def __init__(self, config: dict[str, Any], *, is_singer: bool, generation: int | None) -> None:
        self._config, self._is_singer, self._generation = config, is_singer, generation
        self._waiting: list[str] = []
        self._states: list[Any] = []
        self._records = self._rejected = self._counted = self._since_state = 0
        self._stream = ""

    def run(self, lines: TextIO) -> None:
        if self._config.get("drains"):
            signal.signal(signal.SIGTERM, self._drain)
        for line in lines:
            if "keeps_lines" in self._config:
                with Path(self._config["keeps_lines"]).open("a") as kept:
                    kept.write(line)
            message = json.loads(line, parse_constant=_refuse)
            kind = message["type"]
            if kind == "RECORD":
                self._take(message)
            elif kind == "BATCH":
                self._take_files(message)
            elif kind == "STATE":
                if not self._is_singer and message["state"]["sourceStats"]["recordCount"] != self._since_state:
                    raise ValueError("the state miscounts the records before it")
                self._since_state = 0
                self._states.append(message["value"] if self._is_singer else message["state"])
                if self._config.get("echo", "each") == "each":
                    self._flush(self._states)
                    self._states = []
            elif kind in ("ACTIVATE_VERSION", "TRACE", "SCHEMA"):
                dies = kind == "ACTIVATE_VERSION" and "dies_at_version" in self._config and self._has_turn()
                if not dies or self._config["dies_at_version"] == "after":
                    self._wait({"message": message}, message)
                if dies:
                    self._flush([])
                    os._exit(7)
        self._flush(self._states[-1:] if self._config.get("echo") == "end" else [])
        fails = self._config.get("fails") and self._config.get("fails_stream") in (None, self._stream)
        if fails and self._has_turn():
            error = {"message": "it cannot go on", "failure_type": self._config["fails"]}
            _say({"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1.0, "error": error}})
            sys.exit(self._config.get("exit_code", 1))

    def show(self, message: dict[str, Any]) -> None:
        self._wait({"message": message}, message)

    def _drain(self, *_: object) -> None:
        self._flush(self._states[-1:])
        sys.exit(0)

    def _take(self, message: dict[str, Any]) -> None:
        self._records += 1
        self._since_state += 1
        time.sleep(self._config.get("lags", 0))
        if self._records == self._config.get("dies_after", 0) and self._has_turn():
            self._flush([])
            os._exit(7)
        if self._records == self._config.get("hangs_after", 0) and self._has_turn():
            time.sleep(3600)
        if self._records == self._config.get("closes_after", 0) and self._has_turn():
            sys.stdin.close()
            self._flush([])
            os._exit(0)
        record = message if self._is_singer else message["record"]
        self._stream = record["stream"]
        row = record["record" if self._is_singer else "data"]
        if self._config.get("rejects") and row.get("bad"):
            self._rejected += 1
            return
        if self._config.get("loses") and row.get("bad"):
            return
        self._counted += 1
        self._wait({"stream": record["stream"], "row": row}, message)

    def _wait(self, line: dict[str, Any], message: dict[str, Any]) -> None:
        generation = message.get("version") if self._is_singer else self._generation
        self._waiting.append(json.dumps(line if generation is None else {**line, "generation": generation}))

    def _take_files(self, message: dict[str, Any]) -> None:
        """Takes the records of a BATCH message, as targets on Meltano's SDK do: at once, file by file."""
        for url in message["manifest"]:
            with gzip.open(url.removeprefix("file://"), "rt") as lines:
                for line in lines:
                    self._take({"stream": message["stream"], "record": json.loads(line, parse_constant=_refuse)})
        self._waiting.append(json.dumps({"message": message}))

    def _has_turn(self) -> bool:
        """True each time, or the first time only where a file remembers it."""
        once = self._config.get("once")
        if once is None:
            return True
        if Path(once).exists():
            return False
        Path(once).touch()
        return True

    def _flush(self, states: list[Any]) -> None:
        if self._waiting:
            with Path(self._config["path"]).open("a") as file:
                file.write("".join(f"{line}\n" for line in self._waiting))
                file.flush()
                os.fsync(file.fileno())
            self._waiting = []
        if self._config.get("echo") == "never":
            return
        for state in states:
            self._echo(state)

    def _echo(self, state: Any) -> None:
        form = self._config.get("form", "envelope")
        if self._is_singer:
            _say(state)
            return
        if self._config.get("miscounts"):
            state = {**state, "destinationStats": {"recordCount": float(self._config["miscounts"])}}
        if self._config.get("loses"):
            state = {**state, "destinationStats": {"recordCount": float(self._counted)}}
            self._counted = 0
        if self._rejected:
            state = {**state, "destinationStats": {"rejectedRecordCount": float(self._rejected)}}
            self._rejected = 0
        if form == "stranger":
            stranger = {"plan": "other", "rows": 99}
            stream = {**state["stream"], "stream_state": stranger}
            _say({"type": "STATE", "state": {"type": "STREAM", "stream": stream}})
        if form == "global":
            state = {"type": "GLOBAL", "global": {"shared_state": None, "stream_states": [state["stream"]]}}
        for _ in range(2 if form == "twice" else 1):
            _say(
                {k: v for k, v in state.items() if k != "id"}
                if form in ("bare", "twice")
                else {"type": "STATE", "state": state}
            )


def _configured_streams(arguments: list[str]) -> list[dict[str, Any]]:
    streams: list[dict[str, Any]] = json.loads(Path(arguments[arguments.index("--catalog") + 1]).read_text())["streams"]
    return streams


def _replacing_generation(stream: dict[str, Any] | None) -> int | None:
    """The generation of a configured stream, if it replaces those before."""
    generation: int = stream["generation_id"] if stream is not None else 0
    return generation if stream and generation and stream["minimum_generation_id"] == generation else None


def _rotate(file: Path, config: dict[str, Any], *, is_singer: bool) -> None:
    if is_singer:
        file.write_text(json.dumps(config))
    else:
        control = {"type": "CONNECTOR_CONFIG", "emitted_at": 1.0, "connectorConfig": {"config": config}}
        _say({"type": "CONTROL", "control": control})


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _say(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
