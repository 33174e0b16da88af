"""A sync of a connector that plays a trick: its outcome, its cost, and that an honest sync after it makes all good."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import connector, sync_process
from tests.hostile.tricks import MEBIBYTE, TRICKS, Trick
from tests.support.fork_server import ForkServer
from tests.sync.shop import Shop, processes_of

STREAMS = ("good", "bad")
ALL = list(range(connector.RECORDS))


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer(sync_process.__name__)
    yield server
    server.close()


@pytest.fixture
def place(quick_folder: Path) -> Iterator[Shop]:
    place = Shop(quick_folder)
    place.modes = {stream: {"read": "incremental", "write": "append"} for stream in STREAMS}
    yield place
    assert processes_of(quick_folder) == []


def _sync(place: Shop, server: ForkServer, trick: str, *, is_impatient: bool = False) -> dict[str, Any]:
    place.program = [sys.executable, connector.__file__, trick, str(place.folder)]
    place.offer({})
    order = {"home": place.home, "connection": place.connection_file, "report": place.report_file}
    server.fork({**{name: str(path) for name, path in order.items()}, "impatient": is_impatient})
    assert server.end() == 0
    return place.report


def _mebibytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / MEBIBYTE


def _ids(place: Shop, stream: str) -> list[int]:
    """The ids below 100, which are those of honest records."""
    return sorted(row["id"] for row in place.rows(stream) if row["id"] is not None and row["id"] < 100)


@pytest.mark.parametrize(
    "trick", [pytest.param(each, marks=[pytest.mark.nightly] if each.nightly else [], id=each.name) for each in TRICKS]
)
def test_a_trick_has_its_outcome_and_keeps_to_its_budgets(trick: Trick, place: Shop, server: ForkServer) -> None:
    began = time.monotonic()
    report = _sync(place, server, trick.name, is_impatient=trick.is_impatient)
    assert report["status"] == trick.status, report
    assert trick.error in json.dumps(report)
    assert time.monotonic() - began < trick.seconds
    assert report["peak_bytes"] / MEBIBYTE < trick.memory_mebibytes
    logs = _mebibytes(place.home / "logs")
    assert logs < trick.log_mebibytes
    assert _mebibytes(place.home) - logs < trick.disk_mebibytes
    assert len(json.dumps(report)) < MEBIBYTE
    assert (_ids(place, "good"), _ids(place, "bad")) == (ALL[: trick.good], ALL[: trick.bad])
    assert len(place.rows("bad")) == trick.bad + trick.more

    honest = _sync(place, server, "honest")
    assert honest["status"] == "complete", honest
    assert (_ids(place, "good"), _ids(place, "bad")) == (ALL, ALL)
    assert len(place.rows("bad")) == len(ALL) + trick.more
