"""The schema of a stream: that of the catalog, with the one over it that the connector sent while it was read. And the
table that the stream needs for it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dagster_airbyte_proto.checkpoints.store import OpenGeneration
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, TableSpec
from dagster_airbyte_proto.model import DEDUPLICATING, FieldPath, PlannedStream, StreamId
from dagster_airbyte_proto.protocols.events import SchemaEvent
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.schema.evolution import EvolutionRules
from dagster_airbyte_proto.schema.names import case_folded
from dagster_airbyte_proto.sync.plan.stream_plan import may_land_on_branch


def with_stored_schemas(
    streams: Sequence[PlannedStream], latest: Mapping[StreamId, SchemaEvent]
) -> tuple[PlannedStream, ...]:
    """The streams with the schemas that the connector sent last."""
    return tuple(with_schema(planned, latest[planned.id]) if planned.id in latest else planned for planned in streams)


def with_schema(planned: PlannedStream, event: SchemaEvent) -> PlannedStream:
    """The stream with the sent schema merged over that of the catalog. A key that the user configured stays."""
    planned = _with_case_changes(planned, event)
    catalog_schema, sent = planned.stream.json_schema, event.json_schema
    known, unsupported = schema_properties(catalog_schema), planned.stream.unsupported_fields
    updates = {
        name: rule
        for name, rule in schema_properties(sent).items()
        if (rule or name not in known) and name not in unsupported
    }
    properties = {**known, **updates}
    stream = msgspec.structs.replace(planned.stream, json_schema={**catalog_schema, **sent, "properties": properties})
    has_key = bool(event.primary_key) and all(path[0] in properties for path in event.primary_key)
    if planned.is_key_configured or not has_key:
        return msgspec.structs.replace(planned, stream=stream)
    stream = msgspec.structs.replace(stream, primary_key=event.primary_key)
    return msgspec.structs.replace(planned, stream=stream, primary_key=event.primary_key)


def _with_case_changes(planned: PlannedStream, event: SchemaEvent) -> PlannedStream:
    """The stream whose known fields are written as in the sent schema, where that has them in another case alone.

    Such a field continues in its column. Beside the new name the old one would be a column, which stays empty.
    """
    sent, known = schema_properties(event.json_schema), schema_properties(planned.stream.json_schema)
    new, lost = (
        {case_folded(name): name for name in one if name not in other} for one, other in ((sent, known), (known, sent))
    )
    renamed = {lost[folded]: name for folded, name in new.items() if folded in lost}
    if not renamed:
        return planned

    def follow(path: FieldPath) -> FieldPath:
        return (renamed.get(path[0], path[0]), *path[1:]) if path else path

    offered = msgspec.structs.replace(
        planned.stream,
        json_schema={
            **planned.stream.json_schema,
            "properties": {renamed.get(name, name): rule for name, rule in known.items()},
        },
        primary_key=tuple(map(follow, planned.stream.primary_key)),
        cursor=follow(planned.stream.cursor),
    )
    return msgspec.structs.replace(
        planned,
        stream=offered,
        primary_key=tuple(map(follow, planned.primary_key)),
        cursor=follow(planned.cursor),
    )


def schema_properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def table_spec(
    planned: PlannedStream, columns: Columns, rules: EvolutionRules, open_generation: OpenGeneration | None = None
) -> TableSpec:
    """The table that the stream needs. With an `open_generation` the sync resumes the branch of an earlier run."""
    slice_column = None if planned.slice is None else SLICE_COLUMN
    return TableSpec(
        planned.table,
        columns.schema,
        columns.keys,
        slice_column=slice_column,
        evolution_rules=rules,
        partitioning=columns.partitioning,
        ordering=columns.ordering,
        replaces=may_land_on_branch(planned),
        resumed_branch=open_generation.branch if open_generation else None,
        record_form=columns.record_form,
        merge=planned.merge if planned.write in DEDUPLICATING else None,
    )
