"""Relays with a component at one end or at both: from its batches to records, from records to batches, and as Arrow."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.testing import crash_points
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from tests.cli.components.test_component_syncs import CONFIG, checkpoint, rows_of
from tests.cli.conftest import Place, until
from tests.support.wasm import guests
from tests.sync.push.rapidbyte.component_table import written_batches

pytestmark = pytest.mark.everyday(
    "test_batches_go_from_component_to_component",
    "test_metrics_are_told_apart_by_their_senders",
    "test_a_value_that_only_the_destination_puts_is_not_put_back",
    "test_after_a_kill[push.noted:1-False]",
)

_FAKE = [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_destination"]


def to_component(place: Place, **config: str) -> dict[str, Any]:
    granted = place.folder / "granted"
    granted.mkdir(exist_ok=True)
    (place.folder / "destination.wasm").write_bytes(guests.destination(granted))
    launch = {"kind": "wasm", "path": "destination.wasm"}
    return {"connector": {"protocol": "rapidbyte", "launch": launch}, "config": {"commit_rows": "2", **config}}


def _from_component(place: Place, **more: Any) -> str:
    (place.folder / "source.wasm").write_bytes(guests.built().read_bytes())
    connector = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "source.wasm"}}
    file = place.connect({}, connector=connector, config=CONFIG)
    Path(file).write_text(json.dumps({**json.loads(Path(file).read_text()), **more}))
    return file


def written_rows(place: Place) -> list[dict[str, Any]]:
    return [row for run in written_batches(place.folder / "granted") for batch in run for row in batch.to_pylist()]


def test_batches_go_from_component_to_component(place: Place) -> None:
    file = _from_component(place, to=to_component(place), streams={"users": {"write": "append_dedup"}})
    report = place.json("sync", file)
    users = report["streams"]["users"]
    assert (report["status"], users["committed"], users["state"]["cursor_value"]["value"]) == ("complete", 3, 3)
    assert written_rows(place) == rows_of(1, 2, 3)
    again = place.json("sync", file)["streams"]["users"]
    assert (again["emitted"], again["state"]["cursor_value"]["value"]) == (2, 5)
    assert written_rows(place) == rows_of(1, 2, 3, 4, 5)
    schemas = {batch.schema for run in written_batches(place.folder / "granted") for batch in run}
    assert [pa.types.is_timestamp(schema.field("at").type) for schema in schemas] == [True]


def test_metrics_are_told_apart_by_their_senders(place: Place) -> None:
    """Each of the three sends one of the same name."""
    counted = '{"name":"pages","value":{"type":"counter","value":%d}}'
    (place.folder / "transform.wasm").write_bytes(guests.built("transform").read_bytes())
    step = {
        "connector": {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "transform.wasm"}},
        "config": {"script": f"metric {counted % 10};tally"},
        "columns": {"name": "string"},
    }
    file = _from_component(
        place, to=to_component(place, metric=counted % 100), streams=["users"], transforms=[step, step]
    )
    written = json.loads(Path(file).read_text())
    written["config"]["script_users"] = f"metric {counted % 1};ipc first;metric {counted % 1};{checkpoint(3)}"
    Path(file).write_text(json.dumps(written))
    assert place.json("sync", file)["streams"]["users"]["metrics"] == {
        "source": {"pages": 2.0},
        "transform tests/scripted": {"pages": 10.0},
        "transform tests/scripted#2": {"pages": 10.0},
        "destination": {"pages": 100.0},
    }


def test_a_cursor_waits_for_the_checkpoint_of_the_destination(place: Place) -> None:
    to = to_component(place, fault="silent")
    report = place.json("sync", _from_component(place, to=to, streams={"users": {"write": "append_dedup"}}), code=1)
    users = report["streams"]["users"]
    assert (users["committed"], users["state"]) == (0, None)
    assert "acknowledged 0 of 3 rows" in users["error"]
    file = _from_component(place, to=to_component(place), streams={"users": {"write": "append_dedup"}})
    assert place.json("sync", file)["streams"]["users"]["state"]["cursor_value"]["value"] == 3


def test_batches_become_records(place: Place) -> None:
    to = {
        "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": _FAKE}},
        "config": {"path": str(place.folder / "out.jsonl")},
    }
    assert place.json("sync", _from_component(place, to=to, streams=["users"]))["status"] == "complete"
    lines = map(json.loads, (place.folder / "out.jsonl").read_text().splitlines())
    rows = [line["row"] for line in lines if "row" in line]
    assert [(row["id"], row["name"], row["score"], row["raw"]) for row in rows] == [
        (1, "name-1", 0.25, "/w=="),
        (2, None, 0.5, "/w=="),
        (3, "name-3", 0.75, "/w=="),
    ]


def test_records_become_batches(place: Place) -> None:
    file = place.connect({"streams": {"users": {"records": 3}}}, to=to_component(place))
    report = place.json("sync", file)
    assert (report["status"], report["streams"]["users"]["committed"]) == ("complete", 3), report
    assert [(row["id"], row["name"]) for row in written_rows(place)] == [(0, "users 0"), (1, "users 1"), (2, "users 2")]
    schemas = {batch.schema for run in written_batches(place.folder / "granted") for batch in run}
    assert [schema.field("id").type for schema in schemas] == [pa.int64()]


def test_the_undeclared_mark_of_a_deleted_record_is_a_column(place: Place) -> None:
    mark = {"_sdc_deleted_at": "2026-11-27T07:00:00Z"}
    properties = {"id": {"type": "integer"}, "name": {"type": ["null", "string"]}}
    users = {"rows": [{"id": 1, "name": "ann"}, {"id": 1, **mark}], "properties": properties, "primary_key": [["id"]]}
    streams = {"users": {"write": "append_dedup"}}
    file = place.connect({"streams": {"users": users}}, to=to_component(place), streams=streams)
    assert place.json("sync", file)["status"] == "complete"
    assert written_rows(place) == [{"id": 1, "name": "ann", "_sdc_deleted_at": None}, {"id": 1, "name": None, **mark}]


def _cursor(place: Place) -> int:
    """The cursor in the state of the source; 0 without one."""
    store = SqlStore(f"sqlite:///{place.folder}/.airbyte-proto/state.db")
    states = store.states("shop")
    store.close()
    return max((json.loads(each.state.message)["cursor_value"]["value"] for each in states), default=0)


@pytest.mark.parametrize(
    ("point", "may_come_again"),
    [
        ("load.announced:1", False),
        ("push.announced:1", False),
        ("push.sent:1", True),
        ("push.noted:1", False),
        ("load.committed:1", False),
        ("load.promoted:1", False),
    ],
)
def test_after_a_kill(place: Place, point: str, may_come_again: bool, tmp_path: Path) -> None:
    """A cursor is never ahead of the rows, and only rows that no checkpoint covers come again."""
    Path("airbyte-proto.yaml").write_text(f"lease_seconds: 1\ncatalog: {{format: {FOLDER_FORMAT}}}\n")
    file = _from_component(place, to=to_component(place), streams={"users": {"write": "append_dedup"}})
    written = json.loads(Path(file).read_text())
    written["config"]["script_users"] = f"!ipc first;!{checkpoint(3)};ipc second;{checkpoint(5)}"
    Path(file).write_text(json.dumps({**written, "load": {"max_bytes": 1}}))
    log = tmp_path / "points"
    died = subprocess.run([*crash_points.command(point, log), "sync", file], cwd=place.folder, check=False)
    assert died.returncode == -signal.SIGKILL, log.read_text()
    assert _cursor(place) == (3 if point == "load.promoted:1" else 0)
    until(lambda: place.run("sync", file, "--json").code == 0)  # The dead run's lease has to run out first.
    all_once = rows_of(1, 2, 3, 4, 5)
    assert written_rows(place) in [all_once, *([rows_of(1, 2, 3) + all_once] if may_come_again else [])]
    assert _cursor(place) == 5


def test_a_value_that_only_the_destination_puts_is_not_put_back(place: Place) -> None:
    """Both have it, and it is stored at the end of each."""
    to = to_component(place, keeps="yes")
    file = _from_component(place, to=to, streams={"users": {"write": "append_dedup"}})
    said = [place.run("sync", file, "--verbose").err for _ in range(3)]
    assert [f"kept 0 {rows}" in each for rows, each in zip(("none", 3, 2), said, strict=True)] == [True] * 3


@pytest.mark.parametrize("number", [2, 3])
def test_a_row_that_a_component_rejected_is_sent_again_with_equal_values(place: Place, number: int) -> None:
    streams = {"users": {"write": "append_dedup"}}
    rejecting = to_component(place, record=json.dumps({"id": number}), failed="1")
    file = _from_component(place, to=rejecting, streams=streams)
    assert place.json("sync", file)["streams"]["users"]["rejections"] == {"data: it has no home": 1}
    [kept] = place.json("push", "rejected", file)["rejected"]["users"]
    assert json.loads(kept["row"])["raw"] == "/w=="
    had = len(written_rows(place))
    mended = _from_component(place, to=to_component(place), streams=streams)
    users = place.json("sync", mended, "--retry-rejected")["streams"]["users"]
    assert users["resent"] == {"sent": 1, "acknowledged": 1, "rejected": 0, "unknown": 0, "rejections": {}}
    assert written_rows(place)[had:] == rows_of(number, 4, 5)
    assert place.json("push", "rejected", file)["rejected"] == {}
