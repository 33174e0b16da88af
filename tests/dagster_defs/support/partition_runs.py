"""Runs of partitions of the shop, in this process or in one of its own; see support/fork_server.py.

Each partition has a scenario of its own, `of-<key>.json` beside the connection.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.assets import build_connector_assets
from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.testing.fake_source import catalog_stream
from tests.dagster_defs.support.folder_shop import Options, resources
from tests.dagster_defs.support.shop_runs import Run
from tests.dagster_defs.support.step_process import LATE_MODULES, opened
from tests.support.fork_server import ForkServer, Kill, arm, serve
from tests.sync.shop import Shop
from tests.sync.test_sync import two

KEYS = tuple(f"p{number:02}" for number in range(20))
STATIC = dg.StaticPartitionsDefinition(KEYS)
_START, _END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def prepared(place: Shop, words: str = "{{ partition.key }}") -> None:
    """Writes the connection, whose scenario the partition's `words` name, and its catalog."""
    place.config["scenario"] = str(place.folder / f"of-{words}.json")
    scenario = two(1, 1)
    place.offer(scenario)
    streams = [catalog_stream(name, stream) for name, stream in scenario["streams"].items()]
    message = {"type": "CATALOG", "catalog": {"streams": streams}}
    (place.folder / "catalog.json").write_text(json.dumps(message))


def offer(place: Shop, words: str, scenario: Mapping[str, Any]) -> None:
    """Sets the records that the source has in one partition from now on."""
    (place.folder / f"of-{words}.json").write_text(json.dumps(scenario))


def assets(folder: Path, partitions_def: dg.PartitionsDefinition[Any] = STATIC, **options: Any) -> dg.AssetsDefinition:
    return build_connector_assets(
        Connection.from_file(folder / "shop.yaml"),
        catalog=folder / "catalog.json",
        partitions_def=partitions_def,
        backfill_policy=dg.BackfillPolicy.single_run(),
        checks=StreamChecks(),
        **options,
    )


def run(
    folder: Path,
    instance: dg.DagsterInstance,
    keys: str | tuple[str, str] | None,
    made: dg.AssetsDefinition | None = None,
    options: Options = Options(connector={"lease_wait_seconds": 120.0}),  # noqa: B008 - a tuple
) -> Run:
    """A run of one partition, of a range from the first key to the last, or of none."""
    tags = {_START: keys[0], _END: keys[1]} if isinstance(keys, tuple) else {}
    result = dg.materialize(
        [made or assets(folder)],
        resources=resources(folder / "home", options),
        instance=instance,
        partition_key=keys if isinstance(keys, str) else None,
        tags=tags,
        raise_on_error=False,
    )
    return Run(instance, result.run_id)


class Backfills(ForkServer):
    """Makes one run for each key in a process of its own, one process at a time."""

    def __init__(self) -> None:
        super().__init__(__name__)

    def start(self, folder: Path, keys: Sequence[str], crash: Kill | None = None, state_url: str = "") -> None:
        """`end` it before the next one. With a crash it is one run of the whole range, which dies at the point."""
        self.fork({"folder": str(folder), "keys": keys, "crash": crash, "state_url": state_url})


def ids(place: Shop, stream: str = "users") -> dict[str, list[int]]:
    """The ids in each slice of a table."""
    found: dict[str, list[int]] = {}
    for row in place.tables.rows(TableName("shop", stream)).to_pylist():
        found.setdefault(row["_airbyte_partition"], []).append(row["id"])
    return {key: sorted(inner) for key, inner in found.items()}


def positions(place: Shop, stream: str = "users") -> dict[str, int]:
    """The state of a stream in each partition."""
    stored = place.store.states("shop", partition=None)
    return {
        each.partition: json.loads(each.state.message)["stream"]["stream_state"]["next"]
        for each in stored
        if each.state.stream is not None and each.state.stream.name == stream
    }


def _carry_out(order: dict[str, Any]) -> int:
    folder, keys, crash = Path(order["folder"]), order["keys"], order["crash"]
    arm(tuple(crash) if crash else None)
    ranges: list[str | tuple[str, str]] = [(keys[0], keys[-1])] if crash else keys
    options = Options(connector={"lease_wait_seconds": 120.0}, state_url=order["state_url"])
    with opened(folder / "dagster") as instance:
        return 0 if all(run(folder, instance, each, options=options).succeeded for each in ranges) else 1


if __name__ == "__main__":
    serve(_carry_out, *LATE_MODULES)
