"""Tables that are missing where the store knows that loads have landed in them: dropped while a sync runs, or on a disk
that is not mounted."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto import points
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.shop import REFRESH, Shop
from tests.sync.test_sync import two

_WHOLE = {"read": "full_refresh"}


def _unmounted(place: Shop) -> Path:
    """Leaves the warehouse as a disk that is not mounted does. Returns the place of its tables meanwhile."""
    disk = place.warehouse.with_name("disk")
    place.warehouse.rename(disk)
    place.warehouse.mkdir()
    return disk


def _mounted(place: Shop, disk: Path) -> None:
    place.warehouse.rmdir()  # Nothing is in it.
    disk.rename(place.warehouse)


def _filled(shop: OpenShop, **modes: Any) -> Shop:
    place = shop(max_bytes=1 << 30)
    place.modes = {"*": modes}
    assert place.sync_of(two(10, 10)).status is SyncStatus.COMPLETE
    return place


@pytest.mark.parametrize("write", ["overwrite", "append"])
def test_no_table_is_made_beneath_a_disk_that_is_not_mounted(write: str, shop: OpenShop) -> None:
    place = _filled(shop, **_WHOLE, write=write)
    disk = _unmounted(place)
    with pytest.raises(TableError) as caught:
        place.sync_of(two(20, 20))
    assert f"{place.warehouse} is empty" in str(caught.value)
    assert "airbyte-proto sync shop --refresh" in caught.value.remedy
    _mounted(place, disk)
    assert place.sync().status is SyncStatus.COMPLETE
    assert len(place.column("users")) == (20 if write == "overwrite" else 30)


def test_an_incremental_sync_waits_for_its_disk_too(shop: OpenShop) -> None:
    place = _filled(shop, read="incremental", write="append")
    disk = _unmounted(place)
    with pytest.raises(TableError, match="most likely its disk is not mounted"):
        place.sync_of(two(20, 20))
    _mounted(place, disk)
    assert place.sync().status is SyncStatus.COMPLETE
    assert place.column("users") == list(range(20))


def test_a_link_to_a_disk_that_is_not_mounted_is_followed(shop: OpenShop) -> None:
    place = _filled(shop, **_WHOLE, write="overwrite")
    disk = place.folder / "disk"
    disk.mkdir()
    place.warehouse.rename(disk / "lake")
    place.warehouse.symlink_to(disk / "lake")
    away = disk.rename(place.folder / "away")
    disk.mkdir()
    with pytest.raises(TableError, match=f"{disk} is empty"):
        place.sync()
    disk.rmdir()
    away.rename(disk)
    assert place.sync().status is SyncStatus.COMPLETE


def test_a_warehouse_that_cannot_be_read_is_not_taken_for_an_empty_one(shop: OpenShop) -> None:
    place = _filled(shop, **_WHOLE, write="overwrite")
    disk = _unmounted(place)
    place.warehouse.rmdir()
    place.warehouse.write_text("")
    with pytest.raises(TableError, match="Not a directory"):
        place.sync()
    place.warehouse.unlink()
    disk.rename(place.warehouse)
    assert place.sync().status is SyncStatus.COMPLETE


def test_who_has_emptied_the_warehouse_fills_it_by_a_refresh(shop: OpenShop) -> None:
    place = _filled(shop, **_WHOLE, write="overwrite")
    _unmounted(place)
    assert place.sync(REFRESH).status is SyncStatus.COMPLETE
    assert place.sync_of(two(20, 20)).status is SyncStatus.COMPLETE
    assert place.column("users") == list(range(20))


def test_a_table_that_was_dropped_by_itself_is_made_anew_by_a_full_refresh(shop: OpenShop) -> None:
    place = _filled(shop, **_WHOLE, write="overwrite")
    shutil.rmtree(place.tables.folder(TableName("shop", "users")))
    assert place.sync_of(two(20, 20)).status is SyncStatus.COMPLETE
    assert place.column("users") == list(range(20))


def test_a_table_that_is_dropped_during_its_first_sync_is_not_made_again(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.protocol = "singer"
    folder = place.tables.folder(TableName("shop", "users"))
    rows = [{"id": number, **({"size": 3} if number >= 7 else {})} for number in range(12)]
    known, new = {"id": {"type": "integer"}}, {"size": {"type": "integer"}}
    place.offer({"streams": {"users": {"rows": rows, "properties": known, "declared_at": [[7, new]]}}})

    def drop(point: str) -> None:
        if point == "table.prepared":  # It is prepared once more when the column comes.
            points.arm(None)
            shutil.rmtree(folder)

    points.arm(drop)
    try:
        report = place.sync().streams["users"]
    finally:
        points.arm(None)
    assert report.status is SyncStatus.FAILED
    assert report.error is not None and "it was dropped, or made again, since this run prepared it" in report.error
    assert not (folder / "log").exists()
