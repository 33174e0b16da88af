"""What the streams of a connection looked like before, and what has changed in them, over one sync.

The names of columns are kept before a table is touched, so that a name that a field was given once stays its own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.checkpoints.store import Lease, StateStore, StreamChange
from dagster_airbyte_proto.errors import ConfigError, SchemaRefused
from dagster_airbyte_proto.loads.table import SLICE_COLUMN
from dagster_airbyte_proto.model import Catalog, ColumnName, FieldPath, PlannedStream, StreamId, TableName
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.schema.evolution import Change, Terms, What
from dagster_airbyte_proto.schema.names import column_name
from dagster_airbyte_proto.schema.shape import StreamShape, lost_columns, shape_changes, text
from dagster_airbyte_proto.sync.plan.stream_plan import KnownTable
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.stream_run import StreamRun

_ALL = 1_000_000_000


class Recorded(NamedTuple):
    """A change that some sync found, and the table of its stream as it is called now."""

    connection: str
    table: TableName
    noted: StreamChange


def recorded_changes(store: StateStore, names: Sequence[str], limit: int) -> list[Recorded]:
    """Of connections, or of tables by `namespace.table`: newest first. Raises ConfigError for what nobody knows."""
    found: list[Recorded] = []
    unknown = set(names)
    for connection in store.connections():
        tables = {stream: shape.table for stream, shape in store.shapes(connection).items()}
        known = {connection, *map(str, tables.values())}
        if not known & set(names):
            continue
        unknown -= known
        noted = store.stream_changes(connection, limit=_ALL)
        found += [Recorded(connection, tables[each.stream], each) for each in noted if each.stream in tables]
    if unknown:
        raise ConfigError(
            f"looking up the changes of {sorted(unknown)[0]}",
            "the state store knows no connection and no table of that name",
            remedy="Write NAMESPACE.TABLE, or a connection. Is --home right?",
        )
    wanted = [each for each in found if each.connection in names or str(each.table) in names]
    return sorted(wanted, key=lambda each: each.noted.changed_at, reverse=True)[:limit]


class Shapes:
    """Belongs to the reading thread."""

    def __init__(self, store: StateStore, lease: Lease, log: RunLog) -> None:
        self._store, self._lease, self._log = store, lease, log
        self._shapes = dict(store.shapes(lease.connection))
        self._noted: set[StreamId] = set()
        self.warnings: list[str] = []

    @property
    def tables(self) -> Mapping[StreamId, KnownTable]:
        """What the streams' tables have been called until now."""
        return {stream: KnownTable(shape.wish, shape.table) for stream, shape in self._shapes.items()}

    def named(self, streams: Sequence[PlannedStream]) -> tuple[PlannedStream, ...]:
        """The streams with the names that their columns have had before."""
        return tuple(
            msgspec.structs.replace(planned, names=self._shapes[planned.id].names)
            if planned.id in self._shapes
            else planned
            for planned in streams
        )

    def begin(self, streams: Sequence[PlannedStream], columns: Mapping[StreamId, Columns]) -> None:
        """Keeps the names of today, before any table has them."""
        begun = {}
        for planned in streams:
            names = dict(self._shapes[planned.id].names) if planned.id in self._shapes else {}
            # What the user calls a column is the user's to take back.
            renamed = {(source,) for source, _ in planned.shaping.renames} if planned.shaping else set()
            names |= {column.path: column.name for column in columns[planned.id].all if column.path not in renamed}
            shape = self._shapes.get(planned.id) or StreamShape(planned.wish or planned.table, planned.table)
            shape = msgspec.structs.replace(shape, names=_sorted(names))
            if shape != self._shapes.get(planned.id):
                begun[planned.id] = shape
        self._keep(begun, [])

    def note_gone(self, catalog: Catalog) -> None:
        """Tells of the streams that the source offered when it was synced last, and offers no more."""
        offered = {stream.id for stream in catalog.streams}
        gone = {
            stream: msgspec.structs.replace(shape, is_gone=True)
            for stream, shape in self._shapes.items()
            if stream not in offered and shape.is_known and not shape.is_gone
        }
        self.warnings += [f"stream {stream}: {text(Change(What.STREAM_GONE))}" for stream in gone]
        self._keep(gone, [(stream, Change(What.STREAM_GONE)) for stream in gone])

    def terms(self, planned: PlannedStream, columns: Columns, *, refresh_helps: bool = False) -> Terms:
        """What becomes of the stream's table is decided by these. Raises ConfigError for a hint that cannot be."""
        ordering = [column.name for column in columns.all if column.path == planned.cursor[:1]]
        if planned.keeps_deleted and columns.deleted_at is not None:
            ordering.append(columns.deleted_at.name)
        return Terms(
            policy=planned.policy,
            own=(*columns.metadata.names, SLICE_COLUMN, *(column.name for column in columns.nested)),
            required=(*columns.keys, *ordering, *_placing(columns)),
            formerly=self._formerly(planned, columns),
            refresh_helps=refresh_helps,
        )

    def note(self, runs: Iterable[StreamRun]) -> None:
        """Writes down what has changed for the streams whose tables are ready now, or refused. What a generation
        changes in its table is a change only once it is published: until then there is nothing to tell."""
        shapes: dict[StreamId, StreamShape] = {}
        changes: list[tuple[StreamId, Change]] = []
        for run in runs:
            stream = run.planned.id
            shape = None if stream in self._noted else self._shape(run)
            if shape is None:
                continue
            self._noted.add(stream)
            before = self._shapes[stream]
            found = shape_changes(before, shape, run.fit.changes if run.fit else ())
            run.schema_changes = (*run.schema_changes, *found)
            changes += [(stream, change) for change in found]
            if shape != before:
                shapes[stream] = shape
        self._keep(shapes, changes)

    def note_again(self, run: StreamRun) -> None:
        """`note`, for a stream whose table is about to be changed once more: that is noted too, by the next `note`."""
        self.note([run])
        self._noted.discard(run.planned.id)

    def _shape(self, run: StreamRun) -> StreamShape | None:
        """What the stream looks like now; None where that is not known yet."""
        planned, before = run.planned, self._shapes[run.planned.id]
        if isinstance(run.error, SchemaRefused):
            refused = {column: (in_table, in_stream) for column, in_table, in_stream in run.error.misfits}
            return msgspec.structs.replace(before, refused=refused)
        if run.fit is None or not run.has_fitting_table:
            return None
        done = {**before.formerly, **planned.formerly}
        old = {(name,) for name in planned.formerly.values()} - {(name,) for name in planned.formerly}
        return msgspec.structs.replace(
            before,
            wish=planned.wish or planned.table,
            table=planned.table,
            names=tuple(kept for kept in before.names if kept.path not in old),
            columns=run.fit.landed,
            lost=lost_columns(before, planned.table, run.fit.beside, done),
            withheld={misfit.column: (misfit.in_table, misfit.in_stream) for misfit in run.fit.withheld},
            refused={},
            key=planned.primary_key,
            cursor=planned.cursor,
            formerly=done,
            is_known=True,
            is_gone=False,
        )

    def _formerly(self, planned: PlannedStream, columns: Columns) -> dict[str, str]:
        """The hints that are still to be followed, as names of columns."""
        shape, by_path = self._shapes.get(planned.id), {column.path: column.name for column in columns.all}
        names = dict(shape.names) if shape else {}
        done = shape.formerly if shape else {}
        found = {}
        for new, old in planned.formerly.items():
            if done.get(new) == old:
                continue
            if (new,) not in by_path:
                near = get_close_matches(new, [path[0] for path in by_path], n=1)
                raise _fault(planned, f"the stream has no field {new}", f"Do you mean {near[0]}?" if near else "")
            if (old,) in by_path:
                raise _fault(planned, f"the source still sends {old} beside {new}", "Take the hint out.")
            found[by_path[(new,)]] = names.get((old,), column_name(old))
        return found

    def _keep(self, shapes: Mapping[StreamId, StreamShape], changes: Sequence[tuple[StreamId, Change]]) -> None:
        if not shapes and not changes:
            return
        self._store.keep_shapes(self._lease, shapes, changes)
        self._shapes |= shapes
        for stream, change in changes:
            self._log.write("NOTE", f"stream {stream}: {text(change)}")


def _sorted(names: Mapping[FieldPath, str]) -> tuple[ColumnName, ...]:
    return tuple(ColumnName(path, names[path]) for path in sorted(names))


def _fault(planned: PlannedStream, found: str, remedy: str) -> ConfigError:
    return ConfigError("reading the stream's option formerly", found, remedy=remedy, stream=str(planned.id))


def _placing(columns: Columns) -> Iterator[str]:
    """The columns that say where in the table a row lies."""
    yield from (field.column for field in columns.partitioning)
    yield from (field.column for field in columns.ordering.sorted)
    yield from columns.ordering.clustered
