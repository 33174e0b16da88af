"""A connection that lives long, beside a model of what its tables have to hold that is slow and obviously right.

Its source changes from day to day: rows come, change, go and come late, columns come, go and get another type. So does
what its user wants: policies, refreshes, where it is killed. After each sync every table is what the model says; after
each death it is what the model says of some of the records that were new, and no state is ahead of them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dagster_airbyte_proto.tables.formats import FORMATS
from tests.support.fork_server import Kill
from tests.sync.crashes.house import House
from tests.sync.crashes.life import KILLED

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


class Tell(NamedTuple):
    """The source has a record more: a `row` of a key, its `deletion`, or one that is older than the key's newest."""

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


Change = Tell | TurnColumn | Mistype | SetPolicy


class Day(NamedTuple):
    """What changes, then a sync that dies of each kill in turn before it comes to its end."""

    changes: Sequence[Change]
    refresh: bool
    kills: Sequence[Kill]
    state_every: int


class Runner(Protocol):
    """Runs syncs, one at a time; how each ended."""

    def sync(self, house: House, crash: Kill | None = None, *, refresh: bool = False) -> int: ...

    def care(self, house: House) -> None:
        """What the tables' format has of compaction and expiry."""


class Stream:
    """One stream of the source, and what its table has to hold."""

    def __init__(self, name: str, *, brings_columns: bool) -> None:
        """What replaces the table `brings_columns` of its own, or does not."""
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
            case Tell():
                self._tell(change)
            case SetPolicy():
                self.policy = change.policy
            case TurnColumn(column=column) if column in self.offered:
                del self.offered[column]
            case TurnColumn(column=column):
                self.offered[column] = COLUMNS[column]
            case Mistype(column=column) if self._is_number(column) and column in self.offered:
                self.offered[column] = "integer" if self.offered[column] == "string" else "string"

    def as_offered(self) -> dict[str, Any]:
        """The source sends what it has by now in the columns that it has by now."""
        properties: dict[str, Any] = {"id": {"type": "integer"}, "at": {"type": "integer"}}
        properties[DELETED] = {"type": ["null", "string"], "format": "date-time"}
        properties |= {column: {"type": ["null", kind]} for column, kind in self.offered.items()}
        rows = [self._sent(record) for record in self.log]
        return {"rows": rows, "properties": properties, "primary_key": [["id"]], "cursor": ["at"]}

    def is_refused(self, *, refresh: bool) -> bool:
        """Whether its policy lets nothing in, as the table stands."""
        replaces = refresh or not self.is_incremental
        if self._columns is None or self.policy.startswith("discard") or self._is_renewed(replaces=replaces):
            return False
        is_other = any(self._columns.get(column, kind) != kind for column, kind in self.offered.items())
        return is_other or (self.policy == "freeze" and not self.offered.keys() <= self._columns.keys())

    def possible(self, *, refresh: bool) -> Iterator[tuple[int, list[_Record]]]:
        """What the table may hold once a sync has come so far, each with the state that it may have at most."""
        yield self.position, self.table()
        replaces = refresh or not self.is_incremental
        if not self.is_refused(refresh=refresh):
            ends = [len(self.log)] if replaces else range(self.position + 1, len(self.log) + 1)
            yield from ((end, self._folded(self._after(end, replaces=replaces))) for end in ends)

    def complete(self, *, refresh: bool) -> None:
        """A sync has come to its end."""
        replaces = refresh or not self.is_incremental
        if self.is_refused(refresh=refresh):
            return
        self._landed = self._after(len(self.log), replaces=replaces)
        self._columns = self._columns_after(replaces=replaces)
        self.position = len(self.log)

    def table(self) -> list[_Record]:
        return self._folded(self._landed)

    def _tell(self, told: Tell) -> None:
        newest = self._newest.get(told.key)
        if told.what == "late" and newest is not None:
            # Newer than all but the newest: so it is the same whatever else is in its load.
            self._lates += 1
            at = newest - _TICK // 2 + self._lates
        else:
            at = _TICK * (len(self.log) + 1)
            self._newest[told.key] = at
        record: _Record = {"id": told.key, "at": at, DELETED: None}
        if told.what == "deletion":
            record[DELETED] = _WHEN
            # A later one of this key is no late one: that its row is gone is all that the table knows of it.
            del self._newest[told.key]
        else:
            record |= {column: _value(kind, told.value) for column, kind in COLUMNS.items() if column in self.offered}
        self.log.append(record)

    def _sent(self, record: _Record) -> _Record:
        sent = {name: value for name, value in record.items() if name in self.offered or name not in COLUMNS}
        wrong = [column for column in sent if column in self.offered and self.offered[column] != COLUMNS[column]]
        return sent | {column: _MISFIT for column in wrong if sent[column] is not None}

    def _is_renewed(self, *, replaces: bool) -> bool:
        """Whether the table is to have the stream's columns and no others."""
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
        """What is left of the records by the write mode."""
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
    """A house with all `STREAMS`, in which days go by."""

    def __init__(self, runner: Runner, house: House) -> None:
        self._runner, self._house = runner, house
        brings = FORMATS[house.format].has_new_columns_with_rows
        self.streams = {name: Stream(name, brings_columns=brings) for name in STREAMS}
        self.syncs = self.deaths = 0

    def live(self, day: Day) -> None:
        """Raises AssertionError, with the day, where a table is not what it has to be."""
        for change in day.changes:
            self.streams[change.stream].change(change)
        self._offer(day)
        for kill in day.kills:
            self._sync(day, kill)
        self._sync(day)
        self._runner.care(self._house)
        self._expect(day)

    def _offer(self, day: Day) -> None:
        self._house.modes = {
            name: {
                "write": stream.write,
                "read": "incremental" if stream.is_incremental else "full_refresh",
                "schema_policy": stream.policy,
            }
            for name, stream in self.streams.items()
        }
        streams = {name: stream.as_offered() for name, stream in self.streams.items()}
        self._house.offer({"streams": streams, "state_every": day.state_every})

    def _sync(self, day: Day, kill: Kill | None = None) -> None:
        code = self._runner.sync(self._house, kill, refresh=day.refresh)
        self.syncs += 1
        if kill and code == KILLED:
            self.deaths += 1
            self._expect_some(day)
            return
        refused = any(stream.is_refused(refresh=day.refresh) for stream in self.streams.values())
        assert code == refused, (day, code, self._house.report)
        for stream in self.streams.values():
            stream.complete(refresh=day.refresh)
        self._expect(day)

    def _expect(self, day: Day) -> None:
        for name, stream in self.streams.items():
            assert _counted(self._found(name)) == _counted(stream.table()), (name, day)
        positions = {name: stream.position for name, stream in self.streams.items() if stream.is_incremental}
        assert self._positions() == positions, day
        assert self._house.loose_files() == [], day
        self._expect_once(day)

    def _expect_some(self, day: Day) -> None:
        """Each table is as before or further, and its state behind it."""
        positions = self._positions()
        for name, stream in self.streams.items():
            found = _counted(self._found(name))
            state = positions.get(name, 0)
            possible = [end for end, rows in stream.possible(refresh=day.refresh) if _counted(rows) == found]
            assert possible and (not stream.is_incremental or state <= max(possible)), (name, day, state, possible)
        self._expect_once(day)

    def _expect_once(self, day: Day) -> None:
        for name in self.streams:
            assert max(Counter(self._house.landed(name)).values(), default=1) == 1, (name, day)

    def _positions(self) -> dict[str, int]:
        return {name: 0 for name, stream in self.streams.items() if stream.is_incremental} | self._house.positions()

    def _found(self, name: str) -> list[_Record]:
        rows = ({key: row[key] for key in ("id", "at", DELETED, *COLUMNS) if key in row} for row in self._rows(name))
        return [{**row, DELETED: row.get(DELETED) and _WHEN} for row in rows]

    def _rows(self, name: str) -> list[_Record]:
        return self._house.rows(name)


def _value(kind: str, value: int | None) -> int | str | None:
    return str(value) if kind == "string" and value is not None else value


def _counted(rows: Sequence[_Record]) -> Counter[Any]:
    """As a bag, in which a null is as good as nothing."""
    return Counter(frozenset((key, value) for key, value in row.items() if value is not None) for row in rows)
