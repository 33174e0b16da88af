"""Sources that send changes (`cdc`): all rows first, then what was inserted, updated and deleted since."""

import json
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.testing import crash_points
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.cli.components.test_component_relays import to_component, written_rows
from tests.cli.components.test_component_syncs import ipc
from tests.cli.conftest import Place, until
from tests.support.wasm import guests

pytestmark = pytest.mark.everyday(
    "test_changed_rows_are_upserted_and_deleted_ones_are_removed",
    "test_a_cursor_moves_with_its_rows_alone",
    "test_after_a_kill_each_change_is_there_once[load.announced:1]",
)

_TYPES = {"id": "Int64", "name": "Utf8"}
_ROWS = pa.schema([("id", pa.int64()), ("name", pa.string())])
_CHANGES = _ROWS.append(pa.field("_rb_op", pa.string()))
_FIRST = [("insert", 1, "a"), ("insert", 2, "b"), ("insert", 3, "c")]
_SECOND = [
    ("update", 2, "B"),
    ("delete", 3, None),
    ("insert", 4, "d"),
    ("update", 4, "D"),
    ("insert", 5, "e"),
    ("delete", 5, None),
]
_LANDED = {1: "a", 2: "B", 4: "D"}


def _changes(found: Sequence[tuple[str | None, int, str | None]]) -> str:
    return ipc([{"id": number, "name": name, "_rb_op": operation} for operation, number, name in found], _CHANGES)


def _position(lsn: str) -> str:
    payload = {"id": 1, "kind": "source", "cursor_field": "lsn", "cursor_value": {"type": "lsn", "value": lsn}}
    return f"checkpoint 0 {json.dumps(payload)}"


_SCRIPT = f"context;!ipc first;!{_position('0/10')};?ipc second;?{_position('0/20')}"


def _connect(
    place: Place, script: str = _SCRIPT, users: dict[str, Any] | None = None, *, strict: bool = False, **config: Any
) -> str:
    (place.folder / "source.wasm").write_bytes(guests.built().read_bytes())
    columns = [{"name": name, "data_type": kind, "nullable": False} for name, kind in _TYPES.items()]
    stream = {
        "name": "users",
        "schema": {"format": "columns", "data": columns},
        "supported_sync_modes": ["full_refresh", "cdc"],
        "source_defined_primary_key": ["id"],
        **config.pop("stream", {}),
    }
    to = {"to": end} if (end := config.pop("to", None)) else {}
    config = {
        "catalog": {"streams": [stream]},
        "first": _changes(_FIRST),
        "second": _changes(_SECOND),
        "script_users": script,
        **config,
    }
    connector = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "source.wasm"}}
    streams = {"users": {"read": "incremental"} if users is None else users}
    # A deleted row has nulls where none may be, and its word on itself is no column of the stream.
    evolution = {"new_column": "fail", "nullability_change": "fail"} if strict else {}
    return place.connect({}, connector=connector, config=config, streams=streams, schema_evolution=evolution, **to)


def _table(place: Place) -> dict[int, str]:
    rows = FolderTables(place.folder / ".airbyte-proto" / "warehouse").rows(TableName("shop", "users")).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["name"] for row in rows}


def _lsn(place: Place) -> str:
    (stored,) = place.json("state", "show", "shop", "users")["states"]
    found: str = stored["state"]["cursor_value"]["value"]
    return found


def test_changed_rows_are_upserted_and_deleted_ones_are_removed(place: Place) -> None:
    file = _connect(place, strict=True)
    log = place.run("sync", file, "--verbose").err
    assert '"sync_mode":"cdc"' in log and '"cursor_info"' not in log
    assert (_table(place), _lsn(place)) == ({1: "a", 2: "b", 3: "c"}, "0/10")

    shown = place.run("sync", file, "--verbose", "--json")
    users = shown.json["streams"]["users"]
    assert (users["status"], users["committed"], users["deleted"], users["ignored_fields"]) == ("complete", 6, 2, {})
    assert re.search(r'"cursor_info":\{"cursor_field":"lsn","cursor_type":"lsn","last_value":.*?"0/10"', shown.err)
    assert (_table(place), _lsn(place)) == (_LANDED, "0/20")


@pytest.mark.parametrize("kind", [pa.dictionary(pa.int32(), pa.string()), pa.string_view(), pa.large_string()])
def test_operations_come_as_any_type_of_text(place: Place, kind: pa.DataType) -> None:
    schema = _ROWS.append(pa.field("_rb_op", kind))
    changes = [{"id": 1, "name": "A", "_rb_op": "update"}, {"id": 2, "_rb_op": "delete"}]
    file = _connect(place, second=ipc(changes, schema), strict=True)
    place.json("sync", file)
    assert place.json("sync", file)["streams"]["users"]["deleted"] == 1
    assert _table(place) == {1: "A", 3: "c"}


def test_a_cursor_moves_with_its_rows_alone(place: Place) -> None:
    place.json("sync", _connect(place))
    for ending in ("trap", f"{_position('0/20')};trap"):
        # Rows without a checkpoint behind them do not land; a checkpoint lands with those before it.
        report = place.json("sync", _connect(place, f"ipc second;{ending}"), code=1)
        is_covered = ending != "trap"
        assert report["streams"]["users"]["committed"] == (6 if is_covered else 0)
        expected = (_LANDED, "0/20") if is_covered else ({1: "a", 2: "b", 3: "c"}, "0/10")
        assert (_table(place), _lsn(place)) == expected


def test_a_cursor_that_it_names_is_not_for_its_changes(place: Place) -> None:
    stream = {"supported_sync_modes": ["cdc"], "source_defined_cursor": "id"}
    file = _connect(place, users={}, stream=stream)
    place.json("sync", file)
    shown = place.run("sync", file, "--verbose").err
    assert re.search(r'"cursor_info":\{"cursor_field":"lsn","cursor_type":"lsn","last_value":.*?"0/10"', shown)
    assert (_table(place), _lsn(place)) == (_LANDED, "0/20")


def test_a_deleted_row_needs_no_value_of_the_cursor(place: Place) -> None:
    stream = {"supported_sync_modes": ["cdc"], "source_defined_cursor": "name"}
    changes = [("delete", 1, None), ("insert", 4, "a"), ("delete", 4, None), ("update", 2, "a")]
    file = _connect(place, users={}, stream=stream, second=_changes(changes))
    place.json("sync", file)
    assert place.json("sync", file)["streams"]["users"]["deleted"] == 2
    assert _table(place) == {2: "a", 3: "c"}


@pytest.mark.parametrize("point", ["load.announced:1", "table.committed:1", "load.promoted:1"])
def test_after_a_kill_each_change_is_there_once(place: Place, point: str, tmp_path: Path) -> None:
    Path("airbyte-proto.yaml").write_text(f"lease_seconds: 1\ncatalog: {{format: {FOLDER_FORMAT}}}\n")
    file = _connect(place)
    assert place.run("sync", file).code == 0
    died = subprocess.run(
        [*crash_points.command(point, tmp_path / "points"), "sync", file], cwd=place.folder, check=False
    )
    assert died.returncode == -signal.SIGKILL
    until(lambda: place.run("sync", file, "--json").code == 0)  # The dead run's lease has to run out first.
    assert (_table(place), _lsn(place)) == (_LANDED, "0/20")


@pytest.mark.parametrize("to", [False, True], ids=["table", "relay"])
@pytest.mark.parametrize("write", ["overwrite", "overwrite_dedup", "append_dedup"])
def test_changes_on_top_of_rows_that_were_read_whole_are_refused(place: Place, write: str, to: bool) -> None:
    more: dict[str, Any] = {"stream": {"supported_sync_modes": ["cdc"]}, "to": to_component(place) if to else None}
    place.json("sync", _connect(place, users={"read": "full_refresh", "write": write}, **more))
    file = _connect(place, f"ipc first;{_position('0/10')}", {}, first=_changes(_FIRST[:2]), **more)
    assert "those deleted since then would stay" in place.json("sync", file, code=1)["streams"]["users"]["error"]
    assert len(written_rows(place)) == 3 if to else _table(place) == {1: "a", 2: "b", 3: "c"}
    place.json("sync", file, "--refresh", "--streams", "users")
    assert to or _table(place) == {1: "a", 2: "b"}
    assert _lsn(place) == "0/10"
    place.json("sync", file)


@pytest.mark.parametrize("to", [False, True], ids=["table", "relay"])
def test_changes_may_follow_rows_that_all_stay(place: Place, to: bool) -> None:
    more: dict[str, Any] = {"to": to_component(place) if to else None}
    place.json("sync", _connect(place, users={"read": "full_refresh", "write": "append"}, **more))
    users = {"read": "incremental", "write": "append"}
    assert place.json("sync", _connect(place, users=users, **more))["streams"]["users"]["committed"] == 3


@pytest.mark.parametrize(
    ("was_read", "change"),
    [("full_refresh", ("reset", "shop")), ("incremental", ("rollback", "shop", "--to", "0"))],
    ids=["reset", "rollback"],
)
def test_changes_that_begin_anew_do_not_come_on_top_of_rows(
    place: Place, was_read: str, change: tuple[str, ...]
) -> None:
    place.json("sync", _connect(place, users={"read": was_read, "write": "append_dedup"}))
    assert place.run("state", *change).code == 0
    file = _connect(place, f"ipc first;{_position('0/10')}", first=_changes(_FIRST[:2]))
    assert "name none that was deleted before" in place.json("sync", file, code=1)["streams"]["users"]["error"]
    assert _table(place) == {1: "a", 2: "b", 3: "c"}
    place.json("sync", file, "--refresh", "--streams", "users")
    assert (_table(place), _lsn(place)) == ({1: "a", 2: "b"}, "0/10")
    place.json("sync", file)


def test_a_refresh_of_changes_may_have_no_checkpoint(place: Place) -> None:
    file = _connect(place, "ipc first")
    place.json("sync", file, "--refresh")
    place.json("sync", file)
    assert _table(place) == {1: "a", 2: "b", 3: "c"}


def test_changes_on_top_of_rows_that_a_column_ordered_are_refused(place: Place) -> None:
    stream = {"supported_sync_modes": ["full_refresh", "incremental", "cdc"]}
    payload = {"id": 1, "kind": "source", "cursor_field": "id", "cursor_value": {"type": "int64", "value": 3}}
    script = f"ipc first;checkpoint 0 {json.dumps(payload)}"
    place.json("sync", _connect(place, script, {"read": "incremental", "cursor": "id"}, stream=stream))
    file = _connect(place, f"ipc first;{_position('0/10')}", stream=stream, first=_changes(_FIRST[:2]))
    refused = place.run("sync", file)
    assert (refused.code != 0, "it was read by its column id, and is read by its changes" in refused.err) == (
        True,
        True,
    )
    place.json("sync", file, "--refresh", "--streams", "users")
    assert (_table(place), _lsn(place)) == ({1: "a", 2: "b"}, "0/10")


def test_a_place_in_the_log_may_be_a_column(place: Place) -> None:
    """And the one that the stream names as its cursor."""
    stream = {"supported_sync_modes": ["cdc"], "default_cursor_field": "id"}
    payload = {"id": 1, "kind": "source", "cursor_field": "id", "cursor_value": {"type": "int64", "value": 3}}
    script = f"context;ipc first;checkpoint 0 {json.dumps(payload)}"
    for _ in range(2):
        said = place.run("sync", _connect(place, script, {"cursor": "id"}, stream=stream), "--verbose")
        assert said.code == 0, said.err
    assert '"last_value":{"type":"int64","value":3}' in said.err
    assert _table(place) == {1: "a", 2: "b", 3: "c"}


def test_a_column_of_its_own_marks_deleted_rows_too(place: Place) -> None:
    columns = {"id": "Int64", "name": "Utf8", "_ab_cdc_deleted_at": "Utf8"}
    stream = {"schema": [{"name": name, "data_type": kind, "nullable": True} for name, kind in columns.items()]}
    schema = _ROWS.append(pa.field("_ab_cdc_deleted_at", pa.string()))
    changes = [{"id": 2, "name": "B"}, {"id": 3, "_ab_cdc_deleted_at": "2026-01-02"}]
    file = _connect(place, stream=stream, second=ipc(changes, schema))
    place.json("sync", file)
    assert place.json("sync", file)["streams"]["users"]["deleted"] == 1
    assert _table(place) == {1: "a", 2: "B"}


def test_a_deleted_row_is_marked_where_it_is_to_stay(place: Place) -> None:
    file = _connect(place, users={"read": "incremental", "write": "soft_delete"})
    for _ in range(2):
        place.json("sync", file)
    rows = FolderTables(place.folder / ".airbyte-proto" / "warehouse").rows(TableName("shop", "users")).to_pylist()
    deleted = {row["id"]: row["_ab_cdc_deleted_at"] is not None for row in rows}
    assert deleted == {1: False, 2: False, 3: True, 4: False, 5: True}


def test_a_relay_passes_deleted_rows_on_with_their_mark(place: Place) -> None:
    written = json.loads((place.folder / _connect(place)).read_text())
    file = place.connect({}, **{**written, "to": to_component(place), "streams": {"users": {"read": "incremental"}}})
    for committed in (3, 6):
        assert place.json("sync", file)["streams"]["users"]["committed"] == committed
    rows = written_rows(place)
    changes = [(row["id"], row["name"], row["_ab_cdc_deleted_at"] is not None) for row in rows[3:]]
    assert changes == [(number, name, operation == "delete") for operation, number, name in _SECOND]


@pytest.mark.parametrize(
    ("stream", "users", "mode"),
    [
        ({"supported_sync_modes": ["cdc"]}, {}, "cdc"),
        # Its own cursor is for the mode that it offers.
        ({"supported_sync_modes": ["cdc"], "source_defined_cursor": "id"}, {}, "cdc"),
        ({"supported_sync_modes": ["full_refresh", "incremental", "cdc"]}, {"read": "incremental"}, "cdc"),
        (
            {"supported_sync_modes": ["full_refresh", "incremental", "cdc"]},
            {"read": "incremental", "cursor": "id"},
            "incremental",
        ),
        ({}, {}, "full_refresh"),
    ],
)
def test_it_is_read_by_the_mode_that_is_offered_and_chosen(
    place: Place, stream: dict[str, Any], users: dict[str, Any], mode: str
) -> None:
    shown = place.run("sync", _connect(place, "context;ipc first", users, stream=stream), "--verbose")
    assert (shown.code, f'"sync_mode":"{mode}"' in shown.err) == (0, True), shown.err


@pytest.mark.parametrize(("operation", "found"), [("truncate", "another word"), (7, "is int64, and no text")])
def test_an_operation_that_nobody_knows_fails_the_stream(place: Place, operation: Any, found: str) -> None:
    kind = pa.string() if isinstance(operation, str) else pa.int64()
    batch = ipc([{"id": 2, "_rb_op": operation}], _ROWS.append(pa.field("_rb_op", kind)))
    report = place.json("sync", _connect(place, first=batch), code=1)
    assert found in report["streams"]["users"]["error"]
    # By another mode it is a column like others, which the schema lacks.
    users = place.json("sync", _connect(place, first=batch, users={"read": "full_refresh"}))["streams"]["users"]
    assert (users["committed"], users["ignored_fields"]) == (1, {"_rb_op": 1})
