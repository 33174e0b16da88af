"""A push that is killed at any point: the next one skips no row, and sends no acknowledged row again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dagster_airbyte_proto.points import PUSH_POINTS
from tests.sync.push.push_fork_server import PushForkServer
from tests.sync.push.pushed_table import PushedTable, is_removal, person
from tests.sync.push.rapidbyte.component_table import ComponentTable

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
_CASES += [("syncmaven", "upsert", "end"), ("singer", "mirror", "by files")]
_CASES += [("rapidbyte", mode, "each") for mode in ("upsert", "append")]
_EVERY_TIME = (("airbyte", "mirror", "each"), ("syncmaven", "upsert", "end"))


@pytest.mark.parametrize(
    ("protocol", "mode", "echo"),
    [pytest.param(*case, marks=[] if case in _EVERY_TIME else [pytest.mark.nightly]) for case in _CASES],
)
def test_nothing_is_skipped_and_nothing_acknowledged_is_sent_again(
    server: PushForkServer, quick_folder: Path, protocol: str, mode: str, echo: str
) -> None:
    if protocol == "rapidbyte":
        table: PushedTable = ComponentTable(quick_folder, mode=mode)
    else:
        table = PushedTable(quick_folder, protocol=protocol, mode=mode)
        table.config |= {"keeps": True} if protocol == "syncmaven" else {"echo": echo.replace("by files", "each")}
    batches = quick_folder / "batches"
    if echo == "by files":
        table.connector["batch_folder"] = str(batches)
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
        proved = table.acknowledged_ids()
        at_death = len(table.received())
        new_names = {each["id"]: each["name"] for each in people.values()}
        if protocol == "syncmaven":
            of_acknowledged = {**names, **{number: new_names[number] for number, _ in proved}}
            assert table.kept_names() in (of_acknowledged, new_names), f"killed at {point}:{number}"
        names = new_names
        for _ in range(3):
            if server.push(table) == 0:
                break
        rows = table.received()
        where = f"killed at {point}:{number}"
        sent_again = [row["id"] for row in rows[at_death:] if (row["id"], is_removal(row)) in proved]
        assert sent_again == [], where
        if protocol == "syncmaven":
            assert table.kept_names() == names, where
        if mode == "mirror":
            assert table.held() == people, where
            assert table.delivered().keys() == people.keys(), where
        else:
            assert {(row["id"], row["name"]) for row in rows} >= {
                (each["id"], each["name"]) for each in people.values()
            }, where
        assert len(rows) > before, where
        assert not batches.exists() or not list(batches.iterdir()), where
    assert kills > len(_POINTS) / 2


@pytest.mark.everyday("push.sent-2")
@pytest.mark.parametrize(
    ("point", "number"), [("push.sealed", 1), ("push.announced", 3), ("push.sent", 2), ("push.noted", 1)]
)
def test_rows_of_a_component_are_neither_skipped_nor_sent_again(
    server: PushForkServer, quick_folder: Path, point: str, number: int
) -> None:
    table = ComponentTable(quick_folder)
    table.config["commit_rows"] = "5"
    table.fill([person(each) for each in range(23)])
    assert server.push(table, (point, number)) == KILLED
    proved, at_death = table.acknowledged_ids(), len(table.received())
    assert server.push(table) == 0
    rows = table.received()
    assert {row["id"] for row in rows} == {*range(23)}
    assert [row["id"] for row in rows[at_death:] if (row["id"], False) in proved] == []
    assert table.contacts().planned.to_send == 0


@pytest.mark.everyday("push.sealed-1", "push.sent-2")
@pytest.mark.parametrize(
    ("point", "number"),
    [("push.sealed", 1), ("push.announced", 2), ("push.sent", 2), ("push.noted", 1), ("load.staged", 1)],
)
def test_transformed_rows_are_neither_skipped_nor_sent_again(
    server: PushForkServer, quick_folder: Path, point: str, number: int
) -> None:
    table = PushedTable(quick_folder, mode="mirror")
    table.config["echo"] = "each"
    query = "SELECT *, name || '!' AS loud FROM input WHERE id % 5 <> 0"
    table.options |= {"checkpoint_rows": 8, "transforms": [{"sql": query}]}
    table.fill([person(each) for each in range(20)])
    assert server.push(table, (point, number)) == KILLED
    proved, at_death = table.acknowledged_ids(), len(table.received())
    assert server.push(table) == 0
    rows = table.received()
    assert {row["id"]: row["loud"] for row in rows} == {each: f"person {each}!" for each in range(20) if each % 5}
    assert [row["id"] for row in rows[at_death:] if (row["id"], False) in proved] == []
    noted = table.delivered()
    assert {each: row["_status"] for each, row in noted.items()} == {
        each: "delivered" if each % 5 else "rejected" for each in range(20)
    }
    assert table.contacts().planned.to_send == 0
