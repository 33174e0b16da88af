"""Pushes to a destination on Syncmaven's own kit for Node, as it is on npm."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_airbyte_proto.checkpoints.kept_values import Asset
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.push.report import PushReport
from tests.support.needs import require_npm
from tests.sync.push.pushed_table import PushedTable, Row

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(300)]

_SCHEMA = pa.schema([("id", pa.int64()), ("email", pa.string()), ("city", pa.string())])


class PeopleServer:
    """Keeps the rows that it gets. It fails those of some ids, and asks to slow down once for others."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, Row]] = []
        self.fails: set[int] = set()
        self.slows: set[int] = set()
        self.slows_for_ever = False
        people = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = 500 if row["id"] in people.fails else 429 if row["id"] in people.slows else 200
                if status == 200:
                    people.rows.append((self.path, row))
                if not people.slows_for_ever:
                    people.slows.discard(row["id"])
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[PeopleServer]:
    opened = PeopleServer()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_npm()
    folder = tmp_path_factory.mktemp("kit")
    shutil.copy(Path(__file__).with_name("people_destination.js"), folder)
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run([*command, "@syncmaven/node-cdk@0.0.11", "zod@3.23.8"], cwd=folder, check=True, timeout=200)
    return folder / "people_destination.js"


@pytest.fixture
def table(quick_folder: Path, program: Path, server: PeopleServer) -> PushedTable:
    pushed = PushedTable(quick_folder, protocol="syncmaven", schema=_SCHEMA)
    pushed.launch = {"kind": "local", "command": ["node", str(program)]}
    pushed.config = {"url": server.url}
    pushed.push["options"] = {"list": "vip"}
    return pushed


def push(table: PushedTable) -> PushReport:
    file = table.connection_file()
    file.write_text(file.read_text().replace("contacts:", "people:"))
    return table.run(file=file)


def person(number: int, **more: object) -> Row:
    return {"id": number, "email": f"p{number}@example.com", "city": None, **more}


def test_rows_arrive_as_they_are_in_the_table(table: PushedTable, server: PeopleServer) -> None:
    rows = [person(number, city="Łódź" if number % 2 else None) for number in range(1, 30)]
    table.fill([*rows, person(50, email="none"), person(51, email=None)])
    first = push(table).streams["people"]
    assert (first.error, first.acknowledged, first.rejected) == (None, 29, 2)
    assert set(first.rejections) == {'email: its value is not a "email"', 'the row: "email" is a required property'}
    without_nulls = [{name: value for name, value in row.items() if value is not None} for row in rows]
    assert server.rows == [("/vip", row) for row in without_nulls]


@pytest.mark.parametrize("is_for_ever", [False, True])
def test_a_row_that_is_sent_for_ever_ends_the_process(
    table: PushedTable, server: PeopleServer, *, is_for_ever: bool
) -> None:
    """The kit sends a row again and again once it was told to slow down, even after the server took it."""
    rows = [person(number) for number in range(1, 10)]
    table.fill(rows)
    server.slows, server.slows_for_ever, table.result_seconds = {4}, is_for_ever, 4.0
    table.push["mode"] = "insert" if is_for_ever else "upsert"  # only the latter is sent again
    report = push(table).streams["people"]
    if is_for_ever:
        assert (report.status, report.acknowledged, report.unknown) == ("failed", 0, 9)
        assert "it hangs" in (report.error or "")
    else:
        assert (report.status, report.acknowledged) == ("complete", 9)  # The second process sent all again.
        assert {row["id"] for _, row in server.rows} == {row["id"] for row in rows}


def test_it_keeps_its_count_and_a_row_that_failed_counts_as_rejected(table: PushedTable, server: PeopleServer) -> None:
    table.fill([person(number) for number in range(1, 21)])
    server.fails = {3}
    report = push(table)
    people = report.streams["people"]
    assert (people.error, people.acknowledged, people.rejected, people.unnamed) == (None, 19, 1, 1)
    table.fill([person(number, city="Rome" if number > 18 else None) for number in range(1, 21)])
    report = push(table)
    assert report.streams["people"].acknowledged == 2
    assert '"zero":0,"size":2,"listed":2' in Path(report.log).read_text()
    store = SqlStore(table.settings.state_url)
    kept = dict(store.kept_values(Asset("crm", StreamId.of("people"))))
    store.close()
    assert kept == {
        ("syncId=crm.people", "type=count"): b'{"total":21}',
        ("syncId=crm.people", "type=zero"): b"0",
    }
