"""The columns of a Delta table in its log, without Spark."""

import json
from typing import Any

import pyarrow as pa

from dagster_airbyte_proto.loads.column_ids import columns_of
from dagster_airbyte_proto.schema.evolution import EvolutionRules, IcebergSchema, evolution_decision
from dagster_airbyte_proto.schema.replacement import ReplacedTable, replacement_schema
from dagster_airbyte_proto.tables.delta.actions import (
    metadata_with_columns,
    metadata_with_proposed_columns,
    metadata_with_published_columns,
    new_table_metadata,
    read_metadata,
)

_SCHEMA = pa.schema([("id", pa.int64()), ("mail", pa.string()), ("größe", pa.int64()), ("c3", pa.int64())])


def _evolved(action: str, schema: pa.Schema) -> str:
    metadata = read_metadata(action)
    decision = evolution_decision(metadata.columns, columns_of(schema), metadata.last_column_id, EvolutionRules())
    return metadata_with_columns(action, decision.columns, decision.last_id)


def _changed(action: str, *fields: dict[str, Any]) -> str:
    columns: IcebergSchema = {"type": "struct", "fields": list(fields)}
    return metadata_with_columns(action, columns, read_metadata(action).last_column_id)


def _physical_names(action: str) -> dict[str, str]:
    names = dict(read_metadata(action).physical_names)
    assert len({name.casefold() for name in names.values()}) == len(names)
    return names


def test_the_columns_of_a_new_table_keep_their_names_in_its_log_where_any_reader_takes_them() -> None:
    names = _physical_names(new_table_metadata(columns_of(_SCHEMA), "", ()))
    other = names.pop("größe")
    assert names == {"id": "id", "mail": "mail", "c3": "c3"}
    assert other.isascii()


def test_a_new_column_has_another_name_in_the_log_than_one_that_was_renamed_or_dropped() -> None:
    first = new_table_metadata(columns_of(_SCHEMA), "", ())
    fields = {str(field["name"]): field for field in read_metadata(first).columns["fields"]}
    others = [fields["id"], fields["größe"], fields["c3"]]
    renamed = _evolved(_changed(first, *others, {**fields["mail"], "name": "email"}), _SCHEMA)
    assert _physical_names(renamed)["email"] == "mail"
    assert set(read_metadata(renamed).physical_names) == {*_SCHEMA.names, "email"}
    # Its statistics in files of before would be taken for those of the new column.
    back = _evolved(_changed(first, *others), _SCHEMA)
    assert _physical_names(back)["mail"] != "mail"


def test_a_new_member_has_another_name_in_the_log_too() -> None:
    def thing(*members: str) -> pa.Schema:
        return pa.schema([("thing", pa.struct([(member, pa.string()) for member in members]))])

    first = new_table_metadata(columns_of(thing("a")), "", ())
    [column] = read_metadata(first).columns["fields"]
    [member] = column["type"]["fields"]
    called = {**column, "type": {**column["type"], "fields": [{**member, "name": "b"}]}}
    schema = json.loads(read_metadata(_evolved(_changed(first, called), thing("a"))).schema_string)
    found = {each["name"]: each["metadata"] for each in schema["fields"][0]["type"]["fields"]}
    names = {name: metadata["delta.columnMapping.physicalName"] for name, metadata in found.items()}
    assert names["b"] == "a" != names["a"]


def test_proposed_columns_keep_their_names_in_the_log_when_they_are_published() -> None:
    first = new_table_metadata(columns_of(_SCHEMA), "", ())
    metadata = read_metadata(first)
    wanted = columns_of(_SCHEMA.append(pa.field("more", pa.string())))
    decision = evolution_decision(metadata.columns, wanted, metadata.last_column_id, EvolutionRules())
    proposed = metadata_with_proposed_columns(first, decision.columns, decision.last_id, 1)
    before = {field["name"]: field["metadata"] for field in read_metadata(proposed).proposed_columns[1]["fields"]}
    published = metadata_with_published_columns(proposed, 1)
    assert published is not None
    assert {field["name"]: field["metadata"] for field in read_metadata(published).columns["fields"]} == before


def test_the_columns_of_a_refresh_have_their_own_names_in_the_log_unless_a_renamed_one_has_them() -> None:
    first = new_table_metadata(columns_of(_SCHEMA), "", ())
    fields = {str(field["name"]): field for field in read_metadata(first).columns["fields"]}
    renamed = _changed(first, fields["id"], {**fields["mail"], "name": "email"})
    wanted = columns_of(pa.schema([(name, pa.string()) for name in ("id", "email", "Mail")]))
    metadata = read_metadata(renamed)
    table = ReplacedTable(metadata.columns, metadata.last_column_id)
    decision, _ = replacement_schema(table, wanted, EvolutionRules())
    proposed = metadata_with_proposed_columns(renamed, decision.columns, decision.last_id, 1)
    published = metadata_with_published_columns(proposed, 1)
    assert published is not None
    names = _physical_names(published)
    assert (names["id"], names["email"]) == ("id", "mail")  # That of another type has another id alone.


def test_a_column_of_another_type_keeps_its_name_in_the_log_by_which_delta_sees_that_none_is_dropped() -> None:
    def with_more(more: pa.DataType) -> pa.Schema:
        things = pa.list_(pa.struct([("label", pa.string()), ("size", more)]))
        return _SCHEMA.append(pa.field("more", more)).append(pa.field("things", things))

    def names_of_members(action: str) -> list[str]:
        *_, things = json.loads(read_metadata(action).schema_string)["fields"]
        members = things["type"]["elementType"]["fields"]
        return [member["metadata"]["delta.columnMapping.physicalName"] for member in members]

    first = _evolved(new_table_metadata(columns_of(_SCHEMA), "", ()), with_more(pa.int64()))
    table = ReplacedTable(read_metadata(first).columns, read_metadata(first).last_column_id)
    decision, _ = replacement_schema(table, columns_of(with_more(pa.string())), EvolutionRules())
    proposed = metadata_with_proposed_columns(first, decision.columns, decision.last_id, 1)
    published = metadata_with_published_columns(proposed, 1)
    assert published is not None
    assert read_metadata(published).columns != read_metadata(first).columns
    assert _physical_names(published) == _physical_names(first)
    assert names_of_members(published) == names_of_members(first)
