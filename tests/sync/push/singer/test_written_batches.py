"""Rows that go to a Singer target in files, each named in a BATCH message."""

from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.sync.push.written_batches import remove_dead_batches, written_batches
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.relay.relayed_shop import RelayedShop


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder, protocol="singer")
    pushed.connector["batch_folder"] = str(quick_folder / "batches")
    pushed.fill([person(number) for number in range(1, 24)])
    return pushed


def batches(table: PushedTable) -> list[Any]:
    return [message for message in table.messages() if message["type"] == "BATCH"]


def _leave_a_dead_folder(table: PushedTable) -> None:
    dead = table.folder / "batches" / "airbyte-proto-run-of-the-dead"
    dead.mkdir(parents=True)
    (dead / ".lock").touch()
    (dead / "5.jsonl.gz").touch()


def test_rows_go_by_files_which_are_gone_afterwards(table: PushedTable) -> None:
    _leave_a_dead_folder(table)
    report = table.contacts()
    assert (report.status, report.error, report.acknowledged) == ("complete", None, 23)
    assert [row["id"] for row in table.received("contacts")] == list(range(1, 24))
    assert table.received()[0] == {"id": 1, "name": "person 1", "score": 0.5, "bad": False}
    assert len(batches(table)) == 5
    assert batches(table)[0]["encoding"] == {"format": "jsonl", "compression": "gzip"}
    assert list((table.folder / "batches").iterdir()) == []
    table.fill([person(1, "renamed"), *(person(number) for number in range(2, 25))])
    assert (table.contacts().acknowledged, len(table.received())) == (2, 25)


def test_files_of_a_push_that_was_killed_go_with_one_that_sends_nothing(table: PushedTable) -> None:
    table.contacts()
    _leave_a_dead_folder(table)
    assert table.contacts().sent == 0
    assert list((table.folder / "batches").iterdir()) == []


def test_a_row_that_cannot_be_sent_is_in_no_file(table: PushedTable) -> None:
    table.fill([person(1), person(2, score=float("nan")), person(3)])
    report = table.contacts()
    assert (report.sent, report.acknowledged, report.rejected) == (3, 2, 1)
    assert [row["id"] for row in table.received()] == [1, 3]


@pytest.mark.parametrize("echo", ["each", "end"])
def test_a_target_that_dies_gets_the_rest_and_no_acknowledged_row_again(table: PushedTable, echo: str) -> None:
    table.config |= {"dies_after": 13, "once": str(table.folder / "once"), "echo": echo}
    first = table.contacts()
    assert (first.status, first.acknowledged) == ("failed", 10 if echo == "each" else 0)
    assert list((table.folder / "batches").iterdir()) == []
    had = len(table.received())
    assert table.contacts().status == "complete"
    assert [row["id"] for row in table.received()[had:]] == list(range(first.acknowledged + 1, 24))
    assert table.held().keys() == table.delivered().keys() == set(range(1, 24))


def test_removals_and_replacements_go_as_lines(table: PushedTable) -> None:
    table.push["mode"] = "mirror"
    table.contacts()
    sent = len(batches(table))
    table.fill([person(number) for number in range(1, 21)])
    assert table.contacts().acknowledged == 3
    assert (set(table.held()), len(batches(table))) == (set(range(1, 21)), sent)
    table.push = {"from": "shop.people", "mode": "overwrite"}
    assert table.contacts().acknowledged == 20
    assert len(batches(table)) == sent


@pytest.mark.parametrize("write", ["append", "append_dedup"])
def test_a_relay_passes_its_records_by_files(quick_folder: Path, write: str) -> None:
    shop = RelayedShop(quick_folder, target="singer", write=write, max_bytes=1 << 20)
    shop.connector_of_destination["batch_folder"] = str(quick_folder / "batches")
    assert shop.sync_of({"streams": {"users": {"records": 25}}}).status is SyncStatus.COMPLETE
    assert shop.ids("users") == list(range(25))
    assert len(shop.messages("BATCH")) == 5


@pytest.mark.parametrize("changed", [{"protocol": "airbyte"}, {"batch_folder": "s3://bucket/batches"}])
def test_a_folder_that_nobody_takes_files_from_is_refused(changed: dict[str, str]) -> None:
    launch = {"kind": "local", "command": ["target"]}
    connector = {"protocol": "singer", "launch": launch, "batch_folder": "batches", **changed}
    words = "batch_folder of a destination: a folder of this machine, for a Singer target"
    with pytest.raises(ValueError, match=words):
        Connection.model_validate({"name": "crm", "connector": connector, "push": {"a": {"from": "t", "key": ["id"]}}})
    source = {"protocol": "airbyte", "launch": launch}
    with pytest.raises(ValueError, match=words):
        Connection.model_validate({"name": "crm", "connector": source, "to": {"connector": connector}})


def test_links_that_a_target_puts_there_lead_to_no_file_of_ours(tmp_path: Path) -> None:
    home, launch = tmp_path / "home", {"kind": "local", "command": ["target"]}
    home.mkdir()
    (home / "precious").write_text("ours")
    connector = {"protocol": "singer", "launch": launch, "batch_folder": str(tmp_path / "batches")}
    written = {"name": "crm", "connector": connector, "push": {"a": {"from": "t", "key": ["id"]}}}
    connection = Connection.model_validate(written)
    with written_batches(connection) as files:
        assert files is not None
        folder = Path(files.write(b"{}\n", 5)).parent
        (folder / "9.jsonl.gz").symlink_to(home / "precious")
        with pytest.raises(StagingError, match=r"9\.jsonl\.gz: File exists"):
            files.write(b"{}\n", 9)
        folder.rename(tmp_path / "aside")
        folder.symlink_to(home, target_is_directory=True)
        files.write(b"{}\n", 12)
    remove_dead_batches(connection)
    assert [(each.name, each.read_text()) for each in home.iterdir()] == [("precious", "ours")]
    assert list((tmp_path / "aside").iterdir()) == []
