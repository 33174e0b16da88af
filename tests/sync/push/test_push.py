"""Pushes to a fake destination: what is sent, acknowledged, remembered and told."""

import json
import threading
import time
from pathlib import Path

import pytest

from dagster_airbyte_proto import points
from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from tests.sync.push.pushed_table import PushedTable, person


@pytest.fixture(params=["airbyte", "singer"])
def table(request: pytest.FixtureRequest, quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder, protocol=request.param)
    pushed.fill([person(number) for number in range(1, 24)])
    return pushed


def test_a_push_sends_what_is_new_changed_or_gone(table: PushedTable) -> None:
    table.push["mode"] = "mirror"
    first = table.contacts()
    assert (first.status, first.planned.added, first.sent, first.acknowledged) == ("complete", 23, 23, 23)
    nothing = table.contacts()
    assert (nothing.planned.to_send, nothing.planned.unchanged, nothing.sent) == (0, 23, 0)
    changed = [person(1, "renamed"), *(person(number) for number in range(2, 20)), person(99)]
    table.fill(changed)
    second = table.contacts()
    assert (second.planned.added, second.planned.changed, second.planned.removed) == (1, 1, 4)
    assert second.acknowledged == second.sent == 6
    assert table.held() == {row["id"]: row for row in changed}
    assert table.delivered().keys() == {row["id"] for row in changed}
    assert len(table.received()) == 23 + 6


def test_removals_go_after_all_other_rows(table: PushedTable) -> None:
    table.push["mode"] = "mirror"
    table.contacts()
    table.fill([person(number, "again") for number in range(5, 24)])
    table.contacts()
    marks = ["_ab_cdc_deleted_at" in row or "_sdc_deleted_at" in row for row in table.received()[23:]]
    assert marks == [False] * 19 + [True] * 4


def test_a_mapping_names_what_the_destination_gets(table: PushedTable) -> None:
    table.push["map"] = {"id": "id", "full_name": "name", "source": {"value": "shop"}}
    assert table.contacts().acknowledged == 23
    assert table.received()[0] == {"id": 1, "full_name": "person 1", "source": "shop"}
    table.push["map"]["source"] = {"value": "store"}
    assert table.contacts().planned.changed == 23


def test_a_row_that_json_cannot_carry_is_rejected_and_not_sent_again(table: PushedTable) -> None:
    table.fill([person(1), person(2, score=float("nan")), person(3)])
    report = table.contacts()
    assert (report.sent, report.acknowledged, report.rejected) == (3, 2, 1)
    assert report.rejections == {"score is nan, which JSON does not have": 1}
    assert [row["id"] for row in table.received()] == [1, 3]
    noted = table.delivered()[2]
    assert noted["_status"] == "rejected"
    assert '"score": NaN' in noted["_row"]
    assert table.contacts().planned.to_send == 0
    assert table.contacts(retries_rejected=True).rejected == 1
    table.fill([person(1), person(2), person(3)])
    assert table.contacts().acknowledged == 1
    assert table.delivered()[2]["_status"] == "delivered"


def test_rejected_rows_are_sent_again_from_the_middle_of_a_plan_too(table: PushedTable) -> None:
    rows = [person(number, score=float("nan") if number == 2 else 0.5) for number in range(1, 24)]
    table.fill(rows)
    table.config |= {"dies_after": 13, "once": str(table.folder / "once")}
    first = table.contacts()
    assert first.status == "failed"
    again = table.contacts(retries_rejected=True)
    assert (again.status, again.rejected) == ("complete", 1)
    assert again.planned.changed == first.rejected
    assert again.planned.added == 23 - first.acknowledged - first.rejected
    assert table.delivered().keys() == set(range(1, 24))
    assert {row["id"] for row in table.received()} == set(range(1, 24)) - {2}


@pytest.mark.everyday("airbyte")
def test_too_many_rejected_rows_stop_the_push(table: PushedTable) -> None:
    table.fill([person(number, score=float("inf") if number % 3 else 1.0) for number in range(1, 20)])
    table.push["max_rejected"] = "10 %"
    report = table.contacts()
    assert report.status == "failed"
    assert "more than max_rejected (10 %)" in (report.error or "")
    assert report.sent == report.acknowledged + report.rejected + report.unknown
    table.options["on_error"] = "skip"
    assert table.contacts().status == "complete"


def test_removals_beyond_the_guard_stop_the_push_before_it_begins(table: PushedTable) -> None:
    table.push |= {"mode": "mirror", "max_removed": "10 %"}
    table.contacts()
    table.fill([person(1)])
    report = table.contacts()
    assert "22 of the 23 rows" in (report.error or "")
    assert len(table.received()) == 23


def test_a_plan_sends_nothing_and_shows_samples(table: PushedTable) -> None:
    report = table.contacts(only_plans=True, samples=2)
    assert report.planned.added == 23
    assert [row["id"] for row in report.samples["added"]] == [1, 2]
    assert table.received() == []
    assert table.contacts().planned.added == 23


def test_full_sends_all_rows_again(table: PushedTable) -> None:
    table.contacts()
    report = table.contacts(is_full=True)
    assert (report.planned.added, report.acknowledged) == (23, 23)
    assert len(table.delivered()) == 23


def test_overwrite_sends_all_rows_each_time_as_a_new_generation(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, protocol="singer", mode="overwrite")
    table.fill([person(1), person(2)])
    assert [table.contacts().acknowledged for _ in range(2)] == [2, 2]
    versions = [message["version"] for message in table.messages() if message["type"] == "ACTIVATE_VERSION"]
    assert versions == sorted(set(versions))
    table.fill([])
    table.push["max_removed"] = 5
    assert "would empty the destination" in (table.contacts().error or "")
    table.push["max_removed"] = "100 %"
    assert table.contacts().status == "complete"
    assert table.messages()[-1]["version"] > versions[-1]


def test_a_mode_that_is_changed_in_the_middle_begins_a_new_plan(table: PushedTable) -> None:
    table.push["mode"] = "mirror"
    table.contacts()
    table.fill([person(number, "again") for number in range(5, 24)])
    table.config |= {"dies_after": 3, "once": str(table.folder / "once")}
    table.contacts()
    table.push["mode"] = "upsert"
    assert table.contacts().planned.removed is None
    assert all("_ab_cdc_deleted_at" not in row and "_sdc_deleted_at" not in row for row in table.received())


def test_a_rate_is_kept(table: PushedTable) -> None:
    table.options["rate"] = {"rows_per_second": 23}
    began_at = time.monotonic()
    assert table.contacts().acknowledged == 23
    assert time.monotonic() - began_at >= 1.0


@pytest.mark.everyday("airbyte")
def test_null_fields_may_be_left_out_and_the_first_rejected_row_may_stop_the_push(table: PushedTable) -> None:
    table.push["nulls"] = "omit"
    table.options["on_error"] = "fail"
    table.fill([person(1, score=None), person(2, score=float("nan"))])
    report = table.contacts()
    assert "row 2 of the plan: score is nan" in (report.error or "")
    table.fill([person(1, score=None)])
    table.contacts(is_full=True)
    assert "score" not in table.received()[-1]


@pytest.mark.parametrize(
    ("form", "noted"), [("bare", ""), ("twice", "DEBUG 5 states came back again"), ("stranger", "WARN  5 states came")]
)
def test_states_count_in_whatever_form_they_come_back(quick_folder: Path, form: str, noted: str) -> None:
    table = PushedTable(quick_folder)
    table.config["form"] = form
    table.fill([person(number) for number in range(23)])
    report = table.run()
    assert report.streams["contacts"].acknowledged == 23
    found = [line.partition(" ")[2] for line in Path(report.log).read_text().splitlines() if "states came back" in line]
    assert len(found) == bool(noted)
    assert all(line.startswith(noted) for line in found), found
    assert [text.partition(" (")[0] for text in report.warnings] == (
        ["5 states came back that were never sent"] if form == "stranger" else []
    )


def test_a_destination_that_speaks_only_at_its_end(table: PushedTable) -> None:
    table.config["echo"] = "end"
    table.options["checkpoint_rows"] = 10
    assert table.contacts().acknowledged == 23
    assert len(table.received()) == 23


def test_a_good_exit_after_an_error_acknowledges_nothing(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.config |= {"echo": "never", "fails": "config_error", "exit_code": 0}
    table.options["acknowledge"] = "exit"
    table.fill([person(1)])
    report = table.contacts()
    assert (report.status, report.acknowledged) == ("failed", 0)
    assert "it cannot go on" in (report.error or "")


def test_a_destination_that_never_sends_a_state_back(table: PushedTable) -> None:
    table.config["echo"], table.silence_seconds = "never", 2.0
    report = table.contacts()
    assert report.status == "failed"
    assert (report.acknowledged, report.unknown) == (0, 23)
    assert "acknowledge: exit" in (report.error or "")
    table.options["acknowledge"] = "exit"
    assert table.contacts().acknowledged == 23


@pytest.mark.parametrize("trick", ["dies_after", "closes_after"])
def test_what_was_acknowledged_is_not_sent_again(table: PushedTable, trick: str) -> None:
    table.config |= {trick: 13, "once": str(table.folder / "once")}
    report = table.contacts()
    assert report.status == "failed"
    assert report.sent == report.acknowledged + report.unknown
    acknowledged = report.acknowledged
    again = table.contacts()
    assert again.status == "complete"
    assert again.resumed == acknowledged
    ids = [row["id"] for row in table.received()]
    assert set(ids) == set(range(1, 24))
    assert all(ids.count(number) == 1 for number in range(1, acknowledged + 1))
    assert table.delivered().keys() == set(range(1, 24))


@pytest.mark.everyday("airbyte")
def test_a_destination_that_hangs_is_stopped_and_tried_again(table: PushedTable) -> None:
    table.config |= {"hangs_after": 13, "once": str(table.folder / "once")}
    table.silence_seconds = 2.0
    report = table.contacts()
    assert (report.status, report.acknowledged, report.unknown) == ("complete", 23, 0)
    assert {row["id"] for row in table.received()} == set(range(1, 24))


def test_unknown_rows_are_not_sent_twice_in_the_dark(table: PushedTable) -> None:
    table.push["mode"] = "append"
    table.config |= {"dies_after": 13, "once": str(table.folder / "once")}
    report = table.contacts()
    assert report.unknown > 0
    refused = table.contacts()
    assert "were sent and not acknowledged" in (refused.error or "")
    assert "--retry-unknown" in (refused.error or "")
    assert table.contacts(retries_unknown=True).status == "complete"
    assert {row["id"] for row in table.received()} == set(range(1, 24))


def test_a_destination_counts_the_rows_that_it_rejects(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.config["rejects"] = True
    table.fill([person(number, bad=number in (2, 7)) for number in range(1, 11)])
    report = table.contacts()
    assert (report.sent, report.acknowledged, report.rejected, report.unnamed) == (10, 8, 2, 2)


def test_that_a_destination_answers_no_catalog_is_a_note_of_the_first_report(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.fill([person(1)])
    [note] = table.run().notes
    assert note.startswith("streams are not checked against the destination's catalog")
    assert table.run().notes == ()


def test_a_cancelled_push_keeps_what_is_acknowledged(table: PushedTable) -> None:
    cancel = threading.Event()
    cancel.set()
    assert table.run(cancel=cancel).status == "cancelled"
    assert table.contacts().acknowledged == 23


@pytest.mark.parametrize("drains", [True, False])
def test_a_destination_that_ends_by_itself_is_let_write_what_it_has(quick_folder: Path, *, drains: bool) -> None:
    table = PushedTable(quick_folder, protocol="singer")
    table.fill([person(number) for number in range(1, 24)])
    table.config |= {"echo": "end", "drains": drains}
    table.options["rate"] = {"rows_per_second": 5}
    table.grace_seconds = 5.0
    report = table.run_until_sent(10)
    assert (report.status, report.acknowledged > 0) == ("cancelled", drains)
    at_death = len(table.received())
    del table.options["rate"]
    assert table.contacts().acknowledged == 23 - report.acknowledged
    assert len(table.received()) == at_death + 23 - report.acknowledged
    assert table.held() == {number: person(number) for number in range(1, 24)}


def test_a_cancelled_push_ends_the_batch_that_it_writes(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.fill([person(number) for number in range(1, 24)])
    table.options["batch"] = {"rows": 5}
    cancel = threading.Event()
    points.arm(lambda point: cancel.set() if point == "push.announced" else None)
    try:
        report = table.run(cancel=cancel).streams["contacts"]
    finally:
        points.arm(None)
    assert (report.status, report.acknowledged, report.unknown) == ("cancelled", 5, 0)
    assert table.contacts().acknowledged == 18


def test_a_mode_that_the_destination_lacks_is_refused_before_the_start(table: PushedTable) -> None:
    table.push["mode"] = "update"
    with pytest.raises(ConfigError, match=r"only updates|sync mode update"):
        table.contacts()


def test_a_stream_that_the_destination_refuses_leaves_the_others_alone(table: PushedTable) -> None:
    table.other_streams["old"] = {"from": "shop.people", "mode": "update", "key": ["id"]}
    assert table.contacts(streams=["contacts"]).acknowledged == 23
    report = table.run()
    assert (report.status, report.streams["contacts"].status) == ("partial", "complete")
    assert "update" in (report.streams["old"].error or "")


def test_a_stream_that_is_not_pushed(table: PushedTable) -> None:
    with pytest.raises(ConfigError, match="there is no stream nobody"):
        table.contacts(streams=["nobody"])


def test_keys_have_to_be_unique(table: PushedTable) -> None:
    table.fill([person(1), person(1, "twin")])
    table.contacts()
    assert "share their key" in (table.contacts().error or "")


def test_one_bad_stream_leaves_the_others_alone(table: PushedTable) -> None:
    path = table.connection_file()
    path.write_text(path.read_text().replace("push:", "push:\n  lost: {from: shop.nothing, key: [id]}"))
    report = table.run(file=path)
    assert report.status == "partial"
    assert report.streams["contacts"].acknowledged == 23
    assert report.streams["lost"].status == "failed"


def test_a_plan_leaves_one_that_is_under_way_alone(table: PushedTable) -> None:
    table.config |= {"dies_after": 13, "once": str(table.folder / "once")}
    resumed = table.contacts().acknowledged
    table.contacts(only_plans=True)
    assert table.contacts().resumed == resumed
    assert {row["id"] for row in table.received()} == set(range(1, 24))


def test_a_mapping_that_is_changed_in_the_middle_sends_each_row_in_its_new_form(table: PushedTable) -> None:
    table.config |= {"dies_after": 13, "once": str(table.folder / "once")}
    table.contacts()
    table.push["map"] = {"id": "id", "title": "name"}
    assert table.contacts().status == "complete"
    held = {row["id"]: row for row in table.received()}
    assert held == {number: {"id": number, "title": f"person {number}"} for number in range(1, 24)}


def test_a_reset_sends_all_rows_again(table: PushedTable) -> None:
    table.contacts()
    with Engine(table.settings) as engine, acquire_lease(engine.store, "crm", "reset", 30) as renewal:
        engine.store.change_state(renewal.lease, StreamId.of("contacts"), None, who="a person")
    assert table.contacts().planned.added == 23
    assert len(table.delivered()) == 23


def test_a_field_with_the_name_of_a_column_of_ours_is_refused(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.push["map"] = {"id": "id", "_Hash": "name"}
    table.fill([person(1)])
    assert "columns of its own named _Hash" in (table.contacts().error or "")


def test_a_config_file_that_the_target_rewrites_is_kept(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, protocol="singer")
    table.config["rotates"] = 1
    table.fill([person(1)])
    for expected in (2, 3):
        assert table.contacts(is_full=True).status == "complete"
        with table.engine() as engine:
            kept = engine.store.stored_config("crm")
        assert kept is not None and kept.config["rotates"] == expected


def test_a_plan_cannot_tell_what_it_did_not_look_for(table: PushedTable) -> None:
    assert table.contacts().planned.removed is None
    table.push["mode"] = "mirror"
    assert table.contacts(only_plans=True).planned.removed == 0


def test_rows_that_a_cursor_push_rejects_are_listed_by_their_place(
    table: PushedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    table.push.update(changes="cursor", cursor="id")
    table.fill([person(1), person(2, score=float("nan")), person(3)])
    assert table.contacts().rejected == 1
    capsys.readouterr()
    words = ["--home", str(table.home), "--settings", str(table.settings_file)]
    assert main([*words, "push", "rejected", str(table.connection_file()), "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["rejected"]["contacts"]
    assert row == {
        "row": "row 2 of the last push",
        "reason": "score is nan, which JSON does not have",
        "rejected_at": None,
    }
