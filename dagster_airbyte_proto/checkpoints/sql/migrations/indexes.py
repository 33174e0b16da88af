"""The step of the migrations that makes indexes: a run finds what it needs, and reads nothing of what lies beside it.

- Runs are found by their lease, their id and their end.
- Kept values: those of today, apart from those that have ended, of which a key may have one for each sync of a year.
- States, and the tables of the last loads: those of one partition, where a connection has a hundred thousand.

An index that is there already stays: tests set the version of a database back, and leave it its indexes.
"""

INDEXES = """
CREATE INDEX IF NOT EXISTS airbyte_proto_runs_of_lease ON airbyte_proto_runs (connection, fence);
CREATE INDEX IF NOT EXISTS airbyte_proto_runs_of_run ON airbyte_proto_runs (connection, run_id, sync_id);
CREATE INDEX IF NOT EXISTS airbyte_proto_runs_by_end ON airbyte_proto_runs (connection, ended_at);
CREATE INDEX IF NOT EXISTS airbyte_proto_kept_values_of_today
    ON airbyte_proto_kept_values (connection, namespace, stream, partition_key, key) WHERE until IS NULL;
CREATE INDEX IF NOT EXISTS airbyte_proto_kept_values_by_end
    ON airbyte_proto_kept_values (connection, until) WHERE until IS NOT NULL;
CREATE INDEX IF NOT EXISTS airbyte_proto_states_of_partition
    ON airbyte_proto_states (connection, partition_key, namespace, stream);
CREATE INDEX IF NOT EXISTS airbyte_proto_landed_tables_of_partition
    ON airbyte_proto_landed_tables (connection, partition_key)
"""
