"""Years of a connection as in `sync/crashes/test_year.py`, of any length. Iceberg tables are compacted and expired."""

import json
import shutil
from pathlib import Path
from uuid import uuid4

from hypothesis import HealthCheck, Phase, given, seed, settings
from pyspark.sql import SparkSession

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.maintenance.care import ORPHAN_SECONDS, clean
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.tables.formats import care_of
from tests.soak.tally import tell
from tests.support.fork_server import Kill
from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.spark_connections import CommandLine, IcebergConnection
from tests.sync.crashes.sync_fork_server import SyncForkServer
from tests.sync.crashes.year import Day, Year
from tests.sync.crashes.year_strategy import year_strategy

_CARE_EVERY = 5
_TELL_EVERY = 10


class _Lake(CommandLine):
    """Runs syncs in the session of this process, and those that are killed by the command line."""

    def __init__(self) -> None:
        super().__init__()
        self._days = 0

    def sync(self, connection: FakeConnection, crash: Kill | None = None, *, refresh: bool = False) -> int:
        if crash is not None:
            return super().sync(connection, crash, refresh=refresh)
        with _engine(connection) as engine:
            report = sync_connection(
                engine, Connection.from_file(connection.connection_file), SyncRequest(refresh=refresh)
            )
        connection.report_file.write_text(json.dumps(report.as_json()))
        return 0 if report.status == "complete" else 1

    def care(self, connection: FakeConnection) -> None:
        """Compacts every few days, and expires all that is no longer needed."""
        self._days += 1
        if self._days % _CARE_EVERY:
            return
        with _engine(connection) as engine:
            care = care_of(engine.tables)
            for name in care.names():
                care.compact(name)
                clean(engine.store, care, name, keep_seconds=0.0, orphan_seconds=ORPHAN_SECONDS)


def _engine(connection: FakeConnection) -> Engine:
    assert isinstance(connection, IcebergConnection)
    return Engine(Settings.load(connection.home, connection.settings_file))


def run_years(root: Path, session: SparkSession | None, days: int, number: int) -> None:
    """Runs on Iceberg with a session. Raises AssertionError at the first fault, and leaves its home folder."""

    @seed(number)
    @settings(
        max_examples=2,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(year_strategy(days))
    def lived(drawn: list[Day | None]) -> None:
        folder = root / uuid4().hex[:8]
        runner = _Lake() if session else SyncForkServer()
        connection = IcebergConnection(folder, session) if session else FakeConnection(folder, max_bytes=1000)
        year = Year(runner, connection)
        try:
            for place, day in enumerate(drawn):
                if day is not None:
                    year.live(day)
                    if place % _TELL_EVERY == 0:
                        tell(f"day {place}: {year.syncs} syncs, {year.deaths} of them killed")
        finally:
            runner.close()
            connection.store.close()
        tell(
            f"a year of {days} days: {year.syncs} syncs, {year.deaths} of them killed; every table was as it had to be"
        )
        shutil.rmtree(folder)

    lived()
