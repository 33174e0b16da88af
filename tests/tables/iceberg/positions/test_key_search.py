"""Keys are found in columns: the same rows as a comparison of each row with each key finds."""

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.tables.iceberg.positions.key_search import KeySearch

_NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
_TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "é", "ab"]))
_ROWS = st.lists(st.tuples(_NUMBERS, _TEXTS, _NUMBERS), max_size=30)
_SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64())])


def _table(rows: list[tuple[Any, ...]], width: int) -> pa.Table:
    names = _SCHEMA.names[:width]
    columns = [[row[at] for row in rows] for at in range(width)]
    return pa.table(dict(zip(names, columns, strict=True)), pa.schema([_SCHEMA.field(name) for name in names]))


@given(keys=_ROWS, rows=_ROWS, width=st.integers(1, 3))
def test_rows_are_found_by_keys_of_any_width_nulls_among_them(
    keys: list[tuple[Any, ...]], rows: list[tuple[Any, ...]], width: int
) -> None:
    wanted = {key[:width] for key in keys}
    found = KeySearch(_table(keys, width)).rows(_table(rows, width).columns, len(rows))
    assert found.tolist() == [at for at, row in enumerate(rows) if row[:width] in wanted]


@given(rows=_ROWS, keys=_ROWS)
def test_a_column_that_a_file_lacks_is_null(keys: list[tuple[Any, ...]], rows: list[tuple[Any, ...]]) -> None:
    wanted = {key[:2] for key in keys}
    found = KeySearch(_table(keys, 2)).rows([_table(rows, 1).column(0), None], len(rows))
    assert found.tolist() == [at for at, row in enumerate(rows) if (row[0], None) in wanted]


def _found(keys: pa.Array, rows: pa.Array) -> list[int]:
    return [int(row) for row in KeySearch(pa.table({"k": keys})).rows([pa.chunked_array([rows])], len(rows))]


def test_zeros_of_either_sign_are_equal() -> None:
    assert _found(pa.array([0.0, None]), pa.array([-0.0, 1.0, 0.0, None])) == [0, 2, 3]
    assert _found(pa.array([-0.0, 0.0, float("nan")]), pa.array([0.0, float("nan")], pa.float32())) == [0, 1]


def test_older_types_are_widened_and_values_that_do_not_fit_are_an_error() -> None:
    assert _found(pa.array([1, 1 << 40], pa.int64()), pa.array([1, 2], pa.int32())) == [0]
    assert _found(pa.array([0.5], pa.float64()), pa.array([0.5, 1], pa.float32())) == [0]
    assert _found(pa.array(["b"]), pa.array(["a", "b", "b"]).dictionary_encode()) == [1, 2]
    with pytest.raises(pa.ArrowInvalid):
        _found(pa.array([1], pa.int32()), pa.array([1 << 40], pa.int64()))


def test_nan_equals_nan() -> None:
    assert _found(pa.array([math.nan, None]), pa.array([1.0, math.nan, None])) == [1, 2]


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.bool_(), True, False),
        (pa.date32(), 5, 6),
        (pa.timestamp("us", "UTC"), 5, 6),
        (pa.time64("us"), 5, 6),
        (pa.decimal128(38, 9), 5, 6),
        (pa.binary(), b"a", b"b"),
        (pa.binary(2), b"ab", b"cd"),
    ],
)
def test_every_type_of_a_key_is_found(kind: pa.DataType, one: Any, other: Any) -> None:
    rows = pa.array([other, one, None, one], kind)
    assert _found(pa.array([one], kind), rows) == [1, 3]
    assert _found(pa.array([None, other], kind), rows) == [0, 2]
