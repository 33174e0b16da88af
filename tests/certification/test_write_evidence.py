"""The evidence of writes keeps what rules look at, and no more."""

from pathlib import Path

from dagster_airbyte_proto.certification.watching.watched_program import Bounds, Gathering, Scratch
from dagster_airbyte_proto.certification.writes.destination_gathering import gather_destination
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.engine import Engine
from tests.certification.test_destinations import destination_connection


def test_a_flood_of_states_and_the_output_of_runs_that_are_over_are_not_kept(tmp_path: Path) -> None:
    settings = Settings.load(tmp_path / "home", None)
    settings.make_home()
    (tmp_path / "out").mkdir()
    connection = Connection.model_validate(destination_connection(tmp_path / "out", "airbyte", "floods_states"))
    options = Gathering(Bounds(query_seconds=30.0, write_seconds=60.0), None, Scratch(rows=1))
    with Engine(settings, connector_options=ConnectorOptions(stop_grace_seconds=1.0)) as engine:
        evidence = gather_destination(engine, connection, options)
    write = evidence.first.required
    # Each state that says something new counts, past the bound too.
    assert write.proved_rows == 20 and 10_000 <= len(write.received) <= 10_005
    runs = [write.run, *evidence.first.runs, *evidence.check.runs]
    assert write.run.size_bytes > 1 << 20 and [run.output for run in runs] == [b"", b"", b""]
