"""Policies for what is at fault in what a component sends: columns that its schema lacks, and rejected records."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.cli.components.test_component_syncs import CONFIG, ipc, rows_of
from tests.cli.conftest import Place
from tests.support.wasm import guests

pytestmark = pytest.mark.everyday("test_a_difference_fails_the_stream_where_the_user_says_so[removed_column]")

_ROWS = rows_of(1, 2, 3)
_SCHEMA = pa.schema(
    {"id": pa.int64(), "name": pa.string(), "score": pa.float64(), "at": pa.timestamp("us"), "raw": pa.binary()}.items()
)
_OTHERS = {
    "new_column": _SCHEMA.append(pa.field("more", pa.string())),
    "removed_column": _SCHEMA.remove(_SCHEMA.get_field_index("raw")),
    "type_change": _SCHEMA.set(_SCHEMA.get_field_index("score"), pa.field("score", pa.int64())),
    "nullability_change": _SCHEMA,
}
_COLUMNS = {
    "new_column": "more is new",
    "removed_column": "raw is not there",
    "type_change": "score is of another type",
    "nullability_change": "name is null in some rows",
}


def _connect(place: Place, difference: str, script: str = "context;ipc other", **written: Any) -> str:
    rows = [{**row, "score": row["id"]} for row in _ROWS] if difference == "type_change" else _ROWS
    other = ipc([{**row, "more": "m"} for row in rows], _OTHERS[difference])
    catalog = json.loads(json.dumps(CONFIG["catalog"]))
    for stream in catalog["streams"]:
        for column in stream["schema"]["data"]:
            column["nullable"] = column["name"] != "name"
    (place.folder / "source.wasm").write_bytes(guests.built().read_bytes())
    connector = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "source.wasm"}}
    config = {**CONFIG, "catalog": catalog, "other": other, "script_orders": script}
    file = place.connect({}, connector=connector, config=config, streams=["orders"])
    Path(file).write_text(json.dumps({**json.loads(Path(file).read_text()), **written}))
    return file


def _landed(place: Place) -> list[dict[str, Any]]:
    tables = FolderTables(place.folder / ".airbyte-proto" / "warehouse")
    rows: list[dict[str, Any]] = tables.rows(TableName("shop", "orders")).to_pylist()
    return sorted(rows, key=lambda row: int(row["id"]))


@pytest.mark.parametrize("difference", _OTHERS)
def test_a_difference_fails_the_stream_where_the_user_says_so(place: Place, difference: str) -> None:
    file = _connect(place, difference, schema_evolution={difference: "fail"})
    orders = place.json("sync", file, code=1)["streams"]["orders"]
    assert (orders["status"], orders["committed"]) == ("failed", 0)
    assert f"column {_COLUMNS[difference]}" in orders["error"]
    assert f"{difference}: fail" in orders["error"]


@pytest.mark.parametrize("difference", _OTHERS)
def test_else_the_rows_land(place: Place, difference: str) -> None:
    orders = place.json("sync", _connect(place, difference))["streams"]["orders"]
    assert (orders["status"], orders["committed"], orders["changed"]) == ("complete", 3, 0)
    assert orders["ignored_fields"] == ({"more": 3} if difference == "new_column" else {})
    assert [(row["score"], row["raw"]) for row in _landed(place)] == [
        (
            float(row["id"]) if difference == "type_change" else row["score"],
            None if difference == "removed_column" else b"\xff",
        )
        for row in _ROWS
    ]


def test_no_value_of_another_type_is_taken_where_the_user_says_so(place: Place) -> None:
    file = _connect(place, "type_change", schema_evolution={"type_change": "null"})
    orders = place.json("sync", file)["streams"]["orders"]
    assert (orders["status"], orders["committed"], orders["nulled"]) == ("complete", 3, {"score": 3})
    assert [row["score"] for row in _landed(place)] == [None, None, None]


@pytest.mark.parametrize(
    ("written", "policies"),
    [
        ({}, ("dlq", "add", "ignore", "coerce", "allow")),
        ({"destination": {"schema_policy": "freeze"}}, ("dlq", "fail", "ignore", "fail", "allow")),
        ({"destination": {"schema_policy": "discard_column"}}, ("dlq", "ignore", "ignore", "null", "allow")),
        (
            {"on_error": "skip", "schema_evolution": {"removed_column": "fail", "nullability_change": "fail"}},
            ("skip", "add", "fail", "coerce", "fail"),
        ),
    ],
)
def test_the_component_gets_the_policies(place: Place, written: Mapping[str, Any], policies: tuple[str, ...]) -> None:
    log = place.run("sync", _connect(place, "new_column", "context", **written), "--verbose").err
    [context] = [json.loads(line.partition("context ")[2]) for line in log.splitlines() if "context {" in line]
    found = context["policies"]
    assert (found["on_data_error"], *found["schema_evolution"].values()) == policies


@pytest.mark.parametrize(("on_error", "committed", "rejected"), [("reject", 3, 1), ("skip", 3, 1), ("fail", 0, None)])
def test_a_rejected_record_follows_the_users_word(
    place: Place, on_error: str, committed: int, rejected: int | None
) -> None:
    file = _connect(place, "new_column", 'ipc first;dlq orders {"id":8} bad data', on_error=on_error)
    orders = place.json("sync", file, code=1 if on_error == "fail" else 0)["streams"]["orders"]
    assert orders["committed"] == committed
    if rejected is not None:
        assert orders["rejected"] == rejected
    else:
        assert "the connector rejected one: data: bad" in orders["error"]
    kept = (place.folder / ".airbyte-proto/warehouse/_rejected").exists()
    assert kept == (on_error == "reject")


def test_they_are_for_rapidbyte_sources_alone(place: Place) -> None:
    shown = place.run("sync", place.connect({}, schema_evolution={"new_column": "fail"}))
    assert (shown.code, "schema_evolution is for a source of protocol: rapidbyte" in shown.err) == (2, True)
