"""Rows that come in a later load than newer ones of their key leave those in the table."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import Freshness, KeyQuery
from dagster_airbyte_proto.model import FieldPath, PlannedStream, TableName, WriteMode
from dagster_airbyte_proto.tables.writer import TableWriter
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.staging.conftest import landed, plan, record

_PROPERTIES = {
    "id": {"type": "integer"},
    "part": {"type": "string"},
    "at": {"type": "integer"},
    "any": {"type": ["string", "number"]},
    "n": {"type": "integer"},
    "_ab_cdc_deleted_at": {"type": "string"},
}
_KEY = [("id",), ("part",)]


class Told(NamedTuple):
    """A record as a source may tell it, whose cursor is `at`."""

    id: int | None
    part: str | None
    at: int | None
    emitted_at: int = 1
    deletes: bool = False

    @property
    def order(self) -> tuple[int, int]:
        return -1 if self.at is None else self.at, self.emitted_at

    def line(self, number: int) -> bytes:
        data = {**self._asdict(), "any": self.at, "n": number, "_ab_cdc_deleted_at": "now" if self.deletes else None}
        return record(json.dumps(data), rest=f',"emitted_at":{self.emitted_at}')


def land(
    tables: TableWriter,
    planned: PlannedStream,
    loads: Sequence[Sequence[Told]],
    name: str = "l",
    branch: str | None = None,
) -> list[StagedRows]:
    numbers = itertools.count()
    return landed(tables, planned, [[told.line(next(numbers)) for told in load] for load in loads], name, branch)


def keyed(cursor: FieldPath, *, keeps_deleted: bool = False) -> PlannedStream:
    planned = plan(_PROPERTIES, write=WriteMode.APPEND_DEDUP, key=_KEY, cursor=cursor)
    return msgspec.structs.replace(planned, keeps_deleted=keeps_deleted)


def stands(tables: FolderTables) -> list[int]:
    return sorted(tables.rows(TableName("shop", "users")).column("n").to_pylist())


_LOADS = st.lists(
    st.lists(
        st.builds(
            Told,
            st.none() | st.integers(0, 1),
            st.none() | st.just("a"),
            st.none() | st.integers(0, 2),
            st.integers(1, 3),
            st.booleans(),
        ).filter(lambda told: told[:2] != (None, None)),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=5,
)


def _expected(loads: Sequence[Sequence[Told]], cursor: FieldPath, *, keeps_deleted: bool) -> tuple[list[int], int]:
    """What is in the table at the end, and how many keys the loads deleted."""
    table: dict[Any, tuple[tuple[int, int], int]] = {}
    number = deleted = 0
    for load in loads:
        newest: dict[Any, tuple[tuple[int, int], int, Told]] = {}
        for told in load:
            mine = (told.order if cursor else (0, told.emitted_at), number, told)
            newest[told[:2]] = max(newest.get(told[:2], mine), mine, key=lambda each: each[:2])
            number += 1
        for key, (order, row, told) in newest.items():
            if key in table and order < table[key][0]:
                continue
            deleted += told.deletes
            table[key] = (order, row)
            if told.deletes and not keeps_deleted:
                del table[key]
    return sorted(row for _, row in table.values()), deleted


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_LOADS, st.sampled_from([("at",), ("any",), ()]), st.booleans(), st.booleans())
def test_whatever_comes_in_whatever_load_the_newest_row_of_each_key_stays(
    loads: Sequence[Sequence[Told]], cursor: FieldPath, keeps_deleted: bool, is_aside: bool
) -> None:
    with TemporaryDirectory() as folder:
        tables = FolderTables(Path(folder))
        planned, branch = keyed(cursor, keeps_deleted=keeps_deleted), None
        if is_aside:
            # What readers see meanwhile is newer than all of it, and is replaced all the same.
            land(tables, planned, [[Told(0, "a", 9, 9)]], "old")
            planned, branch = msgspec.structs.replace(planned, write=WriteMode.OVERWRITE_DEDUP), "airbyte_proto_next"
        parts = land(tables, planned, loads, branch=branch)
        expected = _expected(loads, cursor, keeps_deleted=keeps_deleted)
        assert (stands(tables), sum(part.deleted for part in parts)) == expected


class _Asked(FolderTables):
    """Notes how many keys it was asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: list[int] = []

    def rows_with_keys(self, name: TableName, sought: KeyQuery, branch: str | None = None) -> pa.Table:
        self.asked.append(sought.keys.num_rows)
        return super().rows_with_keys(name, sought, branch)


def _asked(folder: Path, cursor: FieldPath, *loads: Sequence[Told]) -> list[int]:
    tables = _Asked(folder)
    land(tables, keyed(cursor), loads)
    return tables.asked


def test_an_ordinary_sync_asks_the_table_for_nothing(tmp_path: Path) -> None:
    first = [Told(number, "a", number, 10 + number) for number in range(9)]
    boundary_again = [Told(8, "a", 8, 20), Told(9, "a", 9, 20)]
    for number, cursor in enumerate([("at",), ("any",), ()]):
        assert _asked(tmp_path / str(number), cursor, first, boundary_again) == []


def test_the_table_is_asked_for_the_rows_in_question_alone(tmp_path: Path) -> None:
    first = [Told(number, "a", number, 10) for number in range(9)]
    second = [Told(8, "a", 8, 9), Told(9, "a", 9, 9), Told(3, "a", None, 20), Told(3, "a", 2, 20), Told(4, "a", 9, 9)]
    assert _asked(tmp_path, ("at",), first, second) == [2]


def test_what_others_brought_into_the_table_is_looked_at_too(tmp_path: Path) -> None:
    tables = FolderTables(tmp_path)
    planned = keyed(("at",))
    land(tables, planned, [[Told(1, "a", 1)]])
    land(tables, msgspec.structs.replace(planned, write=WriteMode.APPEND), [[Told(2, "a", 9)]], "others")
    land(tables, planned, [[Told(2, "a", 8), Told(3, "a", 1)], [Told(3, "a", 0)]], "later")
    rows = {(row["id"], row["at"]) for row in tables.rows(TableName("shop", "users")).to_pylist()}
    assert rows == {(1, 1), (2, 9), (3, 1)}


def _any(number: int, text: str, n: int) -> bytes:
    return record(f'{{"id":{number},"part":"a","any":{text},"n":{n}}}', rest=f',"emitted_at":{n}')


def test_strings_of_a_cursor_without_a_single_type_are_compared_as_they_read(tmp_path: Path) -> None:
    loads = [
        [_any(1, '"2024-01-01 10:00"', 0), _any(2, '"\\u0062"', 1)],
        [_any(1, '"2024-01-01"', 2), _any(2, '"a"', 3)],
    ]
    tables = FolderTables(tmp_path)
    parts = landed(tables, keyed(("any",)), loads)
    assert ([part.duplicates for part in parts], stands(tables)) == ([0, 2], [0, 1])


class _MarkedBefore(_Asked):
    """Has a high-water mark from before strings were compared as they read."""

    mark: tuple[str | None, ...] = ()

    def freshness(self, name: TableName, branch: str | None = None) -> Freshness:
        found = super().freshness(name, branch)
        if found.high_water_mark is None or not self.mark:
            return found
        mark = msgspec.structs.replace(found.high_water_mark, values=self.mark)
        return found._replace(high_water_mark=mark)


@pytest.mark.parametrize(
    ("mark", "first", "second", "asked", "left"),
    [
        # `"a b"` was below `"a"`, so the mark says nothing of it.
        (("2", None, None, '"a"'), ['"a b"', '"a"'], ['"a a"', '"b"'], [1], [0, 3]),
        (("1", "5.0", None, None), ["5", "4"], ["4.5", "6"], [1], [0, 3]),
        (("0", None, None, None), ["null", "null"], ["0", '""'], [], [2, 3]),
        (("2", None, None, "true"), ["true", '"z"'], ['"s"', '"zz"'], [2], [0, 3]),
    ],
)
def test_a_mark_from_before_is_above_what_it_was_above(
    tmp_path: Path, mark: tuple[str | None, ...], first: list[str], second: list[str], asked: list[int], left: list[int]
) -> None:
    tables = _MarkedBefore(tmp_path)
    landed(tables, keyed(("any",)), [[_any(each, text, each) for each, text in enumerate(first)]], "before")
    tables.mark = mark
    landed(tables, keyed(("any",)), [[_any(each, text, each + 2) for each, text in enumerate(second)]])
    assert (tables.asked, stands(tables)) == (asked, left)
