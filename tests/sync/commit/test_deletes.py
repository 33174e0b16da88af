"""Rows that a source deletes: removed where the table has a key, marked in `soft_delete`, otherwise a row."""

from typing import Any

import pytest

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.plan.stream_plan import Slice, SyncRequest
from dagster_airbyte_proto.sync.report import StreamReport, SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.shop import REFRESH, Shop

_PROPERTIES = {
    "id": {"type": "integer"},
    "name": {"type": "string"},
    "at": {"type": "integer"},
    "_ab_cdc_deleted_at": {"type": ["null", "string"], "format": "date-time"},
}
_WHEN = "2026-01-01T00:00:00Z"
REPLACING = ("overwrite", "overwrite_dedup")
ONE_LOAD, LOAD_A_ROW = 1 << 30, 1


def row(number: int, at: int, name: str | None = None, deleted_at: Any = None) -> dict[str, Any]:
    """A record: a row, or without a name its deletion."""
    return {"id": number, "at": at, "name": name, "_ab_cdc_deleted_at": deleted_at or (None if name else _WHEN)}


def sync(place: Shop, rows: list[dict[str, Any]], wanted: SyncRequest = SyncRequest()) -> StreamReport:  # noqa: B008 - a tuple
    """One sync of a source with these rows. Incrementally it sends only those that it has not sent yet."""
    stream = {"rows": rows, "properties": _PROPERTIES, "primary_key": [["id"]], "cursor": ["at"]}
    report = place.sync_of({"streams": {"users": stream}, "state_every": 1}, wanted)
    assert report.status is SyncStatus.COMPLETE, report
    return report.streams["users"]


def found(place: Shop) -> list[tuple[int, str | None]]:
    rows = place.tables.rows(TableName("shop", "users")).to_pylist()
    return sorted(((each["id"], each["name"]) for each in rows), key=repr)


def opened(shop: OpenShop, write: str, max_bytes: int) -> Shop:
    return shop(write=write, read="full_refresh" if write in REPLACING else "incremental", max_bytes=max_bytes)


_STORY = [
    row(1, 1, "gone"),
    row(2, 1, "stays"),
    row(1, 2),
    row(3, 3),  # of a key that never existed
    row(4, 4),
    row(4, 5, "back again"),
    row(5, 6, "gone too"),
    row(5, 7, deleted_at=17),  # a value that its column cannot hold
]
_GONE = {1, 3, 5}


@pytest.mark.parametrize("max_bytes", [ONE_LOAD, LOAD_A_ROW])
@pytest.mark.parametrize("write", ["append_dedup", "overwrite_dedup", "soft_delete"])
def test_a_row_whose_deletion_is_newest_is_removed_or_marked(write: str, max_bytes: int, shop: OpenShop) -> None:
    place = opened(shop, write, max_bytes)
    told = sync(place, _STORY)
    assert (told.emitted, told.committed) == (len(_STORY), len(_STORY))
    # With a load for each state the deletion of 4 comes last.
    took_out = len(_GONE) + (max_bytes == LOAD_A_ROW)
    assert told.deleted == (0 if write in REPLACING else took_out)
    alive = [(2, "stays"), (4, "back again")]
    marked = [(number, None) for number in _GONE] if write == "soft_delete" else []
    assert found(place) == sorted([*alive, *marked])
    if write == "soft_delete":
        rows = {each["id"]: each for each in place.tables.rows(TableName("shop", "users")).to_pylist()}
        assert [rows[number]["_ab_cdc_deleted_at"] is not None for number in (1, 2, 3, 4)] == [True, False] * 2
        assert rows[5]["_airbyte_meta"]["changes"][0]["field"] == "_ab_cdc_deleted_at"


@pytest.mark.everyday("append_dedup-1", "overwrite_dedup-1073741824", "soft_delete-1")
@pytest.mark.parametrize("max_bytes", [ONE_LOAD, LOAD_A_ROW])
@pytest.mark.parametrize("write", ["append_dedup", "overwrite_dedup", "soft_delete"])
def test_a_deletion_that_is_older_than_the_row_loses(write: str, max_bytes: int, shop: OpenShop) -> None:
    place = opened(shop, write, max_bytes)
    told = sync(place, [row(1, 9, "newer"), row(1, 8)])
    assert (found(place), told.committed, told.deleted) == ([(1, "newer")], 2, 0)


@pytest.mark.parametrize("write", ["append", "overwrite"])
def test_without_a_key_a_deletion_is_a_row(write: str, shop: OpenShop) -> None:
    place = opened(shop, write, ONE_LOAD)
    told = sync(place, _STORY)
    assert (len(found(place)), told.committed, told.deleted) == (len(_STORY), len(_STORY), 0)


def test_deletions_reach_rows_of_earlier_syncs_and_are_counted(shop: OpenShop) -> None:
    place = opened(shop, "append_dedup", ONE_LOAD)
    rows = [row(number, 1, "a") for number in range(5)]
    assert sync(place, rows).deleted == 0
    rows += [row(3, 2), row(9, 2)]
    assert sync(place, rows).deleted == 2
    assert [number for number, _ in found(place)] == [0, 1, 2, 4]
    rows += [row(3, 3)]
    assert sync(place, rows).deleted == 1
    assert [number for number, _ in found(place)] == [0, 1, 2, 4]
    assert place.loose_files() == []


@pytest.mark.parametrize("write", ["append_dedup", "soft_delete"])
def test_a_refresh_deletes_or_marks_as_the_syncs_before_it_did(write: str, shop: OpenShop) -> None:
    place = opened(shop, write, ONE_LOAD)
    sync(place, _STORY)
    before = found(place)
    assert sync(place, _STORY, REFRESH).deleted == len(before)
    assert found(place) == before
    generations = place.tables.rows(TableName("shop", "users")).column("_airbyte_generation_id")
    assert set(generations.to_pylist()) == {1}


@pytest.mark.everyday("append_dedup", "soft_delete", "overwrite")
@pytest.mark.parametrize("write", ["append_dedup", "overwrite_dedup", "soft_delete", "append", "overwrite"])
def test_a_partition_is_replaced_by_its_remaining_rows(write: str, shop: OpenShop) -> None:
    place = opened(shop, write, LOAD_A_ROW)
    for key, rows in (("a", _STORY), ("b", [row(1, 1, "b"), row(2, 1, "b")]), ("a", _STORY[1:])):
        sync(place, rows, SyncRequest(slice=Slice(key)))
    slices: dict[str, list[int]] = {}
    for each in place.tables.rows(TableName("shop", "users")).to_pylist():
        slices.setdefault(each["_airbyte_partition"], []).append(each["id"])
    everything = sorted(each["id"] for each in _STORY[1:])
    left = {"append_dedup": [2, 4], "overwrite_dedup": [2, 4], "soft_delete": [1, 2, 3, 4, 5]}.get(write, everything)
    assert {key: sorted(ids) for key, ids in slices.items()} == {"a": left, "b": [1, 2]}
