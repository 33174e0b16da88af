"""Connectors that only read, named as destinations: the error says so, and no row is sent to them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from tests.sync.push.pushed_table import PushedTable, person

_STREAMS = {"users": {"records": 3}, "orders": {"records": 1}}
_FAILS = {"discover": {"lines": [], "exit_code": 1}}
_PAGE = "https://docs.airbyte.com/integrations/sources/shop"
_SPEC = {"documentationUrl": _PAGE, "connectionSpecification": {"required": ["x"]}}
_SIGNS: dict[str, tuple[dict[str, Any], str]] = {
    "airbyte": ({}, "is a source: it lists streams to read"),
    "airbyte without its service": ({"answers": _FAILS}, "is a source: it knows the command `read`, and not `write`"),
    "singer": ({"tap": "sdk"}, "is a tap, which reads"),
    "singer of old": ({"tap": "python"}, "is a tap, which reads"),
    "singer without discover": ({"tap": "bare"}, "is a tap, which reads"),
}


def _pushed(folder: Path, protocol: str, scenario: dict[str, Any]) -> PushedTable:
    program = {"airbyte": "fake_source", "singer": "fake_tap"}[protocol]
    pushed = PushedTable(folder, protocol=protocol)
    pushed.launch = {"kind": "local", "command": [sys.executable, "-m", f"dagster_airbyte_proto.testing.{program}"]}
    pushed.config = {"scenario": {"streams": _STREAMS, **scenario}}
    if protocol == "singer":  # It is asked for its flags without its config.
        scenario_file = folder / "scenario.json"
        scenario_file.write_text(json.dumps(pushed.config["scenario"]))
        pushed.launch["command"] += ["--scenario", str(scenario_file)]
    pushed.fill([person(1)])
    return pushed


@pytest.mark.parametrize("kind", _SIGNS)
def test_a_connector_that_reads_is_refused_as_a_destination(quick_folder: Path, kind: str) -> None:
    scenario, sign = _SIGNS[kind]
    table = _pushed(quick_folder, kind.partition(" ")[0], scenario)
    for _ in range(2):  # The second time by what is cached.
        with pytest.raises(ConfigError, match=f"its connector {sign}"):
            table.run()
    with pytest.raises(ConfigError, match=f"its connector {sign}"):
        table.run(only_plans=True)


def test_the_page_in_a_spec_tells_a_source_before_its_config_is_checked(quick_folder: Path) -> None:
    program = quick_folder / "source.py"
    message = json.dumps({"type": "SPEC", "spec": _SPEC})
    program.write_text(f"import sys; assert sys.argv[1] == 'spec'; print({message!r})")
    table = _pushed(quick_folder, "airbyte", {})
    table.launch["command"] = [sys.executable, str(program)]
    with pytest.raises(ConfigError, match=f"its connector is a source, by the page that its spec names .{_PAGE}"):
        table.run()


@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_the_exit_of_a_program_that_reads_on_its_own_proves_no_row(quick_folder: Path, protocol: str) -> None:
    record = {
        "airbyte": {"type": "RECORD", "record": {"stream": "contacts", "emitted_at": 1, "data": {}}},
        "singer": {"type": "RECORD", "stream": "contacts", "record": {}},
    }[protocol]
    state = {
        "airbyte": {"type": "STATE", "state": {"type": "GLOBAL", "global": {"shared_state": {"at": 1}}}},
        "singer": {"type": "STATE", "value": {"bookmarks": {"contacts": {"at": 1}}}},
    }[protocol]
    spec = {"type": "SPEC", "spec": {"connectionSpecification": {}}} if protocol == "airbyte" else {"settings": {}}
    program = quick_folder / "source.py"
    program.write_text(
        "import sys\n"
        f"if 'spec' in sys.argv or '--about' in sys.argv: print({json.dumps(spec)!r})\n"
        "elif 'discover' in sys.argv or '--help' in sys.argv: sys.exit(1)\n"
        f"else: sys.stdin.read(); print({json.dumps(record)!r}); print({json.dumps(state)!r})\n"
    )
    table = _pushed(quick_folder, protocol, {})
    table.launch["command"] = [sys.executable, str(program)]
    table.options["acknowledge"] = "exit"
    pushed = table.run()
    report = pushed.streams["contacts"]
    assert (report.acknowledged, report.unknown) == (0, 1)
    assert "it sent records itself, as a source does" in (report.error or "")
    assert Path(pushed.log).read_text().count("1 states came back that were never sent") == 1
