"""A push that is killed at any point: the next one skips no row, and sends no acknowledged row again."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dagster_airbyte_proto.points import PUSH_POINTS
from tests.support.fork_server import Kill
from tests.sync.push.push_fork_server import PushForkServer
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.push.rapidbyte.component_table import ComponentTable
from tests.sync.push.swept_push import SweptPush

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
_CASES += [("syncmaven", "upsert", "end"), ("singer", "mirror", "by files"), ("singer", "mirror", "by versions")]
_CASES += [("airbyte", mode, "each") for mode in ("insert", "update", "overwrite")]
_CASES += [("singer", "insert", "each"), ("singer", "overwrite", "end"), ("airbyte", "mirror", "bare")]
_CASES += [("airbyte", "overwrite", "exit"), ("airbyte", "mirror", "exit"), ("singer", "append", "exit")]
_CASES += [("rapidbyte", mode, "each") for mode in ("upsert", "append")]
# One before a row is sent, two around it, and one before the delivered table has it.
_TYPICAL_POINTS = (("push.sealed", 1), ("push.sent", 2), ("push.noted", 1), ("load.announced", 1))


@pytest.mark.parametrize(("protocol", "mode", "echo"), [("airbyte", "mirror", "each"), ("syncmaven", "upsert", "end")])
def test_a_killed_push_skips_no_row_and_sends_none_again(
    server: PushForkServer, quick_folder: Path, protocol: str, mode: str, echo: str
) -> None:
    _survive(server, SweptPush.of_fake(quick_folder, protocol, mode, echo), _TYPICAL_POINTS)


@pytest.mark.nightly
@pytest.mark.parametrize(("protocol", "mode", "echo"), _CASES)
def test_nothing_is_skipped_and_nothing_acknowledged_is_sent_again(
    server: PushForkServer, quick_folder: Path, protocol: str, mode: str, echo: str
) -> None:
    _survive(server, SweptPush.of_fake(quick_folder, protocol, mode, echo), _POINTS)


def _survive(server: PushForkServer, swept: SweptPush, points: Sequence[Kill]) -> None:
    """Kills the push at each point, and lets the next ones come to their end."""
    table = swept.table
    swept.fill({number: person(number) for number in range(20)})
    assert server.push(table) == 0
    kills, names = 0, swept.names
    for turn, (point, number) in enumerate(points, start=1):
        swept.change(turn)
        before, shown = len(table.received()), table.shown() if swept.mode == "overwrite" else []
        where = f"killed at {point}:{number}"
        kills += server.push(table, (point, number)) == KILLED
        swept.check_shown(shown, where)
        proved, at_death = swept.proved(), len(table.received())
        if table.protocol == "syncmaven":
            of_acknowledged = {**names, **{number: swept.names[number] for number, _ in proved}}
            assert table.kept_names() in (of_acknowledged, swept.names), where
        names = swept.names
        for _ in range(3):
            swept.have_unknown_sent()
            if server.push(table) == 0:
                break
        swept.check_sent_since(at_death, proved, where)
        swept.check(where)
        assert len(table.received()) > before, where
        assert not swept.batches.exists() or not list(swept.batches.iterdir()), where
    assert kills > len(points) / 2


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
