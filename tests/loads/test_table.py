"""The digest by which a sync knows that an earlier one prepared the same table."""

import subprocess
import sys

import pyarrow as pa
import pytest

from dagster_airbyte_proto.loads.table import TableSpec, spec_digest
from dagster_airbyte_proto.model import Ordering, PartitionField, SortField, TableName
from dagster_airbyte_proto.schema.evolution import EvolutionRules

_SCHEMA = pa.schema([pa.field("id", pa.int64(), metadata={"comment": "the key", "unit": "none"})])
_SPEC = TableSpec(
    TableName("shop", "users"), _SCHEMA, ("id",), evolution_rules=EvolutionRules(own_columns=frozenset("abcdef"))
)
_PLACE = "iceberg lake /warehouse"


def test_equal_specs_have_equal_digests_in_every_process() -> None:
    program = f"from {__name__} import _PLACE, _SPEC, spec_digest; print(spec_digest(_SPEC, _PLACE))"
    found = {subprocess.check_output([sys.executable, "-c", program], text=True).strip() for _ in range(2)}
    assert found == {spec_digest(_SPEC, _PLACE)}


@pytest.mark.parametrize(
    "change",
    [
        {"name": TableName("shop", "orders")},
        {"schema": pa.schema([pa.field("id", pa.int32(), metadata={"comment": "the key"})])},
        {"schema": pa.schema([pa.field("id", pa.int64())])},
        {"keys": ()},
        {"comment": "people"},
        {"slice_column": "day"},
        {"evolution_rules": EvolutionRules(formerly={"id": "key"})},
        {"partitioning": (PartitionField("identity", "id"),)},
        {"ordering": Ordering(sorted=(SortField("id"),))},
        {"replaces": True},
    ],
    ids=lambda change: "-".join(change),
)
def test_another_table_has_another_digest(change: dict[str, object]) -> None:
    assert spec_digest(_SPEC._replace(**change), _PLACE) != spec_digest(_SPEC, _PLACE)  # type: ignore[arg-type]  # each change is of one field


def test_another_place_is_another_table() -> None:
    assert spec_digest(_SPEC, "delta spark_catalog /warehouse") != spec_digest(_SPEC, _PLACE)


def test_the_branch_to_resume_does_not_count() -> None:
    assert spec_digest(_SPEC._replace(resumed_branch="airbyte_proto_shop"), _PLACE) == spec_digest(_SPEC, _PLACE)
