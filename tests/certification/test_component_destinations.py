"""A destination that is a WebAssembly component: its batches are Arrow, and its checkpoints prove rows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dagster_airbyte_proto.certification.certificate import certify
from dagster_airbyte_proto.certification.rule import Outcome
from dagster_airbyte_proto.certification.watching.watched_program import Bounds, Gathering, Scratch
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.engine import Engine
from tests.certification.conftest import with_outcome
from tests.support.wasm import guests
from tests.sync.push.rapidbyte.component_table import written_batches


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    settings = Settings.load(tmp_path / "home", None)
    settings.make_home()
    with Engine(settings, connector_options=ConnectorOptions(stop_grace_seconds=1.0)) as engine:
        yield engine


def test_a_component_takes_all_kinds_of_values_and_proves_its_rows(engine: Engine, tmp_path: Path) -> None:
    files = tmp_path / "granted"
    files.mkdir()
    (tmp_path / "destination.wasm").write_bytes(guests.destination(files))
    document = {
        "name": "crm",
        "connector": {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": str(tmp_path / "destination.wasm")}},
        "config": {"commit_rows": "10"},
        "push": {"contacts": {"from": "shop.people", "key": ["id"]}},
    }
    options = Gathering(Bounds(query_seconds=120.0, write_seconds=120.0), None, Scratch(rows=200))
    found = certify(engine, Connection.model_validate(document), options)
    rulings = {each.rule.name: each.ruling for each in found.rules}
    assert with_outcome(rulings, Outcome.BROKEN) | with_outcome(rulings, Outcome.WARNING) == set()
    assert "they prove all 20 rows" in rulings["checkpoints_come"].met
    assert "all of 21 kinds" in rulings["write_types"].met
    assert found.objects == ("airbyte_proto_certify", "airbyte_proto_certify_types")
    rows = [batch.to_pylist() for run in written_batches(files) for batch in run]
    assert rows[0][0]["name"] == "row 1"
