"""SQL of what connectors keep: values, each row from one version of the connection to another, and enriched rows.

The caller has begun the transaction and, for changes, checked that the lease holds.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, or_, select, update

from dagster_airbyte_proto.checkpoints.kept_values import (
    VALUES_ROLLED_BACK,
    Asset,
    CachedRows,
    KeptSize,
    KeptValue,
    Key,
    ValueChanges,
    after_prefix,
    key_stored_as,
    stored_key,
)
from dagster_airbyte_proto.checkpoints.load_ending import LoadEnding
from dagster_airbyte_proto.checkpoints.sql.database import Database
from dagster_airbyte_proto.checkpoints.sql.leases import next_number
from dagster_airbyte_proto.checkpoints.sql.schema import enriched_rows, kept_values, state_history, states
from dagster_airbyte_proto.checkpoints.sql.states import ChangeNote, StateKey, as_change, key_columns, stream_of
from dagster_airbyte_proto.checkpoints.store import Lease, LoggedLoad, StateChange
from dagster_airbyte_proto.checkpoints.transform_states import TRANSFORMS, transform_changes
from dagster_airbyte_proto.loads.load import StagedRows, TransformedStream
from dagster_airbyte_proto.model import REPLACING
from dagster_airbyte_proto.plurals import counted

_PAGE = 1000
_LENGTHS = func.length(kept_values.c.value) + func.length(kept_values.c.key)
_SIZES = func.count().label("found"), func.coalesce(func.sum(_LENGTHS), 0).label("size_bytes")


class KeptValueReader:
    """The part of the SQL store that reads kept values."""

    _database: Database

    def kept_value(self, asset: Asset, key: Key) -> bytes | None:
        with self._database.read() as tx:
            found = tx.scalar(select(kept_values.c.value).where(*_current(asset), kept_values.c.key == stored_key(key)))
        return None if found is None else bytes(found)

    def kept_values(self, asset: Asset, prefix: Key = ()) -> Iterator[KeptValue]:
        query = select(kept_values.c.key, kept_values.c.value).where(*_current(asset))
        query = query.order_by(kept_values.c.key).limit(_PAGE)
        bounds = _under(prefix)
        while True:
            with self._database.read() as tx:
                found = tx.execute(query.where(*bounds)).all()
            yield from (KeptValue(key_stored_as(bytes(row.key)), bytes(row.value)) for row in found)
            if len(found) < _PAGE:
                return
            # In the place of the bound before. Of two lower bounds SQLite may search its index by the lesser one, and
            # would step over all pages before at each page.
            bounds = (kept_values.c.key > bytes(found[-1].key), *bounds[1:])

    def count_kept_values(self, asset: Asset, prefix: Key = ()) -> tuple[int, int]:
        with self._database.read() as tx:
            row = tx.execute(select(*_SIZES).where(*_current(asset), *_under(prefix))).one()
        return int(row[0]), int(row[1])

    def count_kept_keys(self, asset: Asset, keys: Sequence[Key]) -> int:
        stored, count = list(map(stored_key, keys)), 0
        for start in range(0, len(stored), _PAGE):
            part = kept_values.c.key.in_(stored[start : start + _PAGE])
            with self._database.read() as tx:
                count += tx.scalar(select(func.count()).where(*_current(asset), part)) or 0
        return count

    def kept_sizes(self, connection: str) -> Sequence[KeptSize]:
        owner = [kept_values.c[name] for name in ("partition_key", "namespace", "stream")]
        here = kept_values.c.connection == connection, kept_values.c.until.is_(None)
        with self._database.read() as tx:
            rows = tx.execute(select(*owner, *_SIZES).where(*here).group_by(*owner).order_by(*owner)).all()
        return [
            KeptSize(Asset(connection, stream_of(row), row.partition_key), int(row.found), int(row.size_bytes))
            for row in rows
        ]


class EnrichedRowKeeper(ABC):
    """The part of the SQL store that has the rows that enrichments made."""

    _database: Database

    @abstractmethod
    def _fenced(self, lease: Lease) -> AbstractContextManager[Connection]: ...

    def enriched_rows(self, owner: CachedRows, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for start in range(0, len(keys), _PAGE):
            with self._database.read() as tx:
                since = self._database.now(tx) - timedelta(seconds=owner.seconds)
                here = *_of_enrichment(owner), enriched_rows.c.key.in_(keys[start : start + _PAGE])
                query = select(enriched_rows.c.key, enriched_rows.c.made).where(*here, enriched_rows.c.kept_at > since)
                found |= {bytes(row.key): bytes(row.made) for row in tx.execute(query)}
        return found

    def keep_enriched_rows(self, lease: Lease, owner: CachedRows, rows: Mapping[bytes, bytes]) -> None:
        with self._fenced(lease) as tx:
            now = self._database.now(tx)
            _forget_expired(tx, owner.connection, now)
            keys, times = list(rows), {"kept_at": now, "expires_at": now + timedelta(seconds=owner.seconds)}
            for start in range(0, len(keys), _PAGE):
                part = keys[start : start + _PAGE]
                tx.execute(delete(enriched_rows).where(*_of_enrichment(owner), enriched_rows.c.key.in_(part)))
                names = {"connection": owner.connection, "enrichment": owner.enrichment, **times}
                tx.execute(insert(enriched_rows), [{**names, "key": key, "made": rows[key]} for key in part])

    def count_enriched_rows(self, connection: str) -> int:
        with self._database.read() as tx:
            return tx.scalar(select(func.count()).where(enriched_rows.c.connection == connection)) or 0


def change(tx: Connection, asset: Asset, changes: ValueChanges, note: ChangeNote) -> None:
    """Makes the changes under a new version, and notes it in the history of the states."""
    if changes != ValueChanges():
        _changed(tx, asset, changes, note._replace(why=_words(changes, "kept")))


def change_by_hand(tx: Connection, asset: Asset, changes: ValueChanges, note: ChangeNote) -> StateChange:
    """Makes the changes of a person, as `change` does. Returns the entry of the history."""
    return _changed(tx, asset, changes, note._replace(why=_words(changes, "set")))


def _changed(tx: Connection, asset: Asset, changes: ValueChanges, note: ChangeNote) -> StateChange:
    version = next_number(tx, asset.connection, "version")
    _apply(tx, asset, changes, version)
    return _note(tx, _owner(asset), version, note)


def keep_transform_states(
    tx: Connection, ended: LoggedLoad, partition: str, moved: Sequence[StateChange], note: ChangeNote
) -> None:
    """Keeps the states of transforms that a load has, for the streams that landed.

    They change under the version of the states that move with the load, or one version of all of them, so that a
    rollback finds the load whole.
    """
    version = moved[0].version if moved else None
    noted = {StateKey(each.stream, each.partition) for each in moved}
    for each, part in _transformed(ended, partition, moved):
        asset = Asset(ended.load.connection, each.stream, each.partition)
        current = select(kept_values.c.key, kept_values.c.value).where(*_current(asset), *_under((TRANSFORMS,)))
        changes = transform_changes(
            {key_stored_as(bytes(row.key)): bytes(row.value) for row in tx.execute(current)},
            each.states,
            each.generation_id,
            position=part.branch_position if part else None,
            replaces=part is not None and part.write in REPLACING,
        )
        if changes == ValueChanges():
            continue
        version = version or next_number(tx, asset.connection, "version")
        _apply(tx, asset, changes, version)
        if StateKey(asset.stream, asset.partition) not in noted:
            _note(tx, _owner(asset), version, note._replace(why=_words(changes, "kept")))


def _transformed(
    ended: LoggedLoad, partition: str, moved: Sequence[StateChange]
) -> Iterator[tuple[TransformedStream, StagedRows | None]]:
    """Yields the streams of a load whose rows landed, each with the states after them, and with its part if it has one.

    A state that all share moves only with all of them, and the word of a person is about all of them.
    """
    landed = {each.stream for each in ended.committed} | {each.stream for each in moved}
    is_whole = None in landed or ended.ending is LoadEnding.RESOLVED_AS_LANDED
    for part in ended.load.parts:
        if is_whole or part.stream in landed:
            yield TransformedStream(part.stream, part.generation_id, part.transform_states, partition), part
    for each in ended.load.transformed:
        if is_whole or each.stream in landed:
            yield each, None


def _apply(tx: Connection, asset: Asset, changes: ValueChanges, version: int) -> None:
    owner = _owner(asset)
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


def drop(tx: Connection, connection: str, streams: Collection[StateKey], version: int) -> None:
    """Ends the values of these streams at a version. No stream stands for all of the connection's in that partition.

    With all of the whole connection go the rows that its enrichments made.
    """
    if StateKey(None, "") in streams:
        tx.execute(delete(enriched_rows).where(enriched_rows.c.connection == connection))
    for key in streams:
        here = [kept_values.c.connection == connection, kept_values.c.partition_key == key.partition]
        if key.stream is not None:
            here += [kept_values.c[name] == part for name, part in key_columns(key).items()]
        tx.execute(update(kept_values).where(*here, kept_values.c.until.is_(None)).values(until=version))


def touched_since(tx: Connection, lease: Lease, version: int) -> list[StateKey]:
    """Returns the owners of values that are others than at a version, in the lease's partition or in all."""
    newer, ended = _since(lease, version)
    names = ("namespace", "stream", "partition_key")
    owners = select(*(kept_values.c[name] for name in names)).where(or_(newer, ended)).distinct()
    return [StateKey(stream_of(row), row.partition_key) for row in tx.execute(owners)]


def roll_back(
    tx: Connection, lease: Lease, to_version: int, moved: Sequence[StateChange], note: ChangeNote
) -> list[StateChange]:
    """Brings the values in the lease's partition, or in all, back as they were at a version, under the version of the
    states that `moved`, or a new one. Returns the changes of values beside states that did not move."""
    connection, touched = lease.connection, touched_since(tx, lease, to_version)
    if not touched:
        return []
    newer, ended = _since(lease, to_version)
    version = moved[0].version if moved else next_number(tx, connection, "version")
    again = [column for column in kept_values.c if column.name not in ("since", "until")]
    tx.execute(update(kept_values).where(newer).values(until=version))
    back = [{**row._asdict(), "since": version} for row in tx.execute(select(*again).where(ended))]
    if back:
        tx.execute(insert(kept_values), back)
    beside = set(touched).difference(StateKey(each.stream, each.partition) for each in moved)
    note = note._replace(why=VALUES_ROLLED_BACK)
    return [
        _note(tx, {"connection": connection, **key_columns(key)}, version, note) for key in touched if key in beside
    ]


def _since(lease: Lease, version: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """The values that are newer than a version, and those of the version that have ended since."""
    here = kept_values.c.connection == lease.connection
    if lease.partition:
        here = and_(here, kept_values.c.partition_key == lease.partition)
    newer = and_(here, kept_values.c.until.is_(None), kept_values.c.since > version)
    return newer, and_(here, kept_values.c.since <= version, kept_values.c.until > version)


def forget_before(tx: Connection, connection: str, version: int, now: datetime) -> None:
    """Deletes the rows that no rollback can need: those that ended up to this version. Enriched rows have no versions,
    and go by their age."""
    _forget_expired(tx, connection, now)
    tx.execute(delete(kept_values).where(kept_values.c.connection == connection, kept_values.c.until <= version))


def _forget_expired(tx: Connection, connection: str, now: datetime) -> None:
    here = enriched_rows.c.connection == connection
    tx.execute(delete(enriched_rows).where(here, enriched_rows.c.expires_at <= now))


def _of_enrichment(owner: CachedRows) -> tuple[ColumnElement[bool], ...]:
    return enriched_rows.c.connection == owner.connection, enriched_rows.c.enrichment == owner.enrichment


def _owner(asset: Asset) -> Mapping[str, str]:
    return {"connection": asset.connection, **key_columns(StateKey(asset.stream, asset.partition))}


def _current(asset: Asset) -> tuple[ColumnElement[bool], ...]:
    return (*(kept_values.c[name] == part for name, part in _owner(asset).items()), kept_values.c.until.is_(None))


def _under(prefix: Key) -> tuple[ColumnElement[bool], ...]:
    start = stored_key(prefix)
    return (kept_values.c.key >= start, kept_values.c.key < after_prefix(start)) if start else ()


def _note(tx: Connection, owner: Mapping[str, str], version: int, note: ChangeNote) -> StateChange:
    """Writes the state as it stands into the history: it is the values that changed."""
    here = [states.c[name] == part for name, part in owner.items()]
    state = tx.execute(select(states.c.scope, states.c.message).where(*here)).one_or_none()
    scope, message = (None, None) if state is None else (state.scope, state.message)
    entry = {**owner, "version": version, "scope": scope, "message": message, **note._asdict()}
    tx.execute(insert(state_history), [entry])
    same = [state_history.c[name] == part for name, part in {**owner, "version": version}.items()]
    return as_change(tx.execute(select(state_history).where(*same)).one())


def _words(changes: ValueChanges, done: str) -> str:
    dropped, values = len(changes.dropped), len(changes.values)
    words = [f"dropped all values under {counted(dropped, 'prefix', 'es')}"] if dropped else []
    return ", ".join([*words, *([f"{done} {counted(values, 'value')}"] if values else [])])
