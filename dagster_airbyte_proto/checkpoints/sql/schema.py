"""The tables of the SQL store, as the code of this version uses them. `migrations.py` creates them.

Their names begin with `airbyte_proto_`: Dagster may use the same database, and has a table `runs` too.

In a key, "" stands for no namespace, and ("", "") for the whole connection. NULL would not do: two NULLs are never
equal in SQL.
"""

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
)

metadata = MetaData()


class UtcTime(TypeDecorator[datetime]):
    """A point in time. SQLite has no type for it and loses the time zone, so it is stored there in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _connection() -> Column[str]:
    return Column("connection", Text, ForeignKey("airbyte_proto_connections.connection"), primary_key=True)


schema_version = Table("airbyte_proto_schema_version", metadata, Column("version", Integer, primary_key=True))

connections = Table(
    "airbyte_proto_connections",
    metadata,
    Column("connection", Text, primary_key=True),
    # The counters only grow. They stay when leases, runs and states are deleted.
    Column("fence", Integer, nullable=False),
    Column("sync_id", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    # Empty until a run has begun, or somebody has set a state.
    Column("protocol", Text, nullable=False),
)

leases = Table(
    "airbyte_proto_leases",
    metadata,
    _connection(),
    # Empty for the whole connection.
    Column("partition_key", Text, primary_key=True),
    Column("fence", Integer, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("holder", Text, nullable=False),
    Column("since", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    Column("token", Text, nullable=False),
)

runs = Table(
    "airbyte_proto_runs",
    metadata,
    _connection(),
    Column("sync_id", Integer, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("holder", Text, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),
    Column("status", Text),
    Column("report", Text),
)

run_folders = Table(
    "airbyte_proto_run_folders",
    metadata,
    _connection(),
    Column("fence", Integer, primary_key=True),
    Column("folder", Text, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("partition_key", Text, nullable=False),
)

generations = Table(
    "airbyte_proto_generations",
    metadata,
    _connection(),
    Column("namespace", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("partition_key", Text, primary_key=True),
    Column("generation", Integer, nullable=False),
)

open_generations = Table(
    "airbyte_proto_open_generations",
    metadata,
    _connection(),
    Column("namespace", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("table_namespace", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("branch", Text, nullable=False),
    Column("likeness", Text, nullable=False),
    # Empty until its first load has landed.
    Column("load_id", Text, nullable=False),
    # Both are NULL where the generation cannot be resumed.
    Column("scope", Text),
    Column("message", LargeBinary),
    Column("changed_at", UtcTime, nullable=False),
)

states = Table(
    "airbyte_proto_states",
    metadata,
    _connection(),
    Column("namespace", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("partition_key", Text, primary_key=True),
    Column("scope", Text, nullable=False),
    # Bytes, not text: the connector gets its message back exactly as it sent it.
    Column("message", LargeBinary, nullable=False),
    Column("version", Integer, nullable=False),
    Column("changed_at", UtcTime, nullable=False),
    Column("run_id", Text, nullable=False),
)

state_history = Table(
    "airbyte_proto_state_history",
    metadata,
    _connection(),
    Column("version", Integer, primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("partition_key", Text, primary_key=True),
    # Both are NULL where the state was reset.
    Column("scope", Text),
    Column("message", LargeBinary),
    Column("changed_at", UtcTime, nullable=False),
    Column("who", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("run_id", Text, nullable=False),
)

landed_tables = Table(
    "airbyte_proto_landed_tables",
    metadata,
    _connection(),
    Column("namespace", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("partition_key", Text, primary_key=True),
    # Empty where the format has no identity of a table.
    Column("table_id", Text, nullable=False),
    Column("load_id", Text, nullable=False),
    Column("write_mode", Text, nullable=False),
    Column("is_covered", Integer, nullable=False),
)

loads = Table(
    "airbyte_proto_loads",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("load_id", Text, nullable=False, unique=True),
    Column("connection", Text, ForeignKey("airbyte_proto_connections.connection"), nullable=False),
    Column("run_id", Text, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("partition_key", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("announced_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),
    Column("reason", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("committed", Text, nullable=False),
    # NULL until it has ended.
    Column("ending", Text),
)

kept_configs = Table(
    "airbyte_proto_kept_configs",
    metadata,
    _connection(),
    Column("owner", Text, primary_key=True),
    Column("config", Text, nullable=False),
    Column("based_on", Text, nullable=False),
    Column("kept_at", UtcTime, nullable=False),
    Column("run_id", Text, nullable=False),
)

config_history = Table(
    "airbyte_proto_config_history",
    metadata,
    _connection(),
    Column("version", Integer, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("config", Text),
    Column("based_on", Text, nullable=False),
    Column("kept_at", UtcTime, nullable=False),
    Column("who", Text, nullable=False),
    Column("run_id", Text, nullable=False),
)

profiles = Table(
    "airbyte_proto_shapes",
    metadata,
    _connection(),
    Column("namespace", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("changed_at", UtcTime, nullable=False),
    Column("run_id", Text, nullable=False),
)

stream_changes = Table(
    "airbyte_proto_stream_changes",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("connection", Text, ForeignKey("airbyte_proto_connections.connection"), nullable=False),
    Column("namespace", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("column_name", Text, nullable=False),
    Column("was", Text, nullable=False),
    Column("became", Text, nullable=False),
    Column("changed_at", UtcTime, nullable=False),
    Column("run_id", Text, nullable=False),
)

deliveries = Table(
    "airbyte_proto_deliveries",
    metadata,
    _connection(),
    Column("namespace", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("plan_id", Text, nullable=False),
    Column("body", Text, nullable=False),
    # Positions in the plan.
    Column("announced", BigInteger, nullable=False),
    Column("acknowledged", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("changed_at", UtcTime, nullable=False),
    Column("run_id", Text, nullable=False),
)

rejected_rows = Table(
    "airbyte_proto_rejected_rows",
    metadata,
    _connection(),
    Column("namespace", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("row_number", BigInteger, primary_key=True),
    Column("reason", Text, nullable=False),
)

kept_rejections = Table(
    "airbyte_proto_kept_rejections",
    metadata,
    _connection(),
    Column("namespace", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    # Which of the stream's loads it was: they grow, where times may be equal.
    Column("number", Integer, primary_key=True),
    Column("row_number", BigInteger, primary_key=True),
    Column("load_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("record", LargeBinary),
    Column("kept_at", UtcTime, nullable=False),
)

kept_values = Table(
    "airbyte_proto_kept_values",
    metadata,
    _connection(),
    Column("namespace", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("partition_key", Text, primary_key=True),
    # Bytes, not text: their order is then the same in every database, whatever its locale.
    Column("key", LargeBinary, primary_key=True),
    # Versions of the connection's states. `until` is NULL for a value of today.
    Column("since", Integer, primary_key=True),
    Column("until", Integer),
    Column("value", LargeBinary, nullable=False),
)

enriched_rows = Table(
    "airbyte_proto_enriched_rows",
    metadata,
    _connection(),
    Column("enrichment", Text, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    # The rows that an enrichment made of one, as JSON.
    Column("made", LargeBinary, nullable=False),
    Column("kept_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
)
