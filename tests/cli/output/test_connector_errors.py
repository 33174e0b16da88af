"""The error of a connector is one line and the path of the log; its stack traces are shown with --verbose."""

import json
import sys
from pathlib import Path
from typing import Any

from dagster_airbyte_proto.testing import fake_tap
from tests.cli.conftest import USERS, Place

_CRASHING = """\
import sys
from dagster_airbyte_proto.testing import fake_source

def broken(config):
    return config["count"]

if sys.argv[1] == {verb!r}:
    print("CRITICAL it goes wrong", file=sys.stderr)
    try:
        broken({{}})
    except KeyError as error:
        raise RuntimeError("the config has no count") from error
sys.exit(fake_source.main(sys.argv[1:]))
"""
_LOGGED = {
    "type": "LOG",
    "log": {
        "level": "FATAL",
        "message": "'count'",
        "stack_trace": "Traceback (most recent call last):\n  File \"tap.py\", line 40, in main\nKeyError: 'count'",
    },
}


def crashing(place: Place, verb: str, **scenario: Any) -> str:
    program = place.folder / "source.py"
    program.write_text(_CRASHING.format(verb=verb))
    launch = {"kind": "local", "command": [sys.executable, str(program)]}
    return place.connect({**USERS, **scenario}, connector={"protocol": "airbyte", "launch": launch})


def test_a_crash_of_the_connector_is_its_last_exception_and_the_log(place: Place) -> None:
    streams = {"users": {"records": 25}, "orders": {"records": 4}}
    result = place.run("sync", crashing(place, "read", streams=streams))
    assert result.code == 1
    assert "Traceback" not in result.out + result.err and "KeyError" not in result.out
    *_, error, log = result.out.splitlines()
    found = "the connector exited with code 1: RuntimeError: the config has no count"
    assert error == f"error: users, orders: reading from the connector: {found}"
    file = Path(log.removeprefix("log: "))
    assert "KeyError: 'count'" in file.read_text() and 'source.py", line' in file.read_text()
    assert place.json("sync", "shop.yaml", code=1)["log"].startswith(str(file.parent))


def test_a_connector_that_fails_after_its_last_stream_is_not_passed_over(place: Place) -> None:
    result = place.run("sync", place.connect({**USERS, "exit_code": 3}))
    assert result.code == 1
    assert "error: every stream is complete, but the connector failed: exit code 3" in result.out


def test_a_crash_before_the_answer_is_told_in_the_same_way(place: Place) -> None:
    result = place.run("discover", crashing(place, "discover"))
    assert (result.code, "Traceback" in result.err) == (1, False)
    *_, error, log = result.err.splitlines()
    assert error.endswith("it gave no answer, and exited with code 1: RuntimeError: the config has no count")
    assert "KeyError" in Path(log.removeprefix("Its log: ")).read_text()


def test_a_target_that_knows_no_help_is_named_by_its_command_and_its_place(place: Place) -> None:
    target = place.folder / "target.py"
    target.write_text("import sys\nsys.stdin.read()\n")
    connector = {"protocol": "singer", "launch": {"kind": "local", "command": [sys.executable, str(target)]}}
    file = place.connect(USERS, to={"connector": connector, "config": {}}, streams={"users": {"write": "append"}})
    error = place.json("sync", file, code=1)["error"]
    assert error["message"].startswith("asking the destination for its spec: it ended without an answer")
    started = f"`{sys.executable} {target}` was started with `--about --format=json`, then with `--help`"
    assert error["remedy"].startswith(f"{started}, and must answer one of them. Is the connection's `protocol`")
    assert Path(error["remedy"].rpartition("Its log: ")[2]).is_file()


def test_a_program_that_fails_before_it_says_anything_has_its_command_doubted_first(place: Place) -> None:
    launch = {"kind": "local", "command": [sys.executable, "nowhere.py"]}
    result = place.run("check", place.connect(USERS, connector={"protocol": "singer", "launch": launch}))
    assert result.code == 1
    assert f"\nIs its command right? `{sys.executable} nowhere.py` was started with" in result.err


def test_the_check_of_a_relay_says_whose_config_was_not_checked(place: Place) -> None:
    scenario = place.folder / "scenario.json"
    scenario.write_text(json.dumps({**USERS, "tap": "python"}))
    tap = {"protocol": "singer", "launch": {"kind": "local", "command": fake_tap.command(scenario)}}
    command = [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_destination"]
    target = {"protocol": "singer", "launch": {"kind": "local", "command": command}}
    to = {"connector": target, "config": {"path": str(place.folder / "out.jsonl")}}
    shown = place.run("check", place.connect(USERS, connector=tap, to=to)).err
    assert "config of the source in shop.yaml was not checked" in shown


def test_a_fatal_line_of_the_log_has_its_stack_trace_only_with_verbose(place: Place) -> None:
    file = place.connect({**USERS, "lines": [json.dumps(_LOGGED)]})
    brief = place.run("sync", file).err
    assert "shop: FATAL 'count'\n    KeyError: 'count'\n" in brief and "Traceback" not in brief
    whole = place.run("sync", file, "--verbose").err
    assert "    Traceback (most recent call last):" in whole and 'File "tap.py", line 40' in whole


def test_verbose_shows_the_connectors_stderr_and_where_an_error_was_raised(place: Place) -> None:
    shown = place.run("--verbose", "discover", crashing(place, "discover")).err
    assert "STDERR CRITICAL it goes wrong" in shown and "STDERR KeyError: 'count'" in shown
    assert "dagster_airbyte_proto.errors.ConnectorError" in shown


def test_a_recording_of_a_connector_that_fails_says_how_it_ended(place: Place) -> None:
    file = place.connect({**USERS, "failure": {"kind": "exit", "after": 3}})
    shown = place.run("record", file, "kept")
    assert (shown.code, "the connector exited with code 1" in shown.out, "\nlog: /" in shown.out) == (1, True, True)
