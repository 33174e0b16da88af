"""The connections of an engine to its state store: few while it works, and none afterwards."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from dagster_airbyte_proto.checkpoints.sql.database import Database
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.engine import Engine
from tests.support.postgres import PostgresServer
from tests.sync.shop import until

_THREADS = 4


@pytest.mark.postgres
def test_one_connection_stays_open_after_many_at_once_and_none_once_the_engine_is_closed(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.new_store()
    application = tmp_path.name
    settings = Settings.load(tmp_path).model_copy(update={"state_url": f"{url}&application_name={application}"})
    together = Barrier(_THREADS)

    def connections() -> int:
        return int(
            postgres_server.ask(f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{application}'")
        )

    def hold(database: Database) -> None:
        with database.read():
            together.wait(120)

    with Engine(settings) as engine:
        engine.store.connections()
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(hold, [engine.store._database] * _THREADS))  # type: ignore[attr-defined]  # that of SqlStore
        until(lambda: connections() == 1, "the end of all but one")
    until(lambda: connections() == 0, "the end of the last")


def test_the_files_of_all_state_stores_and_of_secret_settings_are_known(tmp_path: Path) -> None:
    given, named, of_driver = (tmp_path / name for name in ("given.db", "named.db", "driver.db"))
    settings = Settings.load(tmp_path).model_copy(update={"state_url": f"sqlite:///{named}?timeout=3"})
    options = ConnectorOptions(hidden_files=(of_driver,))
    with Engine(settings, store=SqlStore(f"sqlite:///{given}"), connector_options=options) as engine:
        assert set(engine.hidden_files()) == {given, named, of_driver}
    for url in ("postgresql://user:secret@host/database", "nowhere://"):
        with Engine(settings.model_copy(update={"state_url": url})) as engine:
            assert engine.hidden_files() == ()
    file = tmp_path / "airbyte-proto.yaml"
    file.write_text("state_url: postgresql://user:secret@host/database")
    with Engine(Settings.load(tmp_path, file)) as engine:
        assert engine.hidden_files() == (file,)
