"""Rows parted as Iceberg parts them: by the examples of its specification, and by a slow model of its rules."""

import datetime
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.model import PartitionField
from dagster_airbyte_proto.staging.files.murmur import murmur3_hash, murmur3_hashes
from dagster_airbyte_proto.staging.files.partitions import partition_values, split_by_partition

_EVENING = datetime.datetime(2017, 11, 16, 22, 31, 8, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (34, pa.int64(), 2017239379),
        (Decimal("14.20"), pa.decimal128(9, 2), -500754589),
        (datetime.date(2017, 11, 16), pa.date32(), -653330422),
        (_EVENING.replace(tzinfo=None), pa.timestamp("us"), -2047944441),
        (_EVENING, pa.timestamp("us", "UTC"), -2047944441),
        ("iceberg", pa.string(), 1210000089),
        (b"\x00\x01\x02\x03", pa.binary(), -188683207),
    ],
)
def test_hashes_are_those_of_the_specification(value: Any, kind: pa.DataType, expected: int) -> None:
    assert murmur3_hashes(pa.array([None, value, value], kind)).tolist()[1:] == [expected, expected]
    assert murmur3_hashes(pa.array([None, value], kind)[1:]).tolist() == [expected]


def _signed(number: int) -> int:
    return number - (1 << 32) if number >> 31 else number


@given(st.lists(st.binary(max_size=40), max_size=80), st.integers(0, 3))
def test_a_columns_hashes_are_those_of_its_values_one_by_one(values: list[bytes], skipped: int) -> None:
    column = pa.array([*[b"x"] * skipped, *values, b"long " * 50], pa.binary())[skipped:]
    assert murmur3_hashes(column).tolist() == [_signed(murmur3_hash(value)) for value in column.to_pylist()]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_whole_numbers_are_hashed_as_eight_bytes(values: list[int]) -> None:
    expected = [_signed(murmur3_hash(struct.pack("<q", value))) for value in values]
    assert murmur3_hashes(pa.array(values, pa.int64())).tolist() == expected


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1)))
def test_decimals_are_hashed_as_java_writes_their_digits(values: list[int]) -> None:
    def shortest(value: int) -> bytes:
        size = next(size for size in range(1, 18) if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1)
        return value.to_bytes(size, "big", signed=True)

    column = pa.array([None, *map(Decimal, values)], pa.decimal128(38, 0))[1:]
    assert murmur3_hashes(column).tolist() == [_signed(murmur3_hash(shortest(value))) for value in values]


_MOMENTS = [0, -1, 1, 86_400_000_000, -86_400_000_001, 1_609_459_199_999_999, -62_135_596_800_000_000]


def _moment(microseconds: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=microseconds)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_are_counted_from_1970_towards_the_past(zone: str | None) -> None:
    column = pa.array([*_MOMENTS, None], pa.timestamp("us", zone))
    found = {
        name: partition_values(PartitionField(name, "at"), column).to_pylist()
        for name in ("year", "month", "day", "hour")
    }
    moments = [_moment(each) for each in _MOMENTS]
    assert found["year"] == [*(each.year - 1970 for each in moments), None]
    assert found["month"] == [*((each.year - 1970) * 12 + each.month - 1 for each in moments), None]
    assert found["day"] == [*((each - _moment(0)).days for each in moments), None]
    assert found["hour"] == [*(each // 3_600_000_000 for each in _MOMENTS), None]


def test_dates_are_counted_too() -> None:
    column = pa.array([datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None])
    days = partition_values(PartitionField("day", "on"), column).to_pylist()
    assert days == partition_values(PartitionField("identity", "on"), column).to_pylist() == [-1, 19782, None]
    assert partition_values(PartitionField("month", "on"), column).to_pylist() == [-1, 54 * 12 + 1, None]
    assert partition_values(PartitionField("year", "on"), column).to_pylist() == [-1, 54, None]


def test_values_are_truncated_towards_the_smaller_and_texts_by_letters() -> None:
    numbers = pa.array([-1, 0, 9, 10, -11, None], pa.int64())
    assert partition_values(PartitionField("truncate", "n", 10), numbers).to_pylist() == [-10, 0, 0, 10, -20, None]
    texts = pa.array(["Übermut", "ab", "", None, "\U0001f600bcd"])
    assert partition_values(PartitionField("truncate", "t", 3), texts).to_pylist() == [
        "Übe",
        "ab",
        "",
        None,
        "\U0001f600bc",
    ]


def test_each_row_is_in_one_partition_in_its_order() -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["x", None, "y", "x", None, "x"], "n": [1, 1, 12, 3, 1, 15]})
    fields = [PartitionField("identity", "a"), PartitionField("truncate", "n", 10)]
    found = {partition: rows.tolist() for partition, rows in split_by_partition(batch, fields)}
    assert found == {("x", 0): [0, 3], (None, 0): [1, 4], ("y", 10): [2], ("x", 10): [5]}
    assert list(split_by_partition(batch.slice(0, 0), fields)) == []
