"""Pushes beside Syncmaven's own command line: the same rows, the same destination on its kit, the same service.

The requests are equal. Where the command line fails, the test shows both: what it does, and what a push does.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import PostgresServer
from tests.sync.push.pushed_table import PushedTable, Row
from tests.sync.push.syncmaven.original import PACKAGE, OriginalSync
from tests.sync.push.syncmaven.people import KIT, PEOPLE, PeopleServer, installed

_ENRICHMENT = Path(__file__).parents[2] / "enrichment" / "cities_enrichment.js"
pytestmark = [pytest.mark.connectors, pytest.mark.postgres, pytest.mark.nightly, pytest.mark.timeout(300)]


def person(number: int, city: str = "Łódź") -> Row:
    return {"id": number, "email": f"p{number}@example.com", "city": city}


PEOPLE_OF_OLD = [person(number) for number in range(1, 31)]


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of the destination, with the kit and the command line beside it."""
    return installed(tmp_path_factory.mktemp("original"), *KIT, PACKAGE)


@pytest.fixture
def original(tmp_path: Path, script: Path, postgres_server: PostgresServer, server: PeopleServer) -> OriginalSync:
    made = OriginalSync(tmp_path, script, postgres_server, server.url)
    made.fill(PEOPLE_OF_OLD)
    return made


@pytest.fixture
def table(quick_folder: Path, script: Path, ours: PeopleServer) -> PushedTable:
    pushed = PushedTable(quick_folder, protocol="syncmaven", schema=PEOPLE)
    pushed.launch = {"kind": "local", "command": ["node", str(script)]}
    pushed.config, pushed.stream = {"url": ours.url}, "people"
    pushed.push |= {"options": {"list": "vip"}, "max_rejected": 0}
    pushed.fill(PEOPLE_OF_OLD)
    return pushed


@pytest.fixture
def ours() -> Iterator[PeopleServer]:
    """The service that our push calls."""
    opened = PeopleServer()
    yield opened
    opened.close()


@pytest.mark.parametrize("chunk", [None, 12])
def test_the_same_rows_make_the_same_requests(
    original: OriginalSync, table: PushedTable, server: PeopleServer, ours: PeopleServer, chunk: int | None
) -> None:
    if chunk is not None:
        original.sync["checkpointEvery"] = table.options["checkpoint_rows"] = chunk
    outcome = original.run()
    assert outcome.exit_code == 0, outcome.output
    assert table.run().streams["people"].acknowledged == 30
    assert server.rows == ours.rows == [("/vip", row) for row in PEOPLE_OF_OLD]

    new = [*PEOPLE_OF_OLD, person(31), person(32)]
    original.fill(new)
    table.fill(new)
    assert original.run().exit_code == 0
    assert table.run().streams["people"].acknowledged == 2
    assert server.rows == ours.rows == [("/vip", row) for row in new]


def test_without_new_rows(original: OriginalSync, table: PushedTable, ours: PeopleServer) -> None:
    """It sends the end of a stream to a process that is not there, and waits for its result for ever."""
    assert original.run().exit_code == 0
    assert original.run(seconds=15).exit_code is None

    table.run()
    again = table.run().streams["people"]
    assert (again.status, again.sent, len(ours.rows)) == ("complete", 0, 30)


def test_rows_that_fill_their_chunks(
    original: OriginalSync, table: PushedTable, server: PeopleServer, ours: PeopleServer
) -> None:
    """It hangs as without new rows: after the last chunk it ends a stream that it has not begun."""
    original.sync["checkpointEvery"] = table.options["checkpoint_rows"] = 10
    assert original.run(seconds=15).exit_code is None
    assert table.run().streams["people"].acknowledged == 30
    assert server.rows == ours.rows


def test_a_halt(original: OriginalSync, table: PushedTable) -> None:
    """Both fail, and save no position."""
    original.credentials["haltsAt"] = table.config["haltsAt"] = 5
    outcome = original.run(seconds=15)
    assert outcome.exit_code != 0
    assert "the list is full" in outcome.output
    assert original.saved_cursor() is None
    halted = table.run().streams["people"]
    assert (halted.status, halted.acknowledged) == ("failed", 0)
    assert "the list is full" in (halted.error or "")


def test_a_row_that_fails(original: OriginalSync, table: PushedTable, server: PeopleServer, ours: PeopleServer) -> None:
    """It ends well and saves the cursor, so that the row is never sent again."""
    server.fails, ours.fails = {7}, {7}
    assert original.run().exit_code == 0
    assert original.saved_cursor() == 30
    failed = table.run().streams["people"]
    assert (failed.status, failed.acknowledged) == ("failed", 0)

    server.fails, ours.fails = set(), set()
    new = [*PEOPLE_OF_OLD, person(31)]
    original.fill(new)
    table.fill(new)
    assert original.run().exit_code == 0
    assert 7 not in {row["id"] for _, row in server.rows}
    assert table.run().streams["people"].acknowledged == 31
    assert {row["id"] for _, row in ours.rows} == set(range(1, 32))


def test_a_row_that_is_refused_before_it_is_sent(original: OriginalSync, table: PushedTable) -> None:
    """It says so in its log, ends well and saves the cursor."""
    rows = [*PEOPLE_OF_OLD[:5], {**person(6), "email": "none"}, person(7)]
    original.fill(rows)
    outcome = original.run()
    assert outcome.exit_code == 0, outcome.output
    assert original.saved_cursor() == 7
    table.fill(rows)
    refused = table.run().streams["people"]
    assert (refused.status, list(refused.rejections)) == ("failed", ['email: its value is not a "email"'])


def test_a_service_that_asks_to_slow_down_once(
    original: OriginalSync, table: PushedTable, server: PeopleServer, ours: PeopleServer
) -> None:
    """The kit sends such a row for ever, though the service took it. The command line waits for its end."""
    server.slows, ours.slows = {4}, {4}
    assert original.run(seconds=15).exit_code is None
    times = [row["id"] for _, row in server.rows].count(4)
    assert times > 50

    table.connector["timeouts"] = {"result_seconds": 4.0}
    assert table.run().streams["people"].acknowledged == 30  # by a second process
    assert {row["id"] for _, row in ours.rows} == set(range(1, 31))


def test_a_full_refresh(original: OriginalSync, table: PushedTable, server: PeopleServer, ours: PeopleServer) -> None:
    """It reads the option and does not use it: only what is new is sent."""
    original.run()
    new = [*PEOPLE_OF_OLD, person(31)]
    original.fill(new)
    assert original.run("--full-refresh").exit_code == 0
    assert len(server.rows) == 31

    table.run()
    table.fill(new)
    assert table.run(is_full=True).streams["people"].acknowledged == 31
    assert len(ours.rows) == 61


def test_a_sync_with_an_enrichment(
    original: OriginalSync, table: PushedTable, server: PeopleServer, ours: PeopleServer
) -> None:
    """It refuses enrichments that are packages, and it has no others."""
    original.sync["enrichments"] = [{"connection": "crm", "options": {}}]
    outcome = original.run()
    assert outcome.exit_code == 1
    assert "enrichments are not yet supported" in outcome.output
    assert server.rows == []

    launch = {"kind": "local", "command": ["node", str(_ENRICHMENT)]}
    cities = {"connector": {"protocol": "syncmaven", "launch": launch}, "columns": {"city": "string"}}
    table.options["transforms"] = [{**cities, "options": {"prefix": "c"}}]
    table.fill([person(number) for number in (1, 2, 3, 4, 7)])  # It answers nothing to even ids.
    assert table.run().streams["people"].acknowledged == 3
    assert ours.rows == [("/vip", person(number, f"c{number}")) for number in (1, 3, 7)]


def test_a_wide_number_as_an_id(
    original: OriginalSync, table: PushedTable, server: PeopleServer, ours: PeopleServer
) -> None:
    """Its driver of PostgreSQL returns `bigint` as text, which a numeric field refuses: no row is sent, and it ends
    well."""
    original.id_type = "bigint"
    original.fill(PEOPLE_OF_OLD)
    original.run(seconds=15)
    assert server.rows == []
    table.run()
    assert len(ours.rows) == 30
