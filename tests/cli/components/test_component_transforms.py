"""Components as transforms: their columns in tables, relays and pushes, and the rows that they reject."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.cli.conftest import Place
from tests.support.wasm import guests
from tests.sync.push.pushed_table import PushedTable, person

pytestmark = pytest.mark.everyday("test_its_columns_are_in_the_table", "test_a_step_that_does_not_fit_is_refused")

_USERS = {"streams": {"users": {"records": 5}}}


def _step(folder: Path, script: str = "upper", **more: Any) -> dict[str, Any]:
    component = folder / "transform.wasm"
    component.write_bytes(guests.built("transform").read_bytes())
    connector = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": str(component)}}
    return {"connector": connector, "config": {"script": script}, "columns": {"name": "string"}, **more}


def _names(place: Place) -> list[tuple[int, str]]:
    tables = FolderTables(place.folder / ".airbyte-proto" / "warehouse")
    return sorted((row["id"], row["name"]) for row in tables.rows(TableName("shop", "users")).to_pylist())


def test_its_columns_are_in_the_table(place: Place) -> None:
    steps = [{"sql": "SELECT id, name, updated_at FROM input WHERE id <> 1"}, _step(place.folder)]
    report = place.json("sync", place.connect(_USERS, transforms=steps))
    users = report["streams"]["users"]
    assert (report["status"], users["committed"], users["rejected"]) == ("complete", 4, 1), users
    assert _names(place) == [(number, f"USERS {number}") for number in (0, 2, 3, 4)]


@pytest.mark.parametrize(("on_error", "status"), [("reject", "complete"), ("skip", "complete"), ("fail", "failed")])
def test_rows_that_it_rejects_follow_the_users_word(place: Place, on_error: str, status: str) -> None:
    step = _step(place.folder, 'dlq rows {"_airbyte_row":2} bad data;upper', on_error=on_error)
    report = place.json("sync", place.connect(_USERS, transforms=[step]), code=0 if status == "complete" else 1)
    users = report["streams"]["users"]
    assert (users["status"], users["committed"]) == (status, 4 if status == "complete" else 0), users
    if status == "complete":
        assert _names(place) == [(number, f"USERS {number}") for number in (0, 1, 3, 4)]
    else:
        assert "data: bad" in users["error"]


@pytest.mark.parametrize(("on_error", "status"), [("reject", "complete"), ("fail", "failed")])
def test_a_secret_in_a_reason_is_masked(
    quick_folder: Path, monkeypatch: pytest.MonkeyPatch, on_error: str, status: str
) -> None:
    monkeypatch.setenv("GEO_KEY", "hunter22-of-the-map")
    table = PushedTable(quick_folder)
    script = 'dlq rows {"_airbyte_row":0} refused:hunter22-of-the-map data;upper'
    step = _step(quick_folder, script, on_error=on_error)
    table.options["transforms"] = [{**step, "config": {"script": script, "api_key": "${env:GEO_KEY}"}}]
    table.push["max_rejected"] = 1
    table.fill([person(number) for number in range(3)])
    report = table.contacts()
    assert report.status == status, report
    assert "refused:***" in f"{report.error} {report.rejections}"
    assert b"of-the-map" not in b"".join(each.read_bytes() for each in quick_folder.rglob("*") if _is_kept(each))


def test_another_config_sends_all_rows_again(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.fill([person(number) for number in range(3)])
    step = _step(quick_folder)
    table.options["transforms"] = [step]
    assert table.contacts().acknowledged == 3
    table.options["transforms"] = [{**step, "config": {"script": "upper", "more": True}}]
    assert table.contacts().planned.changed == 3
    assert table.contacts().planned.to_send == 0


def _is_kept(file: Path) -> bool:
    """True for what a push leaves; the transform and its compiled code have the script."""
    return file.is_file() and file.suffix not in (".wasm", ".cwasm", ".yaml", ".json")


@pytest.mark.parametrize(
    ("script", "found"),
    [("fail", "rate-limit/BOOM"), ("trap", "the component trapped"), ("context", "BATCHES_LEFT: its run ended well")],
)
def test_a_failing_component_fails_its_stream(place: Place, script: str, found: str) -> None:
    report = place.json("sync", place.connect(_USERS, transforms=[_step(place.folder, script)]), code=1)
    users = report["streams"]["users"]
    assert (users["status"], users["committed"]) == ("failed", 0)
    assert found in users["error"]


def test_relayed_rows_go_through_it(place: Place) -> None:
    granted = place.folder / "granted"
    granted.mkdir()
    (place.folder / "destination.wasm").write_bytes(guests.destination(granted))
    to = {
        "connector": {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "destination.wasm"}},
        "config": {"commit_rows": "2"},
    }
    report = place.json("sync", place.connect(_USERS, transforms=[_step(place.folder)], to=to))
    assert report["status"] == "complete", report
    from tests.sync.push.rapidbyte.component_table import written_batches

    rows = [row for run in written_batches(granted) for batch in run for row in batch.to_pylist()]
    assert sorted((row["id"], row["name"]) for row in rows) == [(number, f"USERS {number}") for number in range(5)]


def test_pushed_rows_go_through_it(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.options["transforms"] = [_step(quick_folder)]
    table.fill([person(number) for number in range(5)])
    assert table.contacts().status == "complete"
    assert [row["name"] for row in table.received()] == [f"PERSON {number}" for number in range(5)]


def test_a_push_sends_nothing_of_what_fails_at_its_end(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.options["transforms"] = [_step(quick_folder, "pass twice 1")]
    table.fill([person(number) for number in range(5)])
    report = table.contacts()
    assert report.status == "failed"
    assert "rows came back at the end of its run" in str(report.error)
    table.options["transforms"] = [_step(quick_folder)]
    assert table.contacts().sent == 5


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"columns": None}, "columns: is missing"),
        ({"key": ["id"]}, "key: only for enrichments of syncmaven"),
    ],
)
def test_a_step_that_does_not_fit_is_refused(place: Place, change: dict[str, Any], found: str) -> None:
    step = {name: each for name, each in {**_step(place.folder), **change}.items() if each is not None}
    assert found in place.run("sync", place.connect(_USERS, transforms=[step])).err


def test_a_source_is_no_transform(place: Place) -> None:
    step = _step(place.folder)
    (place.folder / "transform.wasm").write_bytes(
        guests.with_section(
            guests.as_component(guests.core_module(place.folder, "source"), "source"),
            "rapidbyte_manifest_v1",
            {**guests.MANIFEST, "roles": {"source": {}}},
        )
    )
    shown = place.run("sync", place.connect(_USERS, transforms=[step]))
    assert shown.code == 2
    assert "its connector is no transform: its manifest has the roles source" in shown.err
    assert json.loads((place.folder / "shop.yaml").read_text())["transforms"]
