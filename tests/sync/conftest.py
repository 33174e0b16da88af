"""Fixtures of the tests of syncs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sync.shop import Shop, processes_of

OpenShop = Callable[..., Shop]


@pytest.fixture
def shop(quick_folder: Path) -> Iterator[OpenShop]:
    """Makes the shop of a test. Whatever happened in it, no process is left of it."""

    def opened(**written: Any) -> Shop:
        return Shop(quick_folder, **written)

    yield opened
    assert processes_of(quick_folder) == []
