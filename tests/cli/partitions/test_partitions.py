"""`--partition` and `--window`: one partition from the command line, as Dagster runs it."""

import json
from pathlib import Path
from typing import Any

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.cli.conftest import Place


def connected(place: Place, template: str, **scenarios: int) -> str:
    """A connection whose config names a scenario by a template; so many users has each scenario."""
    for name, records in scenarios.items():
        (place.folder / name).parent.mkdir(exist_ok=True)
        (place.folder / f"{name}.json").write_text(json.dumps({"streams": {"users": {"records": records}}}))
    config = {"scenario": str(place.folder / f"{template}.json")}
    return place.connect({"streams": {"users": {"records": 1}}}, config=config)


def slices(folder: Path) -> dict[str, int]:
    rows: list[dict[str, Any]] = (
        FolderTables(folder / ".airbyte-proto" / "warehouse").rows(TableName("shop", "users")).to_pylist()
    )
    keys = [row["_airbyte_partition"] for row in rows]
    return {key: keys.count(key) for key in sorted(keys)}


def test_a_partition_is_synced_into_its_slice(place: Place) -> None:
    file = connected(place, "{{ partition.key }}", monday=3, tuesday=5)
    for key in ("monday", "tuesday", "monday"):
        result = place.run("sync", file, "--partition", key, "--json")
        assert (result.code, result.json["partition"]) == (0, key), result
    assert slices(place.folder) == {"monday": 3, "tuesday": 5}


def test_what_else_a_partition_has_fills_templates_too(place: Place) -> None:
    file = connected(place, "{{ partition.start }}", january=3)
    assert place.run("sync", file, "--partition", "1", "--window", "start=january", "--window", "end=x").code == 0
    assert slices(place.folder) == {"1": 3}


def test_a_window_is_of_a_partition_and_has_names(place: Place) -> None:
    file = connected(place, "{{ partition.key }}", monday=3)
    for words in (["--window", "start=a"], ["--partition", "x", "--window", "start"], ["--partition", ""]):
        assert place.run("sync", file, *words).code == 2, words


def test_templates_without_a_partition_are_refused(place: Place) -> None:
    file = connected(place, "{{ partition.key }}", monday=3)
    result = place.run("sync", file)
    assert (result.code, "--partition KEY" in result.err) == (2, True), result


def test_a_connector_is_asked_what_it_offers_in_a_partition(place: Place) -> None:
    file = connected(place, "{{ partition.key }}", monday=3)
    for command in (["check", file], ["discover", file, "--save"]):
        assert place.run(*command, "--partition", "monday").code == 0, command
    assert (place.folder / ".airbyte-proto" / "catalogs" / "shop.json").exists()


def test_a_run_of_a_partition_is_recorded_and_replayed(place: Place) -> None:
    file = connected(place, "{{ partition.key }}/{{ partition.region }}", **{"monday/eu": 3})
    words = ("--partition", "monday", "--window", "region=eu")
    assert place.json("record", file, "kept", *words)["streams"] == ["users"]
    replay = {"protocol": "airbyte", "launch": {"kind": "replay", "recording": "kept"}}
    again = place.connect({}, name="again", connector=replay, config={"scenario": "{{ partition.key }}"})
    assert place.json("sync", again, "--partition", "monday")["streams"]["users"]["committed"] == 3


def test_a_connector_that_takes_templates_as_they_stand_may_be_asked_without_a_partition(place: Place) -> None:
    config = {"scenario": {"streams": {"users": {"records": 1}}}, "password": "{{ partition.key }}"}
    result = place.run("discover", place.connect({}, config=config))
    assert (result.code, "templates as they are written" in result.err) == (0, True), result


def test_one_that_does_not_is_reported_to_name_one(place: Place) -> None:
    file = place.connect({"streams": {"users": {"records": 1}}}, config={"count": "{{ partition.key }}"})
    result = place.run("discover", file)
    assert (result.code, "Name one with --partition" in result.err) == (2, True), result
