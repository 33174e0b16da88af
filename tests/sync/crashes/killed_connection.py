"""One connection whose syncs are killed again and again, and the checks after each kill.

- The source has more records each time.
- After a kill: no state is ahead of its rows, no row and no load has landed twice, old rows are readable.
- After a complete sync: each row is there exactly once, the states cover the rows exactly, no file is left over.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count, takewhile
from types import MappingProxyType
from typing import Any, Protocol

from dagster_airbyte_proto.points import PARQUET_POINTS, POINTS
from tests.support.fork_server import Kill
from tests.sync.crashes.fake_connection import FakeConnection

STREAMS = ("users", "orders")
RESUMED_MODES = ("overwrite", "overwrite_dedup")
SCOPES = ("stream", "global")
KILLED = -9
_NEW_RECORDS = 7
_TRIES = 5
_KEYS = 7
_DELETED_EVERY = 3
_BY_KEY = ("append_dedup", "overwrite_dedup", "soft_delete")
_FORGETTING = ("append_dedup", "overwrite_dedup")


class Runner(Protocol):
    """Runs syncs in processes of their own, one at a time. `start` returns the process id, `end` the exit code."""

    def start(self, connection: FakeConnection, crash: Kill | None = None) -> int: ...

    def end(self) -> int: ...

    def sync(self, connection: FakeConnection, crash: Kill | None = None) -> int: ...


class KilledConnection:
    """A connection with the two `STREAMS`, each in its own write mode or both in one."""

    def __init__(
        self,
        runner: Runner,
        connection: FakeConnection,
        modes: str | Mapping[str, str],
        scope: str,
        *,
        refreshes: str = "whole",
        changes_columns: bool = False,
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Full refreshes are read "whole", or from a state on: an interrupted one is "resumed", or "dropped" because
        the next config is another one. With `changes_columns` new records have other columns than the ones before.
        Both streams have the `options`.
        """
        self.runner, self.connection, self.scope = runner, connection, scope
        self._refreshes, self._changes_columns = refreshes, changes_columns
        self._rounds = 0
        self._configs = count(1)
        self.modes = dict.fromkeys(STREAMS, modes) if isinstance(modes, str) else dict(modes)
        self.reached: Counter[str] = Counter()
        self.records = dict.fromkeys(STREAMS, 0)
        self._offered: dict[str, set[int]] = {stream: {0} for stream in STREAMS}
        self._seen = dict.fromkeys(STREAMS, 0)
        connection.modes = {
            stream: {"write": mode, "read": "full_refresh" if mode in RESUMED_MODES else "incremental", **options}
            for stream, mode in self.modes.items()
        }

    def add_records(self, new_records: int = _NEW_RECORDS) -> None:
        """Gives the source more records. The streams never have the same number of them."""
        self._rounds += 1
        for number, stream in enumerate(STREAMS):
            self.records[stream] += new_records + (number if self.records[stream] == 0 else 0)
            self._offered[stream].add(self.records[stream])
        self._offer()

    def _offer(self) -> None:
        by_key = {"keys": _KEYS, "deleted_every": _DELETED_EVERY}
        is_resumable = self._refreshes != "whole"
        streams = {
            stream: {"records": records, "pad": 40, "resumable": is_resumable}
            | (by_key if self._replaces_by_key(stream) else {})
            | (self._new_columns() if self._changes_columns else {})
            for stream, records in self.records.items()
        }
        if self._refreshes == "dropped":
            self.connection.config["count"] = next(self._configs)
        # A stream that is read whole each time, with a load at each state, has the same number of loads at any length.
        every = max(self.records.values()) // 3 + 1 if is_resumable else 5
        self.connection.offer({"streams": streams, "state": self.scope, "state_every": every, "interleave": True})

    def _new_columns(self) -> dict[str, Any]:
        """Changes the type of one column, and adds or removes another. The values say of which round they are."""
        is_text = self._rounds % 2 == 1
        values = {"size": f"as {self._rounds}"} if is_text else {"size": self._rounds, "odd": self._rounds}
        kind = {"type": "string" if is_text else "integer"}
        return {"values": values, "properties": dict.fromkeys(values, kind)}

    def sync_killed(self, kill: Kill, *, may_pass: bool = False) -> bool:
        """Kills a sync at a point. All that a source sends during a slow commit goes into one load. So there may be
        fewer loads than before, and the sync rightly comes to its end. Then the kill is tried in another sync.

        Returns False if the sync ends without having passed the point, which only one that `may_pass` is free to do."""
        for _ in range(_TRIES):
            self._offer()
            ended = self.runner.sync(self.connection, kill)
            self.reached += Counter(self.connection.points)
            if ended != 0 or kill[1] == 1:
                break
            self.expect_everything(kill)
            self.add_records()
        if may_pass and ended == 0:
            self.expect_everything(kill)
            return False
        assert ended == KILLED, (kill, ended, self._report())
        self.expect_order(kill)
        return True

    def sync_to_end(self, after: object = None) -> list[str]:
        """Runs a sync to its end. Returns the points that its recovery reached."""
        self._offer()
        ended = self.runner.sync(self.connection)
        assert ended == 0, (after, ended, self._report())
        self.reached += Counter(self.connection.points)
        self.expect_everything(after)
        recovering = takewhile(lambda point: point != "run.begun", self.connection.points)
        return [point for point in dict.fromkeys(recovering) if point != "run.leased"]

    def survive(self, *kills: Kill) -> list[str]:
        """Kills one sync after the other, then runs one to its end. Returns the points that its recovery reached."""
        self.add_records()
        for kill in kills:
            self.sync_killed(kill)
        return self.sync_to_end(kills)

    def survive_all(self, kills: Iterable[Kill]) -> None:
        """Survives each kill alone. After kills at the first reaching of a point, kills each point of the recovery
        too."""
        for kill in kills:
            recovering = self.survive(kill)
            if kill[1] == 1:
                self._kill_each_recovery(recovering, kill)

    def _kill_each_recovery(self, recovering: list[str], kill: Kill) -> None:
        """If the recovery does not pass the kill's point, the sync that recovers from one pair of deaths is the first
        to die of the next pair."""
        recovers_by_itself = kill[0] in recovering
        # Two processes are read in no fixed order: the same death may leave nothing to recover.
        may_pass = "parallel" in self.connection.more
        for second in recovering:
            self.add_records()
            self.sync_killed(kill)
            if not self.sync_killed((second, 1), may_pass=may_pass):
                continue
            if recovers_by_itself or second == recovering[-1]:
                self.sync_to_end((kill, second))

    def expect_order(self, after: object) -> None:
        """Checks that nothing is there twice, that no state is ahead of its rows, and that old rows can be read."""
        positions = self.connection.positions()
        for stream in STREAMS:
            rows = self.connection.rows(stream) if self._changes_columns else []
            ids = sorted(row["id"] for row in rows) if rows else self.connection.column(stream)
            end = self._end(stream, ids)
            assert ids == self._kept(stream, end), (after, stream, ids)
            assert end >= self._seen[stream], (after, stream, end, self._seen[stream])
            self._seen[stream] = end
            assert positions.get(stream, 0) <= end, (after, stream, positions, end)
            if self.modes[stream] in RESUMED_MODES:
                assert end in self._offered[stream], (after, stream, end)
            assert max(Counter(self.connection.landed(stream)).values(), default=1) == 1, (after, stream)
            self._expect_no_mix(rows, (after, stream))

    def _expect_no_mix(self, rows: list[dict[str, Any]], after: object) -> None:
        """Checks that the columns and all rows are of one round."""
        found = {(row["size"], row.get("odd"), "odd" in row) for row in rows}
        assert len(found) <= 1, (after, found)
        for size, odd, has_odd in found:
            assert (isinstance(size, int), odd) == ((True, size) if has_odd else (False, None)), (after, size, odd)

    def expect_everything(self, after: object) -> None:
        self.expect_order(after)
        assert self._seen == self.records, after
        stateful = {
            stream: records for stream, records in self.records.items() if self.modes[stream] not in RESUMED_MODES
        }
        assert self.connection.positions() == stateful, after
        assert self.connection.loose_files() == [], after
        assert self.connection.store.open_generations("shop") == [], after
        assert self.connection.branches() == [], after

    def count_faults(self) -> tuple[int, int]:
        """The numbers of lost and of duplicate rows, for the report of a fault."""
        lost = doubled = 0
        for stream in STREAMS:
            counts = Counter(self.connection.column(stream))
            wanted = self._kept(
                stream, max([self.connection.positions().get(stream, 0), *(each + 1 for each in counts)])
            )
            lost += sum(number not in counts for number in wanted)
            doubled += counts.total() - len(counts)
        return lost, doubled

    def _report(self) -> str:
        return self.connection.report_file.read_text() if self.connection.report_file.exists() else "no report"

    def _end(self, stream: str, ids: list[int]) -> int:
        """The id after the last record that a table with these ids has taken. That record may have been a deletion,
        which leaves only a gap."""
        last = ids[-1] + 1 if ids else 0
        took_one_more = last < self.records[stream] and ids == self._kept(stream, last + 1)
        return last + took_one_more

    def _kept(self, stream: str, end: int) -> list[int]:
        """The ids in a table that has landed all records before `end`."""
        newest = range(max(0, end - _KEYS) if self._replaces_by_key(stream) else 0, end)
        deletes = self.modes[stream] in _FORGETTING
        return [number for number in newest if not (deletes and (number + 1) % _DELETED_EVERY == 0)]

    def _replaces_by_key(self, stream: str) -> bool:
        return self.modes[stream] in _BY_KEY


def every_kill(clean_run: Iterable[str]) -> list[Kill]:
    """Each point at the first time, then each at the last time that a run without kills reached it."""
    clean = Counter(clean_run)
    reached = [point for point in (*POINTS, *PARQUET_POINTS) if clean[point]]
    return [*((point, 1) for point in reached), *((point, clean[point]) for point in reached if clean[point] > 1)]
