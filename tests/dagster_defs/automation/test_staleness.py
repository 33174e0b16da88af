"""The sensor of states that stand still, where runs are partitions; what a probe has to be."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._utils.error import serializable_error_info_from_exc_info

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.automation.discovery import streams_offered
from dagster_airbyte_proto.dagster_defs.automation.sensors import (
    Probe,
    build_schema_drift_sensor,
    build_state_staleness_sensor,
    build_sync_sensor,
)
from dagster_airbyte_proto.dagster_defs.resources import ConnectorResource, SqlStateStore
from dagster_airbyte_proto.errors import ConfigError, StateUnavailable
from tests.dagster_defs.automation.test_sensors import tick
from tests.dagster_defs.support.folder_shop import Options, resources
from tests.dagster_defs.support.partition_runs import assets, offer, prepared, run
from tests.sync.shop import Shop
from tests.sync.test_sync import two

_DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("{{ partition.start }}", {"users", "orders"}),
        ("{{ partition.key }}", {f"{name} [2026-01-0{day}]" for name in ("users", "orders") for day in (1, 2)}),
    ],
    ids=["windows", "keys"],
)
def test_of_time_windows_the_newest_state_of_a_stream_counts(
    quick_folder: Path, dagster_instance: dg.DagsterInstance, words: str, named: set[str]
) -> None:
    place = Shop(quick_folder)
    prepared(place, words)
    output: list[set[str]] = []

    def tell(_: dg.SensorEvaluationContext, ages: Mapping[str, timedelta]) -> None:
        output.append(set(ages))

    for day in ("2026-01-01", "2026-01-02"):
        offer(place, day if "key" in words else f"{day}T00:00:00Z", two(4, 3))
        assert run(quick_folder, dagster_instance, day, assets(quick_folder, _DAYS)).succeeded
    sensor = build_state_staleness_sensor(
        Connection.from_file(place.connection_file), max_age=timedelta(0), on_stale=tell
    )
    using = {"connector": resources(place.home, Options())["connector"]}
    first = tick(sensor, dagster_instance, using=using)
    assert output == [named]
    tick(sensor, dagster_instance, first.cursor, using)
    assert len(output) == 1


@pytest.mark.parametrize("make", ["staleness", "drift", "streams_offered"])
def test_a_store_that_does_not_answer_ends_a_tick_in_a_few_lines(
    make: str, quick_folder: Path, dagster_instance: dg.DagsterInstance
) -> None:
    place = Shop(quick_folder)
    prepared(place, "all")
    connection = Connection.from_file(place.connection_file)
    if make == "staleness":
        sensor = build_state_staleness_sensor(connection, max_age=timedelta(0), on_stale=lambda *_: None)
    elif make == "drift":
        sensor = build_schema_drift_sensor(assets(quick_folder, _DAYS))
    else:
        find = streams_offered(connection)
        sensor = build_sync_sensor(
            "look", target="*", probe=lambda context, _: Probe(str(find(context))), required_resource_keys={"connector"}
        )
    state = SqlStateStore(url="postgresql://ann@127.0.0.1:1/shop")
    using = {"connector": ConnectorResource(home=str(place.home), state=state)}
    with pytest.raises(StateUnavailable) as raised:
        tick(sensor, dagster_instance, using=using)
    shown = serializable_error_info_from_exc_info((raised.type, raised.value, raised.tb)).to_string()
    assert "using the state store: postgresql+psycopg://ann@127.0.0.1:1/shop: connection failed" in shown
    assert "Check that the server runs and that state_url is right." in shown
    assert "sqlalchemy" not in shown and "sql_store.py" not in shown


def test_a_probe_that_returns_no_probe_is_named(dagster_instance: dg.DagsterInstance) -> None:
    probe: Any = lambda _context, _cursor: "7"  # noqa: E731 - as a user may write it
    with pytest.raises(ConfigError, match="evaluating sensor look: its probe returned a str"):
        tick(build_sync_sensor("look", target="*", probe=probe), dagster_instance)
