"""A connection over many days, beside a slow and obviously right model of its tables.

The source changes from day to day: rows are added, changed, deleted and sent late; columns come, go and change their
type. The user changes policies and refreshes, and syncs are killed. After each sync every table equals the model. After
each kill it equals the model for some part of the new records, and no state is ahead of them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dagster_airbyte_proto.tables.formats import find_format
from tests.support.fork_server import Kill
from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.killed_connection import KILLED

STREAMS = {
    "events": "append",
    "users": "append_dedup",
    "accounts": "soft_delete",
    "goods": "overwrite_dedup",
}
COLUMNS = {"number_a": "integer", "number_b": "integer", "text_a": "string", "text_b": "string"}
POLICIES = ("evolve", "freeze", "discard_column", "discard_row")
DELETED = "_ab_cdc_deleted_at"
_WHEN = "2026-01-01T00:00:00Z"
_MISFIT = "no number"
_TICK = 1000
_Record = dict[str, Any]


class SendRecord(NamedTuple):
    """The source has another record: a `row` of a key, its `deletion`, or a `late` row, older than the key's newest."""

    stream: str
    what: str
    key: int
    value: int | None


class TurnColumn(NamedTuple):
    """A column comes or goes."""

    stream: str
    column: str


class Mistype(NamedTuple):
    """A number, in a column that the table has, becomes text, or a number again."""

    stream: str
    column: str


class SetPolicy(NamedTuple):
    stream: str
    policy: str


Change = SendRecord | TurnColumn | Mistype | SetPolicy


class Day(NamedTuple):
    """Changes, then syncs that are killed in turn, and one that runs to its end."""

    changes: Sequence[Change]
    refresh: bool
    kills: Sequence[Kill]
    state_every: int


class Runner(Protocol):
    """Runs syncs, one at a time, and returns their exit codes."""

    def sync(self, connection: FakeConnection, crash: Kill | None = None, *, refresh: bool = False) -> int: ...

    def care(self, connection: FakeConnection) -> None:
        """Compacts and expires the tables, where their format can."""


class Stream:
    """One stream of the source, and the model of its table."""

    def __init__(self, name: str, *, brings_columns: bool) -> None:
        """`brings_columns`: a load that replaces the table may change its columns."""
        self.name, self.write = name, STREAMS[name]
        self._brings_columns = brings_columns
        self.is_incremental = not self.write.startswith("overwrite")
        self.policy = "evolve"
        self.offered: dict[str, str] = {}
        self.log: list[_Record] = []
        self.position = 0
        self._landed: list[_Record] = []
        self._columns: dict[str, str] | None = None
        self._newest: dict[int, int] = {}
        self._lates = 0

    def change(self, change: Change) -> None:
        match change:
            case SendRecord():
                self._send_record(change)
            case SetPolicy():
                self.policy = change.policy
            case TurnColumn(column=column) if column in self.offered:
                del self.offered[column]
            case TurnColumn(column=column):
                self.offered[column] = COLUMNS[column]
            case Mistype(column=column) if self._is_number(column) and column in self.offered:
                self.offered[column] = "integer" if self.offered[column] == "string" else "string"

    def as_offered(self) -> dict[str, Any]:
        """The stream in the scenario of the source, with its current records and columns."""
        properties: dict[str, Any] = {"id": {"type": "integer"}, "at": {"type": "integer"}}
        properties[DELETED] = {"type": ["null", "string"], "format": "date-time"}
        properties |= {column: {"type": ["null", kind]} for column, kind in self.offered.items()}
        rows = [self._sent(record) for record in self.log]
        return {"rows": rows, "properties": properties, "primary_key": [["id"]], "cursor": ["at"]}

    def is_refused(self, *, refresh: bool) -> bool:
        """True when the policy refuses the stream, for the current columns of the table."""
        replaces = refresh or not self.is_incremental
        if self._columns is None or self.policy.startswith("discard") or self._is_renewed(replaces=replaces):
            return False
        is_other = any(self._columns.get(column, kind) != kind for column, kind in self.offered.items())
        return is_other or (self.policy == "freeze" and not self.offered.keys() <= self._columns.keys())

    def possible(self, *, refresh: bool) -> Iterator[tuple[int, list[_Record]]]:
        """The possible rows of the table after a killed sync, each with the greatest possible position."""
        yield self.position, self.table()
        replaces = refresh or not self.is_incremental
        if not self.is_refused(refresh=refresh):
            ends = [len(self.log)] if replaces else range(self.position + 1, len(self.log) + 1)
            yield from ((end, self._folded(self._after(end, replaces=replaces))) for end in ends)

    def complete(self, *, refresh: bool) -> None:
        """Updates the model for a complete sync."""
        replaces = refresh or not self.is_incremental
        if self.is_refused(refresh=refresh):
            return
        self._landed = self._after(len(self.log), replaces=replaces)
        self._columns = self._columns_after(replaces=replaces)
        self.position = len(self.log)

    def table(self) -> list[_Record]:
        return self._folded(self._landed)

    def _send_record(self, sent_record: SendRecord) -> None:
        newest = self._newest.get(sent_record.key)
        if sent_record.what == "late" and newest is not None:
            # Newer than all but the newest record of its key, so the result does not depend on the cut of loads.
            self._lates += 1
            at = newest - _TICK // 2 + self._lates
        else:
            at = _TICK * (len(self.log) + 1)
            self._newest[sent_record.key] = at
        record: _Record = {"id": sent_record.key, "at": at, DELETED: None}
        if sent_record.what == "deletion":
            record[DELETED] = _WHEN
            # A later record of this key is not late: the table remembers nothing of a deleted row.
            del self._newest[sent_record.key]
        else:
            record |= {
                column: _value(kind, sent_record.value) for column, kind in COLUMNS.items() if column in self.offered
            }
        self.log.append(record)

    def _sent(self, record: _Record) -> _Record:
        sent = {name: value for name, value in record.items() if name in self.offered or name not in COLUMNS}
        wrong = [column for column in sent if column in self.offered and self.offered[column] != COLUMNS[column]]
        return sent | {column: _MISFIT for column in wrong if sent[column] is not None}

    def _is_renewed(self, *, replaces: bool) -> bool:
        """True when the table gets exactly the stream's columns."""
        return replaces and self._brings_columns and self.policy == "evolve"

    def _columns_after(self, *, replaces: bool) -> dict[str, str]:
        """A new table has all columns."""
        if self._columns is None or self._is_renewed(replaces=replaces):
            return dict(self.offered)
        return {**self.offered, **self._columns} if self.policy == "evolve" else self._columns

    def _after(self, end: int, *, replaces: bool) -> list[_Record]:
        columns = self._columns_after(replaces=replaces)
        new = self.log[:end] if replaces else self.log[self.position : end]
        landed = [self._as_landed(record, columns) for record in map(self._sent, new)]
        return [*([] if replaces else self._landed), *(record for record in landed if record is not None)]

    def _as_landed(self, record: _Record, columns: Mapping[str, str]) -> _Record | None:
        """None for a row that is rejected."""
        kept: _Record = {}
        for name, value in record.items():
            fits = name not in COLUMNS or columns.get(name) == self.offered[name]
            if value is not None and fits:
                kept[name] = value
            elif value is not None and self.policy == "discard_row":
                return None
        return kept

    def _folded(self, landed: Sequence[_Record]) -> list[_Record]:
        """The rows that the write mode leaves of these records."""
        if self.write in ("append", "overwrite"):
            return list(landed)
        newest: dict[int, _Record] = {}
        for record in landed:
            if record["id"] not in newest or newest[record["id"]]["at"] <= record["at"]:
                newest[record["id"]] = record
        return [record for record in newest.values() if self.write == "soft_delete" or DELETED not in record]

    def _is_number(self, column: str) -> bool:
        return column in (self._columns or {}) and COLUMNS[column] == "integer"


class Year:
    """A connection with all `STREAMS`, in which days go by."""

    def __init__(self, runner: Runner, connection: FakeConnection) -> None:
        self._runner, self._connection = runner, connection
        brings = find_format(connection.format).abilities.has_new_columns_with_rows
        self.streams = {name: Stream(name, brings_columns=brings) for name in STREAMS}
        self.syncs = self.deaths = 0

    def live(self, day: Day) -> None:
        """Lives through a day. Raises AssertionError, with the day, where a table differs from the model."""
        for change in day.changes:
            self.streams[change.stream].change(change)
        self._offer(day)
        for kill in day.kills:
            self._sync(day, kill)
        self._sync(day)
        self._runner.care(self._connection)
        self._expect(day)

    def _offer(self, day: Day) -> None:
        self._connection.modes = {
            name: {
                "write": stream.write,
                "read": "incremental" if stream.is_incremental else "full_refresh",
                "schema_policy": stream.policy,
            }
            for name, stream in self.streams.items()
        }
        streams = {name: stream.as_offered() for name, stream in self.streams.items()}
        self._connection.offer({"streams": streams, "state_every": day.state_every})

    def _sync(self, day: Day, kill: Kill | None = None) -> None:
        code = self._runner.sync(self._connection, kill, refresh=day.refresh)
        self.syncs += 1
        if kill and code == KILLED:
            self.deaths += 1
            self._expect_some(day)
            return
        refused = any(stream.is_refused(refresh=day.refresh) for stream in self.streams.values())
        assert code == refused, (day, code, self._connection.report)
        for stream in self.streams.values():
            stream.complete(refresh=day.refresh)
        self._expect(day)

    def _expect(self, day: Day) -> None:
        for name, stream in self.streams.items():
            assert _counted(self._found(name)) == _counted(stream.table()), (name, day)
        positions = {name: stream.position for name, stream in self.streams.items() if stream.is_incremental}
        assert self._positions() == positions, day
        assert self._connection.loose_files() == [], day
        self._expect_once(day)

    def _expect_some(self, day: Day) -> None:
        """Checks that each table has some part of the new records, and that its state is not ahead."""
        positions = self._positions()
        for name, stream in self.streams.items():
            found = _counted(self._found(name))
            state = positions.get(name, 0)
            possible = [end for end, rows in stream.possible(refresh=day.refresh) if _counted(rows) == found]
            assert possible and (not stream.is_incremental or state <= max(possible)), (name, day, state, possible)
        self._expect_once(day)

    def _expect_once(self, day: Day) -> None:
        for name in self.streams:
            assert max(Counter(self._connection.landed(name)).values(), default=1) == 1, (name, day)

    def _positions(self) -> dict[str, int]:
        return {
            name: 0 for name, stream in self.streams.items() if stream.is_incremental
        } | self._connection.positions()

    def _found(self, name: str) -> list[_Record]:
        rows = ({key: row[key] for key in ("id", "at", DELETED, *COLUMNS) if key in row} for row in self._rows(name))
        return [{**row, DELETED: row.get(DELETED) and _WHEN} for row in rows]

    def _rows(self, name: str) -> list[_Record]:
        return self._connection.rows(name)


def _value(kind: str, value: int | None) -> int | str | None:
    return str(value) if kind == "string" and value is not None else value


def _counted(rows: Sequence[_Record]) -> Counter[Any]:
    """The rows as a multiset, in which a null equals a missing value."""
    return Counter(frozenset((key, value) for key, value in row.items() if value is not None) for row in rows)
