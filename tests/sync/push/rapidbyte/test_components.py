"""Pushes to a component: Arrow in, checkpoints back, and each way in which a destination may fail."""

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import ConfigError
from tests.support.wasm import guests
from tests.sync.push.pushed_table import Patience, person
from tests.sync.push.rapidbyte.component_table import ComponentTable

pytestmark = pytest.mark.everyday(
    "test_rows_arrive_as_arrow_with_equal_values",
    "test_an_error_is_tried_again_by_its_own_class",
    "test_a_rejected_record_is_the_row_that_it_is",
    "test_without_a_checkpoint_no_row_counts",
    "test_an_error_names_its_scope_and_its_commit[record]",
    "test_a_component_that_breaks_leaves_what_it_proved[chat]",
)

_PEOPLE = [person(number) for number in range(23)]
_SAFE = {"retryable": "1", "safe": "1", "backoff": "0", "category": "4"}


def test_rows_arrive_as_arrow_with_equal_values(quick_folder: Path) -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
    columns = {
        "id": pa.int64(),
        "name": pa.string(),
        "share": pa.decimal128(9, 3),
        "at": pa.timestamp("us"),
        "seen": pa.timestamp("us", "UTC"),
        "day": pa.date32(),
        "raw": pa.binary(),
        "tags": pa.list_(pa.string()),
    }
    table = ComponentTable(quick_folder, schema=pa.schema(columns.items()))
    row = {
        "id": 1,
        "name": "ä\n",
        "share": decimal.Decimal("1.250"),
        "at": at,
        "seen": at.replace(tzinfo=datetime.UTC),
        "day": at.date(),
        "raw": b"\xff\x00",
        "tags": ["x", None],
    }
    table.fill([row, dict.fromkeys(columns) | {"id": 2}])
    report = table.contacts()
    assert (report.status, report.acknowledged, report.unknown) == ("complete", 2, 0), report.error
    first, second = table.received()
    assert first == {**row, "tags": '["x",null]'}
    assert second == dict.fromkeys(columns) | {"id": 2}
    # Nothing new: no component is started.
    assert table.contacts().sent == 0
    assert len(table.batches()) == 1


def test_metrics_of_transforms_and_of_the_destination_are_in_the_report(quick_folder: Path) -> None:
    table = ComponentTable(quick_folder)
    transform = {"kind": "wasm", "path": str(guests.built("transform"))}
    step = {
        "connector": {"protocol": "rapidbyte", "launch": transform},
        "config": {"script": 'metric {"name":"seen","value":7};tally'},
        "columns": {"name": "string"},
    }
    table.options["transforms"] = [step]
    table.config["metric"] = '{"name":"seen","value":{"type":"counter","value":1}}'
    table.fill(_PEOPLE)
    sent = {"transform tests/scripted": {"seen": 7.0}, "destination": {"seen": 5.0}}
    assert table.contacts().metrics == sent
    # Of a run that sends nothing there are none.
    assert table.contacts().metrics == {}


def test_its_context_names_mode_key_and_columns(quick_folder: Path) -> None:
    table = ComponentTable(quick_folder)
    table.options["on_error"] = "skip"
    table.fill(_PEOPLE)
    report = table.run()
    log = Path(report.log or "").read_text()
    assert '"write_mode":{"mode":"upsert","primary_key":["id"]}' in log
    assert '{"name":"score","data_type":"Float64","nullable":true}' in log
    assert '"on_data_error":"skip"' in log


def test_a_replacement_is_all_rows_in_one_run(quick_folder: Path) -> None:
    table = ComponentTable(quick_folder, mode="overwrite")
    for rows in (_PEOPLE, _PEOPLE[:3], []):
        table.fill(rows)
        assert table.contacts().status == "complete"
    runs = table.batches()
    assert [[row["id"] for batch in run for row in batch.to_pylist()] for run in runs] == [[*range(23)], [0, 1, 2], []]


@pytest.mark.parametrize(
    ("mode", "role", "found"),
    [
        ("mirror", {}, "Rapidbyte has no removals"),
        ("update", {}, "no mode that only updates"),
        ("upsert", {"supported_write_modes": ["append", "replace"]}, "its manifest has append, replace"),
    ],
)
def test_a_mode_is_checked_before_anything_starts(
    quick_folder: Path, mode: str, role: dict[str, Any], found: str
) -> None:
    table = ComponentTable(quick_folder, mode=mode, **role)
    table.fill(_PEOPLE)
    with pytest.raises(ConfigError, match=found):
        table.run()
    assert table.batches() == []


@pytest.mark.parametrize("scope", ["0", "1", "2"])
def test_an_error_is_tried_again_by_its_own_class(quick_folder: Path, scope: str) -> None:
    table = ComponentTable(quick_folder)
    table.config |= {"fault": "error", "fault_at": "15", "once": "yes", "scope": scope, **_SAFE}
    table.fill(_PEOPLE)
    report = table.contacts()
    assert (report.status, report.acknowledged) == ("complete", 23), report.error
    first, second = table.batches()
    # What the first run's checkpoint covered is not sent again.
    assert sum(batch.num_rows for batch in first) == 15
    assert [row["id"] for batch in second for row in batch.to_pylist()] == [*range(10, 23)]


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ({"scope": "0"}, "déjà vu"),
        ({"scope": "1"}, "déjà vu (of a batch)"),
        ({"scope": "2", "commit": "1"}, "déjà vu (of a record, after-commit-unknown)"),
    ],
    ids=["stream", "batch", "record"],
)
def test_an_error_names_its_scope_and_its_commit(quick_folder: Path, error: dict[str, str], found: str) -> None:
    table = ComponentTable(quick_folder)
    table.config |= {"fault": "error", "fault_at": "5", "category": "6", **error}
    table.fill(_PEOPLE)
    [said] = [line for line in (table.contacts().error or "").splitlines() if "déjà vu" in line]
    assert said.endswith(f'data/BOOM: {found} ({{"k":1}})')


@pytest.mark.parametrize(
    ("error", "runs"),
    [
        (_SAFE | {"commit": "0"}, 3),
        (_SAFE | {"commit": "1"}, 1),
        (_SAFE | {"commit": "2"}, 1),
        (_SAFE | {"safe": "0"}, 1),
        (_SAFE | {"retryable": "0"}, 1),
    ],
)
def test_after_a_commit_of_which_nobody_knows_nothing_is_tried_again(
    quick_folder: Path, error: dict[str, str], runs: int
) -> None:
    table = ComponentTable(quick_folder)
    table.config |= {"fault": "error", "fault_at": "5", **error}
    table.fill(_PEOPLE)
    report = table.contacts()
    assert (report.status, report.acknowledged) == ("failed", 0)
    assert "déjà vu" in (report.error or "")
    assert len(table.batches()) == runs
    assert report.retryable is (runs > 1)


@pytest.mark.everyday("named")
@pytest.mark.parametrize(
    ("pause", "waited"),
    [({"backoff": "2"}, [5.0, 10.0]), ({"retry_after": "7000"}, [7.0, 7.0])],
    ids=["grows", "named"],
)
def test_an_error_is_tried_again_after_the_pause_that_it_names(
    quick_folder: Path, pause: dict[str, str], waited: list[float]
) -> None:
    table, patience = ComponentTable(quick_folder), Patience()
    table.config |= {"fault": "error", "fault_at": "5", **_SAFE, "commit": "0", **pause}
    table.fill(_PEOPLE)
    assert table.run(cancel=patience).status == "failed"
    assert (len(table.batches()), patience.waited) == (3, waited)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("trap", "the component trapped"),
        ("spin", "took more than 1 s of its own time"),
        ("chat", "took more than 1 s of its own time"),
        ("liar", "CHECKPOINT_AHEAD"),
    ],
    ids=["trap", "spin", "chat", "liar"],
)
def test_a_component_that_breaks_leaves_what_it_proved(quick_folder: Path, fault: str, found: str) -> None:
    table = ComponentTable(quick_folder, mode="append")
    table.connector["limits"] = {"timeout_seconds": 1 if "took" in found else 60}
    table.config |= {"fault": fault, "fault_at": "15"}
    table.fill(_PEOPLE)
    run = table.run()
    report = run.streams["contacts"]
    assert (report.status, report.acknowledged) == ("unknown", 10)
    assert report.unknown in (5, 10, 13)
    assert found in f"{report.error} {Path(run.log or '').read_text()}"
    # Rows of which nobody knows go again only by the user's word.
    assert "--retry-unknown" in (table.contacts().error or "")


def test_without_a_checkpoint_no_row_counts(quick_folder: Path) -> None:
    table = ComponentTable(quick_folder)
    table.config["fault"] = "silent"
    table.fill(_PEOPLE)
    report = table.contacts()
    assert (report.status, report.acknowledged, report.unknown) == ("failed", 0, 23)
    assert "acknowledge: exit" in (report.error or "")
    table.options["acknowledge"] = "exit"
    assert table.contacts().status == "complete"


def test_an_error_is_no_good_end(quick_folder: Path) -> None:
    table = ComponentTable(quick_folder)
    table.options["acknowledge"] = "exit"
    table.config |= {"fault": "error", "fault_at": "15"}
    table.fill(_PEOPLE)
    report = table.contacts()
    assert (report.status, report.acknowledged) == ("failed", 10)


def test_one_that_leaves_rows_has_no_good_end(quick_folder: Path) -> None:
    """The last batch has 3 of the 23 rows."""
    table = ComponentTable(quick_folder)
    table.options["acknowledge"] = "exit"
    table.config |= {"fault": "leave", "fault_at": "20"}
    table.fill(_PEOPLE)
    report = table.contacts()
    assert report.status == "failed"
    assert report.acknowledged <= 20 == len(table.received())
    table.config.pop("fault")
    assert table.contacts().status == "complete"
    assert {row["id"] for row in table.received()} == set(range(23))


def test_a_rejected_record_is_the_row_that_it_is(quick_folder: Path) -> None:
    table = ComponentTable(quick_folder)
    table.config |= {"record": '{"name": "whoever", "id": 3}', "failed": "1"}
    table.fill(_PEOPLE)
    report = table.contacts()
    assert (report.status, report.acknowledged, report.rejected, report.unnamed) == ("complete", 22, 1, 0), report.error
    assert report.rejections == {"data: it has no home": 1}
    noted = table.delivered()
    assert {number for number, row in noted.items() if row["_status"] == "rejected"} == {3}
    assert (noted[3]["_reason"], '"id": 3' in noted[3]["_row"]) == ("data: it has no home", True)
    # It is sent again when the user says so.
    assert table.contacts(retries_rejected=True).planned.to_send == 1


def test_a_reason_shows_no_secret(quick_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUSH_SECRET", "no home")
    table = ComponentTable(quick_folder)
    table.config |= {"record": '{"id": 3}', "failed": "1", "token": "${env:PUSH_SECRET}"}
    table.fill(_PEOPLE)
    assert table.contacts().rejections == {"data: it has ***": 1}
    assert table.delivered()[3]["_reason"] == "data: it has ***"


def test_a_record_that_is_rejected_again_by_the_next_attempt_counts_once(quick_folder: Path) -> None:
    table = ComponentTable(quick_folder)
    table.push["max_rejected"] = 1
    # Shown before the error, and not proved by a checkpoint: its row goes again, from row 10 on.
    table.config |= {"record": '{"id": 12}', "failed": "1", "fault": "error", "fault_at": "15", "once": "yes", **_SAFE}
    table.fill(_PEOPLE)
    report = table.contacts()
    assert (report.status, report.acknowledged, report.rejected, report.unnamed) == ("complete", 22, 1, 0), report.error


def test_a_rejected_record_that_is_no_row_is_counted(quick_folder: Path) -> None:
    table = ComponentTable(quick_folder)
    table.config |= {"record": '{"id": 99}', "failed": "1"}
    table.fill(_PEOPLE)
    report = table.contacts()
    assert (report.status, report.acknowledged, report.rejected, report.unnamed) == ("complete", 22, 1, 1)


def test_a_check_is_the_verdict_of_the_component(quick_folder: Path) -> None:
    table = ComponentTable(quick_folder)
    table.config["validation"] = "failed"
    with table.engine() as engine:
        from dagster_airbyte_proto.connection import Connection
        from dagster_airbyte_proto.sync.connector.opened_connector import opened_destination

        with opened_destination(engine, Connection.from_file(table.connection_file())) as destination:
            verdict = destination.check()
    assert not verdict.succeeded
