"""Records that a component rejects: counted, and in a table of their own, once, with the load that they belong to. Of a
relay the state store has them."""

import json
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.testing import crash_points
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.cli.components.test_component_relays import to_component
from tests.cli.components.test_component_syncs import CONFIG, checkpoint, rows_of, table
from tests.cli.conftest import Place, until
from tests.support.wasm import guests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.everyday(
    "test_they_are_counted_and_in_their_table",
    "test_what_a_table_must_not_have_the_table_of_rejected_records_has_not_either[sql]",
    "test_where_the_rows_around_them_do_not_land_they_come_again_and_are_there_once[refused]",
    "test_a_relay_keeps_them_with_their_loads",
)

_SCRIPT = (
    f'!ipc first;!dlq users {{"id":8}} bad data;!{checkpoint(3)};'
    f'?dlq users {{"id":9}} worse schema;?dlq users nothing odd strange;?ipc second;?{checkpoint(5)}'
)


def _connect(place: Place, script: str = _SCRIPT, stream: dict[str, Any] | None = None, **written: Any) -> str:
    (place.folder / "source.wasm").write_bytes(guests.built().read_bytes())
    connector = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "source.wasm"}}
    streams = {"users": {"write": "append", **(stream or {})}}
    file = place.connect({}, connector=connector, config={**CONFIG, "script_users": script}, streams=streams)
    Path(file).write_text(json.dumps({**json.loads(Path(file).read_text()), **written}))
    return file


def _tables(place: Place) -> FolderTables:
    return FolderTables(place.folder / ".airbyte-proto" / "warehouse")


def _rejected(place: Place) -> list[tuple[str, str | None]]:
    rows = _tables(place).rows(TableName("_rejected", "shop__users"))
    return sorted((row["_reason"], row["_row"]) for row in rows.to_pylist())


def _listed(place: Place, file: str) -> list[dict[str, Any]]:
    """The records that a relay has kept of what its source rejected."""
    found: list[dict[str, Any]] = place.json("push", "rejected", file)["rejected"].get("users", [])
    assert {each["rejected_by"] for each in found} <= {"source"}
    return found


def _kept(place: Place, file: str) -> list[tuple[str, str | None]]:
    return [(each["reason"], each["row"]) for each in _listed(place, file)]


def test_they_are_counted_and_in_their_table(place: Place) -> None:
    file = _connect(place)
    users = place.json("sync", file)["streams"]["users"]
    assert (users["emitted"], users["committed"], users["rejected"]) == (4, 3, 1)
    assert users["rejections"] == {"rejected by the connector: data": 1}
    shown = place.run("sync", file, "--verbose", "--json")
    users = shown.json["streams"]["users"]
    assert users["rejections"] == {"rejected by the connector: schema": 1, "rejected by the connector: other": 1}
    assert _rejected(place) == [
        ("data: bad", '{"id":8}'),
        ("schema: worse", '{"id":9}'),
        ("strange: odd", "nothing"),
    ]
    assert "the connector rejected a record: schema: worse" in shown.err and '{"id":9}' not in shown.err
    assert table(place, "users") == rows_of(1, 2, 3, 4, 5)


def test_a_secret_in_a_reason_is_masked_in_the_table(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "hunter22-of-the-shop")
    file = _connect(place, f"dlq users {{}} refused:hunter22-of-the-shop data;{checkpoint(1)}")
    document = json.loads(Path(file).read_text())
    document["config"]["api_key"] = "${env:SHOP_KEY}"
    Path(file).write_text(json.dumps(document))
    place.json("sync", file)
    assert _rejected(place) == [("data: refused:***", "{}")]


def test_a_load_of_nothing_else_has_them(place: Place) -> None:
    users = place.json("sync", _connect(place, f"dlq users {{}} bad data;{checkpoint(1)}"))["streams"]["users"]
    assert (users["emitted"], users["rejected"], users["state"]["id"]) == (1, 1, 1)
    assert _rejected(place) == [("data: bad", "{}")]


def test_of_a_stream_that_fails_only_those_before_its_state_are_there(place: Place) -> None:
    before, behind = "dlq users {} before data", "dlq users {} behind data"
    file = _connect(place, f"ipc first;{before};{checkpoint(3)};{behind};ipc second;fail")
    users = place.json("sync", file, code=1)["streams"]["users"]
    assert (users["committed"], users["emitted"]) == (3, 7)
    assert _rejected(place) == [("data: before", "{}")]


_RULE = {"transforms": [{"validate": [{"assert_range": {"id": {"min": 1}}}]}]}


@pytest.mark.parametrize(
    ("stream", "written"),
    [
        ({"select": ["id"]}, {}),
        ({"hash": ["name"]}, {"hash_key": "${env:SHOP_HASH_KEY}"}),
        ({"schema_policy": "discard_column"}, {}),
        ({}, {"transforms": [{"sql": "SELECT id, md5(name) AS name FROM input"}]}),
        ({}, _RULE),
    ],
    ids=["select", "hash", "discard_column", "sql", "validate"],
)
def test_what_a_table_must_not_have_the_table_of_rejected_records_has_not_either(
    place: Place, stream: dict[str, Any], written: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_HASH_KEY", "a-key-of-the-shop")
    record = '{"id":8,"name":"hunter22","later":"hunter23","odd":1}'
    script = f"ipc first;dlq users {record} bad data;dlq users nothing odd data;{checkpoint(3)}"
    users = place.json("sync", _connect(place, script, stream, **written))["streams"]["users"]
    assert (users["committed"], users["rejected"]) == (3, 2)
    assert _rejected(place) == [
        ("data: bad (its record is left out: id, name and 2 fields that the stream does not declare)", None),
        ("data: odd (its record is left out: no JSON object)", None),
    ]
    tables = place.folder / ".airbyte-proto" / "warehouse" / "_rejected"
    assert not any(b"hunter2" in file.read_bytes() for file in tables.rglob("*") if file.is_file())


def test_where_their_table_refuses_them_the_sync_warns_and_goes_on(place: Place) -> None:
    there = {"namespace": "_rejected", "table_prefix": "shop__"}
    file = Path(_connect(place, f"ipc first;{checkpoint(3)}", destination=there))
    file.rename("other.yaml")
    assert place.json("sync", "other.yaml")["streams"]["users"]["table"].endswith("_rejected.shop__users")
    report = place.json("sync", _connect(place))
    assert (report["status"], report["streams"]["users"]["committed"]) == ("complete", 3)
    assert report["streams"]["users"]["rejections"] == {"rejected by the connector: data": 1}
    [warning] = [each for each in report["warnings"] if "rejected records" in each]
    assert warning.startswith("the rejected records of stream users are in no table: ")


@pytest.mark.parametrize("fault", [CallFault.BEFORE, CallFault.AFTER], ids=["refused", "unknown"])
def test_where_the_rows_around_them_do_not_land_they_come_again_and_are_there_once(
    place: Place, fault: CallFault
) -> None:
    file = _connect(place, f'!ipc first;!dlq users {{"id":8}} bad data;!{checkpoint(3)}')
    users = _sync_with(file, {("commit shop.users", 1): fault}).streams["users"]
    assert (users.committed, users.rejected, users.unknown) == ((0, 4, 0) if fault is CallFault.BEFORE else (0, 1, 3))
    assert place.json("sync", file)["status"] == "complete"
    assert (_rejected(place), table(place, "users")) == ([("data: bad", '{"id":8}')], rows_of(1, 2, 3))


@pytest.mark.parametrize("word", ["landed", "lost"])
def test_the_word_of_a_person_about_the_rows_counts_for_them_too(place: Place, word: str) -> None:
    file = _connect(place, f'!ipc first;!dlq users {{"id":8}} bad data;!{checkpoint(3)}')
    _sync_with(file, {("commit shop.users", 1): CallFault.AFTER})
    shutil.rmtree(_tables(place).folder(TableName("shop", "users")))
    [load] = [each for each in place.json("loads", "list", file)["loads"] if each["status"] == "announced"]
    assert place.run("loads", "resolve", load["load_id"], "--as", word).code == 0
    assert len(_rejected(place)) == (word == "landed")
    assert place.json("sync", file, *(["--refresh"] if word == "landed" else []))["status"] == "complete"
    # A refresh has a generation of its own.
    assert _rejected(place) == [("data: bad", '{"id":8}')] * (2 if word == "landed" else 1)


def _sync_with(file: str, faults: Mapping[tuple[str, int | str], CallFault]) -> SyncReport:
    home = Path(".airbyte-proto")
    tables = with_faults(FolderTables(home / "warehouse"), CallFaults(faults))
    with Engine(Settings.load(home, Path("airbyte-proto.yaml")), tables=tables) as engine:
        return sync_connection(engine, Connection.from_file(file), SyncRequest())


def test_a_relay_keeps_them_with_their_loads(place: Place) -> None:
    file = _connect(place, to=to_component(place))
    users = place.json("sync", file)["streams"]["users"]
    assert (users["status"], users["committed"], users["rejected"]) == ("complete", 3, 1)
    place.json("sync", file)
    assert _kept(place, file) == [("data: bad", '{"id":8}'), ("schema: worse", '{"id":9}'), ("strange: odd", "nothing")]
    assert len({each["load_id"] for each in _listed(place, file)}) == 2
    assert "rejected_by" in place.run("push", "rejected", file).out
    place.json("sync", file, "--refresh")
    assert _kept(place, file) == [("data: bad", '{"id":8}')]


@pytest.mark.parametrize(("stream", "written"), [({"select": ["id"]}, {}), ({}, _RULE)])
def test_of_a_shaped_or_transformed_stream_a_relay_keeps_the_reasons_alone(
    place: Place, stream: dict[str, Any], written: dict[str, Any]
) -> None:
    # Without a row, too.
    script = f'dlq users {{"id":8}} bad data;{checkpoint(1)}'
    file = _connect(place, script, to=to_component(place), stream=stream, **written)
    users = place.json("sync", file)["streams"]["users"]
    assert (users["emitted"], users["rejected"], users["state"]["id"]) == (1, 1, 1)
    assert _kept(place, file) == [("data: bad (its record is left out: id)", None)]


@pytest.mark.parametrize("point", ["push.sealed:1", "load.committed:1", "load.promoted:1"])
def test_after_a_kill_a_relay_has_each_once(place: Place, point: str, tmp_path: Path) -> None:
    Path("airbyte-proto.yaml").write_text(f"lease_seconds: 1\ncatalog: {{format: {FOLDER_FORMAT}}}\n")
    stream = {"write": "append_dedup", "primary_key": ["id"]}
    file = _connect(place, to=to_component(place), stream=stream)
    log = tmp_path / "points"
    died = subprocess.run([*crash_points.command(point, log), "sync", file], cwd=place.folder, check=False)
    assert died.returncode == -signal.SIGKILL, log.read_text()
    until(lambda: place.run("sync", file, "--json").code == 0)  # The dead run's lease has to run out first.
    assert _kept(place, file)[0] == ("data: bad", '{"id":8}')
    assert len(set(_kept(place, file))) == len(_kept(place, file))


@pytest.mark.parametrize("point", ["load.announced:1", "table.committed:1", "load.committed:1", "load.promoted:1"])
def test_after_a_kill_each_is_there_once(place: Place, point: str, tmp_path: Path) -> None:
    Path("airbyte-proto.yaml").write_text(f"lease_seconds: 1\ncatalog: {{format: {FOLDER_FORMAT}}}\n")
    script = f'!ipc first;!dlq users {{"id":8}} bad data;!{checkpoint(3)};dlq users {{"id":9}} worse data;ipc second;'
    file = _connect(place, script + checkpoint(5), load={"max_bytes": 1})
    log = tmp_path / "points"
    died = subprocess.run([*crash_points.command(point, log), "sync", file], cwd=place.folder, check=False)
    assert died.returncode == -signal.SIGKILL, log.read_text()
    until(lambda: place.run("sync", file, "--json").code == 0)  # The dead run's lease has to run out first.
    found = _rejected(place)
    # Whoever goes on from a state, sends what comes behind it.
    assert found[0] == ("data: bad", '{"id":8}') and set(found[1:]) == {("data: worse", '{"id":9}')}
    rows = table(place, "users")
    assert [row["id"] for row in rows][:3] == [1, 2, 3]
    assert len(rows) == 3 + 2 * (len(found) - 1)


@pytest.mark.spark
def test_in_iceberg_they_are_rows_of_a_table(spark: "SparkSession", pier: Place) -> None:
    file = _connect(pier)
    for _ in range(2):
        pier.json("sync", file)
    found = spark.table(f"{pier.catalog}._rejected.shop__users").orderBy("_reason").collect()
    assert [row["_reason"] for row in found] == ["data: bad", "schema: worse", "strange: odd"]
    assert all(row["_load_id"] and row["_rejected_at"] for row in found)
