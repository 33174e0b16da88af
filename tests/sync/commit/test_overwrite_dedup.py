"""A table that each sync replaces, with one row of each key: the latest."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sync.crashes.house import House
from tests.sync.crashes.zygote import Zygote


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


def test_each_sync_leaves_the_latest_row_of_each_key_that_the_source_has(zygote: Zygote, tmp_path: Path) -> None:
    house = House(tmp_path, write="overwrite_dedup")
    # Without `read`, the mode itself asks for all records, of a source that could send only what is new.
    del house.modes["*"]["read"]
    house.offer({"streams": {"users": {"records": 11, "keys": 4}}})
    assert zygote.sync(house) == 0, house.report
    assert house.column("users") == [7, 8, 9, 10]
    house.offer({"streams": {"users": {"records": 9, "keys": 3}}})
    for point in ("table.committing", "table.committed"):
        assert zygote.sync(house, (point, 1)) == -9
        assert house.column("users") == ([7, 8, 9, 10] if point == "table.committing" else [6, 7, 8])
    assert zygote.sync(house) == 0, house.report
    assert house.column("users") == [6, 7, 8]
    told = house.report["streams"]["users"]
    assert (told["emitted"], told["committed"], told["rejected"]) == (9, 9, 0)
    house.offer({"streams": {"users": {"records": 0, "keys": 3}}})
    assert zygote.sync(house) == 0, house.report
    assert house.column("users") == []
    landed = house.landed("users")
    assert len(set(landed)) == len(landed)
