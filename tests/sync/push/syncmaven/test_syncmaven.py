"""Pushes to a Syncmaven destination: one result proves all rows of a process, or none."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.kept_values import Asset
from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.relay.relayed_shop import RelayedShop


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder, protocol="syncmaven")
    pushed.fill([person(number) for number in range(1, 24)])
    return pushed


def starts(table: PushedTable) -> list[dict[str, Any]]:
    return [message["payload"] for message in table.messages() if message["type"] == "start-stream"]


@pytest.mark.parametrize("dialect", ["packages", "seed"])
def test_a_push_sends_what_is_new(table: PushedTable, dialect: str) -> None:
    table.config["dialect"] = dialect
    first = table.contacts()
    assert (first.status, first.error, first.sent, first.acknowledged) == ("complete", None, 23, 23)
    assert table.received()[0] == {"id": 1, "name": "person 1", "score": 0.5, "bad": False}
    assert table.contacts().planned.to_send == 0
    table.fill([person(1, "renamed"), *(person(number) for number in range(2, 25))])
    second = table.contacts()
    assert (second.planned.added, second.planned.changed, second.acknowledged) == (1, 1, 2)
    assert len(starts(table)) == 2


def test_a_stream_starts_with_all_that_it_needs(table: PushedTable) -> None:
    table.push["options"] = {"list": "vip"}
    table.contacts()
    table.fill([person(99)])
    table.contacts()
    table.contacts(is_full=True)
    first, second, third = starts(table)
    assert first == {
        "stream": "contacts",
        "connectionCredentials": {"path": str(table.out)},
        "streamOptions": {"list": "vip"},
        "syncId": "crm.contacts",
        "fullRefresh": True,
    }
    assert second == {**first, "fullRefresh": False}
    assert third == first


def test_each_chunk_is_a_process_with_a_result_of_its_own(table: PushedTable) -> None:
    table.options["checkpoint_rows"] = 10
    table.config |= {"dies_after": 10, "once": str(table.folder / "once")}
    first = table.contacts()
    assert (first.status, first.acknowledged, first.unknown) == ("failed", 0, 10)
    assert (table.contacts().acknowledged, table.contacts().sent) == (23, 0)
    assert [start["fullRefresh"] for start in starts(table)] == [True, True, False, False]


def test_a_result_may_have_its_counts_by_name(table: PushedTable) -> None:
    table.config["result"] = "named"
    assert table.contacts().acknowledged == 23


@pytest.mark.parametrize(
    ("result", "words"),
    [("empty", "its result does not say how many of the 23 rows it received"), ("early", "acknowledged 0 of 23 rows")],
)
def test_a_result_without_counts_proves_nothing(table: PushedTable, result: str, words: str) -> None:
    table.config["result"] = result
    report = table.contacts()
    assert (report.status, report.acknowledged, report.unknown) == ("failed", 0, 23)
    assert words in (report.error or "")
    table.options["acknowledge"] = "exit"
    assert table.contacts().acknowledged == 23


def test_a_result_for_fewer_rows_proves_none(table: PushedTable) -> None:
    table.config["result"] = "wrong"
    report = table.contacts()
    assert (report.status, report.acknowledged, report.unknown) == ("failed", 0, 23)
    assert "it received 22 rows where 23 were sent" in (report.error or "")


def test_an_exit_that_is_trusted_counts_only_with_the_code_0(table: PushedTable) -> None:
    table.options["acknowledge"] = "exit"
    table.config |= {"result": "wrong", "stays": True}  # So it is ended by us, after a result that is no proof.
    table.silence_seconds = 2.0
    report = table.contacts()
    assert (report.status, report.acknowledged, report.unknown) == ("failed", 0, 23)
    assert "it received 22 rows where 23 were sent" in (report.error or "")
    table.config["stays"] = False
    assert table.contacts().acknowledged == 23


def test_a_connector_that_does_not_end_is_ended(table: PushedTable) -> None:
    table.config["stays"], table.silence_seconds = True, 2.0
    assert table.contacts().acknowledged == 23


@pytest.mark.everyday("trick0")
@pytest.mark.parametrize("trick", [{"result": "never", "stays": True}, {"chatters": True}, {"hangs_after": 3}])
def test_a_connector_without_a_result_is_ended(table: PushedTable, trick: dict[str, Any]) -> None:
    table.config |= trick
    table.push["mode"], table.silence_seconds = "insert", 2.0
    report = table.contacts()
    assert (report.status, report.acknowledged, report.unknown) == ("unknown", 0, 23)
    assert "it hangs" in (report.error or "")


def test_a_connector_that_ends_without_a_result_has_proved_nothing(table: PushedTable) -> None:
    table.config["result"] = "never"
    report = table.contacts()
    assert (report.status, report.acknowledged, report.unknown) == ("failed", 0, 23)
    assert "acknowledged 0 of 23 rows" in (report.error or "")
    assert "It has to send a result of its rows before it ends" in (report.error or "")


def test_the_time_without_a_result_is_a_setting(table: PushedTable) -> None:
    table.config["chatters"], table.result_seconds = True, 600.0
    table.connector["timeouts"] = {"result_seconds": 0.5}
    table.push["mode"] = "insert"  # Its rows are not sent again in the same run.
    report = table.contacts()
    assert (report.status, report.acknowledged) == ("unknown", 0)
    assert "it hangs" in (report.error or "")


def test_no_proxy_stands_before_the_state_server(table: PushedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "db.internal")
    table.config["keeps"] = True
    assert table.contacts().acknowledged == 23
    assert len(table.kept_names()) == 23


def test_only_a_relay_has_a_source_whose_values_are_out_of_reach(table: PushedTable) -> None:
    table.config["keeps"] = "source"
    assert table.contacts().acknowledged == 23
    assert len(table.kept_names()) == 23
    folder = table.folder / "relay"
    folder.mkdir()
    shop = RelayedShop(folder, target="syncmaven", max_bytes=1 << 20)
    shop.to["keeps"] = "source"
    shop.modes = {"contacts": {"write": "append_dedup", "select": ["id", "name"]}}
    contacts = shop.sync_of({"streams": {"contacts": {"records": 3, "values": {"key": None}}}}).streams["contacts"]
    assert (contacts.status, contacts.committed) == ("failed", 0)
    assert not [*shop.store.kept_values(Asset("shop", StreamId.of("contacts")))]


def test_a_halt_stops_the_push_and_nothing_is_saved_past_it(table: PushedTable) -> None:
    table.options["checkpoint_rows"] = 10
    table.config |= {"halts_after": 7, "once": str(table.folder / "once"), "stays": True}
    report = table.contacts()
    assert (report.status, report.acknowledged, report.unknown) == ("failed", 0, 10)
    assert "the list is full" in (report.error or "")
    assert "at List.add" not in (report.error or "")
    table.config["stays"] = False  # Each of its processes would be waited for.
    assert table.contacts().acknowledged == 23


def test_a_halt_counts_for_nothing_though_the_exit_were_to_count_for_all(table: PushedTable) -> None:
    table.options["acknowledge"] = "exit"
    table.config |= {"halts_after": 23, "once": str(table.folder / "once"), "halts_with": 0}
    report = table.contacts()
    assert (report.status, report.acknowledged, report.unknown) == ("failed", 0, 23)
    assert "the list is full" in (report.error or "")
    assert table.contacts().acknowledged == 23


def test_rows_that_fail_count_as_rejected_up_to_the_limit(table: PushedTable) -> None:
    table.config["fails"] = True
    table.fill([person(number, bad=number % 10 == 0) for number in range(1, 24)])
    report = table.contacts()
    assert (report.status, report.acknowledged, report.rejected, report.unnamed) == ("complete", 21, 2, 2)
    table.push["max_rejected"] = 1
    report = table.contacts(is_full=True)
    assert (report.status, report.acknowledged, report.unknown) == ("failed", 0, 23)
    assert "2 of 23 rows were rejected here or by the destination, more than max_rejected" in (report.error or "")


def test_rows_that_are_skipped_count_as_acknowledged_with_a_warning(table: PushedTable) -> None:
    table.config["skips"] = True
    table.fill([person(number, bad=number % 10 == 0) for number in range(1, 24)])
    report = table.run()
    contacts = report.streams["contacts"]
    assert (contacts.status, contacts.acknowledged, contacts.rejected) == ("complete", 23, 0)
    assert len(table.received()) == 21
    assert ["it skipped 2 of 23 rows, which count as acknowledged" in each for each in report.warnings] == [True]


def _lose_the_store(table: PushedTable) -> None:
    for file in table.home.glob("state.db*"):
        file.unlink()


def test_where_the_store_is_lost_all_rows_are_sent_when_a_person_says_so(table: PushedTable) -> None:
    table.config["keeps"] = True
    table.contacts()
    _lose_the_store(table)
    error = table.contacts().error or ""
    assert "which the state store does not know" in error
    assert "Send all rows again: `airbyte-proto push crm --full --streams contacts`" in error
    assert len(starts(table)) == 1  # Nothing was sent, nor was the destination begun anew.
    assert table.contacts(is_full=True).acknowledged == 23
    assert (starts(table)[-1]["fullRefresh"], len(table.kept_names())) == (True, 23)
    assert table.contacts().planned.unchanged == 23


def test_where_no_table_remembers_a_lost_push_all_rows_are_sent(table: PushedTable) -> None:
    table.push["changes"] = "all"
    table.contacts()
    table.contacts()
    _lose_the_store(table)
    assert table.contacts().acknowledged == 23
    assert [each["fullRefresh"] for each in starts(table)] == [True, False, True]


def test_the_limit_is_of_the_whole_plan(table: PushedTable) -> None:
    table.options["checkpoint_rows"] = 10
    table.config["fails"] = True
    table.push["max_rejected"] = 1
    table.fill([person(number, bad=number % 10 == 0) for number in range(1, 24)])
    report = table.contacts()
    assert (report.status, report.acknowledged, report.rejected, report.unknown) == ("failed", 9, 1, 10)


def test_a_row_that_does_not_fit_its_type_is_rejected_with_the_path(table: PushedTable) -> None:
    table.fill([person(1), person(2, "x" * 41), person(3, score=float("nan")), person(4, score=None)])
    report = table.contacts()
    assert (report.acknowledged, report.rejected) == (2, 2)
    assert set(report.rejections) == {
        "name: its value is longer than 40 characters",
        "score is nan, which JSON does not have",
    }
    assert table.received()[1] == {"id": 4, "name": "person 4", "bad": False}
    table.push["nulls"] = "send"
    report = table.contacts(is_full=True)
    assert 'score: its value is not of type "number"' in report.rejections


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"mode": "mirror"}, "Syncmaven has no removals"),
        ({"mode": "update"}, "no mode that only updates"),
        ({"options": {"lst": "vip"}}, 'did you mean "list"'),
    ],
)
def test_what_the_destination_does_not_take_is_refused_before_a_row_leaves(
    table: PushedTable, change: dict[str, Any], error: str
) -> None:
    table.push |= change
    with pytest.raises(ConfigError, match=error):
        table.contacts()
    assert not table.messages()


def test_credentials_that_do_not_fit_their_schema_are_refused_before_a_row_leaves(table: PushedTable) -> None:
    table.config["path"] = 7
    with pytest.raises(ConfigError, match="path: must be text; found a whole number"):
        table.contacts()
    assert not table.out.exists()


def test_a_stream_that_is_not_there_is_refused(table: PushedTable) -> None:
    file = table.connection_file()
    file.write_text(file.read_text().replace("contacts:", "people:"))
    with pytest.raises(ConfigError, match="no stream people; it has contacts"):
        table.run(file=file)


def test_options_are_for_syncmaven(table: PushedTable) -> None:
    table.protocol = "airbyte"
    table.push["options"] = {"list": "vip"}
    with pytest.raises(ConfigError, match="a destination of airbyte takes none"):
        table.contacts()


def test_the_command_line_shows_the_streams(table: PushedTable, capsys: pytest.CaptureFixture[str]) -> None:
    table.config["stays"] = True
    file = str(table.connection_file())
    assert main(["--home", str(table.home), "--settings", str(table.settings_file), "discover", file, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["streams"]["contacts"]["row_schema"]["properties"]) == ["id", "name", "score"]
    assert main(["--home", str(table.home), "--settings", str(table.settings_file), "check", file, "--json"]) == 0
    table.config["refuses"] = True
    file = str(table.connection_file())
    assert main(["--home", str(table.home), "--settings", str(table.settings_file), "check", file, "--json"]) != 0
    assert "the key was refused" in capsys.readouterr().out


def test_the_command_line_shows_what_the_destination_keeps(
    table: PushedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    table.config["keeps"] = True
    table.contacts()
    command = ["--home", str(table.home), "--settings", str(table.settings_file), "state"]
    assert main([*command, "show", "crm", "contacts", "--json"]) == 0
    [state] = json.loads(capsys.readouterr().out)["states"]
    assert state["kept_values"]["count"] == 23
    assert {"key": ["row", "7"], "value": "person 7"} in state["kept_values"]["values"]
    assert main([*command, "show", "crm"]) == 0
    assert "The connector keeps 23 values" in capsys.readouterr().out
    assert main([*command, "history", "crm"]) == 0
    shown = capsys.readouterr().out
    assert "kept 23 values" in shown
    assert "(reset)" not in shown
    assert main([*command, "reset", "crm", "contacts"]) == 0
    assert table.kept_names() == {}
    report = table.contacts()
    assert (report.acknowledged, starts(table)[-1]["fullRefresh"]) == (23, True)
