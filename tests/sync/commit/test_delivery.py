"""What is handed over between the rows of the last load and its states; and whom a run waits for."""

import json
import threading
from collections.abc import Sequence

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import CommitUnknown, StateConflict
from dagster_airbyte_proto.model import Catalog
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.sync.run_options import NoProgressListener, RunOptions
from dagster_airbyte_proto.testing.fake_source import catalog_stream
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults
from tests.sync.conftest import OpenShop
from tests.sync.shop import EVERYTHING, Shop, until
from tests.sync.test_sync import expect, two


class Desk:
    """Takes what is delivered, with a look at the state and the table at that moment; refuses it if told to."""

    def __init__(self, place: Shop, *, refuses: bool = False) -> None:
        self._place, self._refuses = place, refuses
        self.calls: list[list[CommittedStream]] = []
        self.positions: dict[str, int] = {}
        self.rows: dict[str, int] = {}

    def committed(self, streams: Sequence[CommittedStream]) -> None:
        self.calls.append(list(streams))
        self.positions = self._place.positions()
        self.rows = {each.stream.name: len(self._place.column(each.stream.name)) for each in streams}
        if self._refuses:
            raise CommitUnknown("recording what was landed", "there is no more ink")

    @property
    def streams(self) -> dict[str, CommittedStream]:
        [delivered] = self.calls
        return {each.stream.name: each for each in delivered}

    def terms(self) -> RunOptions:
        return RunOptions(threading.Event(), commit_listener=self)


def test_rows_are_in_and_states_have_not_moved_when_streams_are_delivered(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.sync_of(two(10, 5))
    desk = Desk(place)
    report = place.sync_of(two(23, 12), EVERYTHING, desk.terms())
    assert (desk.rows, desk.positions) == ({"users": 23, "orders": 12}, {"users": 10, "orders": 5})
    assert place.positions() == {"users": 23, "orders": 12}
    for name, delivered in desk.streams.items():
        assert delivered.report == report.streams[name], name
        assert delivered.part is not None
        assert delivered.load_id == delivered.report.load_ids[-1]
        assert delivered.part.rows == delivered.report.committed
        assert delivered.connector == report.connector.version != ""
    users = report.streams["users"]
    assert (users.state_before, users.state, users.retryable) == ({"next": 10}, {"next": 23}, False)


def test_what_was_not_recorded_is_left_announced_and_the_next_run_ends_it(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    report = place.sync_of(two(23, 12), EVERYTHING, Desk(place, refuses=True).terms())
    assert report.status is SyncStatus.FAILED
    assert report.streams["users"].retryable
    assert report.streams["users"].state is None
    assert len(place.store.announced_loads("shop")) == 1
    assert place.positions() == {}
    again = place.sync()
    assert (again.recovered_loads, again.streams["users"].emitted) == (1, 0)
    expect(place, 23, 12)
    assert place.positions() == {"users": 23, "orders": 12}


def test_a_stream_whose_rows_came_in_earlier_loads_or_not_at_all_is_delivered_too(shop: OpenShop) -> None:
    place = shop()  # one byte makes a load
    scenario = {"streams": {"users": {"records": 10}, "orders": {"records": 0}, "items": {"records": 20}}}
    desk = Desk(place)
    place.sync_of({**scenario, "state_every": 5}, EVERYTHING, desk.terms())
    users, orders = desk.streams["users"], desk.streams["orders"]
    assert (users.report.committed, users.part, users.load_id) == (10, None, None)
    assert users.report.state == {"next": 10}
    assert len(users.report.load_ids) >= 1
    assert (orders.report.committed, orders.part) == (0, None)


def test_only_complete_streams_are_delivered(shop: OpenShop) -> None:
    place = shop()
    desk = Desk(place)
    streams = {"users": {"records": 10}, "orders": {"records": 20, "incomplete_at": 7}}
    report = place.sync_of({"streams": streams, "state_every": 5}, EVERYTHING, desk.terms())
    assert set(desk.streams) == {"users"}
    assert report.status is SyncStatus.PARTIAL
    assert report.streams["orders"].retryable


@pytest.mark.parametrize(("kind", "is_retryable"), [("config_error", False), ("transient_error", True)])
def test_the_connector_says_whether_trying_again_can_help(kind: str, is_retryable: bool, shop: OpenShop) -> None:
    failure = {"kind": "error", "after": 3, "message": "no luck", "failure_type": kind}
    report = shop().sync_of(two(23, 12, failure=failure))
    assert {told.retryable for told in report.streams.values()} == {is_retryable}


def test_a_run_is_known_by_the_id_it_was_given_and_its_reports_are_kept(shop: OpenShop) -> None:
    place = shop()
    terms = RunOptions(threading.Event(), run_id="one")
    first = place.sync_of(two(5, 5, failure={"kind": "exit", "after": 7}), EVERYTHING, terms)
    second = place.sync_of(two(5, 5), EVERYTHING, terms)
    assert (first.run_id, second.run_id) == ("one", "one")
    told = place.store.reports("shop", "one")
    assert ['"status":"complete"' in each.split('"streams"')[0] for each in told] == [False, True]
    assert place.store.reports("shop", "another") == []
    expect(place, 5, 5)


def test_a_run_that_sleeps_while_it_sweeps_leaves_the_files_of_a_later_attempt_alone(shop: OpenShop) -> None:
    """The attempts of one step have one run id."""
    place, attempt = shop(max_bytes=1 << 30), RunOptions(threading.Event(), run_id="step")
    broken = place.sync_of(two(10, 10, failure={"kind": "exit", "after": 12}), EVERYTHING, attempt)
    assert broken.status is SyncStatus.FAILED
    place.offer(two(10, 10))

    def next_attempt() -> None:
        for lease in place.store.current_leases("shop"):
            place.store.release(lease)
        assert place.sync(EVERYTHING, attempt).status is SyncStatus.COMPLETE

    faults = CallFaults({("referenced_files", 1): CallFault.HUNG}, next_attempt)
    settings = Settings.load(place.home, place.home / "settings.yaml")
    with Engine(settings, store=with_faults(place.store, faults)) as engine, pytest.raises(StateConflict):
        sync_connection(engine, Connection.from_file(place.connection_file), EVERYTHING, attempt)
    expect(place, 10, 10)


def test_a_saved_catalog_is_planned_from_without_asking(shop: OpenShop) -> None:
    place = shop()
    place.offer({**two(5, 5), "answers": {"discover": {"exit_code": 1}}})
    catalog = shop_catalog(place)
    report = place.sync(SyncRequest(catalog=catalog))
    assert report.status is SyncStatus.COMPLETE
    expect(place, 5, 5)


def test_a_connection_that_is_held_is_waited_for(shop: OpenShop) -> None:
    place = shop()
    place.offer(two(5, 5))
    waiting = Hearing()
    terms = RunOptions(threading.Event(), waiting, lease_wait_seconds=30.0)
    ended: list[str] = []
    run = threading.Thread(target=lambda: ended.append(place.sync(EVERYTHING, terms).status.value))
    with acquire_lease(place.store, "shop", "other", 30.0):
        run.start()
        until(lambda: any("waits up to 30 s" in line for line in waiting.lines), "word that it waits")
        assert place.column("users") == []
    run.join(120)
    assert ended == ["complete"]
    expect(place, 5, 5)


def test_waiting_has_an_end(shop: OpenShop) -> None:
    place = shop()
    place.offer(two(5, 5))
    with acquire_lease(place.store, "shop", "other", 30.0), pytest.raises(StateConflict, match="run other"):
        place.sync(EVERYTHING, RunOptions(threading.Event(), lease_wait_seconds=0.2))


class Hearing(NoProgressListener):
    """A watcher that keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def connector_logged(self, level: str, text: str) -> None:  # noqa: ARG002 - the protocol has it
        self.lines.append(text)


def shop_catalog(place: Shop) -> Catalog:
    """What its source would say if it could be asked."""
    written = json.loads((place.folder / "scenario.json").read_text())
    streams = [catalog_stream(name, stream) for name, stream in written["streams"].items()]
    return AirbyteSource().catalog(json.dumps({"streams": streams}).encode())
