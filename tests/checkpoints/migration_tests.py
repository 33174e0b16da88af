"""Tests of stores whose tables older or newer code has made."""

import pytest
from sqlalchemy import Connection, inspect

from dagster_airbyte_proto.checkpoints.deliveries import AcknowledgedRows, RejectedContent
from dagster_airbyte_proto.checkpoints.load_ending import LoadEnding, Resolution
from dagster_airbyte_proto.checkpoints.sql.database import Database
from dagster_airbyte_proto.checkpoints.sql.migrations.steps import MIGRATIONS
from dagster_airbyte_proto.checkpoints.sql.schema import metadata
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.stored_config import ConfigOwner, StoredConfig
from dagster_airbyte_proto.errors import ConfigError, StateUnavailable
from dagster_airbyte_proto.loads.push import RejectedRow
from dagster_airbyte_proto.model import State, StateScope
from tests.conformance.state_store.fixtures import LOST, USERS, StoreFixtures, committed_users, load_of, stream_state
from tests.conformance.state_store.kept_value_tests import plan_of


class MigrationTests(StoreFixtures):
    """The tests of one database. A subclass provides the fixture `state_url`."""

    def test_the_migrations_make_the_tables_that_the_code_uses(self, state_url: str) -> None:
        SqlStore(state_url).connections()
        with Database(state_url).read() as tx:
            found = inspect(tx)
            assert set(found.get_table_names()) - {"sqlite_sequence"} == set(metadata.tables)
            for name, table in metadata.tables.items():
                columns = {column["name"]: column["nullable"] for column in found.get_columns(name)}
                expected = {column.name: column.nullable for column in table.columns}
                assert columns.keys() == expected.keys(), name
                keys = set(found.get_pk_constraint(name)["constrained_columns"])
                assert keys == {column.name for column in table.primary_key}, name
                assert all(columns[column] is expected[column] for column in columns.keys() - keys), name

    def test_tables_without_the_prefix_are_renamed(self, state_url: str) -> None:
        """Tables as the code before the first release made them."""
        store = SqlStore(state_url)
        lease = self.acquired(store, "run-1")
        store.change_state(lease, USERS, stream_state(USERS, "7"), who="ann")
        with Database(state_url).write() as tx:
            later = {"shapes", "stream_changes", "open_generations", "config_history", "landed_tables", "deliveries"}
            later |= {"rejected_rows", "kept_values", "enriched_rows", "kept_rejections"}
            later = {f"airbyte_proto_{name}" for name in later}
            for name in later:
                tx.exec_driver_sql(f"DROP TABLE {name}")
            tx.exec_driver_sql("ALTER TABLE airbyte_proto_connections DROP COLUMN protocol")
            _take_back_later_changes(tx)
            tx.exec_driver_sql("UPDATE airbyte_proto_schema_version SET version = 1")
            for name in set(metadata.tables) - later:
                tx.exec_driver_sql(f"ALTER TABLE {name} RENAME TO {name.removeprefix('airbyte_proto_')}")
            for index in ("loads_of_connection", "loads_of_run"):
                tx.exec_driver_sql(f"DROP INDEX airbyte_proto_{index}")
            tx.exec_driver_sql("CREATE INDEX loads_of_connection ON loads (connection, status, number)")
            tx.exec_driver_sql("CREATE INDEX loads_of_run ON loads (connection, run_id)")
        found = SqlStore(state_url)
        assert [change.who for change in found.history("shop")] == ["ann"]
        assert found.change_state(lease._replace(token=""), USERS, None, who="bob").version == 2
        with Database(state_url).read() as tx:
            assert set(inspect(tx).get_table_names()) - {"sqlite_sequence"} == set(metadata.tables)

    def test_connections_of_older_code_get_the_protocol_of_their_newest_state(self, state_url: str) -> None:
        states = {
            "shop": [State(StateScope.GLOBAL, b'{"type":"GLOBAL","global":{"stream_states":[]}}')],
            "tap": [
                State(StateScope.LEGACY, b'{"data":{}}'),
                State(StateScope.GLOBAL, b'{"type": "STATE", "value": {"a": 1}}'),
            ],
            "old": [State(StateScope.LEGACY, b'{"data":{"type":"STATE","value":1}}')],
            "new": [],
        }
        store = SqlStore(state_url)
        for name, moved in states.items():
            lease = store.acquire(name, run_id="run-1", holder="me", seconds=60)
            for state in moved:
                store.change_state(lease, None, state, who="ann")
        with Database(state_url).write() as tx:
            tx.exec_driver_sql("ALTER TABLE airbyte_proto_connections DROP COLUMN protocol")
            for later in ("config_history", "landed_tables", "deliveries", "rejected_rows", "kept_values"):
                tx.exec_driver_sql(f"DROP TABLE airbyte_proto_{later}")
            _take_back_later_changes(tx)
            tx.exec_driver_sql("UPDATE airbyte_proto_schema_version SET version = 3")
        found = SqlStore(state_url)
        protocols = {name: found.protocol(name) for name in states}
        assert protocols == {"shop": "airbyte", "tap": "singer", "old": "airbyte", "new": ""}

    def test_configs_of_older_code_are_those_of_the_connector(self, state_url: str) -> None:
        store = SqlStore(state_url)
        lease = self.acquired(store, "run-1")
        store.save_config(lease, {"token": "one"}, based_on="a")
        with Database(state_url).write() as tx:
            tx.exec_driver_sql("ALTER TABLE airbyte_proto_config_history DROP COLUMN owner")
            columns = "connection, config, based_on, kept_at, run_id"
            tx.exec_driver_sql(f"CREATE TABLE older AS SELECT {columns} FROM airbyte_proto_kept_configs")
            tx.exec_driver_sql("DROP TABLE airbyte_proto_kept_configs")
            tx.exec_driver_sql("ALTER TABLE older RENAME TO airbyte_proto_kept_configs")
            _take_back_later_changes(tx, have_tokens=True)
            tx.exec_driver_sql("UPDATE airbyte_proto_schema_version SET version = 9")
        found = SqlStore(state_url)
        assert found.stored_config("shop") == StoredConfig({"token": "one"}, "a")
        assert [change.owner for change in found.config_changes("shop")] == [ConfigOwner.CONNECTOR]
        found.save_config(lease, {"token": "two"}, based_on="b", owner=ConfigOwner.DESTINATION)
        assert found.stored_config("shop") == StoredConfig({"token": "one"}, "a")

    def test_loads_of_older_code_have_the_ending_that_their_words_name(self, state_url: str) -> None:
        store = SqlStore(state_url)
        lease = self.acquired(store, "run-1")
        for load_id in ("promoted", "landed", "lost", "in part", "refused", "open"):
            store.announce(lease, load_of(load_id))
        store.promote(lease, load_of("promoted"), (), [committed_users()])
        store.resolve(lease, load_of("landed"), (), [], Resolution(as_landed=True, who="resolved as lost by bob"))
        store.resolve(lease, load_of("lost"), (), [], LOST)
        store.resolve(lease, load_of("in part"), (), [committed_users()], LOST)
        with Database(state_url).write() as tx:
            # As runs ended loads before an error was no refusal.
            ended = "status = 'dropped', reason = 'its tables refused it'"
            tx.exec_driver_sql(f"UPDATE airbyte_proto_loads SET {ended} WHERE load_id = 'refused'")
            take_back_endings(tx)
            tx.exec_driver_sql("UPDATE airbyte_proto_schema_version SET version = 13")
        endings = {each.load.load_id: each.ending for each in SqlStore(state_url).loads("shop")}
        assert endings == {
            "promoted": LoadEnding.PROMOTED,
            "landed": LoadEnding.RESOLVED_AS_LANDED,
            "lost": LoadEnding.RESOLVED_AS_LOST,
            "in part": LoadEnding.RESOLVED_AS_LOST,
            "refused": LoadEnding.REFUSED,
            "open": None,
        }

    def test_deliveries_of_older_code_go_on_where_they_were(self, state_url: str) -> None:
        store = SqlStore(state_url)
        lease = self.acquired(store, "run-1")
        store.seal_plan(lease, plan_of())
        store.acknowledge_rows(lease, plan_of(), AcknowledgedRows(7, [RejectedRow(3, "no home")]))
        store.keep_rejections(lease, plan_of(2), [RejectedContent(RejectedRow(5, "no text"), "{}")])
        kept, delivered = store.kept_rejections("shop"), store.deliveries("shop")
        with Database(state_url).write() as tx:
            tx.exec_driver_sql("UPDATE airbyte_proto_schema_version SET version = 14")
        found = SqlStore(state_url)
        assert (found.deliveries("shop"), found.kept_rejections("shop")) == (delivered, kept)
        assert found.rejected_rows(plan_of()) == [RejectedRow(3, "no home")]

    def test_a_database_of_newer_code_is_refused(self, state_url: str) -> None:
        SqlStore(state_url).connections()
        with Database(state_url).write() as tx:
            tx.exec_driver_sql("UPDATE airbyte_proto_schema_version SET version = 99")
        with pytest.raises(ConfigError, match=rf"version 99.*up to {len(MIGRATIONS)}") as refused:
            SqlStore(state_url).connections()
        assert "state store version 99" in refused.value.remedy

    def test_a_program_that_runs_while_newer_code_migrates_writes_no_more(self, state_url: str) -> None:
        database, running = Database(state_url), SqlStore(state_url)
        lease = self.acquired(running, "run-1")
        with database.write() as tx:
            tx.exec_driver_sql("UPDATE airbyte_proto_schema_version SET version = 99")
        with pytest.raises(ConfigError, match="version 99") as refused:
            running.change_state(lease, USERS, stream_state(USERS, "7"), who="ann")
        assert "start again what runs with an older one" in refused.value.remedy
        with database.read() as tx:
            assert tx.exec_driver_sql("SELECT COUNT(*) FROM airbyte_proto_states").scalar() == 0

    def test_a_program_that_runs_while_an_older_copy_is_restored_migrates_it(self, state_url: str) -> None:
        running = SqlStore(state_url)
        lease = self.acquired(running, "run-1")
        with Database(state_url).write() as tx:
            take_back_endings(tx)
            tx.exec_driver_sql("UPDATE airbyte_proto_schema_version SET version = 13")
        with pytest.raises(StateUnavailable, match="version 13 since another copy of it was restored") as refused:
            running.announce(lease, load_of("one"))
        assert refused.value.retryable
        running.announce(lease, load_of("one"))
        assert [each.ending for each in running.loads("shop")] == [None]


def _take_back_later_changes(tx: Connection, *, have_tokens: bool = False) -> None:
    """Makes the tables as they were before leases had partitions: without what came then or later."""
    take_back_endings(tx)
    for name in ("enriched_rows", "kept_rejections"):
        tx.exec_driver_sql(f"DROP TABLE IF EXISTS airbyte_proto_{name}")
    tx.exec_driver_sql("ALTER TABLE airbyte_proto_run_folders DROP COLUMN partition_key")
    columns = "connection, fence, run_id, holder, since, expires_at" + (", token" if have_tokens else "")
    tx.exec_driver_sql(f"CREATE TABLE older_leases AS SELECT {columns} FROM airbyte_proto_leases")
    tx.exec_driver_sql("DROP TABLE airbyte_proto_leases")
    tx.exec_driver_sql("ALTER TABLE older_leases RENAME TO airbyte_proto_leases")


def take_back_endings(tx: Connection) -> None:
    """Makes the tables as they were in version 13."""
    tx.exec_driver_sql("ALTER TABLE airbyte_proto_loads DROP COLUMN ending")
