"""The state store in SQLite or PostgreSQL.

Every change of a connection first locks its row in `connections`, then checks that the lease in the database has the
caller's fence, in the same transaction. So writers of one connection wait for each other, and a writer that lost its
lease meanwhile is refused as soon as it has the lock.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any

from sqlalchemy import Connection, select, update

from dagster_airbyte_proto.checkpoints.deliveries import AcknowledgedRows, asset_of
from dagster_airbyte_proto.checkpoints.kept_values import Asset, ValueChanges
from dagster_airbyte_proto.checkpoints.load_ending import LoadEnding, Resolution
from dagster_airbyte_proto.checkpoints.slot import WHOLE, Slot, part_text, partition_option
from dagster_airbyte_proto.checkpoints.sql import configs as sql_configs
from dagster_airbyte_proto.checkpoints.sql import deliveries as sql_deliveries
from dagster_airbyte_proto.checkpoints.sql import generations as sql_generations
from dagster_airbyte_proto.checkpoints.sql import kept_values as sql_kept_values
from dagster_airbyte_proto.checkpoints.sql import leases as sql_leases
from dagster_airbyte_proto.checkpoints.sql import loads as sql_loads
from dagster_airbyte_proto.checkpoints.sql import profiles as sql_profiles
from dagster_airbyte_proto.checkpoints.sql import runs as sql_runs
from dagster_airbyte_proto.checkpoints.sql.database import Clock, Database
from dagster_airbyte_proto.checkpoints.sql.deliveries import DeliveryReader, RejectionKeeper
from dagster_airbyte_proto.checkpoints.sql.kept_values import EnrichedRowKeeper, KeptValueReader
from dagster_airbyte_proto.checkpoints.sql.rollback import roll_back
from dagster_airbyte_proto.checkpoints.sql.schema import connections
from dagster_airbyte_proto.checkpoints.sql.states import (
    ChangeNote,
    StateKey,
    current_states,
    fold_history,
    known_partitions,
    move_states,
    state_changes,
)
from dagster_airbyte_proto.checkpoints.store import (
    LandedTable,
    Lease,
    LoadStatus,
    LoggedLoad,
    LoggedRun,
    OpenGeneration,
    RunStart,
    StateChange,
    StoredState,
    StreamChange,
)
from dagster_airbyte_proto.checkpoints.stored_config import ConfigChange, ConfigOwner, StoredConfig
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.load import CommittedRows, Load
from dagster_airbyte_proto.loads.push import SealedPlan
from dagster_airbyte_proto.model import State, StreamId, TableName
from dagster_airbyte_proto.schema.evolution import SchemaChange
from dagster_airbyte_proto.schema.stream_profile import StreamProfile


class SqlStore(KeptValueReader, EnrichedRowKeeper, DeliveryReader, RejectionKeeper):
    """The state store behind a URL: `sqlite:///path/to/state.db` or `postgresql://user:password@host/database`.

    The constructor only checks the URL. The first call opens the database, and creates or migrates it. Threads may
    share a store, and a forked child may use it.
    """

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._database = Database(url, clock)

    def __repr__(self) -> str:
        return f"SqlStore({str(self._database)!r})"

    @property
    def file(self) -> Path | None:
        """The file of the database; None if a server has it."""
        return self._database.file

    def close(self) -> None:
        """Closes the connections to the database. The next call opens them again."""
        self._database.close()

    def acquire(
        self,
        connection: str,
        *,
        run_id: str,
        holder: str,
        seconds: float,
        is_dead: Callable[[str], bool] = lambda _holder: False,
        slot: Slot = WHOLE,
    ) -> Lease:
        with self._database.write() as tx:
            sql_leases.lock_new_or_known(tx, connection)
            now = self._database.now(tx)
            expires_at = now + timedelta(seconds=seconds)
            requested = Lease(connection, run_id, holder, fence=0, expires_at=expires_at, token=token_hex(16))
            return sql_leases.take(tx, requested, slot, now, is_dead)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        with self._database.write() as tx:
            return sql_leases.renew(tx, lease, self._database.now(tx), seconds)

    def release(self, lease: Lease) -> None:
        with self._database.write() as tx:
            sql_leases.release(tx, lease)

    def current_leases(self, connection: str, *, only_live: bool = False) -> Sequence[Lease]:
        with self._database.read() as tx:
            return sql_leases.current_leases(tx, connection, self._database.now(tx) if only_live else None)

    def begin_run(
        self,
        lease: Lease,
        *,
        refreshed: Sequence[StreamId],
        streams: Sequence[StreamId],
        resumed: Sequence[StreamId] = (),
        partition: str = "",
    ) -> RunStart:
        with self._fenced(lease) as tx:
            if not partition:
                sql_generations.end_resumable(tx, lease.connection, {*streams, *refreshed}.difference(resumed))
            sync_id = sql_runs.sync_id_of(tx, lease)
            # Where the lease has begun its run already, this call is a repetition: it must not count a generation
            # twice.
            to_refresh = set(refreshed) if sync_id is None else set()
            generations = {}
            for stream in dict.fromkeys((*streams, *refreshed)):
                number = sql_runs.next_generation if stream in to_refresh else sql_runs.generation
                generations[stream] = number(tx, lease.connection, StateKey(stream, partition))
            if sync_id is None:
                sync_id = sql_runs.begin(tx, lease, self._database.now(tx))
            return RunStart(sync_id, generations)

    def note_protocol(self, lease: Lease, protocol: str) -> None:
        with self._fenced(lease) as tx:
            here = connections.c.connection == lease.connection
            tx.execute(update(connections).where(here, connections.c.protocol != protocol).values(protocol=protocol))

    def protocol(self, connection: str) -> str:
        with self._database.read() as tx:
            return tx.scalar(select(connections.c.protocol).where(connections.c.connection == connection)) or ""

    def open_generations(self, connection: str) -> Sequence[OpenGeneration]:
        with self._database.read() as tx:
            return sql_generations.all_open(tx, connection)

    def forget_generation(self, lease: Lease, dropped: OpenGeneration) -> None:
        with self._fenced(lease) as tx:
            sql_generations.delete_generation(tx, dropped, lease.connection)

    def note_folders(self, lease: Lease, folders: Sequence[str]) -> None:
        with self._fenced(lease) as tx:
            sql_runs.note_folders(tx, lease, folders)

    def end_run(self, lease: Lease, *, status: str, report: str) -> None:
        with self._fenced(lease) as tx:
            sql_runs.end(tx, lease, self._database.now(tx), status, report)

    def prune_history(self, lease: Lease, *, days: float) -> None:
        with self._fenced(lease) as tx:
            before = self._database.now(tx) - timedelta(days=days)
            folded = fold_history(tx, lease.connection, before)
            sql_kept_values.forget_before(tx, lease.connection, folded.version, self._database.now(tx))
            sql_loads.prune(tx, lease.connection, folded.before)
            sql_runs.prune(tx, lease.connection, before)
            sql_profiles.prune_changes(tx, lease.connection, folded.before)
            sql_deliveries.prune_rejections(tx, lease.connection, before)

    def reports(self, connection: str, run_id: str) -> Sequence[str]:
        with self._database.read() as tx:
            return sql_runs.reports(tx, connection, run_id)

    def newest_report(self, connection: str) -> str | None:
        with self._database.read() as tx:
            return sql_runs.newest_report(tx, connection)

    def runs(self, connection: str, *, limit: int = 100) -> Sequence[LoggedRun]:
        with self._database.read() as tx:
            return sql_runs.newest_runs(tx, connection, limit)

    def run_holders(self, connection: str, run_id: str) -> Sequence[str]:
        with self._database.read() as tx:
            return sql_runs.run_holders(tx, connection, run_id)

    def unfinished_folders(self, lease: Lease) -> Sequence[tuple[str, str]]:
        with self._database.read() as tx:
            return sql_runs.unfinished_folders(tx, lease)

    def forget_folders(self, lease: Lease, run_id: str) -> None:
        with self._fenced(lease) as tx:
            sql_runs.forget_folders(tx, lease, run_id)

    def referenced_files(self, connection: str, run_id: str) -> frozenset[str]:
        with self._database.read() as tx:
            return sql_loads.referenced_files(tx, connection, run_id)

    def announce(self, lease: Lease, load: Load, *, partition: str = "") -> None:
        with self._fenced(lease) as tx:
            now = self._database.now(tx)
            sql_loads.announce(tx, lease, load, partition, now)
            sql_generations.record_announced(tx, load, now)
            sql_deliveries.take_over_rejections(tx, load)

    def promote(self, lease: Lease, load: Load, states: Sequence[State], committed: Sequence[CommittedRows]) -> None:
        with self._fenced(lease) as tx:
            row = sql_loads.row_to_end(tx, load, LoadStatus.DONE)
            if row is None:
                return
            now = self._database.now(tx)
            why = "sync" if row.fence == lease.fence else "recover"
            ended = LoggedLoad(
                load, LoadStatus.DONE, row.announced_at, now, committed=tuple(committed), ending=LoadEnding.PROMOTED
            )
            sql_loads.end(tx, ended, row.partition_key, states, ChangeNote(lease.holder, why, load.run_id, now))

    def resolve(
        self,
        lease: Lease,
        load: Load,
        states: Sequence[State],
        committed: Sequence[CommittedRows],
        resolution: Resolution,
    ) -> None:
        status = LoadStatus.DONE if resolution.as_landed or committed else LoadStatus.DROPPED
        with self._fenced(lease) as tx:
            row = sql_loads.row_to_end(tx, load, status)
            if row is None:
                return
            now = self._database.now(tx)
            ended = LoggedLoad(
                load, status, row.announced_at, now, str(resolution), tuple(committed), ending=resolution.ending
            )
            note = ChangeNote(resolution.who, "resolve", load.run_id, now)
            sql_loads.end(tx, ended, row.partition_key, states, note)
            sql_deliveries.end_rejections(tx, ended, as_landed=resolution.as_landed)

    def announced_loads(self, connection: str, *, partition: str | None = None) -> Sequence[Load]:
        with self._database.read() as tx:
            return sql_loads.announced_loads(tx, connection, partition)

    def loads(self, connection: str, *, limit: int = 100, before: int | None = None) -> Sequence[LoggedLoad]:
        with self._database.read() as tx:
            return sql_loads.newest_loads(tx, connection, limit, before)

    def loaded_tables(self, connection: str) -> Sequence[TableName]:
        with self._database.read() as tx:
            return sql_loads.tables_of_all(tx, connection)

    def load(self, load_id: str) -> LoggedLoad | None:
        with self._database.read() as tx:
            row = sql_loads.load_row(tx, load_id)
            return None if row is None else sql_loads.as_logged(row)

    def connections(self) -> Sequence[str]:
        with self._database.read() as tx:
            return list(tx.scalars(select(connections.c.connection).order_by(connections.c.connection)))

    def partitions(self, connection: str) -> Sequence[str]:
        with self._database.read() as tx:
            return known_partitions(tx, connection)

    def states(
        self, connection: str, *, partition: str | None = "", stream: StreamId | None = None
    ) -> Sequence[StoredState]:
        with self._database.read() as tx:
            return current_states(tx, connection, partition, stream)

    def landed_tables(self, connection: str, *, partition: str = "") -> Mapping[StreamId, LandedTable]:
        with self._database.read() as tx:
            return sql_loads.landed_in(tx, connection, partition)

    def history(
        self, connection: str, *, limit: int = 100, partition: str | None = None, with_states: bool = True
    ) -> Sequence[StateChange]:
        with self._database.read() as tx:
            return state_changes(tx, connection, limit, partition, with_states=with_states)

    def change_state(
        self, lease: Lease, stream: StreamId | None, state: State | None, *, who: str, shared: State | None = None
    ) -> StateChange:
        doing = f"changing the state of {part_text(f'connection {lease.connection}', lease.partition)}"
        with self._fenced(lease) as tx:
            sql_loads.check_none_announced(tx, lease, doing)
            streams = [stored.state.stream for stored in current_states(tx, lease.connection, lease.partition)]
            if stream is not None and shared is None and streams == [None]:
                found = "its streams share one state, and a single stream cannot be set in it or removed from it"
                reset = f"airbyte-proto state reset {lease.connection}{partition_option(lease.partition)}"
                whole = f"Change the whole: {reset}, or state set without a stream"
                raise ConfigError(doing, found, remedy=whole, stream=str(stream))
            key = StateKey(stream, lease.partition)
            changes = {key: state} if shared is None else {key._replace(stream=None): shared}
            if state is None and stream is None:
                changes |= {key._replace(stream=one): None for one in streams}
            note = ChangeNote(who, "reset" if state is None else "set", lease.run_id, self._database.now(tx))
            if not lease.partition:  # A partition has no branch, and pushes have one position for all partitions.
                sql_generations.end_resumable(tx, lease.connection, None if stream is None else [stream])
                sql_deliveries.forget(tx, lease.connection, [stream])
            sql_loads.forget_tables(tx, lease.connection, [key])
            moved = move_states(tx, lease.connection, changes, note)
            if state is None:
                sql_kept_values.drop(tx, lease.connection, [key], moved[0].version)
            return next(change for change in moved if key._replace(stream=change.stream) in changes)

    def rollback(
        self, lease: Lease, version: int, *, who: str, landed: Mapping[StreamId, LandedTable | None] | None = None
    ) -> Sequence[StateChange]:
        with self._fenced(lease) as tx:
            note = ChangeNote(who, "rollback", lease.run_id, self._database.now(tx))
            return roll_back(tx, lease, version, landed, note)

    def stored_config(self, connection: str, owner: ConfigOwner = ConfigOwner.CONNECTOR) -> StoredConfig | None:
        with self._database.read() as tx:
            return sql_configs.stored_config(tx, connection, owner)

    def save_config(
        self, lease: Lease, config: Mapping[str, Any], *, based_on: str, owner: ConfigOwner = ConfigOwner.CONNECTOR
    ) -> None:
        with self._fenced(lease) as tx:
            by = sql_configs.ChangedBy("connector", self._database.now(tx))
            sql_configs.replace_config(tx, lease, owner, StoredConfig(config, based_on), by)

    def drop_config(self, lease: Lease, *, who: str) -> bool:
        with self._fenced(lease) as tx:
            by = sql_configs.ChangedBy(who, self._database.now(tx))
            stored = [owner for owner in ConfigOwner if sql_configs.stored_config(tx, lease.connection, owner)]
            for owner in stored:
                sql_configs.replace_config(tx, lease, owner, None, by)
            return bool(stored)

    def config_changes(self, connection: str) -> Sequence[ConfigChange]:
        with self._database.read() as tx:
            return sql_configs.changes(tx, connection)

    def stream_profiles(self, connection: str) -> Mapping[StreamId, StreamProfile]:
        with self._database.read() as tx:
            return sql_profiles.stored_profiles(tx, connection)

    def save_stream_profiles(
        self,
        lease: Lease,
        profiles: Mapping[StreamId, StreamProfile],
        changes: Sequence[tuple[StreamId, SchemaChange]] = (),
    ) -> None:
        with self._fenced(lease) as tx:
            now = self._database.now(tx)
            sql_profiles.save_profiles(tx, lease, profiles, now)
            sql_profiles.record_changes(tx, lease, changes, now)

    def stream_changes(self, connection: str, *, limit: int = 100) -> Sequence[StreamChange]:
        with self._database.read() as tx:
            return sql_profiles.newest_changes(tx, connection, limit)

    def seal_plan(self, lease: Lease, plan: SealedPlan) -> None:
        with self._fenced(lease) as tx:
            sql_deliveries.seal(tx, lease, plan, self._database.now(tx))

    def begin_delivery(self, lease: Lease, plan: SealedPlan, position: int) -> None:
        with self._fenced(lease) as tx:
            sql_deliveries.begin(tx, plan, position, self._database.now(tx))

    def announce_rows(self, lease: Lease, plan: SealedPlan, rows: int) -> None:
        with self._fenced(lease) as tx:
            sql_deliveries.announce(tx, plan, rows, self._database.now(tx))

    def acknowledge_rows(self, lease: Lease, plan: SealedPlan, acknowledged: AcknowledgedRows) -> None:
        with self._fenced(lease) as tx:
            now = self._database.now(tx)
            sql_deliveries.acknowledge(tx, plan, acknowledged, now)
            note = ChangeNote("connector", "", lease.run_id, now)
            sql_kept_values.change(tx, asset_of(plan), acknowledged.values, note)

    def keep_values(self, lease: Lease, asset: Asset, changes: ValueChanges) -> None:
        with self._fenced(lease) as tx:
            note = ChangeNote("connector", "", lease.run_id, self._database.now(tx))
            sql_kept_values.change(tx, asset, changes, note)

    def set_values(self, lease: Lease, asset: Asset, changes: ValueChanges, *, who: str) -> StateChange:
        with self._fenced(lease) as tx:
            doing = f"changing the kept values of connection {lease.connection}"
            sql_loads.check_none_announced(tx, lease, doing)
            note = ChangeNote(who, "", lease.run_id, self._database.now(tx))
            return sql_kept_values.change_by_hand(tx, asset, changes, note)

    @contextmanager
    def _fenced(self, lease: Lease) -> Iterator[Connection]:
        """A write transaction that holds the lock of the connection, after a check that the lease still holds."""
        with self._database.write() as tx:
            sql_leases.lock_connection(tx, lease.connection)
            sql_leases.check_held(tx, lease)
            yield tx
