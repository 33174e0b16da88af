"""Fixtures of the tests of syncs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.sync.shop import Shop, processes_of

OpenShop = Callable[..., Shop]


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: to sync it costs nothing there."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(dir="/dev/shm", prefix="airbyte-proto-") as made:
        yield Path(made)


@pytest.fixture
def shop(quick_folder: Path) -> Iterator[OpenShop]:
    """Makes the shop of a test. Whatever happened in it, no process is left of it."""

    def opened(**written: Any) -> Shop:
        return Shop(quick_folder, **written)

    yield opened
    assert processes_of(quick_folder) == []
