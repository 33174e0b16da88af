"""Certifies a faulty connector, by the faults that it has."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.certification.certificate import Certificate, certify
from dagster_airbyte_proto.certification.rule import Outcome, Ruling
from dagster_airbyte_proto.certification.watching.watched_program import Bounds, Gathering
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.testing import fake_source, fake_tap

SECRET = "hunter22-of-the-certificate"
SCENARIO: Mapping[str, Any] = {
    "streams": {"users": {"records": 40}, "orders": {"records": 12, "incremental": False}},
    "state_every": 5,
}
PROGRAM = Path(__file__).with_name("faulty.py")
BOUNDS = Bounds(query_seconds=20.0, read_seconds=20.0)


def faulty_connection(protocol: str, *faults: str, scenario: Mapping[str, Any] = SCENARIO) -> dict[str, Any]:
    """The document of a connection to a connector with these faults."""
    fake = fake_tap if protocol == "singer" else fake_source
    command = [sys.executable, "-I", "-S", str(PROGRAM), ",".join(faults) or "none", *fake.command(), "--"]
    return {
        "name": "shop",
        "connector": {"protocol": protocol, "launch": {"kind": "local", "command": command}},
        "config": {"scenario": dict(scenario), "password": SECRET, "count": 3},
    }


class Certifier:
    """Certifies connectors in a home folder of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def certify(self, protocol: str, *faults: str, bounds: Bounds = BOUNDS, **written: Any) -> Certificate:
        scenario = written.pop("scenario", SCENARIO)
        document = {**faulty_connection(protocol, *faults, scenario=scenario), **written}
        return certify(self._engine, Connection.model_validate(document), Gathering(bounds))

    def rulings(self, protocol: str, *faults: str, bounds: Bounds = BOUNDS, **written: Any) -> dict[str, Ruling]:
        certificate = self.certify(protocol, *faults, bounds=bounds, **written)
        return {each.rule.name: each.ruling for each in certificate.rules}


@pytest.fixture
def certifier(tmp_path: Path) -> Iterator[Certifier]:
    settings = Settings.load(tmp_path / "home", None)
    settings.make_home()
    with Engine(settings, connector_options=ConnectorOptions(stop_grace_seconds=1.0)) as engine:
        yield Certifier(engine)


def with_outcome(rulings: Mapping[str, Ruling], outcome: Outcome) -> set[str]:
    """The names of the rules that have this outcome."""
    return {name for name, ruling in rulings.items() if ruling.outcome is outcome}
