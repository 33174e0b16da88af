"""The state store in SQLite or PostgreSQL.

Everything that changes a connection first locks its row in `connections`, then checks that the lease in the database
has the caller's fence, in the same transaction: writers of one connection stand in a line, and one that lost its
lease is turned away at the head of it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, insert, select

from dagster_airbyte_proto.checkpoints.sql import generations as sql_generations
from dagster_airbyte_proto.checkpoints.sql import leases as sql_leases
from dagster_airbyte_proto.checkpoints.sql import loads as sql_loads
from dagster_airbyte_proto.checkpoints.sql import runs as sql_runs
from dagster_airbyte_proto.checkpoints.sql import shapes as sql_shapes
from dagster_airbyte_proto.checkpoints.sql.counters import count
from dagster_airbyte_proto.checkpoints.sql.database import Clock, Database
from dagster_airbyte_proto.checkpoints.sql.schema import connections, kept_configs
from dagster_airbyte_proto.checkpoints.sql.states import (
    ChangeNote,
    StateKey,
    current_states,
    move_states,
    of_last_kind,
    past_states,
    state_changes,
)
from dagster_airbyte_proto.checkpoints.store import (
    KeptConfig,
    Lease,
    LoadStatus,
    LoggedLoad,
    OpenGeneration,
    RunStart,
    StateChange,
    StoredState,
    StreamChange,
)
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.load import CommittedRows, Load
from dagster_airbyte_proto.model import State, StreamId
from dagster_airbyte_proto.schema.evolution import Change
from dagster_airbyte_proto.schema.shape import StreamShape


class SqlStateStore:
    """`sqlite:///path/to/state.db` or `postgresql://user:password@host/database`.

    To make one does nothing but look at the URL; the database is opened, and created or migrated, at the first call.
    May be shared by threads, and used in a forked child.
    """

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._database = Database(url, clock)

    def __repr__(self) -> str:
        return f"SqlStateStore({str(self._database)!r})"

    def close(self) -> None:
        """Lets go of its connections. The next call opens them again."""
        self._database.close()

    def acquire(
        self,
        connection: str,
        *,
        run_id: str,
        holder: str,
        seconds: float,
        is_dead: Callable[[str], bool] = lambda _holder: False,
    ) -> Lease:
        with self._database.write() as tx:
            sql_leases.enlist(tx, connection)
            now = self._database.now(tx)
            wanted = Lease(connection, run_id, holder, fence=0, expires_at=now + timedelta(seconds=seconds))
            return sql_leases.take(tx, wanted, now, is_dead)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        with self._database.write() as tx:
            return sql_leases.renew(tx, lease, self._database.now(tx), seconds)

    def release(self, lease: Lease) -> None:
        with self._database.write() as tx:
            sql_leases.release(tx, lease)

    def holder(self, connection: str) -> Lease | None:
        with self._database.read() as tx:
            return sql_leases.standing(tx, connection)

    def begin_run(
        self,
        lease: Lease,
        *,
        refreshed: Sequence[StreamId],
        streams: Sequence[StreamId],
        continued: Sequence[StreamId] = (),
        partition: str = "",
    ) -> RunStart:
        with self._fenced(lease) as tx:
            if not partition:
                sql_generations.abandon(tx, lease.connection, {*streams, *refreshed}.difference(continued))
            sync_id = sql_runs.begun(tx, lease)
            anew = set(refreshed) if sync_id is None else set()
            generations = {}
            for stream in dict.fromkeys((*streams, *refreshed)):
                number = sql_runs.next_generation if stream in anew else sql_runs.generation
                generations[stream] = number(tx, lease.connection, StateKey(stream, partition))
            if sync_id is None:
                sync_id = sql_runs.begin(tx, lease, self._database.now(tx))
            return RunStart(sync_id, generations)

    def open_generations(self, connection: str) -> Sequence[OpenGeneration]:
        with self._database.read() as tx:
            return sql_generations.standing(tx, connection)

    def forget_generation(self, lease: Lease, dropped: OpenGeneration) -> None:
        with self._fenced(lease) as tx:
            sql_generations.forget(tx, dropped, lease.connection)

    def note_folders(self, lease: Lease, folders: Sequence[str]) -> None:
        with self._fenced(lease) as tx:
            sql_runs.note_folders(tx, lease, folders)

    def end_run(self, lease: Lease, *, status: str, report: str) -> None:
        with self._fenced(lease) as tx:
            sql_runs.end(tx, lease, self._database.now(tx), (status, report))

    def reports(self, connection: str, run_id: str) -> Sequence[str]:
        with self._database.read() as tx:
            return sql_runs.reports(tx, connection, run_id)

    def runners(self, connection: str, run_id: str) -> Sequence[str]:
        with self._database.read() as tx:
            return sql_runs.runners(tx, connection, run_id)

    def unfinished_folders(self, lease: Lease) -> Sequence[tuple[str, str]]:
        with self._database.read() as tx:
            return sql_runs.unfinished_folders(tx, lease)

    def forget_folders(self, lease: Lease, run_id: str) -> None:
        with self._fenced(lease) as tx:
            sql_runs.forget_folders(tx, lease, run_id)

    def files(self, connection: str, run_id: str) -> frozenset[str]:
        with self._database.read() as tx:
            return sql_loads.files(tx, connection, run_id)

    def announce(self, lease: Lease, load: Load, *, partition: str = "") -> None:
        with self._fenced(lease) as tx:
            now = self._database.now(tx)
            sql_loads.announce(tx, lease, load, partition, now)
            sql_generations.announced(tx, load, now)

    def promote(self, lease: Lease, load: Load, states: Sequence[State], committed: Sequence[CommittedRows]) -> None:
        with self._fenced(lease) as tx:
            row = sql_loads.to_end(tx, load, LoadStatus.DONE)
            if row is None:
                return
            now = self._database.now(tx)
            why = "sync" if row.fence == lease.fence else "recover"
            changes = {StateKey(state.stream, row.partition_key): state for state in of_last_kind(states)}
            move_states(tx, lease.connection, changes, ChangeNote(lease.holder, why, load.run_id, now))
            sql_generations.landed(tx, load, {each.stream for each in committed}, now)
            sql_loads.end_as_done(tx, load, committed, now)

    def drop(self, lease: Lease, load: Load, reason: str) -> None:
        with self._fenced(lease) as tx:
            if sql_loads.to_end(tx, load, LoadStatus.DROPPED) is not None:
                sql_loads.end_as_dropped(tx, load, reason, self._database.now(tx))

    def announced(self, connection: str) -> Sequence[Load]:
        with self._database.read() as tx:
            return sql_loads.announced(tx, connection)

    def loads(self, connection: str, *, limit: int = 100) -> Sequence[LoggedLoad]:
        with self._database.read() as tx:
            return sql_loads.newest(tx, connection, limit)

    def load(self, load_id: str) -> LoggedLoad | None:
        with self._database.read() as tx:
            row = sql_loads.logged(tx, load_id)
            return None if row is None else sql_loads.as_logged(row)

    def connections(self) -> Sequence[str]:
        with self._database.read() as tx:
            return list(tx.scalars(select(connections.c.connection).order_by(connections.c.connection)))

    def states(self, connection: str, *, partition: str | None = "") -> Sequence[StoredState]:
        with self._database.read() as tx:
            return current_states(tx, connection, partition)

    def history(self, connection: str, *, limit: int = 100) -> Sequence[StateChange]:
        with self._database.read() as tx:
            return state_changes(tx, connection, limit)

    def change_state(
        self, lease: Lease, stream: StreamId | None, state: State | None, *, who: str, partition: str = ""
    ) -> StateChange:
        doing = f"changing the state of connection {lease.connection}"
        with self._fenced(lease) as tx:
            sql_loads.refuse_while_announced(tx, lease.connection, doing)
            standing = [stored.state.stream for stored in current_states(tx, lease.connection, partition)]
            if state is None and stream is not None and standing == [None]:
                raise ConfigError(
                    doing,
                    "its streams share one state, and no single stream can be taken out of that",
                    remedy=f"Reset the whole: airbyte-proto state reset {lease.connection}",
                    stream=str(stream),
                )
            changes = {StateKey(stream, partition): state}
            if state is None and stream is None:
                changes |= {StateKey(one, partition): None for one in standing}
            note = ChangeNote(who, "reset" if state is None else "set", lease.run_id, self._database.now(tx))
            sql_generations.abandon(tx, lease.connection, None if stream is None else [stream])
            moved = move_states(tx, lease.connection, changes, note)
            return next(change for change in moved if change.stream == stream)

    def rollback(self, lease: Lease, version: int, *, who: str) -> Sequence[StateChange]:
        doing = f"rolling back the state of connection {lease.connection}"
        with self._fenced(lease) as tx:
            sql_loads.refuse_while_announced(tx, lease.connection, doing)
            newest = count(tx, lease.connection, "version")
            if not 0 <= version <= newest:
                raise ConfigError(
                    doing,
                    f"there is no version {version}",
                    remedy=f"The newest is {newest}. airbyte-proto state history {lease.connection} lists them.",
                )
            past = past_states(tx, lease.connection, version)
            stored = current_states(tx, lease.connection, None)
            now = {StateKey(one.state.stream, one.partition): one.state for one in stored}
            changes = {key: past.get(key) for key in {**past, **now} if past.get(key) != now.get(key)}
            note = ChangeNote(who, "rollback", lease.run_id, self._database.now(tx))
            sql_generations.abandon(tx, lease.connection)
            return move_states(tx, lease.connection, changes, note)

    def config(self, connection: str) -> KeptConfig | None:
        with self._database.read() as tx:
            row = tx.execute(select(kept_configs).where(kept_configs.c.connection == connection)).one_or_none()
            return None if row is None else KeptConfig(msgspec.json.decode(row.config), row.based_on)

    def keep_config(self, lease: Lease, config: Mapping[str, Any], *, based_on: str) -> None:
        text = msgspec.json.encode(config).decode()
        with self._fenced(lease) as tx:
            kept = {"connection": lease.connection, "run_id": lease.run_id, "kept_at": self._database.now(tx)}
            tx.execute(delete(kept_configs).where(kept_configs.c.connection == lease.connection))
            tx.execute(insert(kept_configs).values(config=text, based_on=based_on, **kept))

    def shapes(self, connection: str) -> Mapping[StreamId, StreamShape]:
        with self._database.read() as tx:
            return sql_shapes.kept(tx, connection)

    def keep_shapes(
        self, lease: Lease, shapes: Mapping[StreamId, StreamShape], changes: Sequence[tuple[StreamId, Change]] = ()
    ) -> None:
        with self._fenced(lease) as tx:
            now = self._database.now(tx)
            sql_shapes.keep(tx, lease, shapes, now)
            sql_shapes.note(tx, lease, changes, now)

    def stream_changes(self, connection: str, *, limit: int = 100) -> Sequence[StreamChange]:
        with self._database.read() as tx:
            return sql_shapes.newest(tx, connection, limit)

    @contextmanager
    def _fenced(self, lease: Lease) -> Iterator[Connection]:
        """A transaction that no other on this connection overlaps, and in which the lease stays the caller's."""
        with self._database.write() as tx:
            sql_leases.line_up(tx, lease.connection)
            sql_leases.check_fence(tx, lease)
            yield tx
