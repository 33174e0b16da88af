"""Connectors that are WebAssembly components, from the command line: spec, check, discover, and syncs into tables."""

import datetime
import io
import json
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.testing import crash_points
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.cli.conftest import Place, until
from tests.support.wasm import guests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.everyday("test_a_full_refresh_and_an_incremental_sync_land_with_equal_values")

_AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
_COLUMNS = {
    "id": pa.int64(),
    "name": pa.string(),
    "score": pa.float64(),
    "at": pa.timestamp("us"),
    "raw": pa.binary(),
}
_SCHEMA = pa.schema(_COLUMNS.items())
_TYPES = {"id": "Int64", "name": "Utf8", "score": "Float64", "at": "TimestampMicros", "raw": "Binary"}


def _stream(name: str, *modes: str) -> dict[str, Any]:
    columns = [{"name": column, "data_type": kind, "nullable": True} for column, kind in _TYPES.items()]
    return {
        "name": name,
        "schema": {"format": "columns", "data": columns},
        "supported_sync_modes": modes or ["full_refresh", "incremental"],
        "source_defined_cursor": "id",
        "source_defined_primary_key": ["id"],
    }


def rows_of(*numbers: int) -> list[dict[str, Any]]:
    names = [f"name-{number}" if number % 2 else None for number in numbers]
    times = [_AT + datetime.timedelta(number) for number in numbers]
    columns = numbers, names, [number / 4 for number in numbers], times, [b"\xff"] * len(numbers)
    return [dict(zip(_COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]


def ipc(rows: Sequence[dict[str, Any]], schema: pa.Schema = _SCHEMA) -> str:
    """Arrow bytes as hex, for a script."""
    written = io.BytesIO()
    with pa.ipc.new_stream(written, schema) as stream:
        stream.write_batch(pa.RecordBatch.from_pylist(list(rows), schema))
    return written.getvalue().hex()


def checkpoint(last: int) -> str:
    payload = {
        "id": last,
        "kind": "source",
        "stream": "users",
        "cursor_field": "id",
        "cursor_value": {"type": "int64", "value": last},
        "records_processed": last,
        "bytes_processed": 0,
    }
    return f"checkpoint 0 {json.dumps(payload)}"


CONFIG: dict[str, Any] = {
    "catalog": {"streams": [_stream("users"), _stream("orders", "full_refresh")]},
    "first": ipc(rows_of(1, 2, 3)),
    "second": ipc(rows_of(4, 5)),
    "script_users": f"!ipc first;!{checkpoint(3)};?ipc second;?{checkpoint(5)};?context",
    "script_orders": "ipc first;ipc second",
}


def _connect(place: Place, written: Mapping[str, Any] = {}, **config: Any) -> str:
    (place.folder / "source.wasm").write_bytes(guests.built().read_bytes())
    connector = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "source.wasm"}, **written}
    return place.connect({}, connector=connector, config={**CONFIG, **config})


def table(place: Place, stream: str) -> list[dict[str, Any]]:
    """The rows of a table, without the metadata columns, by id."""
    tables = FolderTables(place.folder / ".airbyte-proto" / "warehouse")
    rows = tables.rows(TableName("shop", stream)).select(list(_TYPES)).to_pylist()
    return sorted(rows, key=lambda row: int(row["id"]))


def test_a_spec_shows_what_it_gets_of_this_machine(place: Place) -> None:
    file = _connect(
        place, {"limits": {"max_memory": "64 MiB"}, "permissions": {"network": {"allowed_hosts": ["*.corp"]}}}
    )
    shown = place.run("spec", file)
    assert shown.code == 0, shown.err
    assert "It gets of this machine:" in shown.out
    assert "  hosts: those of localhost, 127.0.0.1 that are in *.corp" in shown.out
    assert "  memory: 64 MiB" in shown.out
    assert place.json("spec", file)["spec"]["manifest"]["id"] == "tests/scripted"


@pytest.mark.parametrize(("status", "code"), [("warning", 0), ("failed", 1)])
def test_a_check_is_the_verdict_of_the_component(place: Place, status: str, code: int) -> None:
    found = place.json("check", _connect(place, validation=status), code=code)
    assert found["message"] == ("fine Warning: one Warning: two" if status == "warning" else "fine")


def test_a_discover_lists_the_streams(place: Place) -> None:
    streams = place.json("discover", _connect(place))["streams"]
    assert list(streams) == ["users", "orders"]


def test_a_full_refresh_and_an_incremental_sync_land_with_equal_values(place: Place) -> None:
    file = _connect(place)
    report = place.json("sync", file)
    users, orders = report["streams"]["users"], report["streams"]["orders"]
    assert (report["status"], users["emitted"], users["committed"], orders["committed"]) == ("complete", 3, 3, 5)
    assert users["state"]["cursor_value"] == {"type": "int64", "value": 3}
    assert table(place, "users") == rows_of(1, 2, 3)
    assert table(place, "orders") == rows_of(1, 2, 3, 4, 5)

    again = place.json("sync", file)["streams"]
    assert (again["users"]["emitted"], again["orders"]["generation"]) == (2, 2)
    assert table(place, "users") == rows_of(1, 2, 3, 4, 5)
    assert table(place, "orders") == rows_of(1, 2, 3, 4, 5)


def test_a_stream_that_fails_keeps_what_its_checkpoints_cover(place: Place) -> None:
    script = f"ipc first;{checkpoint(3)};ipc second;trap"
    file = _connect(place, script_users=script)
    report = place.json("sync", file, "--streams", "users", code=1)
    users = report["streams"]["users"]
    assert (users["committed"], users["state"]["cursor_value"]["value"]) == (3, 3)
    assert "the component trapped" in users["error"]
    [log] = (place.folder / ".airbyte-proto" / "logs" / "shop").glob("*.log")
    assert "wasm backtrace" in log.read_text()
    assert table(place, "users") == rows_of(1, 2, 3)
    # The next run begins from the checkpoint.
    assert place.json("sync", _connect(place), "--streams", "users")["streams"]["users"]["emitted"] == 2
    assert table(place, "users") == rows_of(1, 2, 3, 4, 5)


def test_an_error_of_the_component_fails_its_stream_alone(place: Place) -> None:
    report = place.json("sync", _connect(place, script_users="ipc first;fail"), code=1)
    users, orders = report["streams"]["users"], report["streams"]["orders"]
    assert (users["status"], orders["status"]) == ("failed", "complete")
    assert "rate-limit/BOOM: déjà vu (of a batch)" in users["error"]


def test_what_it_keeps_for_a_stream_is_there_in_the_next_run(place: Place) -> None:
    script = f"get 1 page;cas 1 page - a;cas 1 page a b;ipc first;{checkpoint(3)}"
    file = _connect(place, script_users=script)
    for before, answers in (("none", "true"), ("b", "false")):
        shown = place.run("sync", file, "--streams", "users", "--verbose")
        assert shown.code == 0
        assert f"get {before}" in shown.err and f"cas {answers}" in shown.err
    assert place.json("state", "show", "shop", "users")["states"][0]["state"]["values"] == {"page": "b"}


def test_what_belongs_to_no_stream_is_kept_at_a_good_end(place: Place) -> None:
    script = "get 0 page;get 1 page;get 2 page;put 0 page p;put 1 page s;put 2 page i;ipc first"
    for ending, before in ((";fail", "none"), ("", "none"), ("", "psi")):
        file = _connect(place, script_orders=script + ending)
        shown = place.run("sync", file, "--streams", "orders", "--verbose")
        assert shown.code == (1 if ending else 0)
        for value in [before] if before == "none" else before:
            assert f"get {value}" in shown.err
    assert place.run("state", "reset", "shop").code == 0
    log = place.run("sync", _connect(place, script_orders=script), "--streams", "orders", "--verbose").err
    assert log.count("get none") == 3


def test_a_stream_without_a_checkpoint_keeps_its_values_with_its_rows(place: Place) -> None:
    file = _connect(place, script_users="get 1 page;put 1 page s;ipc first")
    for before in ("none", "s"):
        assert f"get {before}" in place.run("sync", file, "--streams", "users", "--verbose").err
    stored = place.json("state", "show", "shop", "users")["states"][0]["state"]
    assert stored == {"checkpoint": {}, "values": {"page": "s"}}


def test_hints_of_the_connection_are_in_the_context(place: Place) -> None:
    file = _connect(place, script_orders="context")
    written = json.loads(Path(file).read_text())
    hints = {"effective_parallelism": 4, "partition_strategy": "range"}
    Path(file).write_text(json.dumps({**written, "overrides": hints}))
    report = place.json("sync", file, "--streams", "orders")
    log = place.run("sync", file, "--streams", "orders", "--verbose").err
    assert report["status"] == "complete"
    assert '"effective_parallelism":4' in log and '"partition_strategy":"range"' in log


def test_metrics_are_in_the_report(place: Place) -> None:
    counted = [
        '{"name":"pages","value":{"type":"counter","value":2}}',
        '{"name":"lag","value":7}',
        '{"name":"lag","value":5.5}',
    ]
    script = ";".join(f"metric {each}" for each in (*counted, counted[0], '{"name":"odd","value":"x"}', "[]"))
    report = place.json("sync", _connect(place, script_orders=script, script_users=f"metric {counted[0]}"))
    assert report["connector"]["metrics"] == {"pages": 6.0, "lag": 5.5}
    assert report["streams"]["orders"]["metrics"] == {"source": {"pages": 4.0, "lag": 5.5}}
    assert report["streams"]["users"]["metrics"] == {"source": {"pages": 2.0}}


def test_no_secret_is_the_name_of_a_metric(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2-the-password")
    name = "x" * 190 + "hunter2-the-password"
    metric = json.dumps({"name": name, "value": 1}, separators=(",", ":"))
    report = place.json("sync", _connect(place, script_orders=f"metric {metric}", password="${env:SHOP_PASSWORD}"))
    assert report["streams"]["orders"]["metrics"] == {"source": {"x" * 190 + "***": 1.0}}


def test_a_secret_variable_that_the_manifest_alone_names_is_masked(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2-the-password")
    said = "denied:hunter2-the-password:twice"
    file = _connect(place, script_users=f"log 2 {said};fail", error_code=said)
    manifest = {**guests.MANIFEST, "permissions": {"env": {"allowed_vars": ["SHOP_PASSWORD", "UNSET"]}}}
    built = guests.with_section(guests.built().read_bytes(), "rapidbyte_manifest_v1", manifest)
    (place.folder / "source.wasm").write_bytes(built)
    shown = place.run("sync", file, "--streams", "users", "--verbose", "--json")
    assert "denied:***:twice" in shown.err and "denied:***:twice" in shown.json["streams"]["users"]["error"]
    assert "hunter2" not in shown.err + shown.out


def test_a_sync_whose_component_waits_for_a_server_is_cancelled(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        allowed = {"permissions": {"network": {"allowed_hosts": ["127.0.0.1"]}}}
        script = f"connect 127.0.0.1 {silent.getsockname()[1]};recv 1 9"
        running = place.start("sync", _connect(place, allowed, script_users=script), "--verbose")
        running.wait_for("connect 1")
        running.process.send_signal(signal.SIGINT)
        assert running.end().code == 130


def test_the_state_store_is_in_no_folder_of_a_component(place: Place) -> None:
    """Wherever the settings have it."""
    Path("airbyte-proto.yaml").write_text("state_url: sqlite:///data/state.db\ncatalog: {format: parquet}\n")
    (data := place.folder / "data").mkdir()
    file = _connect(place)
    manifest = {**guests.MANIFEST, "permissions": {"fs": {"preopens": [str(data)]}}}
    (place.folder / "source.wasm").write_bytes(guests.connector(place.folder, "source", manifest))
    refused = place.run("sync", file)
    assert refused.code == 2
    assert f"its folder {data} holds the state store" in refused.err


def test_a_broken_batch_fails_its_stream_alone(place: Place) -> None:
    file = _connect(place, script_users="ipc broken", broken="00ff", script_orders="ipc first")
    report = place.json("sync", file, code=1)
    users, orders = report["streams"]["users"], report["streams"]["orders"]
    assert (users["status"], orders["status"], orders["committed"]) == ("failed", "complete", 3)
    assert "reading an Arrow batch" in users["error"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("record", "kept"), "Arrow batches, in which no secret could be masked"),
        (("certify", "--record", "kept"), "Arrow batches, in which no secret could be masked"),
    ],
)
def test_what_a_component_cannot_do_yet_is_an_error(place: Place, words: tuple[str, ...], found: str) -> None:
    command, *options = words
    result = place.run(command, _connect(place), *options)
    assert result.code == 2
    assert found in result.err


@pytest.mark.parametrize("point", ["load.announced:1", "table.committed:1", "load.promoted:1"])
def test_after_a_kill_nothing_is_lost_and_nothing_is_there_twice(place: Place, point: str, tmp_path: Path) -> None:
    """A load after each checkpoint; the process is killed at the first load, and all that it started ends with it."""
    Path("airbyte-proto.yaml").write_text(f"lease_seconds: 1\ncatalog: {{format: {FOLDER_FORMAT}}}\n")
    script = f"!ipc first;!{checkpoint(3)};ipc second;{checkpoint(5)}"
    file = _connect(place, script_users=script)
    written = json.loads(Path(file).read_text())
    Path(file).write_text(json.dumps({**written, "load": {"max_bytes": 1}, "streams": ["users"]}))
    log = tmp_path / "points"
    died = subprocess.run([*crash_points.command(point, log), "sync", file], cwd=place.folder, check=False)
    assert died.returncode == -signal.SIGKILL, log.read_text()

    def is_synced() -> bool:
        return place.run("sync", file, "--json").code == 0

    until(is_synced)  # The dead run's lease has to run out first.
    assert table(place, "users") == rows_of(1, 2, 3, 4, 5)


@pytest.mark.spark
def test_values_in_iceberg_are_those_that_the_component_sent(spark: "SparkSession", pier: Place) -> None:
    file = _connect(pier)
    for last in (3, 5):
        report = pier.json("sync", file)
        assert (report["status"], report["streams"]["users"]["state"]["id"]) == ("complete", last)
    for stream in ("users", "orders"):
        found = spark.table(f"{pier.catalog}.shop.{stream}").select(*_TYPES).orderBy("id").collect()
        assert [row.asDict() for row in found] == rows_of(1, 2, 3, 4, 5)


def test_values_in_parquet_are_those_that_the_component_sent(place: Place) -> None:
    Path("airbyte-proto.yaml").write_text("catalog: {format: parquet}\n")
    assert place.json("sync", _connect(place), "--streams", "orders")["status"] == "complete"
    versions = sorted((place.folder / ".airbyte-proto/warehouse/shop/orders").glob("v*"))
    files = versions[-1].glob("*.parquet")
    found = pa.concat_tables(pq.ParquetFile(file).read(columns=list(_TYPES)) for file in files).sort_by("id")
    assert found.to_pylist() == rows_of(1, 2, 3, 4, 5)
