"""A service, the destination that sends rows to it, and a table of such rows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sync.push.syncmaven.people import KIT, PeopleServer, installed


@pytest.fixture
def server() -> Iterator[PeopleServer]:
    opened = PeopleServer()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of the destination, with the kit beside it."""
    return installed(tmp_path_factory.mktemp("kit"), *KIT)
