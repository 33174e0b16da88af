"""A destination of the tests' own, on the real airbyte-cdk: all that the protocol knows, and what the destination then
has."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_airbyte_proto import ConnectorResource, build_push_assets
from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.packages.environments import PinnedPackage, ensure_environment
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.push.push_context import LandedRows
from tests.dagster_defs.support.folder_shop import FolderIOManager
from tests.sync.push.pushed_table import PushedTable, Row

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(300)]

_PROGRAM = Path(__file__).parents[1] / "support" / "sqlite_destination.py"
_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("score", pa.float64())])

OpenDestination = Callable[..., PushedTable]


@pytest.fixture(scope="module")
def command(connector_environments: Path) -> list[str]:
    package = PinnedPackage.of("airbyte-cdk==7.39.1")
    environment = ensure_environment(package, cache=connector_environments, python=None)
    return [str(environment / "bin" / "python"), str(_PROGRAM)]


@pytest.fixture
def destination(quick_folder: Path, command: list[str]) -> OpenDestination:
    def opened(mode: str, **config: Any) -> PushedTable:
        table = PushedTable(quick_folder, schema=_SCHEMA, mode=mode)
        table.launch = {"kind": "local", "command": command}
        table.config = {"path": str(quick_folder / "out.sqlite"), **config}
        table.fill(_people(20))
        return table

    return opened


def _people(count: int, **changed: str) -> list[Row]:
    rows: list[Row] = [{"id": number, "name": f"person {number}", "score": 0.5} for number in range(1, count + 1)]
    for place, name in changed.items():
        rows[int(place.removeprefix("row"))]["name"] = name
    return rows


def _held(table: PushedTable, stream: str = "contacts") -> list[Row]:
    with sqlite3.connect(table.config["path"]) as database:
        rows = [json.loads(data) for (data,) in database.execute(f'SELECT data FROM "{stream}"')]
    return sorted(rows, key=lambda row: (row["id"], row["name"]))


def _completed(table: PushedTable) -> list[tuple[str, int]]:
    with sqlite3.connect(table.config["path"]) as database:
        return list(database.execute("SELECT stream, generation FROM _completed"))


@pytest.mark.nightly
def test_update_changes_what_the_destination_has(destination: OpenDestination) -> None:
    table = destination("upsert")
    table.contacts()
    table.push["mode"] = "update"
    changed = [{**row, "score": 1.5} for row in _people(20)]
    table.fill([*changed, {"id": 21, "name": "nobody there", "score": 1.5}])
    assert table.contacts().acknowledged == 21
    assert _held(table) == changed


@pytest.mark.nightly
def test_objects_are_checked_before_the_start(destination: OpenDestination) -> None:
    table = destination("update", objects={"contacts": ["id"], "companies": ["domain"]})
    assert table.contacts().acknowledged == 20
    table.push["key"] = ["name"]
    with pytest.raises(ConfigError, match="object contacts finds its rows by id, and the stream has name"):
        table.contacts()


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["append", "insert", "upsert", "mirror", "overwrite"])
def test_each_other_mode(destination: OpenDestination, mode: str) -> None:
    table = destination(mode)
    first, again = table.contacts(), table.contacts()
    assert (first.error, first.acknowledged, again.sent) == (None, 20, 20 if mode == "overwrite" else 0)
    assert _held(table) == _people(20)
    changed = [*_people(18, row0="renamed"), {"id": 21, "name": "new", "score": 0.5}]
    table.fill(changed)
    second = table.contacts()
    assert second.acknowledged == second.sent == {"append": 2, "insert": 1, "mirror": 4, "overwrite": 19}.get(mode, 2)
    renamed, added, gone = changed[0], changed[-1], _people(20)[18:]
    now = {
        "append": [*_people(20), renamed, added],
        "insert": [*_people(20), added],
        "upsert": [*changed, *gone],
    }.get(mode, changed)
    assert _held(table) == sorted(now, key=lambda row: (row["id"], row["name"]))


def test_it_is_checked_and_pushed_to_from_the_command_line(
    destination: OpenDestination, capfd: pytest.CaptureFixture[str]
) -> None:
    table = destination("mirror", requires=["score"])
    table.fill([*_people(18), {"id": 19, "name": "no score", "score": None}])
    project = ["--home", str(table.home), "--settings", str(table.settings_file)]
    file = str(table.connection_file())
    assert main([*project, "check", file]) == 0
    capfd.readouterr()
    assert main([*project, "push", file, "--json"]) == 0
    contacts = json.loads(capfd.readouterr().out)["streams"]["contacts"]
    assert (contacts["sent"], contacts["acknowledged"], contacts["unnamed"]) == (19, 18, 1)
    assert _held(table) == _people(18)


@pytest.mark.nightly
def test_it_is_pushed_to_by_a_dagster_asset(destination: OpenDestination) -> None:
    table = destination("mirror")
    resources = {
        "connector": ConnectorResource(home=str(table.home)),
        "io_manager": FolderIOManager(warehouse=str(table.home / "warehouse")),
    }
    for rows, sent in ((20, 20), (18, 2)):
        table.fill(_people(rows))
        assets = build_push_assets(Connection.from_file(table.connection_file()))
        result = dg.materialize([assets], resources=resources)
        [event] = result.asset_materializations_for_node("crm")
        assert event.metadata["airbyte_proto/acknowledged"].value == sent
        assert _held(table) == _people(rows)


@pytest.mark.nightly
def test_a_replacement_that_died_leaves_no_row_twice(destination: OpenDestination) -> None:
    table = destination("overwrite", die_after=13)
    assert table.contacts().status == "failed"
    assert table.contacts().acknowledged == 20
    assert _held(table) == _people(20)
    generations = [generation for _, generation in _completed(table)]
    assert len(generations) == 1


@pytest.mark.nightly
def test_each_process_learns_once_that_its_stream_is_complete(destination: OpenDestination) -> None:
    table = destination("mirror")
    table.options["checkpoint_rows"] = 8
    table.contacts()
    assert [stream for stream, _ in _completed(table)] == ["contacts"] * 3
    table.fill(_people(19))
    table.contacts()
    assert len(_completed(table)) == 4  # With that of the removals.


@pytest.mark.nightly
@pytest.mark.parametrize("is_bare", [True, False])
def test_rejected_rows_are_counted_once_in_each_form_of_state(destination: OpenDestination, is_bare: bool) -> None:
    table = destination("upsert", requires=["score"], bare=is_bare)
    table.fill([{**row, "score": None if row["id"] in (2, 7) else 0.5} for row in _people(20)])
    report = table.contacts()
    assert (report.sent, report.acknowledged, report.rejected, report.unnamed) == (20, 18, 2, 2)
    assert len(_held(table)) == 18


@pytest.mark.nightly
def test_too_many_rows_that_the_destination_rejects_stop_the_push(destination: OpenDestination) -> None:
    table = destination("upsert", requires=["score"])
    table.push["max_rejected"] = "10 %"
    table.fill([{**row, "score": None} for row in _people(20)])
    report = table.contacts()
    assert report.status == "failed"
    assert "more than max_rejected (10 %) allows" in (report.error or "")
    assert report.sent == report.acknowledged + report.rejected + report.unknown


@pytest.mark.nightly
def test_states_that_come_last_or_never(destination: OpenDestination) -> None:
    assert destination("upsert", echo="last").contacts().acknowledged == 20
    table = destination("upsert", echo="never")
    report = table.contacts(is_full=True)
    assert (report.status, report.acknowledged, report.unknown) == ("failed", 0, 20)
    table.options["acknowledge"] = "exit"
    assert table.contacts().acknowledged == 20


@pytest.mark.nightly
def test_an_error_is_that_of_its_stream(destination: OpenDestination) -> None:
    table = destination("upsert", fail="companies")
    path = table.connection_file()
    path.write_text(path.read_text().replace("push:", "push:\n  companies: {from: shop.people, key: [id]}"))
    report = table.run(file=path)
    assert report.status == "partial"
    assert "companies is closed" in (report.streams["companies"].error or "")
    assert not report.streams["companies"].retryable
    assert (report.streams["contacts"].error, report.streams["contacts"].acknowledged) == (None, 20)


@pytest.mark.nightly
def test_a_config_that_it_rewrites_is_kept(destination: OpenDestination) -> None:
    table = destination("upsert", rotate=1)
    table.contacts()
    table.contacts(is_full=True)
    with Engine(table.settings) as engine:
        kept = engine.store.stored_config("crm")
    assert kept is not None
    assert kept.config["rotate"] == 3


@pytest.mark.nightly
@pytest.mark.parametrize("is_bare", [False, True])
def test_a_state_of_all_streams_is_none_of_ours(destination: OpenDestination, *, is_bare: bool) -> None:
    table = destination("append", of_all=True, bare=is_bare)
    report = table.run()
    contacts = report.streams["contacts"]
    assert (contacts.status, contacts.acknowledged, contacts.unknown) == ("unknown", 0, 20)
    assert "acknowledged 0 of 20 rows: 4 states came back that were never sent, 4 of them GLOBAL" in str(contacts.error)
    assert any("they prove no row" in warning for warning in report.warnings)
    table.options["acknowledge"] = "exit"
    assert table.contacts(unknown_landed=LandedRows(20, 20)).status == "complete"
    assert _held(table) == _people(20)
