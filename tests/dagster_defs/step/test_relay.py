"""The streams of a relay as assets: their records are at a destination, and in no table."""

import json
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_airbyte_proto import Connection, ConnectorResource, build_connection_jobs, build_connector_assets
from dagster_airbyte_proto.connection import StreamOptions
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.folder_shop import FolderIOManager
from tests.dagster_defs.support.partition_runs import KEYS, offer, positions, prepared, run
from tests.dagster_defs.support.shop_runs import Run
from tests.sync.relay.test_resend import kept_names, rows_of, shop_that_takes, take
from tests.sync.shop import Shop
from tests.sync.test_sync import two


def _destination(out: Path) -> dict[str, Any]:
    launch = {"kind": "local", "command": [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_destination"]}
    return {"connector": {"protocol": "singer", "launch": launch}, "config": {"path": str(out)}}


def _received(out: Path) -> list[int]:
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return [row["row"]["id"] for row in rows if row.get("stream") == "users"]


def test_relayed_streams_are_materialized_with_their_states(runs: OpenRuns) -> None:
    shop = runs()
    out = shop.place.folder / "out.jsonl"
    shop.place.more["to"] = _destination(out)
    shop.place.offer(two(23, 12))
    run = shop.run()
    assert run.succeeded, run.failures
    assert run.materialized == ["users", "orders"]
    assert shop.place.positions() == {"users": 23, "orders": 12}
    assert _received(out) == list(range(23))
    metadata = run.metadata("users")
    assert metadata["airbyte_proto/committed"] == 23
    assert metadata["airbyte_proto/destination_stream"] == "users"
    assert "dagster/table_name" not in metadata
    connection = Connection.from_file(shop.place.connection_file).model_copy(
        update={"streams": {"users": StreamOptions()}}
    )
    [spec] = build_connector_assets(connection).specs
    assert isinstance(spec, dg.AssetSpec)
    assert spec.kinds == {"airbyte", "singer"}
    assert "dagster/table_name" not in spec.metadata


def test_a_backfill_relays_one_partition_after_the_other(
    quick_folder: Path, dagster_instance: dg.DagsterInstance
) -> None:
    place, out = Shop(quick_folder, write="append_dedup"), quick_folder / "out.jsonl"
    place.more["to"] = _destination(out)
    prepared(place)
    for number, key in enumerate(KEYS[:3]):
        offer(place, key, two(number + 1, 2))
    assert run(quick_folder, dagster_instance, (KEYS[0], KEYS[2])).succeeded
    assert _received(out) == [0, 0, 1, 0, 1, 2]
    assert positions(place) == {key: number + 1 for number, key in enumerate(KEYS[:3])}
    offer(place, KEYS[0], two(2, 2))
    assert run(quick_folder, dagster_instance, KEYS[0]).succeeded
    assert _received(out)[6:] == [0, 1]


def test_a_job_sends_rejected_records_again(quick_folder: Path, dagster_instance: dg.DagsterInstance) -> None:
    pytest.importorskip("jsonschema_rs", reason="the package jsonschema-rs is not installed")
    shop = shop_that_takes(quick_folder, 5)
    shop.modes = {"users": {"read": "incremental", "write": "append_dedup"}}
    shop.sync_of(rows_of("short", "longer"))
    assert kept_names(shop) == ["longer"]
    take(shop, 20)
    shop.offer(rows_of("short", "longer", "new"))
    connection = Connection.from_file(shop.connection_file)
    jobs = build_connection_jobs(connection, assets=build_connector_assets(connection))
    [job] = [each for each in jobs if each.name == "retry_rejected_shop"]
    resources = {
        "connector": ConnectorResource(home=str(shop.home)),
        "io_manager": FolderIOManager(warehouse=str(shop.home / "warehouse")),
    }
    made = dg.Definitions(jobs=[job], resources=resources).resolve_job_def(job.name)
    config = {"ops": {"shop_retry_rejected": {"config": {"streams": ["users"], "unknown": False}}}}
    result = made.execute_in_process(run_config=config, instance=dagster_instance, raise_on_error=False)
    assert result.success, Run(dagster_instance, result.run_id).failures
    assert Run(dagster_instance, result.run_id).materialized == ["users"]
    assert [row["name"] for row in shop.received("users")] == ["short", "longer", "new"]
    assert kept_names(shop) == []
