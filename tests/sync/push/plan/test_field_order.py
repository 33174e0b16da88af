"""The order of the fields of a push: rows are the same in any, also those that an earlier release has delivered."""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.loads.load import FileContent, StagedRows
from dagster_airbyte_proto.loads.push import PushPosition
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import StreamId, TableName, WriteMode
from dagster_airbyte_proto.protocols.lookup import PUSH, state_codec_named
from dagster_airbyte_proto.staging.files.parquet_file import OpenFile
from dagster_airbyte_proto.staging.files.staging_folder import StagingFolder, create_folder
from dagster_airbyte_proto.sync.lease import acquire_lease
from tests.sync.push.pushed_table import SCHEMA, PushedTable, person

_CONTACTS = StreamId.of("contacts")
_DELIVERED = TableName("_pushes", "crm__contacts")
_MAP = {"id": "id", "title": {"value": "x"}, "name": "name"}
_REORDERED = dict(reversed(_MAP.items()))
# What the release before this one had in its hashes and positions for this mapping.
_EARLIER_FINGERPRINT, _EARLIER_MAPPING = "abbea50b1aa75807", "d759e652968936af"


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder, mode="mirror")
    pushed.push["map"] = _MAP
    pushed.fill([person(number) for number in range(1, 24)])
    return pushed


def _deliver_as_earlier(table: PushedTable) -> None:
    """Pushes, and leaves the delivered table and the position as the release before this one would have."""
    assert table.contacts().acknowledged == 23
    fields = {name: pa.array([row[name] for row in table.received()]) for name in _MAP}
    rows = table.tables.rows(_DELIVERED)
    sent = {row["id"]: row for row in pa.table(fields).to_pylist()}
    hashes = [_hash(sent[number]) for number in rows.column("id").to_pylist()]
    rows = rows.set_column(rows.schema.get_field_index("_hash"), "_hash", pa.array(hashes, pa.int64()))
    target = table.tables.prepare(TableSpec(_DELIVERED, rows.schema, ("id",)))
    folder = StagingFolder.at(str(table.folder / "earlier"), LOCAL)
    create_folder(folder)
    file = OpenFile(folder, "rows.parquet", target.schema, FileContent.ROWS)
    file.write(rows)
    part = StagedRows(_CONTACTS, _DELIVERED, WriteMode.OVERWRITE, files=(file.close(),), rows=rows.num_rows)
    table.tables.commit("by-an-earlier-release", part)
    _change_position(table, basis=f"mirror:{_EARLIER_FINGERPRINT}:{_EARLIER_MAPPING}")


def _hash(row: dict[str, Any]) -> int:
    """The hash of a folder table's planner, of the fields as `map` has them."""
    text = json.dumps([_EARLIER_FINGERPRINT, {name: row[name] for name in _MAP}])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)


def _position(table: PushedTable) -> PushPosition:
    with table.engine() as engine:
        [stored] = engine.store.states("crm")
    return msgspec.convert(state_codec_named(PUSH).value(stored.state), PushPosition)


def _change_position(table: PushedTable, **changed: Any) -> None:
    position = msgspec.structs.replace(_position(table), **changed)
    state = state_codec_named(PUSH).from_value(_CONTACTS, msgspec.to_builtins(position))
    with table.engine() as engine, acquire_lease(engine.store, "crm", "earlier", 30) as renewal:
        engine.store.change_state(renewal.lease, _CONTACTS, state, who="an earlier release")


def _changed(table: PushedTable) -> tuple[int | None, bool]:
    """Pushes one changed row. Returns the rows that count as changed, and whether all were compared for the mapping."""
    table.fill([person(number, "renamed" if number == 1 else "") for number in range(1, 24)])
    report = table.run()
    return report.streams["contacts"].planned.changed, "its mapping or mode was changed" in Path(report.log).read_text()


@pytest.mark.parametrize("changes", ["diff", "snapshots"])
def test_the_same_fields_in_another_order_send_no_row_again(table: PushedTable, changes: str) -> None:
    table.push["changes"] = changes
    table.contacts()
    table.push["map"] = _REORDERED
    assert table.contacts().planned.to_send == 0
    assert _changed(table) == (1, False)
    assert [*table.received()[-1]] == ["name", "title", "id"]


def test_columns_of_a_table_in_another_order_send_no_row_again(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    table.fill([person(1)])
    table.contacts()
    reordered = PushedTable(quick_folder, schema=pa.schema([*reversed(SCHEMA)]))
    reordered.push["from"] = "shop.reordered"
    reordered.fill_table(TableName("shop", "reordered"), [person(1)])
    assert reordered.contacts().planned.to_send == 0


@pytest.mark.parametrize("changes", ["diff", "snapshots"])
def test_a_push_of_an_earlier_release_sends_no_row_again(table: PushedTable, changes: str) -> None:
    table.push["changes"] = changes
    _deliver_as_earlier(table)
    assert _changed(table) == (1, False)
    table.push["map"] = _REORDERED
    assert table.contacts().planned.to_send == 0
    assert _position(table).fingerprint == _EARLIER_FINGERPRINT


def test_the_order_of_an_earlier_release_is_remembered_by_a_push_that_sends_nothing(table: PushedTable) -> None:
    _deliver_as_earlier(table)
    messages = len(table.messages())
    assert table.contacts().planned.to_send == 0
    assert len(table.messages()) == messages
    table.push["map"] = _REORDERED
    assert table.contacts().planned.to_send == 0
    assert _changed(table) == (1, False)


def test_a_plan_only_shown_remembers_nothing(table: PushedTable) -> None:
    _deliver_as_earlier(table)
    table.contacts(only_plans=True)
    assert _position(table).form is None


def test_other_fields_than_those_of_an_earlier_release_are_sent_and_have_any_order_from_then_on(
    table: PushedTable,
) -> None:
    _deliver_as_earlier(table)
    table.push["map"] = {"id": "id", "title": "name"}
    assert table.contacts().planned.changed == 23
    table.push["map"] = {"title": "name", "id": "id"}
    assert table.contacts().planned.to_send == 0


def test_a_plan_goes_on_in_another_order_with_the_fields_as_they_are_now(table: PushedTable) -> None:
    table.config |= {"dies_after": 13, "once": str(table.folder / "once")}
    table.contacts()
    table.push["map"] = _REORDERED
    report = table.contacts()
    assert (report.status, report.resumed) == ("complete", 10)
    assert len({row["id"] for row in table.received()}) == 23
    assert [*table.received()[-1]] == ["name", "title", "id"]
    assert table.contacts().planned.to_send == 0


def test_the_plan_of_an_earlier_release_goes_on(quick_folder: Path) -> None:
    """Nobody remembers its rows: a push of another mapping would be refused."""
    table = PushedTable(quick_folder, mode="append")
    table.push |= {"map": _MAP, "changes": "all"}
    table.fill([person(number) for number in range(1, 24)])
    table.config |= {"dies_after": 13, "once": str(table.folder / "once")}
    table.contacts()
    with table.engine() as engine, acquire_lease(engine.store, "crm", "earlier", 30) as renewal:
        plan = engine.store.deliveries("crm")[_CONTACTS].plan
        engine.store.seal_plan(renewal.lease, msgspec.structs.replace(plan, fingerprint=_EARLIER_FINGERPRINT))
    assert table.contacts(retries_unknown=True).status == "complete"
