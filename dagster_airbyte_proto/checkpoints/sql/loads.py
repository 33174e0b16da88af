"""SQL of the loads log, and of the tables in which the loads of each stream landed last.

The caller has begun the transaction and, for changes, checked that the lease holds.

A load is announced, then done or dropped. It never goes back.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, delete, insert, select, union_all, update

from dagster_airbyte_proto.checkpoints.load_ending import LoadEnding
from dagster_airbyte_proto.checkpoints.slot import partition_option
from dagster_airbyte_proto.checkpoints.sql.generations import record_landed
from dagster_airbyte_proto.checkpoints.sql.kept_values import keep_transform_states
from dagster_airbyte_proto.checkpoints.sql.load_json import (
    committed_from_json,
    committed_to_json,
    load_from_json,
    load_to_json,
    tables_from_json,
)
from dagster_airbyte_proto.checkpoints.sql.schema import landed_tables, loads, open_generations, run_folders
from dagster_airbyte_proto.checkpoints.sql.states import (
    ChangeNote,
    StateKey,
    key_columns,
    move_states,
    states_of_last_kind,
)
from dagster_airbyte_proto.checkpoints.store import NO_LIMIT, LandedTable, Lease, LoadStatus, LoggedLoad
from dagster_airbyte_proto.errors import ConfigError, InternalError
from dagster_airbyte_proto.loads.load import Load
from dagster_airbyte_proto.model import State, StreamId, TableName, WriteMode

_MAX_PRUNED = 5000
"""The most loads that one run deletes: each is parsed, and the first pruning may find a million."""
_MAX_NEEDED = 100
"""The most loads that one run parses although it knows that they stay: each partition may need one."""
_PAGE, _PARSED = 1000, 50
"""The loads that are looked at together, and those that are parsed together: each may have megabytes."""


def announce(tx: Connection, lease: Lease, load: Load, partition: str, now: datetime) -> None:
    body = load_to_json(load)
    row = load_row(tx, load.load_id)
    # The same load may be announced again: the outcome of the first call may have been unknown.
    if row is not None and row.body != body:
        raise _out_of_order("announcing", load, "another load has its id")
    if row is None:
        values = {"load_id": load.load_id, "connection": lease.connection, "run_id": load.run_id, "fence": lease.fence}
        values |= {"partition_key": partition, "status": LoadStatus.ANNOUNCED.value, "announced_at": now}
        tx.execute(insert(loads).values(**values, reason="", body=body, committed="[]"))


def row_to_end(tx: Connection, load: Load, status: LoadStatus) -> Row[Any] | None:
    """The row of a load that is to end with this status; None when it has ended so already."""
    row = load_row(tx, load.load_id)
    if row is None:
        raise _out_of_order(f"ending as {status}", load, "it was never announced")
    if row.status == status:
        return None
    if row.status != LoadStatus.ANNOUNCED:
        raise _out_of_order(f"ending as {status}", load, f"it is {row.status} already")
    return row


def end(tx: Connection, ended: LoggedLoad, partition: str, states: Sequence[State], note: ChangeNote) -> None:
    """Ends a load: moves states, in its partition, with all that the store knows of its rows."""
    moved = {StateKey(state.stream, partition): state for state in states_of_last_kind(states)}
    changed = move_states(tx, ended.load.connection, moved, note)
    keep_transform_states(tx, ended, partition, changed, note)
    _record_tables(tx, ended, moved, partition)
    record_landed(tx, ended.load, {each.stream for each in ended.committed}, note.changed_at)
    values: dict[str, Any] = {"status": ended.status.value, "committed": committed_to_json(ended.committed)}
    values |= {"ended_at": ended.ended_at, "reason": ended.reason}
    values |= {"ending": None if ended.ending is None else ended.ending.value}
    if ended.load.transformed or any(part.transform_states for part in ended.load.parts):
        values["body"] = load_to_json(_without_transform_states(ended.load))
    tx.execute(update(loads).where(loads.c.load_id == ended.load.load_id).values(values))


def _without_transform_states(load: Load) -> Load:
    """A load as it stays in the log. The states of transforms are among the values of their streams by then, or never
    will be, and each may have megabytes."""
    parts = tuple(msgspec.structs.replace(part, transform_states=()) for part in load.parts)
    return msgspec.structs.replace(load, parts=parts, transformed=())


def load_row(tx: Connection, load_id: str) -> Row[Any] | None:
    return tx.execute(select(loads).where(loads.c.load_id == load_id)).one_or_none()


def newest_loads(tx: Connection, connection: str, limit: int, before: int | None) -> list[LoggedLoad]:
    # The numbers first, each status by itself, as the index has them. In one query SQLite reads every load of the
    # connection with its body, to sort them: of a million, gigabytes, and each sync looks at the last ones.
    most = min(limit, NO_LIMIT)
    here = [loads.c.connection == connection, *(() if before is None else (loads.c.number < before,))]
    by_status = (
        select(loads.c.number)
        .where(*here, loads.c.status == status.value)
        .order_by(loads.c.number.desc())
        .limit(most)
        .subquery()
        for status in LoadStatus
    )
    numbers = union_all(*(select(each.c.number) for each in by_status))
    query = select(loads).where(loads.c.number.in_(numbers)).order_by(loads.c.number.desc())
    return [as_logged(row) for row in tx.execute(query.limit(most))]


def announced_loads(tx: Connection, connection: str, partition: str | None) -> list[Load]:
    unfinished = [loads.c.connection == connection, loads.c.status == LoadStatus.ANNOUNCED.value]
    if partition is not None:
        unfinished.append(loads.c.partition_key == partition)
    return [
        load_from_json(body) for body in tx.scalars(select(loads.c.body).where(*unfinished).order_by(loads.c.number))
    ]


def referenced_files(tx: Connection, connection: str, run_id: str) -> frozenset[str]:
    of_run = loads.c.connection == connection, loads.c.run_id == run_id
    found = tx.execute(select(loads.c.status, loads.c.body).where(*of_run)).all()
    # Nothing of a destination's refers to a file that was staged for it. A table may have the files of a load that it
    # seemed to refuse, or that a person called lost.
    return frozenset(
        file.path
        for status, body in found
        for part in load_from_json(body).parts
        if status == LoadStatus.ANNOUNCED or not part.is_relayed
        for file in part.files
    )


def prune(tx: Connection, connection: str, before: datetime) -> None:
    """Deletes the loads that ended before that time and that nobody needs any more.

    - The newest of these that landed in a table stays: the table may name it as its newest one, and a rollback to the
      oldest version that is kept goes back to its rows. So does the newest that readers saw.
    - The loads of runs whose folders are not swept yet stay: a sweep must leave their files.
    """
    if next(_ended_before(tx, connection, before), None) is None:
        return  # As most runs end. The loads that each partition needs are not read then.
    needed = {
        load_id
        for table in (landed_tables, open_generations)
        for load_id in tx.scalars(select(table.c.load_id).where(table.c.connection == connection))
    }
    numbers = _numbers_to_look_at(tx, connection, before, needed)
    seen: set[tuple[TableName, bool]] = set()
    for start in range(0, len(numbers), _PARSED):
        these = loads.c.number.in_(numbers[start : start + _PARSED])
        rows = tx.execute(select(loads).where(these).order_by(loads.c.number.desc()))
        for logged in map(as_logged, rows.all()):
            landed = _tables_of(logged, {committed.stream for committed in logged.committed})
            # A load that a person said has landed may be the newest of its table, or else the one before it is.
            is_said = logged.ending is LoadEnding.RESOLVED_AS_LANDED
            said = _tables_of(logged, {part.stream for part in logged.load.parts}) if is_said else set()
            if landed | said <= seen and logged.load.load_id not in needed:
                tx.execute(delete(loads).where(loads.c.load_id == logged.load.load_id))
            seen |= landed


def _tables_of(logged: LoggedLoad, streams: Collection[StreamId]) -> set[tuple[TableName, bool]]:
    """The tables of these streams of a load, each with whether readers saw its rows."""
    return {(part.table, part.is_shown) for part in logged.load.parts if part.stream in streams}


def _numbers_to_look_at(tx: Connection, connection: str, before: datetime, needed: Collection[str]) -> list[int]:
    """The numbers of the loads that may be pruned, newest first. With them are some that are needed: they are the
    newest of their tables, so that others are not."""
    others: list[int] = []
    staying: list[int] = []
    for number, load_id in _ended_before(tx, connection, before):
        (staying if load_id in needed else others).append(number)
        if len(others) >= _MAX_PRUNED:
            break
    return sorted([*others, *sorted(staying)[-_MAX_NEEDED:]], reverse=True)


def _ended_before(tx: Connection, connection: str, before: datetime) -> Iterator[tuple[int, str]]:
    """Yields the number and id of each load that ended before that time, but for those of runs that are not swept yet.

    Loads end nearly in the order of their numbers. So once a page of them has none that is old, no later one is: the
    end of each sync looks at a page, and not at all loads of a year.
    """
    unswept = {*tx.scalars(select(run_folders.c.run_id).where(run_folders.c.connection == connection))}
    for status in (LoadStatus.DONE, LoadStatus.DROPPED):
        for page in _pages(tx, connection, status, ("load_id", "run_id", "ended_at"), _PAGE):
            old = [row for row in page if row.ended_at and row.ended_at < before]
            yield from ((row.number, row.load_id) for row in old if row.run_id not in unswept)
            if not old:
                break


def _pages(
    tx: Connection, connection: str, status: LoadStatus, names: Sequence[str], size: int
) -> Iterator[Sequence[Row[Any]]]:
    """Yields these columns of the loads of a status, and their numbers, in the order of these: that of the index."""
    columns = [loads.c[name] for name in ("number", *names)]
    here = loads.c.connection == connection, loads.c.status == status.value
    last, is_more = 0, True
    while is_more:
        query = select(*columns).where(*here, loads.c.number > last).order_by(loads.c.number).limit(size)
        page = tx.execute(query).all()
        is_more = len(page) == size
        if page:
            last = page[-1].number
            yield page


def tables_of_all(tx: Connection, connection: str) -> list[TableName]:
    """The tables of all loads, but for those of relays. A log of a year may be larger than the memory, so it is read in
    pages, and of each load no more than the names."""
    found: set[TableName] = set()
    for status in LoadStatus:
        for page in _pages(tx, connection, status, ("body",), _PARSED):
            for row in page:
                found |= tables_from_json(row.body)
    return sorted(found)


def check_none_announced(tx: Connection, lease: Lease, doing: str) -> None:
    """Raises ConfigError while a load is announced: its recovery would move the state that a person sets by hand.

    A load of another partition than the lease's moves nothing of it.
    """
    unfinished = [loads.c.connection == lease.connection, loads.c.status == LoadStatus.ANNOUNCED.value]
    if lease.partition:
        unfinished.append(loads.c.partition_key == lease.partition)
    first = tx.scalar(select(loads.c.partition_key).where(*unfinished).order_by(loads.c.number).limit(1))
    if first is not None:
        of_partition = f", of its partition {first}," if first else ""
        raise ConfigError(
            doing,
            f"one of its loads{of_partition} is announced and not finished, and finishing it would move the state"
            " again",
            remedy=f"Run airbyte-proto recover {lease.connection}{partition_option(lease.partition)} first. If it"
            " cannot find out whether the load landed, its error says how to end it.",
        )


def as_logged(row: Row[Any]) -> LoggedLoad:
    return LoggedLoad(
        load_from_json(row.body),
        LoadStatus(row.status),
        row.announced_at,
        row.ended_at,
        row.reason,
        committed_from_json(row.committed),
        row.fence,
        None if row.ending is None else LoadEnding(row.ending),
        row.partition_key,
        row.number,
    )


def _record_tables(tx: Connection, ended: LoggedLoad, states: Collection[StateKey], partition: str) -> None:
    """Records the tables that a load has changed. Its moved `states` say which of its streams they cover."""
    landed = {committed.stream for committed in ended.committed}
    for part in ended.load.parts:
        if part.stream not in landed or not part.is_remembered:
            continue
        key = StateKey(part.stream, partition)
        is_covered = key in states or (StateKey(None, partition) in states and not part.read_whole)
        forget_tables(tx, ended.load.connection, [key])
        table = LandedTable(part.table_id, ended.load.load_id, part.write, is_covered)
        remember_table(tx, ended.load.connection, key, table)


def remember_table(tx: Connection, connection: str, key: StateKey, table: LandedTable) -> None:
    """Records the last load of a stream, of which nothing is recorded."""
    values = {"table_id": table.table_id, "load_id": table.load_id, "write_mode": table.write.value}
    at = {"connection": connection, **key_columns(key)}
    tx.execute(insert(landed_tables).values(**at, **values, is_covered=int(table.is_covered)))


def forget_tables(tx: Connection, connection: str, keys: Collection[StateKey]) -> None:
    """Forgets the tables of streams whose state a person has changed. The whole connection's key stands for all."""
    for key in keys:
        at = {"connection": connection, **key_columns(key)}
        names = ["connection", "partition_key"] if key.stream is None else list(at)
        tx.execute(delete(landed_tables).where(*(landed_tables.c[name] == at[name] for name in names)))


def landed_in(tx: Connection, connection: str, partition: str) -> Mapping[StreamId, LandedTable]:
    here = landed_tables.c.connection == connection, landed_tables.c.partition_key == partition
    return {
        StreamId.of(row.stream, row.namespace): LandedTable(
            row.table_id, row.load_id, WriteMode(row.write_mode), bool(row.is_covered)
        )
        for row in tx.execute(select(landed_tables).where(*here))
    }


def _out_of_order(doing: str, load: Load, found: str) -> InternalError:
    return InternalError(f"{doing}: load {load.load_id} of connection {load.connection}", found)
