"""Pushes to a destination that is slow, fails, or sends other states; beside another run of their connection; and with
a full disk here or there."""

import os
import shutil
import sqlite3
import threading
import time
from contextlib import closing, nullcontext, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import (
    ConfigError,
    ProtoError,
    StagingError,
    StateConflict,
    StateUnavailable,
    TableError,
)
from dagster_airbyte_proto.loads.plan_query import PlannedRows, PlanQuery
from dagster_airbyte_proto.loads.push import Delivery
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.protocols.lookup import PUSH
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.push import push_stream
from dagster_airbyte_proto.sync.push.push_context import PushContext
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults
from dagster_airbyte_proto.testing.folder.planner import FolderPlanner
from tests.sync.push.pushed_table import PEOPLE, SCHEMA, Patience, PushedTable, is_removal, person
from tests.sync.read.test_failures import mounted
from tests.sync.shop import EVERYTHING, Shop


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder, mode="mirror")
    pushed.fill([person(number) for number in range(1, 24)])
    return pushed


@pytest.mark.nightly
def test_a_batch_ends_by_its_rows_its_bytes_or_the_seconds_that_it_takes(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.fill([person(number, f"{number:0100000}") for number in range(60)])  # The pipe to it holds ten rows at most.
    table.config["lags"] = 0.01
    batches = []
    for more in ({}, {"bytes": 1_250_000}, {"seconds": 0.1}):
        table.options["batch"], table.faults = {"rows": 30, **more}, CallFaults({})
        assert table.contacts(is_full=True).acknowledged == 60
        batches.append(table.faults.calls["announce_rows"])
    by_rows, by_bytes, by_seconds = batches
    assert by_rows == 2
    assert by_bytes == 5
    assert 2 < by_seconds < 60


def test_two_pushes_of_a_connection_do_not_run_at_once(table: PushedTable) -> None:
    with Engine(table.settings) as engine, acquire_lease(engine.store, "crm", "the-other", 30):
        with pytest.raises(StateConflict, match=r"has held it since [-0-9: ]+ UTC \(run the-other\)"):
            table.run()
        assert not table.received()
    assert table.contacts().acknowledged == 23


def test_a_connection_does_not_go_on_from_the_positions_of_a_push_of_its_name(
    table: PushedTable, tmp_path: Path
) -> None:
    assert table.contacts().acknowledged == 23
    place = Shop(tmp_path)
    place.more = {"name": "crm"}
    place.offer({"streams": {"contacts": {"records": 5}}})
    connection = Connection.from_file(place.connection_file)
    with Engine(table.settings) as engine:
        runs = engine.store.runs("crm")
        with pytest.raises(ConfigError, match="a push has this name"):
            sync_connection(engine, connection, EVERYTHING)
        assert engine.store.runs("crm") == runs  # They are those of the push.
        with acquire_lease(engine.store, "crm", "by-hand", 30) as renewal:
            engine.store.change_state(renewal.lease, None, None, who="ann")
        assert sync_connection(engine, connection, EVERYTHING).streams["contacts"].committed == 5
        # Nor does a push put its positions in the place of what the sync keeps there.
        with pytest.raises(ConfigError, match="a sync has this name"):
            table.run()
        assert len(engine.store.runs("crm")) == len(runs) + 1
        place.offer({"streams": {"contacts": {"records": 8}}})
        assert sync_connection(engine, connection, EVERYTHING).streams["contacts"].committed == 3


def test_a_sync_goes_on_though_a_push_of_its_name_was_begun(table: PushedTable, tmp_path: Path) -> None:
    place = Shop(tmp_path)
    place.sync_of({"streams": {"users": {"records": 5}}})
    with acquire_lease(place.store, "shop", "a-push", 30) as renewal:
        place.store.note_protocol(renewal.lease, PUSH)  # Earlier releases did, and then pushed nothing.
    assert place.sync_of({"streams": {"users": {"records": 8}}}).streams["users"].committed == 3


def test_a_stream_on_which_our_code_fails_leaves_the_others_alone(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, schema=SCHEMA.append(pa.field("at", pa.timestamp("us"))))
    table.other_streams = {"bad": {**table.push, "from": "shop.far"}}
    table.fill([person(1)])
    # Python has no dates of that year, and folder tables are planned in Python.
    table.fill_table(TableName("shop", "far"), [person(1, at=200_000 * 365 * 86_400 * 10**6)])
    report = table.run()
    assert report.status == "partial"
    assert report.streams["contacts"].acknowledged == 1
    error = report.streams["bad"].error or ""
    assert "OverflowError in testing/folder/planner.py" in error
    assert "This is a bug" in error


def test_a_destination_that_fills_its_disk_has_taken_nothing(table: PushedTable) -> None:
    table.config["path"] = "/dev/full"
    report = table.contacts()
    assert (report.status, report.acknowledged, report.unknown) == ("failed", 0, report.sent)
    assert "No space left on device" in (report.error or "")
    del table.config["path"]
    assert table.contacts().acknowledged == 23
    assert table.held().keys() == table.delivered().keys() == set(range(1, 24))


@pytest.mark.parametrize("changes", ["cursor", "diff"])
def test_rows_that_spark_wrote_where_we_do_not_see_them_are_missed(
    quick_folder: Path, monkeypatch: pytest.MonkeyPatch, changes: str
) -> None:
    """As executors on other machines do it with a folder that is not shared."""
    table = PushedTable(quick_folder)
    table.push |= {"changes": changes} | ({"cursor": "id"} if changes == "cursor" else {})
    table.fill([person(number) for number in range(1, 24)])
    with monkeypatch.context() as patched:
        write = FolderPlanner.write
        patched.setattr(FolderPlanner, "write", lambda self, query, folder: write(self, query, f"{folder}-elsewhere"))
        report = table.contacts()
    assert (report.status, report.sent) == ("failed", 0)
    assert "Spark wrote 23 rows to" in (report.error or "")
    assert "this machine finds 0 there" in (report.error or "")
    assert table.contacts().acknowledged == 23


def test_a_lease_whose_end_cannot_be_stored_is_told(table: PushedTable) -> None:
    table.faults = CallFaults({("end_run", 1): CallFault.BEFORE, ("release", 1): CallFault.BEFORE})
    with pytest.raises(StateUnavailable, match=r"end_run.*\n.*Connection crm stays held until this process ends"):
        table.run()
    table.faults = None
    with pytest.raises(StateConflict, match="has held it"):
        table.run()


@pytest.mark.parametrize("where", ["warehouse", "home"])
@pytest.mark.nightly
def test_a_full_disk_of_ours_loses_no_row(where: str, quick_folder: Path) -> None:
    """Each time it has a little more room, and so gets further."""
    table = PushedTable(quick_folder, mode="mirror")
    table.options = {"batch": {"rows": 100}}
    table.settings = table.settings.model_copy(update={"lease_seconds": 1.0})
    tested = table.home / "warehouse" if where == "warehouse" else table.home
    failed = 0
    with mounted(tested, "-t", "tmpfs", "-o", "size=3m", "tmpfs"):
        table.settings.make_home()
        for room in range(0, 500_000, 100_000):
            table.fill([person(number, f"{room} {'x' * 40}") for number in range(room // 100_000, 2000)])
            said = _pushed_with_room(table, tested / "filler", room)
            if said:
                failed += 1
                if "stays held until" in said:  # The store could not even note that the lease is free.
                    time.sleep(1.1)
                assert "No space left" in said or "disk I/O error" in said or "disk is full" in said
            acknowledged, had = table.acknowledged_ids(), len(table.received())
            assert table.contacts().status == "complete"
            assert not acknowledged & {(row["id"], is_removal(row)) for row in table.received()[had:]}
            assert table.held().keys() == table.delivered().keys() == set(range(room // 100_000, 2000))
            assert {row["name"] for row in table.held().values()} == {f"{room} {'x' * 40}"}
    assert failed > 1


def _pushed_with_room(table: PushedTable, filler: Path, room: int) -> str:
    """Pushes with so many bytes left on the disk of a file. Returns the error."""
    with filler.open("wb") as file, pytest.raises(OSError):
        while True:
            os.write(file.fileno(), b"x" * 4096)
    os.truncate(filler, max(0, filler.stat().st_size - room))
    try:
        report = table.contacts()
        assert report.sent == report.acknowledged + report.rejected + report.unknown
        return report.error or ""
    except ProtoError as error:
        assert isinstance(error, StagingError | StateUnavailable)
        return str(error)
    finally:
        filler.unlink()


def _starts(table: PushedTable) -> int:
    """The number of processes that it took."""
    return sum(message["type"] == "CONFIGURED_STREAM" for message in table.messages())


def test_a_config_error_of_the_destination_ends_the_push(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.config |= {"fails": "config_error", "shows_catalog": True}
    table.fill([person(1)])
    report = table.contacts()
    assert "it cannot go on" in (report.error or "")
    assert (report.retryable, _starts(table)) == (False, 1)


@pytest.mark.parametrize("fault", [{"dies_after": 3}, {"fails": "system_error"}], ids=["silent", "uncaught"])
def test_a_destination_that_dies_may_fare_better_in_a_later_run(quick_folder: Path, fault: dict[str, object]) -> None:
    """As one that runs out of memory, or that loses its database: Singer has no message for it, and of Airbyte's it is
    one of the system."""
    table = PushedTable(quick_folder)
    table.config |= {**fault, "shows_catalog": True}
    table.fill([person(number) for number in range(1, 5)])
    report = table.contacts()
    assert (report.status, report.retryable, _starts(table)) == ("failed", True, 1)
    assert ("exited with code 7" if "dies_after" in fault else "it cannot go on") in (report.error or "")


@pytest.mark.parametrize("passes", [True, False])
def test_a_transient_error_of_the_destination_is_tried_again_after_pauses_that_grow(
    quick_folder: Path, *, passes: bool
) -> None:
    table, patience = PushedTable(quick_folder), Patience()
    table.config |= {"fails": "transient_error", "shows_catalog": True, "echo": "never"}
    table.config |= {"once": str(table.folder / "once")} if passes else {}
    table.options["acknowledge"] = "exit"
    table.fill([person(number) for number in range(1, 4)])
    report = table.run(cancel=patience).streams["contacts"]
    assert (_starts(table), patience.waited) == ((2, [2.0]) if passes else (3, [2.0, 6.0]))
    assert (report.status, report.acknowledged, report.unknown) == (("complete", 3, 0) if passes else ("failed", 0, 3))
    assert passes or (report.retryable and "it cannot go on" in (report.error or ""))
    assert table.held().keys() == {1, 2, 3}


def test_a_transient_error_is_not_tried_again_where_rows_would_be_there_twice(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="append")
    table.config |= {"fails": "transient_error", "shows_catalog": True, "echo": "never"}
    table.fill([person(1)])
    report = table.contacts()
    assert (report.status, report.unknown, report.retryable) == ("unknown", 1, False)
    assert (_starts(table), [row["id"] for row in table.received()]) == (1, [1])


def test_a_replacement_after_the_store_was_set_back_is_another_generation(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="overwrite")
    table.config["echo"] = "each"
    table.fill([person(1)])
    assert table.contacts().status == "complete"
    with closing(sqlite3.connect(table.home / "state.db")) as database:
        kept = database.serialize()
    table.fill([person(2)])
    assert table.contacts().status == "complete"
    (table.home / "state.db-wal").unlink(missing_ok=True)
    (table.home / "state.db").write_bytes(kept)
    table.fill([person(3)])
    assert table.contacts().status == "complete"
    assert table.shown() == [person(3)]


def test_a_plan_that_cannot_be_read_while_it_is_sealed_says_where(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.fill([person(1)])
    table.faults = CallFaults({("open_input_file", 2): CallFault.BEFORE})
    report = table.contacts()
    assert (report.status, report.sent) == ("failed", 0)
    assert "seal the plan of a push" in (report.error or "") and "plans" in (report.error or "")
    table.faults = None
    assert table.contacts().acknowledged == 1


@pytest.mark.nightly
def test_rows_that_were_sent_count_wherever_the_store_fails(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.push["changes"] = "snapshots"
    for number in range(1, 10):
        table.fill([person(each, f"{each} of turn {number}") for each in range(12)])
        table.faults, had = CallFaults({("states", number): CallFault.BEFORE}), len(table.received())
        with suppress(ProtoError):
            assert table.contacts().sent >= len(table.received()) - had, number
        table.faults = None
        assert table.contacts().status == "complete"


def test_a_global_state_proves_nothing_though_ours_is_in_it(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="append")
    table.config["form"] = "global"
    table.fill([person(number) for number in range(1, 8)])
    report = table.contacts()
    assert (report.status, report.acknowledged, report.unknown) == ("unknown", 0, 7)
    found = "acknowledged 0 of 7 rows: 2 states came back that were never sent, 2 of them GLOBAL ones"
    assert found in (report.error or "")
    table.options["acknowledge"] = "exit"
    assert table.contacts(retries_unknown=True).acknowledged == 7


class _Interrupted:
    """A plan that takes for ever, unless its jobs are interrupted. `begun` says that it has begun."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.interrupted = threading.Event(), threading.Event()
        patch.setattr(FolderPlanner, "write", self.write)
        patch.setattr(FolderPlanner, "tagged", lambda _self, _tag: nullcontext(), raising=False)
        patch.setattr(FolderPlanner, "interrupt", lambda _self, _tag: self.interrupted.set(), raising=False)

    def write(self, query: PlanQuery, folder: str) -> PlannedRows:
        Path(folder, "rows").mkdir(parents=True)
        Path(folder, "rows", "part.parquet").touch()
        self.begun.set()
        assert self.interrupted.wait(60)
        raise TableError(f"planning {query.table}", "Job 3 cancelled part of cancelled job tags")


def test_a_push_that_is_cancelled_while_it_plans_ends_in_time(
    table: PushedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel = threading.Event()
    with monkeypatch.context() as patched:
        plan = _Interrupted(patched)

        def cancel_in_the_midst() -> None:
            plan.begun.wait(60)
            cancel.set()

        cancelling = threading.Thread(target=cancel_in_the_midst)
        cancelling.start()
        began_at = time.monotonic()
        report = table.run(cancel=cancel)
        cancelling.join()
    assert time.monotonic() - began_at < 10
    assert (report.status, report.streams["contacts"].status) == ("cancelled", "cancelled")
    assert report.streams["contacts"].error == "planning the rows of shop.people (stream contacts): it was cancelled"
    assert not list(table.home.rglob("part.parquet"))
    assert not table.received()
    assert table.contacts().acknowledged == 23


def test_what_is_acknowledged_is_kept_where_there_is_no_time_to_remember_it(
    table: PushedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel = threading.Event()

    def cancelled(context: PushContext, delivery: Delivery, *_: object) -> int:
        cancel.set()
        while True:
            context.interrupts.check("folding", str(delivery.plan.stream))
            time.sleep(0.02)

    with monkeypatch.context() as patched:
        patched.setattr(push_stream, "fold", cancelled)
        began_at = time.monotonic()
        report = table.run(cancel=cancel).streams["contacts"]
    assert time.monotonic() - began_at < 10
    assert (report.status, report.acknowledged, report.retryable) == ("cancelled", 23, True)
    again = table.contacts()
    assert (again.status, again.sent, len(table.received())) == ("complete", 0, 23)
    assert table.delivered().keys() == set(range(1, 24))


@pytest.mark.nightly
def test_one_whose_time_is_over_has_taken_no_row_by_ending_well(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, protocol="singer", mode="append")
    table.fill([person(number) for number in range(1, 24)])
    table.options["acknowledge"] = "exit"
    table.config |= {"drains": True, "hangs_after": 13}
    table.connector = {"limits": {"timeout_seconds": 5}}
    report = table.contacts()
    assert (report.acknowledged, report.unknown) == (10, 13)  # By its state, and not by its exit code 0.
    assert "it ran for more than 5 s (limits: timeout_seconds" in (report.error or "")


def test_a_table_that_was_dropped_between_two_pushes_fails_and_one_in_its_place_sends_what_differs(
    table: PushedTable,
) -> None:
    assert table.contacts().acknowledged == 23
    held = table.held()
    shutil.rmtree(table.tables.folder(PEOPLE))
    for _ in range(2):
        failed = table.contacts()
        assert (failed.status, "shop.people" in (failed.error or "")) == ("failed", True)
    assert table.held() == held
    table.fill([person(number) for number in range(1, 25)])
    again = table.contacts()
    assert (again.status, again.acknowledged) == ("complete", 1)
    assert table.held() == held | {24: person(24)}
