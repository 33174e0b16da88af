"""A connector that plays one trick: `connector.py TRICK FOLDER VERB …`. Its streams are `good` and `bad`, each of 20
records.

In a read it sends the first ten records of both streams with a state each, then plays the trick, then sends the rest
and ends. Its state is {"next": the id that comes next}. Tricks on other verbs are in its answers. `honest` is no trick.
The folder is there for those who look for what is left of it.
It is one file without imports of the package, as fake_source.py is.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECORDS, BEFORE_TRICK = 20, 10
STREAMS = ("good", "bad")
MEBIBYTE = 1 << 20
DEEP = 100_000
_MANY = 100_000
_out = sys.stdout.buffer


def write(line: bytes) -> None:
    _out.write(line + b"\n")


def send(kind: str, name: str, body: object) -> None:
    write(json.dumps({"type": kind, name: body}).encode())


def record(stream: str, data: dict[str, Any], emitted_at: object = 1_700_000_000_000) -> None:
    send("RECORD", "record", {"stream": stream, "emitted_at": emitted_at, "data": data})


def bad_record(data: bytes, emitted_at: bytes = b"1700000000000") -> None:
    """A record of `bad` whose data is written as it is."""
    write(b'{"type":"RECORD","record":{"stream":"bad","emitted_at":' + emitted_at + b',"data":' + data + b"}}")


def bad_value(value: bytes) -> None:
    """Record 100 of `bad`: its `name` is written as it is."""
    bad_record(b'{"id":100,"name":' + value + b"}")


def state(stream: str, value: object) -> None:
    descriptor = {"name": stream}
    send("STATE", "state", {"type": "STREAM", "stream": {"stream_descriptor": descriptor, "stream_state": value}})


def bad_state(value: bytes) -> None:
    write(
        b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"bad"},"stream_state":'
        + value
        + b"}}}"
    )


def status(stream: str, value: str) -> None:
    body = {"stream_descriptor": {"name": stream}, "status": value}
    send("TRACE", "trace", {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": body})


def log(text: str, level: str = "INFO") -> None:
    send("LOG", "log", {"level": level, "message": text})


def control(config: object) -> None:
    send("CONTROL", "control", {"type": "CONNECTOR_CONFIG", "emitted_at": 1, "connectorConfig": {"config": config}})


def deep(levels: int = DEEP) -> bytes:
    return b"[" * levels + b"]" * levels


def forever(action: Callable[[int], None]) -> None:
    number = 0
    while True:
        action(number)
        number += 1


def endless_line() -> None:
    _out.write(b'{"type":"RECORD","record":{"stream":"bad","data":{"name":"')
    forever(lambda _: _pass(_out.write(b"x" * MEBIBYTE)))


def long_line() -> None:
    bad_value(b'"' + b"x" * (257 * MEBIBYTE) + b'"')


def long_plain_line() -> None:
    write(b"x" * (200 * MEBIBYTE))


def long_log_message() -> None:
    write(b'{"type":"LOG","log":{"level":"INFO","message":"' + b"x" * (100 * MEBIBYTE) + b'"}}')


def long_error_message() -> None:
    text = b'"' + b"x" * (50 * MEBIBYTE) + b'"'
    write(b'{"type":"TRACE","trace":{"type":"ERROR","error":{"message":' + text + b',"stack_trace":' + text + b"}}}")


def many_errors() -> None:
    for _ in range(60_000):
        log("e" * 1000, "ERROR")


def error_traces() -> None:
    error = {"message": "e" * 1000, "stack_trace": "t" * 1000, "stream_descriptor": {"name": "bad"}}
    for _ in range(30_000):
        send("TRACE", "trace", {"type": "ERROR", "emitted_at": 1, "error": error})


def many_stderr_lines() -> None:
    for _ in range(60):
        sys.stderr.write(("s" * 999 + "\n") * 1000)


def long_stderr_line() -> None:
    for _ in range(100):
        sys.stderr.write("s" * MEBIBYTE)


def endless_plain_lines() -> None:
    forever(lambda _: write(b"still here"))


def emitted_beyond_any_date() -> None:
    for emitted_at in (b"9e18", b"1" + b"0" * 30, b"-1e300"):
        bad_record(b'{"id":100}', emitted_at)


def many_fields() -> None:
    bad_record(b'{"id":100,' + b",".join(b'"f%d":1' % number for number in range(_MANY)) + b"}")


def many_fields_each_time() -> None:
    """Other undeclared fields in each record."""
    for row in range(100):
        fields = b",".join(b'"f%d_%d":1' % (row, number) for number in range(1000))
        bad_record(b'{"id":%d,%s}' % (100 + row, fields))


def undeclared_streams() -> None:
    for number in range(200_000):
        write(b'{"type":"RECORD","record":{"stream":"s%d","emitted_at":1,"data":{}}}' % number)


def statuses_of_unknown_streams() -> None:
    for number in range(_MANY):
        status(f"unknown {number}", "COMPLETE")


def states_of_unknown_streams() -> None:
    for number in range(20_000):
        state(f"unknown {number}", {"next": 1})


def many_states() -> None:
    for number in range(20_000):
        state("bad", {"next": BEFORE_TRICK, "number": number})


def rewrites(secret: bool) -> None:
    for number in range(2000 if secret else 20_000):
        control({"number": number} | ({"token": f"secret-token-{number:08}"} if secret else {}))


def dribble() -> None:
    for byte in b'{"type":"LOG","log":{"level":"INFO","message":"' + b"d" * 3000 + b'"}}\n':
        os.write(1, bytes([byte]))


def unfinished_dribble() -> None:
    _out.write(b'{"type":"LOG","log":{"level":"INFO","message":"')
    while True:
        _out.write(b"d")
        _out.flush()
        time.sleep(0.001)


def lives_on_after(*, ignores_sigterm: bool = False, closes_stdout: bool = False) -> None:
    finish()
    if ignores_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if closes_stdout:
        os.close(1)
    forever(lambda _: time.sleep(1))


def leaves_children() -> None:
    """Ends cleanly; children in groups and sessions of their own keep its pipes."""
    for _ in range(5):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", FOLDER], start_new_session=True)
    finish()
    os._exit(0)


def says_nothing(code: int) -> None:
    os._exit(code)


def second_catalog() -> None:
    send("CATALOG", "catalog", {"streams": [{"name": "other", "json_schema": {}}]})
    send("CATALOG", "catalog", catalog())


def _pass(_: object) -> None: ...


# Tricks in the midst of a read.
READ_TRICKS: dict[str, Callable[[], None]] = {
    "honest": lambda: None,
    "endless_line": endless_line,
    "long_line": long_line,
    "long_plain_line": long_plain_line,
    "long_log_message": long_log_message,
    "long_error_message": long_error_message,
    "many_errors": many_errors,
    "error_traces": error_traces,
    "many_stderr_lines": many_stderr_lines,
    "long_stderr_line": long_stderr_line,
    "endless_plain_lines": endless_plain_lines,
    "deep_record": lambda: bad_value(deep()),
    "deep_state": lambda: bad_state(deep()),
    "deep_control": lambda: write(
        b'{"type":"CONTROL","control":{"type":"CONNECTOR_CONFIG","connectorConfig":{"config":{"a":' + deep() + b"}}}}"
    ),
    "deep_config_below_parsers": lambda: control({"a": json.loads(deep(900))}),
    "deep_log": lambda: write(b'{"type":"LOG","log":{"level":"INFO","message":' + deep() + b"}}"),
    "deep_error": lambda: write(b'{"type":"TRACE","trace":{"type":"ERROR","error":' + deep() + b"}}"),
    "huge_exponent": lambda: bad_record(b'{"id":1e999999999}'),
    "many_digits": lambda: bad_record(b'{"id":' + b"9" * (10 * MEBIBYTE) + b"}"),
    "many_digits_as_number": lambda: bad_record(b'{"id":100,"amount":' + b"9" * MEBIBYTE + b"}"),
    "invalid_utf8": lambda: bad_value(b'"\xff\xfe\xc0\x80"'),
    "nul_bytes": lambda: bad_value(b'"a\x00b"'),
    "nul_line": lambda: write(b"\x00" * MEBIBYTE),
    "lone_surrogates": lambda: bad_value(b'"\\ud800"'),
    "emitted_beyond_any_date": emitted_beyond_any_date,
    "many_fields": many_fields,
    "many_fields_each_time": many_fields_each_time,
    "undeclared_streams": undeclared_streams,
    "statuses_of_unknown_streams": statuses_of_unknown_streams,
    "states_of_unknown_streams": states_of_unknown_streams,
    "many_states": many_states,
    "endless_states": lambda: forever(lambda number: state("bad", {"next": BEFORE_TRICK, "number": number})),
    "endless_identical_states": lambda: forever(lambda _: state("bad", {"next": BEFORE_TRICK})),
    "huge_state": lambda: state("bad", {"next": BEFORE_TRICK, "pad": "x" * (100 * MEBIBYTE)}),
    "state_with_nul": lambda: bad_state(b'{"next":10,"text":"a\\u0000b"}'),
    "state_with_raw_nul": lambda: bad_state(b'{"next":10,"text":"a\x00b"}'),
    "state_with_surrogate": lambda: bad_state(b'{"next":10,"text":"\\ud800"}'),
    "state_with_invalid_utf8": lambda: bad_state(b'{"next":10,"text":"\xff"}'),
    "state_with_huge_number": lambda: bad_state(b'{"next":10,"number":1e999999999,"digits":' + b"9" * 10_000 + b"}"),
    "many_configs": lambda: rewrites(secret=False),
    "many_tokens": lambda: rewrites(secret=True),
    "huge_config": lambda: control({"pad": "x" * (100 * MEBIBYTE)}),
    "dribble": dribble,
    "endless_dribble": unfinished_dribble,
    "lives_on": lives_on_after,
    "lives_on_and_ignores_sigterm": lambda: lives_on_after(ignores_sigterm=True),
    "closes_stdout_and_lives_on": lambda: lives_on_after(closes_stdout=True, ignores_sigterm=True),
    "leaves_children": leaves_children,
    "second_catalog": second_catalog,
}


def read() -> None:
    position = dict.fromkeys(STREAMS, 0)
    if "--state" in sys.argv:
        for each in json.loads(Path(sys.argv[sys.argv.index("--state") + 1]).read_bytes()):
            stream = each["stream"]
            position[stream["stream_descriptor"]["name"]] = stream["stream_state"]["next"]
    if TRICK in ("exit_0_without_a_word", "exit_1_without_a_word"):
        says_nothing(int(TRICK.split("_")[1]))
    _send_rows(position, BEFORE_TRICK, {})
    _out.flush()
    global _rest
    _rest = {stream: max(BEFORE_TRICK, at) for stream, at in position.items()}
    READ_TRICKS.get(TRICK, READ_TRICKS["honest"])()
    finish()
    if TRICK == "exit_1_after_everything":
        says_nothing(1)


def finish() -> None:
    _send_rows(_rest, RECORDS, {})
    for stream in STREAMS:
        status(stream, "COMPLETE")
    _out.flush()


_rest: dict[str, int] = {}


def _send_rows(position: dict[str, int], end: int, more: dict[str, Any]) -> None:
    for stream in STREAMS:
        for number in range(position[stream], end):
            record(stream, {"id": number, "name": f"{stream} {number}", **more})
        if position[stream] < end:
            state(stream, {"next": end})


# Answers to the other verbs.


def stream_entry(name: str, **properties: object) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": ["null", "string"]},
            "amount": {"type": ["null", "number"]},
            **properties,
        },
    }
    return {
        "name": name,
        "json_schema": schema,
        "supported_sync_modes": ["full_refresh", "incremental"],
        "source_defined_cursor": True,
        "source_defined_primary_key": [["id"]],
    }


def catalog(*more: dict[str, Any], bad: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"streams": [stream_entry("good"), bad or stream_entry("bad"), *more]}


def discover() -> None:
    if TRICK == "deep_catalog":
        write(
            b'{"type":"CATALOG","catalog":{"streams":[{"name":"bad","json_schema":{"properties":{"id":'
            + b'{"type":"array","items":' * DEEP
            + b"{}"
            + b"}" * DEEP
            + b"}}}]}}"
        )
    elif TRICK == "deep_schema":
        nested: dict[str, Any] = {"type": "string"}
        for _ in range(200):
            nested = {"type": "array", "items": nested}
        send("CATALOG", "catalog", catalog(bad=stream_entry("bad", nested=nested)))
    elif TRICK == "many_streams":
        send("CATALOG", "catalog", catalog(*(stream_entry(f"s{number}") for number in range(_MANY))))
    elif TRICK == "recursive_references":
        bad = stream_entry("bad", tree={"$ref": "#/definitions/tree"}, itself={"$ref": "#/properties/itself"})
        node = {
            "type": "object",
            "properties": {"left": {"$ref": "#/definitions/tree"}, "right": {"$ref": "#/definitions/tree"}},
        }
        bad["json_schema"]["definitions"] = {"tree": node}
        send("CATALOG", "catalog", catalog(bad=bad))
    elif TRICK == "doubling_references":
        bad = stream_entry("bad", tree={"$ref": "#/definitions/d30"})
        definitions: dict[str, Any] = {"d0": {"type": "string"}}
        for level in range(30):
            half = {"$ref": f"#/definitions/d{level}"}
            definitions[f"d{level + 1}"] = {"type": "object", "properties": {"left": half, "right": half}}
        bad["json_schema"]["definitions"] = definitions
        send("CATALOG", "catalog", catalog(bad=bad))
    elif TRICK == "endless_discover":
        forever(lambda _: _pass(_out.write(b"x" * MEBIBYTE)))
    elif TRICK == "two_catalogs":
        send("CATALOG", "catalog", {"streams": [stream_entry("other")]})
        send("CATALOG", "catalog", catalog())
    elif TRICK == "silent_discover":
        return
    else:
        send("CATALOG", "catalog", catalog())


def spec() -> None:
    if TRICK == "deep_spec":
        write(b'{"type":"SPEC","spec":{"connectionSpecification":{"properties":' + deep() + b"}}}")
    elif TRICK == "endless_spec":
        forever(lambda _: _pass(_out.write(b"x" * MEBIBYTE)))
    elif TRICK == "recursive_spec":
        itself = {"$ref": "#/properties/a"}
        send("SPEC", "spec", {"connectionSpecification": {"type": "object", "properties": {"a": itself}}})
    elif TRICK == "spec_of_nul_and_surrogates":
        write(b'{"type":"SPEC","spec":{"connectionSpecification":{"type":"object","title":"\\ud800\\u0000"}}}')
    else:
        send("SPEC", "spec", {"connectionSpecification": {"type": "object"}})


TRICK, FOLDER, VERB = sys.argv[1:4] if len(sys.argv) > 3 else ("", "", "")  # empty where tests import this
if __name__ == "__main__":
    {"spec": spec, "discover": discover, "read": read}[VERB]()
    _out.flush()
