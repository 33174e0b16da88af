"""Fixtures of the tests of the Dagster surface."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from tests.dagster_defs.support.shop_runs import Runs
from tests.sync.shop import processes_of

OpenRuns = Callable[..., Runs]


@pytest.fixture(scope="session", autouse=True)
def migrations_are_read_once() -> Iterator[None]:
    """Dagster has alembic read the scripts of all its migrations for each store that it opens."""
    read = ScriptDirectory.from_config
    known: dict[str, ScriptDirectory] = {}

    def remembered(config: Config) -> ScriptDirectory:
        place = str(config.get_main_option("script_location"))
        return known.setdefault(place, known.get(place) or read(config))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", remembered)
        yield


@pytest.fixture
def dagster_instance(quick_folder: Path) -> Iterator[dg.DagsterInstance]:
    """An instance that keeps what it is told in files, as a user's does."""
    folder = quick_folder / "dagster"
    folder.mkdir()
    with dg.DagsterInstance.local_temp(str(folder), overrides={"telemetry": {"enabled": False}}) as instance:
        yield instance


@pytest.fixture
def runs(quick_folder: Path, dagster_instance: dg.DagsterInstance) -> Iterator[OpenRuns]:
    """Makes the shop of a test, to be run by Dagster. Whatever happened in it, no connector is left of it."""

    def opened(**written: Any) -> Runs:
        return Runs(quick_folder, dagster_instance, **written)

    yield opened
    assert processes_of(quick_folder) == []
