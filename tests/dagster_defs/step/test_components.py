"""Rapidbyte components as assets: a source, a transform and a destination, with what they keep from run to run."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.kept_values import Asset
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.transform_states import stored_transform_states
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.cli.components.test_component_syncs import CONFIG, checkpoint
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support.shop_runs import Runs
from tests.support.wasm import guests
from tests.sync.push.rapidbyte.component_table import written_batches
from tests.sync.test_sync import two

pytestmark = pytest.mark.everyday("test_state_rejected_records_and_transforms_go_on_from_run_to_run")

_SCRIPT = (
    'metric {"name":"pages","value":2};'
    f'!ipc first;!dlq users {{"id":8}} bad data;!{checkpoint(3)};'
    f"?get 1 page;?ipc second;?{checkpoint(5)};put 1 page s;{checkpoint(5)}"
)


_SEEN = '{"name":"seen","value":1}'


def _component(place: Path, role: str) -> dict[str, Any]:
    built = place / f"{role}.wasm"
    if not built.exists():
        built.write_bytes(guests.built(role).read_bytes())
    return {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": str(built)}}


def _prepared(runs: OpenRuns, **more: Any) -> Runs:
    shop = runs()
    folder = shop.place.folder
    transform = {"connector": _component(folder, "transform"), "config": {"script": f"metric {_SEEN};tally"}}
    shop.place.more |= {
        "connector": _component(folder, "source"),
        "config": {**CONFIG, "script_users": _SCRIPT},
        "streams": {"users": {"write": "append_dedup"}},
        "transforms": [{**transform, "columns": {"name": "string"}}],
        **more,
    }
    shop.place.offer(two(0, 0))
    return shop


def _counted(shop: Runs) -> list[str]:
    """The rows that the transform has counted."""
    with closing(SqlStore(f"sqlite:///{shop.place.home}/state.db")) as store:
        states = stored_transform_states(store, Asset("shop", StreamId.of("users")))
    return [each.values["rows"] for each in states]


def test_state_rejected_records_and_transforms_go_on_from_run_to_run(runs: OpenRuns) -> None:
    shop = _prepared(runs)
    for emitted, committed, position in ((4, 3, 3), (2, 2, 5)):
        run = shop.run(only=["users"])
        assert run.succeeded, run.failures
        metadata = run.metadata("users")
        assert (metadata["airbyte_proto/emitted"], metadata["airbyte_proto/committed"]) == (emitted, committed)
        assert metadata["airbyte_proto/metrics"] == {
            "source": {"pages": 2.0},
            "transform tests/scripted": {"seen": 1.0},
        }
        assert _counted(shop) == [str(position)]
    tables = FolderTables(shop.place.home / "warehouse")
    assert tables.rows(TableName("shop", "users")).num_rows == 5
    rejected = tables.rows(TableName("_rejected", "shop__users")).select(["_reason", "_row"]).to_pylist()
    assert [each["_row"] for each in rejected] == [None]  # A query may drop or hash what the record has.
    assert rejected[0]["_reason"].endswith("(its record is left out: id)")


def test_a_relay_of_components_keeps_its_states(runs: OpenRuns, quick_folder: Path) -> None:
    granted = quick_folder / "granted"
    granted.mkdir()
    (quick_folder / "destination.wasm").write_bytes(guests.destination(granted))
    to = {"connector": _component(quick_folder, "destination"), "config": {"commit_rows": "2"}}
    shop = _prepared(runs, to=to)
    for position in (3, 5):
        run = shop.run(only=["users"])
        assert run.succeeded, run.failures
        assert _counted(shop) == [str(position)]
    rows = [row["id"] for sent in written_batches(granted) for batch in sent for row in batch.to_pylist()]
    assert rows == [1, 2, 3, 4, 5]
