"""SQL of the values that connectors keep. Each row holds from one version of the connection to another.

The caller has begun the transaction and, for changes, checked that the lease holds.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, or_, select, update

from dagster_airbyte_proto.checkpoints.kept_values import (
    Asset,
    KeptValue,
    Key,
    ValueChanges,
    after_prefix,
    key_stored_as,
    stored_key,
)
from dagster_airbyte_proto.checkpoints.sql.database import Database
from dagster_airbyte_proto.checkpoints.sql.leases import next_number
from dagster_airbyte_proto.checkpoints.sql.schema import kept_values, state_history, states
from dagster_airbyte_proto.checkpoints.sql.states import ChangeNote, StateKey, key_columns

_PAGE = 1000


class KeptValueReader:
    """The part of the SQL store that reads kept values."""

    _database: Database

    def kept_value(self, asset: Asset, key: Key) -> bytes | None:
        with self._database.read() as tx:
            found = tx.scalar(select(kept_values.c.value).where(*_current(asset), kept_values.c.key == stored_key(key)))
        return None if found is None else bytes(found)

    def kept_values(self, asset: Asset, prefix: Key = ()) -> Iterator[KeptValue]:
        query = select(kept_values.c.key, kept_values.c.value).where(*_current(asset), *_under(prefix))
        query, after = query.order_by(kept_values.c.key).limit(_PAGE), b""
        while True:
            with self._database.read() as tx:
                found = tx.execute(query.where(kept_values.c.key > after)).all()
            yield from (KeptValue(key_stored_as(bytes(row.key)), bytes(row.value)) for row in found)
            if len(found) < _PAGE:
                return
            after = bytes(found[-1].key)

    def count_kept_values(self, asset: Asset, prefix: Key = ()) -> tuple[int, int]:
        sizes = func.coalesce(func.sum(func.length(kept_values.c.value) + func.length(kept_values.c.key)), 0)
        with self._database.read() as tx:
            row = tx.execute(select(func.count(), sizes).where(*_current(asset), *_under(prefix))).one()
        return int(row[0]), int(row[1])

    def count_kept_keys(self, asset: Asset, keys: Sequence[Key]) -> int:
        stored, count = list(map(stored_key, keys)), 0
        for start in range(0, len(stored), _PAGE):
            part = kept_values.c.key.in_(stored[start : start + _PAGE])
            with self._database.read() as tx:
                count += tx.scalar(select(func.count()).where(*_current(asset), part)) or 0
        return count


def change(tx: Connection, asset: Asset, changes: ValueChanges, note: ChangeNote) -> None:
    """Makes the changes under a new version, and notes it in the history of the states."""
    if changes == ValueChanges():
        return
    version = next_number(tx, asset.connection, "version")
    owner = {"connection": asset.connection, **key_columns(StateKey(asset.stream, asset.partition))}
    for prefix in changes.dropped:
        tx.execute(update(kept_values).where(*_current(asset), *_under(prefix)).values(until=version))
    keys = {stored_key(key): text for key, text in changes.values.items()}
    stored = list(keys)
    for start in range(0, len(stored), _PAGE):
        part = stored[start : start + _PAGE]
        tx.execute(update(kept_values).where(*_current(asset), kept_values.c.key.in_(part)).values(until=version))
    new = [{**owner, "key": key, "since": version, "value": text} for key, text in keys.items() if text is not None]
    if new:
        tx.execute(insert(kept_values), new)
    done = [f"dropped all values under {_count_words(len(changes.dropped), 'prefix', 'es')}"] if changes.dropped else []
    done += [f"kept {_count_words(len(keys), 'value', 's')}"] if keys else []
    _note(tx, owner, version, note._replace(why=", ".join(done)))


def drop(tx: Connection, connection: str, streams: Collection[StateKey], version: int) -> None:
    """Ends the values of these streams at a version. No stream stands for all of the connection's in that partition."""
    for key in streams:
        here = [kept_values.c.connection == connection, kept_values.c.partition_key == key.partition]
        if key.stream is not None:
            here += [kept_values.c[name] == part for name, part in key_columns(key).items()]
        tx.execute(update(kept_values).where(*here, kept_values.c.until.is_(None)).values(until=version))


def roll_back(tx: Connection, connection: str, to_version: int, note: ChangeNote) -> None:
    """Brings the values of a connection back as they were at a version, under a new one."""
    here = kept_values.c.connection == connection
    newer = and_(here, kept_values.c.until.is_(None), kept_values.c.since > to_version)
    ended = and_(here, kept_values.c.since <= to_version, kept_values.c.until > to_version)
    names = ("namespace", "stream", "partition_key")
    owners = select(*(kept_values.c[name] for name in names)).where(or_(newer, ended)).distinct()
    touched = [row._asdict() for row in tx.execute(owners)]
    if not touched:
        return
    version = next_number(tx, connection, "version")
    again = [column for column in kept_values.c if column.name not in ("since", "until")]
    tx.execute(update(kept_values).where(newer).values(until=version))
    back = [{**row._asdict(), "since": version} for row in tx.execute(select(*again).where(ended))]
    if back:
        tx.execute(insert(kept_values), back)
    for owner in touched:
        _note(tx, {"connection": connection, **owner}, version, note)


def forget_before(tx: Connection, connection: str, version: int) -> None:
    """Deletes the rows that no rollback can need: those that ended up to this version."""
    tx.execute(delete(kept_values).where(kept_values.c.connection == connection, kept_values.c.until <= version))


def _current(asset: Asset) -> tuple[ColumnElement[bool], ...]:
    owner = {"connection": asset.connection, **key_columns(StateKey(asset.stream, asset.partition))}
    return (*(kept_values.c[name] == part for name, part in owner.items()), kept_values.c.until.is_(None))


def _under(prefix: Key) -> tuple[ColumnElement[bool], ...]:
    start = stored_key(prefix)
    return (kept_values.c.key >= start, kept_values.c.key < after_prefix(start)) if start else ()


def _note(tx: Connection, owner: Mapping[str, str], version: int, note: ChangeNote) -> None:
    """Writes the state as it stands into the history: it is the values that changed."""
    here = [states.c[name] == part for name, part in owner.items()]
    state = tx.execute(select(states.c.scope, states.c.message).where(*here)).one_or_none()
    scope, message = (None, None) if state is None else (state.scope, state.message)
    entry = {**owner, "version": version, "scope": scope, "message": message, **note._asdict()}
    tx.execute(insert(state_history), [entry])


def _count_words(count: int, word: str, ending: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else ending)
