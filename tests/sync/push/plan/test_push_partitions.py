"""Pushes of one partition: just its rows are sent, and only what was delivered in it is removed."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.loads.plan_query import PARTITION
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.maintenance.reset import reset_state
from dagster_airbyte_proto.sync.plan.stream_plan import Slice
from dagster_airbyte_proto.sync.push.plan.partition import query_of
from tests.sync.push.pushed_table import SCHEMA, PushedTable, person

A, B = Slice("2026-11-01"), Slice("2026-11-02")
_DAYS = pa.schema([*SCHEMA, ("day", pa.string())])


def _row(number: int, day: Slice, name: str = "") -> dict[str, Any]:
    return person(number, name, day=day.key)


@pytest.fixture(params=["airbyte", "singer"])
def table(request: pytest.FixtureRequest, quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder, protocol=request.param, mode="mirror", schema=_DAYS)
    pushed.push["partition"] = "day"
    pushed.fill([*(_row(number, A) for number in range(1, 9)), *(_row(number, B) for number in range(11, 14))])
    return pushed


def _partitions(table: PushedTable) -> dict[int, str]:
    return {number: row[PARTITION] for number, row in table.delivered().items()}


def test_just_the_rows_of_the_partition_are_sent(table: PushedTable) -> None:
    report = table.run(partition=A)
    assert (report.partition, report.streams["contacts"].sent) == (A.key, 8)
    assert table.held().keys() == set(range(1, 9))
    assert table.contacts(partition=B).planned.added == 3
    assert table.contacts(partition=A).planned.to_send == table.contacts(partition=B).planned.to_send == 0
    assert _partitions(table) == {**dict.fromkeys(range(1, 9), A.key), **dict.fromkeys(range(11, 14), B.key)}


def test_rows_are_removed_within_the_partition(table: PushedTable) -> None:
    for each in (A, B):
        table.contacts(partition=each)
    table.fill([_row(1, A), _row(2, A, "renamed"), _row(12, B)])
    planned = table.contacts(partition=A).planned
    assert (planned.added, planned.changed, planned.removed, planned.unchanged) == (0, 1, 6, 1)
    assert table.held().keys() == {1, 2, 11, 12, 13}
    assert table.contacts(partition=B).planned.removed == 2
    assert table.held().keys() == {1, 2, 12}


@pytest.mark.everyday("airbyte")
def test_after_a_reset_each_partition_is_sent_again_and_removes_what_is_gone(table: PushedTable) -> None:
    for each in (A, B):
        table.contacts(partition=each)
    store = SqlStore(table.settings.state_url)
    with acquire_lease(store, "crm", "reset", 60.0) as renewal:
        reset_state(store, renewal.lease, StreamId.of("contacts"), who="ann")
    store.close()
    table.fill([_row(1, A), _row(11, B), _row(12, B)])
    for each, written, removed in ((A, 1, 7), (B, 2, 1)):
        planned = table.contacts(partition=each).planned
        assert (planned.to_write, planned.removed) == (written, removed)
    assert table.held().keys() == {1, 11, 12}
    for each in (A, B):
        assert table.contacts(partition=each).planned.to_send == 0


@pytest.mark.everyday("airbyte-partition", "singer-mapping")
@pytest.mark.parametrize("change", ["partition", "mapping"])
def test_rows_that_were_sent_without_an_answer_are_removed_once_they_are_gone(table: PushedTable, change: str) -> None:
    partition = A if change == "partition" else None
    table.config |= {"dies_after": 4, "echo": "end", "once": str(table.folder / "once")}
    broken = table.contacts(partition=partition)
    assert (broken.status, broken.acknowledged) == ("failed", 0)
    assert {1, 2, 3} <= table.held().keys()
    if change == "mapping":
        table.push["map"] = {"id": "id", "name": "name", "day": "day"}
    else:
        assert table.contacts(partition=B).status == "complete"
    table.fill([_row(1, A), _row(11, B), _row(12, B), _row(13, B)])
    assert table.contacts(partition=partition).status == "complete"
    assert table.held().keys() == {1, 11, 12, 13}


@pytest.mark.everyday("airbyte")
def test_a_row_that_moves_to_another_partition_stays(table: PushedTable) -> None:
    for each in (A, B):
        table.contacts(partition=each)
    table.push["map"] = {"id": "id", "name": "name", "score": "score", "bad": "bad"}
    for each in (A, B):
        table.contacts(partition=each)
    moved = _row(1, B)
    table.fill([moved, *(_row(number, A) for number in range(2, 9)), *(_row(number, B) for number in range(11, 14))])
    assert table.contacts(partition=B).planned.changed == 1
    assert table.contacts(partition=A).planned.removed == 0
    assert 1 in table.held()
    assert _partitions(table)[1] == B.key


def test_a_plan_of_another_partition_is_given_up_and_nothing_is_lost(table: PushedTable) -> None:
    table.config |= {"dies_after": 7, "once": str(table.folder / "once")}
    broken = table.contacts(partition=A)
    assert broken.status == "failed"
    assert table.contacts(partition=B).acknowledged == 3
    again = table.contacts(partition=A)
    assert again.planned.to_write == 8 - broken.acknowledged
    assert table.held().keys() == {*range(1, 9), *range(11, 14)}
    assert set(_partitions(table).values()) == {A.key, B.key}


@pytest.mark.parametrize(
    ("written", "request_of", "found"),
    [
        ({}, {"is_full": True}, "--full is of all partitions"),
        ({"mode": "overwrite", "key": None}, {}, "mode overwrite would replace all"),
        ({"mode": "upsert", "changes": "cursor", "cursor": "id"}, {}, "changes: cursor looks at the whole table"),
        ({"partition": None}, {}, "it has no column _airbyte_partition, by which a partition is picked"),
        ({"partition": "month"}, {}, "it has no column month, by which a partition is picked"),
        ({"from": None, "sql": "SELECT 1 AS id"}, {}, "its query is the same for each partition"),
        ({"from": None, "sql": "SELECT '{{ partition.kee }}' AS id"}, {}, 'did you mean "{{ partition.key }}"?'),
    ],
)
def test_what_is_no_push_of_a_partition_is_refused(
    table: PushedTable, written: dict[str, Any], request_of: dict[str, Any], found: str
) -> None:
    table.push = {name: value for name, value in {**table.push, **written}.items() if value is not None}
    assert found in (table.contacts(partition=A, **request_of).error or "")


def test_a_query_with_a_template_is_of_a_partition(table: PushedTable) -> None:
    del table.push["from"]
    table.push["sql"] = "SELECT 1 AS id, '{{ partition.key }}' AS day"
    assert "its query has a template of a partition" in (table.contacts().error or "")


def test_the_values_of_a_partition_are_text_in_a_query() -> None:
    query = query_of(Slice("it's \\ so", {"start": "x"}), "SELECT '{{ partition.key }}', '{{partition.start}}'")
    assert query == "SELECT 'it\\'s \\\\ so', 'x'"
