"""The next step that makes a Delta table as a stream needs it, without Spark."""

import json

import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import SchemaRefused
from dagster_airbyte_proto.loads.column_ids import columns_of
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.schema.evolution import EvolutionRules
from dagster_airbyte_proto.tables.delta.actions import new_table_metadata, read_metadata
from dagster_airbyte_proto.tables.delta.jvm import DeltaSnapshot
from dagster_airbyte_proto.tables.delta.preparation import DeltaPreparation, next_preparation

_BEFORE = pa.schema([("id", pa.int64()), ("gone", pa.string()), ("old", pa.string())])


def _made(*, has_feed: bool, schema: pa.Schema = _BEFORE) -> str:
    entry = json.loads(new_table_metadata(columns_of(schema), "", ()))
    if has_feed:
        entry["metaData"]["configuration"]["delta.enableChangeDataFeed"] = "true"
    return json.dumps(entry)


def _next(action: str, schema: pa.Schema, rules: EvolutionRules | None = None) -> DeltaPreparation:
    spec = TableSpec(TableName("shop", "t"), schema, evolution_rules=rules or EvolutionRules(), replaces=True)
    snapshot = DeltaSnapshot(None, 1, action, read_metadata(action))
    return next_preparation("preparing", snapshot, spec, columns_of(schema))


def _names(preparation: DeltaPreparation) -> list[str]:
    return [str(field["name"]) for field in preparation.columns["fields"]]


def test_a_refresh_proposes_its_columns_and_drops_the_others() -> None:
    step = _next(_made(has_feed=False), pa.schema([("id", pa.int64()), ("more", pa.string())]))
    assert _names(step) == ["id", "more"]
    assert step.action is not None
    assert set(read_metadata(step.action).proposed_columns) == {2}


def test_where_delta_keeps_a_change_feed_a_refresh_drops_and_renames_no_column_with_its_rows() -> None:
    schema = pa.schema([("id", pa.int64()), ("new", pa.string()), ("more", pa.string())])
    rules = EvolutionRules(formerly={"new": "old"})
    step = _next(_made(has_feed=True), schema, rules)
    assert _names(step) == ["id", "gone", "new", "more"]
    assert step.action is not None
    changed = read_metadata(step.action)
    assert not changed.proposed_columns
    assert changed.physical_names["new"] == "old"
    done = _next(step.action, schema, rules)
    assert done.is_done
    assert done.schema_id is None


def test_where_delta_keeps_a_change_feed_a_refresh_may_bring_other_types() -> None:
    schema = pa.schema([("id", pa.string()), ("gone", pa.string()), ("old", pa.string())])
    step = _next(_made(has_feed=True), schema)
    assert step.action is not None
    assert set(read_metadata(step.action).proposed_columns) == {2}


def test_where_delta_keeps_a_change_feed_a_refresh_takes_no_members_with_its_rows() -> None:
    before, after = (pa.schema([("thing", kind)]) for kind in (pa.struct([("a", pa.int64())]), pa.string()))
    with pytest.raises(SchemaRefused, match="column thing is struct<a: bigint> in the table and string in the stream"):
        _next(_made(has_feed=True, schema=before), after)
    assert _next(_made(has_feed=False, schema=before), after).action is not None
