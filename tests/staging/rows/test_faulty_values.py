"""A value that our own code fails on is nulled and noted, and the others stay."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.schema.columns import Column, ValueKind, ValueType
from dagster_airbyte_proto.staging.lines.raw_members import Raw
from dagster_airbyte_proto.staging.lines.raw_values import wire_array
from dagster_airbyte_proto.staging.rows.faulty_values import wire_array_around_faults
from dagster_airbyte_proto.staging.values.changes import Changes

_COLUMN = Column("v", ("v",), ValueType(ValueKind.INTEGER))


def _fails_on_13(column: Column, raws: Sequence[Raw], changes: Changes) -> pa.Array:
    array = wire_array(column, raws, changes)
    if 13 in array.to_pylist():
        raise IndexError
    return array


@pytest.mark.parametrize("faulty", [[], [0], [3, 4, 99], [0, 50, 51, 98], list(range(100))])
def test_each_faulty_value_is_nulled_and_noted_and_no_other(faulty: list[int]) -> None:
    raws = [Raw(msgspec.json.encode(13 if row in faulty else row + 100)) for row in range(100)]
    changes = Changes()
    array = wire_array_around_faults(_COLUMN, raws, changes, _fails_on_13)
    assert array.to_pylist() == [None if row in faulty else row + 100 for row in range(100)]
    assert changes.rows_nulled("v") == faulty
    entry = {"field": "v", "change": "NULLED", "reason": "DESTINATION_SERIALIZATION_ERROR"}
    assert changes.entry_lists(100).to_pylist() == [[entry] if row in faulty else [] for row in range(100)]


def test_a_fault_that_comes_from_no_value_is_raised() -> None:
    def fails(_column: Column, _raws: Sequence[Raw], _changes: Changes) -> pa.Array:
        raise IndexError

    with pytest.raises(IndexError):
        wire_array_around_faults(_COLUMN, [Raw(b"1")], Changes(), fails)
