"""The schema of a stream: that of the catalog, with the one over it that the connector sent while it was read. And the
table that the stream needs for it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dagster_airbyte_proto.checkpoints.store import OpenGeneration
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, TableSpec
from dagster_airbyte_proto.model import DEDUPLICATING, PlannedStream, StreamId
from dagster_airbyte_proto.protocols.events import SchemaEvent
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.schema.evolution import EvolutionRules
from dagster_airbyte_proto.sync.plan.stream_plan import may_land_on_branch


def with_stored_schemas(
    streams: Sequence[PlannedStream], latest: Mapping[StreamId, SchemaEvent]
) -> tuple[PlannedStream, ...]:
    """The streams with the schemas that the connector sent last."""
    return tuple(with_schema(planned, latest[planned.id]) if planned.id in latest else planned for planned in streams)


def with_schema(planned: PlannedStream, event: SchemaEvent) -> PlannedStream:
    """The stream with the sent schema merged over that of the catalog. A key that the user configured stays."""
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
