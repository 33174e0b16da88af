"""Years of a connection, of any length, as `sync/crashes/test_year.py` has them; Iceberg tables are cared for."""

import json
import shutil
from pathlib import Path
from uuid import uuid4

from hypothesis import HealthCheck, Phase, given, seed, settings
from pyspark.sql import SparkSession

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.maintenance.care import ORPHAN_SECONDS, care_of, clean
from dagster_airbyte_proto.sync.plan.stream_plan import Wanted
from dagster_airbyte_proto.sync.run import sync_connection
from tests.soak.tally import tell
from tests.support.fork_server import Kill
from tests.sync.crashes.days import years
from tests.sync.crashes.house import House
from tests.sync.crashes.iceberg_house import CommandLine, IcebergHouse
from tests.sync.crashes.year import Day, Year
from tests.sync.crashes.zygote import Zygote

_CARE_EVERY = 5
_TELL_EVERY = 10


class _Lake(CommandLine):
    """Syncs in the session of this process, which is there already; those that are to die, by the command line."""

    def __init__(self) -> None:
        super().__init__()
        self._days = 0

    def sync(self, house: House, crash: Kill | None = None, *, refresh: bool = False) -> int:
        if crash is not None:
            return super().sync(house, crash, refresh=refresh)
        with _engine(house) as engine:
            report = sync_connection(engine, Connection.from_file(house.connection_file), Wanted(refresh=refresh))
        house.report_file.write_text(json.dumps(report.as_json()))
        return 0 if report.status == "complete" else 1

    def care(self, house: House) -> None:
        """Compacts now and then, and lets go of all that is not needed any more."""
        self._days += 1
        if self._days % _CARE_EVERY:
            return
        with _engine(house) as engine:
            care = care_of(engine.tables)
            for name in care.names():
                care.compact(name)
                clean(engine.store, care, name, keep_seconds=0.0, orphan_seconds=ORPHAN_SECONDS)


def _engine(house: House) -> Engine:
    assert isinstance(house, IcebergHouse)
    return Engine(Settings.load(house.home, house.settings_file))


def live_years(root: Path, session: SparkSession | None, days: int, number: int) -> None:
    """On Iceberg with a session. Raises AssertionError at the first fault, and leaves the house that it is in."""

    @seed(number)
    @settings(
        max_examples=2,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(years(days))
    def lived(drawn: list[Day | None]) -> None:
        folder = root / uuid4().hex[:8]
        runner = _Lake() if session else Zygote()
        house = IcebergHouse(folder, session) if session else House(folder, max_bytes=1000)
        year = Year(runner, house)
        try:
            for place, day in enumerate(drawn):
                if day is not None:
                    year.live(day)
                    if place % _TELL_EVERY == 0:
                        tell(f"day {place}: {year.syncs} syncs, {year.deaths} of them killed")
        finally:
            runner.close()
            house.store.close()
        tell(
            f"a year of {days} days: {year.syncs} syncs, {year.deaths} of them killed; every table was as it had to be"
        )
        shutil.rmtree(folder)

    lived()
