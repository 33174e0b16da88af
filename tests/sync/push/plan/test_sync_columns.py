"""The columns that syncs add to tables: a push sends them where `map` or a query names them, and else not."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.loads.plan_query import SYNC_COLUMNS
from dagster_airbyte_proto.loads.table import SLICE_COLUMN
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.schema.columns import EXTRACTED_AT, METADATA, RAW_ID
from dagster_airbyte_proto.sync.plan.stream_plan import Slice
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.testing.fake_source import command
from tests.sync.push.plan.spark_table import SparkPushedTable
from tests.sync.push.pushed_table import SCHEMA, PushedTable, Row, person
from tests.sync.shop import EVERYTHING

_TEXT, _NUMBER = {"type": ["null", "string"]}, {"type": ["null", "integer"]}
# Two of them have names like those of columns that syncs add. A sync with `_sdc_` columns adds the field of deletions.
_PROPERTIES = {"id": {"type": "integer"}, "name": _TEXT, "_airbyte_emitted_by": _TEXT, "_ab_cdc_lsn": _NUMBER}
_FIELDS = {*_PROPERTIES, "_sdc_deleted_at"}


class _SyncedTable(SparkPushedTable):
    """The table of a sync, which has the `_sdc_` columns too."""

    def __init__(self, folder: Path, spark: SparkSession, settings: SparkSettings) -> None:
        super().__init__(folder, spark, settings)
        self.sql(f"DROP TABLE {self.name}")

    def sync(self, ids: Sequence[int] = (1, 2, 3), write: str = "overwrite", at: int = 1_800_000_000_000) -> None:
        """Syncs these rows, which the source sends at that time."""
        rows = [[at, {"id": each, "name": "ann", "_airbyte_emitted_by": "us", "_ab_cdc_lsn": each}] for each in ids]
        people = {"rows": rows, "properties": _PROPERTIES, "incremental": False}
        written = {
            "name": f"shop_{self.connection_name}",
            "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": command()}},
            "config": {"scenario": {"streams": {"people": people}}},
            "streams": {"people": {"read": "full_refresh", "write": write}},
            "destination": {"namespace": self.name.split(".")[1], "sdc_columns": True},
        }
        with self.engine() as engine:
            report = sync_connection(engine, Connection.model_validate(written), EVERYTHING)
        assert report.status is SyncStatus.COMPLETE
        self.refresh()

    def raw_ids(self) -> set[str]:
        return {row[RAW_ID] for row in self.rows().values()}

    def columns(self) -> list[str]:
        return list(self.rows()[1])


@pytest.fixture
def synced(quick_folder: Path, spark: SparkSession, spark_settings: SparkSettings) -> _SyncedTable:
    table = _SyncedTable(quick_folder, spark, spark_settings)
    table.sync()
    return table


@pytest.mark.spark
def test_rows_that_a_source_sends_again_are_not_sent_again(synced: _SyncedTable) -> None:
    raw_ids = synced.raw_ids()
    for changes in ("diff", "snapshots"):
        synced.push["changes"] = changes
        synced.contacts()
        synced.sync()
        assert synced.contacts().planned.to_send == 0
    assert raw_ids.isdisjoint(synced.raw_ids())
    assert [set(row) for row in synced.received()] == [_FIELDS] * 3


@pytest.mark.spark
def test_columns_of_syncs_are_sent_if_they_are_named(synced: _SyncedTable) -> None:
    synced.push["changes"] = "diff"
    assert synced.contacts().fields.keys() == _FIELDS
    assert set(synced.columns()) == _FIELDS | SYNC_COLUMNS - {SLICE_COLUMN}
    table = synced.push.pop("from")
    columns = sorted(synced.columns())
    synced.push["sql"] = f"SELECT {', '.join(columns)} FROM {table}"
    assert synced.contacts().planned.changed == 3
    assert set(synced.received()[-1]) == set(synced.columns())
    del synced.push["sql"]
    synced.push |= {"from": table, "map": {name: name for name in columns}}
    assert synced.contacts().planned.to_send == 0
    synced.push["map"] = {"id": "id", "day": {"sql": f"date({EXTRACTED_AT})"}}
    assert synced.contacts(only_plans=True, samples=1).samples["changed"][0].keys() == {"id", "day"}
    assert synced.contacts().fields["day"].columns == (EXTRACTED_AT,)


@pytest.mark.spark
def test_files_of_a_table_are_sent_without_columns_of_syncs(synced: _SyncedTable) -> None:
    synced.push_all()
    assert synced.contacts().acknowledged == 3
    with synced.engine() as engine:
        plan = engine.store.deliveries(synced.connection_name)[StreamId.of("contacts")].plan
    assert {each.field for each in plan.columns} == _FIELDS
    assert [set(row) for row in synced.received()] == [_FIELDS] * 3


@pytest.mark.spark
def test_the_time_of_extraction_is_a_cursor_that_is_not_sent(synced: _SyncedTable) -> None:
    synced.push_all()
    synced.push |= {"changes": "cursor", "cursor": EXTRACTED_AT}
    assert synced.contacts().acknowledged == 3
    synced.sync([4], "append", 1_800_000_001_000)
    assert synced.contacts().acknowledged == 1
    assert [row["id"] for row in synced.received()] == [1, 2, 3, 4]
    assert [set(row) for row in synced.received()] == [_FIELDS] * 4


_TABLE = pa.schema([*SCHEMA, *METADATA, (SLICE_COLUMN, pa.string())])


def _people(ids: Sequence[int], day: int = 1) -> list[Row]:
    """Rows as a sync writes them on that day."""
    return [
        person(number) | {RAW_ID: secrets.token_hex(8), EXTRACTED_AT: datetime(2026, 11, day, tzinfo=UTC)}
        | {SLICE_COLUMN: f"part {number % 2}"} for number in ids
    ]  # fmt: skip


@pytest.mark.everyday("upsert-diff-changed-9", "insert-diff-changed-0", "append-cursor-added-0")
@pytest.mark.parametrize(
    ("mode", "changes", "kind", "again"),
    [
        ("upsert", "diff", "changed", 9),
        ("update", "diff", "changed", 9),
        ("mirror", "snapshots", "changed", 9),
        ("append", "diff", "changed", 9),
        ("insert", "diff", "changed", 0),
        ("append", "cursor", "added", 0),
        ("overwrite", "all", "added", 9),
    ],
)
def test_a_push_that_sent_columns_of_syncs_sends_every_row_once_more(
    quick_folder: Path, mode: str, changes: str, kind: str, again: int
) -> None:
    table = PushedTable(quick_folder, mode=mode, schema=_TABLE)
    table.push |= {"changes": changes} | ({"cursor": EXTRACTED_AT} if changes == "cursor" else {})
    table.fill(_people(range(9)))
    # These are the fields of a push without `map`, as earlier releases chose them.
    table.push["map"] = {name: name for name in _TABLE.names}
    assert table.contacts().acknowledged == 9
    del table.push["map"]
    second = table.contacts()
    assert (second.status, second.planned.to_send, second.planned.removed or 0) == ("complete", again, 0)
    assert getattr(second.planned, kind) == again == second.acknowledged
    assert [set(row) for row in table.received()[9:]] == [set(SCHEMA.names)] * again
    table.fill(_people(range(10), 2))
    assert table.contacts().planned.to_send == (1 if changes in ("diff", "snapshots") else 10)


def test_what_is_left_of_a_plan_with_columns_of_syncs_is_not_sent_without_them(quick_folder: Path) -> None:
    """Nobody remembers which rows were sent."""
    table = PushedTable(quick_folder, schema=_TABLE)
    table.push |= {"changes": "all", "map": {name: name for name in _TABLE.names}}
    table.fill(_people(range(20)))
    table.config |= {"dies_after": 7, "once": str(table.folder / "once")}
    assert table.contacts().status == "failed"
    named = table.push.pop("map")
    assert "mapping or mode was changed with" in (table.contacts().error or "")
    table.push["map"] = named
    assert table.contacts().status == "complete"
    assert {row["id"] for row in table.received()} == set(range(20))


def test_columns_of_syncs_are_keys_and_partitions(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, schema=_TABLE)
    table.push["key"] = [RAW_ID]
    table.fill(_people(range(4)))
    assert table.contacts(partition=Slice("part 1")).acknowledged == 2
    assert [set(row) for row in table.received()] == [{*SCHEMA.names, RAW_ID}] * 2
    assert table.contacts(partition=Slice("part 1")).planned.to_send == 0


def test_a_table_without_other_columns_is_refused(quick_folder: Path) -> None:
    schema = pa.schema([(RAW_ID, pa.string())])
    table = PushedTable(quick_folder, schema=schema)
    del table.push["key"]
    table.push |= {"mode": "append", "changes": "all"}
    table.fill([{RAW_ID: "a"}])
    assert "it has no columns but those that syncs add" in (table.contacts().error or "")
    table.push["map"] = {"row": RAW_ID}
    assert table.contacts().acknowledged == 1
