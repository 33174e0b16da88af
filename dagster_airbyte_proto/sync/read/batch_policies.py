"""The policies for the batches of a sync's streams."""

import msgspec

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import PlannedStream
from dagster_airbyte_proto.protocols.rapidbyte.changes import sends_changes
from dagster_airbyte_proto.protocols.rapidbyte.stream_context import declared_columns
from dagster_airbyte_proto.staging.arrow.batch_policy import BatchPolicy
from dagster_airbyte_proto.sync.connector.launcher_choice import source_policies


def batch_policy(connection: Connection, planned: PlannedStream, fields: frozenset[str] | None) -> BatchPolicy | None:
    """The policy for the batches of a stream; None for connectors without. `fields` are the only ones to read."""
    if connection.connector.protocol != "rapidbyte":
        return None
    policies = source_policies(connection)
    answered = msgspec.structs.replace(policies, evolution=policies.evolution.over(planned.schema_policy))
    columns = declared_columns(planned.stream.raw)
    return BatchPolicy(str(planned.id), columns, answered, fields, sends_changes=sends_changes(planned))
