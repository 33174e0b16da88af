"""Pushes to an Airbyte destination with a catalog: rows fit the schema of the object that they are written to."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from tests.sync.push.pushed_table import PushedTable, is_removal, person

pytest.importorskip("jsonschema_rs", reason="the package jsonschema-rs is not installed")
_SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string", "maxLength": 20}, "score": {"type": "number"}},
    "required": ["id", "name"],
}


def _object(mode: str, schema: Any, **more: Any) -> dict[str, Any]:
    return {"object_name": "contacts", "sync_mode": mode, "json_schema": schema, "matching_keys": [["id"]], **more}


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder, mode="mirror")
    by_name = _object("append_dedup", {"required": ["nothing"]}, matching_keys=[["name"]])
    appended = _object("append", {"required": ["nothing"]})
    pushed.config["operations"] = [appended, by_name, _object("append_dedup", _SCHEMA)]
    return pushed


def test_a_row_that_does_not_fit_its_object_is_rejected_before_it_is_sent(table: PushedTable) -> None:
    table.fill([person(1), person(2, "x" * 21), person(3, score=None), person(4)])
    report = table.contacts()
    assert (report.status, report.acknowledged, report.rejected) == ("complete", 2, 2)
    assert report.rejections == {
        "name: its value is longer than 20 characters": 1,
        'score: its value is not of type "number"': 1,
    }
    assert table.held().keys() == {1, 4}
    assert table.delivered()[2]["_reason"] == "name: its value is longer than 20 characters"
    table.fill([person(1), person(2), person(3), person(4)])
    assert table.contacts().acknowledged == 2


def test_a_removed_row_is_its_key_and_needs_no_more(table: PushedTable) -> None:
    table.fill([person(1), person(2)])
    table.contacts()
    table.fill([person(1)])
    report = table.contacts()
    assert (report.acknowledged, report.rejected) == (1, 0)
    assert [row["id"] for row in table.received() if is_removal(row)] == [2]


def test_rows_have_to_fit_the_mode_by_which_they_are_written(table: PushedTable) -> None:
    table.push |= {"mode": "insert"}
    table.fill([person(1)])
    assert table.contacts().rejections == {'the row: "nothing" is a required property': 1}


def test_a_schema_that_is_none_is_refused_before_the_start(table: PushedTable) -> None:
    table.config["operations"] = [_object("append_dedup", {"type": "junk"})]
    table.fill([person(1)])
    with pytest.raises(ConfigError, match="it is no valid JSON Schema"):
        table.contacts()
    assert not table.received()


def _pushed_while_away(table: PushedTable) -> tuple[Path, ConnectorError]:
    """The error of a push whose destination's check fails while a file is there, and that file."""
    away = table.folder / "away"
    away.touch()
    table.config["away"] = str(away)
    table.fill([person(1), person(2, "x" * 21)])
    with pytest.raises(ConnectorError, match="its check fails: it is away") as failed:
        table.contacts()
    return away, failed.value


def test_a_destination_that_is_away_for_a_moment_keeps_its_objects(table: PushedTable) -> None:
    away, refused = _pushed_while_away(table)
    assert refused.retryable
    assert not table.received()
    away.unlink()
    assert (table.contacts().acknowledged, table.contacts().planned.to_send) == (1, 0)


def test_a_destination_whose_check_fails_takes_rows_once_a_person_says_that_it_has_no_catalog(
    table: PushedTable,
) -> None:
    _, refused = _pushed_while_away(table)
    assert "`catalog: none`" in (refused.remedy or "")
    table.options["catalog"] = "none"
    report = table.run()
    assert (report.streams["contacts"].acknowledged, report.warnings, report.notes) == (2, (), ())
    table.protocol = "singer"
    with pytest.raises(ConfigError, match="catalog: none is for an Airbyte destination"):
        table.run()


def test_a_destination_that_does_not_say_whether_it_is_there_is_asked_again(table: PushedTable) -> None:
    away = table.folder / "away"
    away.touch()
    table.config |= {"away": str(away), "has_no_check": True}
    table.fill([person(1), person(2, "x" * 21)])
    report = table.run()
    assert "the next run asks again" in report.warnings[0]
    assert report.streams["contacts"].acknowledged == 2
    away.unlink()
    table.fill([person(1), person(3, "x" * 21)])
    assert table.contacts().rejections == {"name: its value is longer than 20 characters": 1}


def test_a_check_that_reports_a_transient_error_says_that_the_destination_is_away(table: PushedTable) -> None:
    away = table.folder / "away"
    away.touch()
    table.config |= {"away": str(away), "check_error": "connection refused"}
    table.fill([person(1)])
    with pytest.raises(ConnectorError, match="connection refused") as failed:
        table.contacts()
    assert (failed.value.retryable, table.received()) == (True, [])


def test_a_catalog_that_fails_each_time_stops_no_push(table: PushedTable) -> None:
    away = table.folder / "away"
    away.touch()
    table.config |= {"away": str(away), "discover_error": "the catalog is being built", "is_there": True}
    table.fill([person(1)])
    report = table.run()
    assert "it is there, and gave none (the catalog is being built" in report.warnings[0]
    assert report.streams["contacts"].acknowledged == 1


def test_a_failure_that_an_earlier_release_took_for_an_answer_is_none(table: PushedTable) -> None:
    table.fill([person(1), person(2, "x" * 21)])
    table.contacts(only_plans=True)
    [cached] = table.home.rglob("catalog-*.json")
    kept = json.loads(cached.read_text())
    cached.write_text(json.dumps(kept | {"message": {"operations": []}}))
    assert table.contacts().rejected == 1
