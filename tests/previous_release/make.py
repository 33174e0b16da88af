"""Makes the homes anew: `python -m tests.previous_release.make PROGRAM [FORMAT ...]`.

PROGRAM is the path of the previous release's `airbyte-proto`. Its processes make everything in the homes, this code
only writes the connections. Run it once a release, with the program that users had until then.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from dagster_airbyte_proto.testing import crash_points, fake_source
from tests.previous_release.home import BOOKS_ANNOUNCED, BOOKS_ON_BRANCH, DAYS, FORMATS, PreviousHome
from tests.sync.crashes.spark_connections import processes_with

_MARK = ("AIRBYTE_PROTO_TEST", uuid4().hex)
_COMPLETE, _FAILED, _KILLED = 0, 1, -9

# Rows land on a branch at a state that comes once the tables are open, and a JVM takes its time.
_WAITING_CONNECTOR = """
import subprocess, sys, time
connector = subprocess.Popen([sys.executable, *{command}, *sys.argv[1:]], stdout=subprocess.PIPE)
for line in connector.stdout:
    if b'"STATE"' in line:
        time.sleep(25)
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
sys.exit(connector.wait())
"""


def main(arguments: Sequence[str]) -> None:
    program, *formats = arguments
    for table_format in formats or FORMATS:
        home = PreviousHome(table_format)
        with home.locked():
            home.bring_connector()
            home.configure()
            Maker(home, program).make()
            home.pack()
        print(f"{home.archive.name}: {home.archive.stat().st_size / 1024:.0f} KiB")  # noqa: T201 - it is a script


class Maker:
    """Fills one home by syncs of the previous release."""

    def __init__(self, home: PreviousHome, program: str) -> None:
        self._home, self._program = home, program

    def make(self) -> None:
        self._make_market()
        if self._home.has_branches:
            self._make_books()
        if self._home.has_slices:
            self._make_days()
        self._make_shop()
        # A JVM outlives its killed sync for a moment, and must not write while the home is packed.
        while any(processes_with(_MARK)):
            time.sleep(0.1)

    def _make_market(self) -> None:
        new_config = {"scenario": str(self._home.scenario("market-stored"))}
        self._home.offer("market", self._home.market_streams(0), state="global", state_every=4, new_config=new_config)
        self._sync("market", _COMPLETE)

    def _make_books(self) -> None:
        self._home.offer("books", self._home.books_streams(0), state_every=4)
        self._sync("books", _COMPLETE)
        # Each attempt fails two records after a state.
        breaks = {"kind": "exit", "after": BOOKS_ON_BRANCH + 2}
        self._home.offer("books", self._home.books_streams(1), state_every=4, failure=breaks)
        self._home.connector.write_text(_WAITING_CONNECTOR.format(command=[fake_source.__file__]))
        self._sync("books", _FAILED)
        self._home.bring_connector()
        breaks = {"kind": "exit", "after": BOOKS_ANNOUNCED - BOOKS_ON_BRANCH + 2}
        self._home.offer("books", self._home.books_streams(1), state_every=4, failure=breaks)
        self._sync("books", _KILLED)

    def _make_days(self) -> None:
        for day, records in DAYS.items():
            self._home.offer(day, {"sales": {"records": records}})
            self._sync("days", _COMPLETE, "--partition", day)

    def _make_shop(self) -> None:
        self._home.offer("shop", self._home.shop_streams(0), state_every=3)
        self._sync("shop", _COMPLETE)
        self._home.offer("shop", self._home.shop_streams(1), state_every=3)
        self._sync("shop", _KILLED)

    def _sync(self, connection: str, expected: int, *options: str) -> None:
        words = "sync", self._home.connection(connection), *options, "--json"
        program = [self._program]
        if expected == _KILLED:
            program = [str(Path(self._program).with_name("python")), *crash_points.command("load.announced")[1:]]
        ended = self._home.run(program, *words, environment=dict([_MARK]))
        assert ended.returncode == expected, (connection, ended.returncode, ended.stdout, ended.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
