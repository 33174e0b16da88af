"""Connectors that only read, named as destinations: the error says so, and no row is sent to them."""

import sys
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from tests.sync.push.pushed_table import PushedTable, person

_SCENARIO = {"streams": {"users": {"records": 3}, "orders": {"records": 1}}}


@pytest.fixture(params=["airbyte", "singer", "singer of old"])
def table(quick_folder: Path, request: pytest.FixtureRequest) -> PushedTable:
    protocol, _, is_old = request.param.partition(" ")
    program = {"airbyte": "fake_source", "singer": "fake_tap"}[protocol]
    pushed = PushedTable(quick_folder, protocol=protocol)
    pushed.launch = {"kind": "local", "command": [sys.executable, "-m", f"dagster_airbyte_proto.testing.{program}"]}
    scenario: dict[str, Any] = {**_SCENARIO, "tap": "python" if is_old else "sdk"}
    pushed.config = {"scenario": scenario}
    pushed.fill([person(1)])
    return pushed


def test_a_connector_that_reads_is_refused_as_a_destination(table: PushedTable) -> None:
    what = "is a source: it lists streams to read" if table.protocol == "airbyte" else "is a tap, which reads"
    for _ in range(2):  # The second time by what is cached.
        with pytest.raises(ConfigError, match=f"its connector {what}"):
            table.run()
    with pytest.raises(ConfigError, match=f"its connector {what}"):
        table.run(only_plans=True)
