"""A push that is killed at any point: the next one skips no row, and sends no acknowledged row again."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.kept_values import Asset
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.points import PUSH_POINTS
from dagster_airbyte_proto.sync.push.plan_rows import plan_batches
from tests.sync.push.push_fork_server import PushForkServer
from tests.sync.push.pushed_table import PushedTable, person

KILLED = -9
_ECHOES = ("each", "end")
_LOAD_POINTS = ("run.begun", "load.staged", "load.announced", "table.committed", "load.promoted", "run.ended")
_POINTS = [
    *((point, 1) for point in (*PUSH_POINTS, *_LOAD_POINTS)),
    *((point, number) for point in ("push.announced", "push.sent", "push.noted") for number in (2, 4)),
]


@pytest.fixture(scope="module")
def server() -> Iterator[PushForkServer]:
    opened = PushForkServer()
    yield opened
    opened.close()


_CASES = [
    (protocol, mode, echo) for protocol in ("airbyte", "singer") for mode in ("mirror", "append") for echo in _ECHOES
]
_CASES += [("syncmaven", "upsert", "end")]
_EVERY_TIME = (("airbyte", "mirror", "each"), ("singer", "append", "end"), ("syncmaven", "upsert", "end"))


@pytest.mark.parametrize(
    ("protocol", "mode", "echo"),
    [pytest.param(*case, marks=[] if case in _EVERY_TIME else [pytest.mark.nightly]) for case in _CASES],
)
def test_nothing_is_skipped_and_nothing_acknowledged_is_sent_again(
    server: PushForkServer, quick_folder: Path, protocol: str, mode: str, echo: str
) -> None:
    table = PushedTable(quick_folder, protocol=protocol, mode=mode)
    table.config |= {"keeps": True} if protocol == "syncmaven" else {"echo": echo}
    table.options["checkpoint_rows"] = 8
    table.push["key"] = ["id"]
    people = {number: person(number) for number in range(20)}
    table.fill(list(people.values()))
    assert server.push(table) == 0
    kills, names = 0, {each["id"]: each["name"] for each in people.values()}
    for turn, (point, number) in enumerate(_POINTS, start=1):
        for each in range(turn % 4, 20, 4):
            people[each] = person(each, f"{each} in turn {turn}")
        people[100 + turn] = person(100 + turn)
        if mode == "mirror":
            people.pop(99 + turn, None)
        table.fill(list(people.values()))
        before = len(table.received())
        kills += server.push(table, (point, number)) == KILLED
        proved = _acknowledged_ids(table)
        at_death = len(table.received())
        new_names = {each["id"]: each["name"] for each in people.values()}
        if protocol == "syncmaven":
            of_acknowledged = {**names, **{number: new_names[number] for number, _ in proved}}
            assert _kept_names(table) in (of_acknowledged, new_names), f"killed at {point}:{number}"
        names = new_names
        for _ in range(3):
            if server.push(table) == 0:
                break
        rows = table.received()
        where = f"killed at {point}:{number}"
        sent_again = [row["id"] for row in rows[at_death:] if (row["id"], _is_removal(row)) in proved]
        assert sent_again == [], where
        if protocol == "syncmaven":
            assert _kept_names(table) == names, where
        if mode == "mirror":
            assert table.held() == people, where
            assert table.delivered().keys() == people.keys(), where
        else:
            assert {(row["id"], row["name"]) for row in rows} >= {
                (each["id"], each["name"]) for each in people.values()
            }, where
        assert len(rows) > before, where
    assert kills > len(_POINTS) / 2


def _acknowledged_ids(table: PushedTable) -> set[tuple[int, bool]]:
    """What the store knows as acknowledged of the plan that is under way."""
    store = SqlStore(table.settings.state_url)
    found = set()
    for delivery in store.deliveries("crm").values():
        if not delivery.is_complete or Path(delivery.plan.folder).exists():
            for batch in plan_batches(delivery.plan, LOCAL, 0, delivery.acknowledged):
                found |= {(number, batch.is_removal) for number in batch.rows.column("id").to_pylist()}
    store.close()
    return found


def _kept_names(table: PushedTable) -> dict[int, str]:
    """What the destination keeps by the state server: the name of each row."""
    store = SqlStore(table.settings.state_url)
    found = {
        int(each.key[1]): json.loads(each.value) for each in store.kept_values(Asset("crm", StreamId.of("contacts")))
    }
    store.close()
    return found


def _is_removal(row: dict[str, object]) -> bool:
    return bool(row.get("_ab_cdc_deleted_at") or row.get("_sdc_deleted_at"))
