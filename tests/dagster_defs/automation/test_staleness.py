"""The sensor of states that stand still, where runs are partitions; what a probe has to be."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.automation.sensors import build_state_staleness_sensor, build_sync_sensor
from dagster_airbyte_proto.errors import ConfigError
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


def test_a_probe_that_returns_no_probe_is_named(dagster_instance: dg.DagsterInstance) -> None:
    probe: Any = lambda _context, _cursor: "7"  # noqa: E731 - as a user may write it
    with pytest.raises(ConfigError, match="evaluating sensor look: its probe returned a str"):
        tick(build_sync_sensor("look", target="*", probe=probe), dagster_instance)
