"""The values that an enrichment keeps by the state server are those of the rows that are in the table, always."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.sync_fork_server import SyncForkServer
from tests.sync.enrichment.kept_tally import kept_tallies, kept_tally, numbering
from tests.sync.shop import REFRESH, Shop

_KILLED = -9


@pytest.fixture(scope="module")
def server() -> Iterator[SyncForkServer]:
    opened = SyncForkServer()
    yield opened
    opened.close()


class _NumberedConnection(FakeConnection):
    """A connection whose rows an enrichment numbers."""

    more = {"transforms": [numbering()]}  # noqa: RUF012 - never changed


def _users(records: int) -> dict[str, Any]:
    return {"streams": {"users": {"records": records, "resumable": True}}, "state_every": 2}


def _check_numbers(place: FakeConnection, rows: int, stream: str = "users") -> None:
    """Each row has its own number, and the enrichment keeps that of the last one."""
    numbers = sorted(int(row["city"]) for row in place.rows(stream))
    assert numbers == list(range(1, rows + 1))
    assert kept_tally(place.store, "shop", stream) == rows


def _check_synced(place: Shop, scenario: dict[str, Any], *request: Any) -> None:
    assert place.sync_of(scenario, *request).status is SyncStatus.COMPLETE


def test_they_go_on_with_the_next_sync_and_begin_anew_with_the_table(shop: OpenShop) -> None:
    place = shop()
    place.more = {"transforms": [numbering()]}
    others = {"others": {"records": 3}}
    _check_synced(place, {**_users(5), "streams": {**_users(5)["streams"], **others}})
    _check_numbers(place, 3, "others")
    for records in (7, 8):
        _check_synced(place, _users(records))
        _check_numbers(place, records)
    _check_synced(place, _users(8), REFRESH)
    _check_numbers(place, 8)


def test_of_rows_that_did_not_land_nothing_is_kept(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 20)
    for fault in ({"dies_at": 5}, {"prints": '"half a pair \\ud83d"'}):
        place.more = {"transforms": [{**numbering(**fault), "on_error": "fail"}]}
        assert place.sync_of(_users(8)).status is not SyncStatus.COMPLETE
        assert (place.rows("users"), kept_tally(place.store, "shop", "users")) == ([], 0)
    place.more = {"transforms": [numbering()]}
    _check_synced(place, _users(8))
    _check_numbers(place, 8)


def test_beside_a_cache_none_are_kept(shop: OpenShop) -> None:
    place = shop()
    place.more = {"transforms": [numbering()]}
    _check_synced(place, _users(4))
    assert kept_tally(place.store, "shop", "users") == 4
    place.more = {"transforms": [{**numbering(), "cache": {"ttl": "1 day"}}]}
    _check_synced(place, _users(6))
    assert kept_tally(place.store, "shop", "users") == 0


def test_two_enrichments_in_a_chain_keep_their_own(shop: OpenShop) -> None:
    """One program and the same columns, and so one name, twice. The second one gets the rows that the first has
    made."""
    place = shop()
    place.more = {"transforms": [numbering(replies=2), numbering()]}
    for records in (3, 5):
        told = place.sync_of(_users(records)).streams["users"]
        assert (told.status, told.added, told.committed) == (SyncStatus.COMPLETE, told.emitted, 2 * told.emitted)
        _check_numbers(place, 2 * records)
        assert kept_tallies(place.store, "shop", "users") == [records, 2 * records]


_POINTS = ("load.staged", "load.announced", "table.committed", "load.committed", "load.promoted", "run.ended")


@pytest.mark.everyday("whole-load.committed")
@pytest.mark.parametrize("point", _POINTS)
@pytest.mark.parametrize("refreshes", [False, True], ids=["whole", "refreshed"])
def test_after_a_kill_they_are_those_of_the_table(
    server: SyncForkServer, quick_folder: Path, point: str, *, refreshes: bool
) -> None:
    place = _NumberedConnection(quick_folder)
    place.offer(_users(3))
    assert server.sync(place) == 0, place.report
    _check_numbers(place, 3)
    place.offer(_users(7))
    assert server.sync(place, (point, 1), refresh=refreshes) == _KILLED
    assert kept_tally(place.store, "shop", "users") <= len(place.rows("users"))
    place.offer(_users(9))
    assert server.sync(place, refresh=refreshes) == 0, place.report
    _check_numbers(place, 9)
    place.store.close()
