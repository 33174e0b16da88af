"""The streams of a relay as assets: their records are at a destination, and in no table."""

import json
import sys

import dagster as dg

from dagster_airbyte_proto import Connection, build_connector_assets
from dagster_airbyte_proto.connection import StreamOptions
from tests.dagster_defs.conftest import OpenRuns
from tests.sync.test_sync import two


def test_relayed_streams_are_materialized_with_their_states(runs: OpenRuns) -> None:
    shop = runs()
    out = shop.place.folder / "out.jsonl"
    launch = {"kind": "local", "command": [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_destination"]}
    shop.place.more["to"] = {"connector": {"protocol": "singer", "launch": launch}, "config": {"path": str(out)}}
    shop.place.offer(two(23, 12))
    run = shop.run()
    assert run.succeeded, run.failures
    assert run.materialized == ["users", "orders"]
    assert shop.place.positions() == {"users": 23, "orders": 12}
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["row"]["id"] for row in rows if row.get("stream") == "users"] == list(range(23))
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
