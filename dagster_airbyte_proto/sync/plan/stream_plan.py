"""From what the user chose and what the connector offers to one definite plan, or an error that names the fault."""

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.connection import OTHERS, Connection, StreamOptions
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.table import DEDUPLICATING, REPLACING
from dagster_airbyte_proto.model import (
    Catalog,
    FieldPath,
    Merge,
    PlannedStream,
    ReadMode,
    Shaping,
    Stream,
    StreamId,
    TableName,
    TypeChoices,
    WriteMode,
)
from dagster_airbyte_proto.schema.names import LONGEST_TABLE_BYTES, folded, shortened, table_name, unique_names

_KEYED = DEDUPLICATING | {WriteMode.SOFT_DELETE}
_IN_TABLE = {WriteMode.SOFT_DELETE: WriteMode.APPEND_DEDUP}
_REFRESHED = {WriteMode.APPEND: WriteMode.OVERWRITE, WriteMode.APPEND_DEDUP: WriteMode.OVERWRITE_DEDUP}


class SharedState(StrEnum):
    """Streams that share a state are synced together: the call is refused, or asks for the whole of them."""

    REFUSE = "refuse"
    WHOLE = "whole"


class Slice(NamedTuple):
    """One partition of a connection: a slice of each table, with states of its own.

    `window` is what templates of the config find beside `key`: `start` and `end`, or the names of dimensions.
    """

    key: str
    window: Mapping[str, str] = {}

    @property
    def words(self) -> Mapping[str, str]:
        """Each template's name with what fills it."""
        return {**self.window, "key": self.key}


class KnownTable(NamedTuple):
    """What a stream's table is called since the stream was first synced, and what it was to be called then."""

    wish: TableName
    table: TableName


class Wanted(NamedTuple):
    """What one call asks for beyond the connection: some of its streams, or all anew, or one partition.

    `catalog` is planned from instead of what the connector offers today. `shared` says what becomes of streams that
    were not asked for and share their state with those that were. A `slice` is read from nothing and replaced whole
    once its stream is complete; the states that come with it are kept for people to look at. A `refresh` replaces what
    is there too, unless it `merges`: then the new generation comes into the table as its rows always do.
    """

    only: Collection[str] | None = None
    refresh: bool = False
    catalog: Catalog | None = None
    shared: SharedState = SharedState.REFUSE
    slice: Slice | None = None
    merges: bool = False

    @property
    def replaces(self) -> bool:
        """Whether rows take the place of older ones in every mode."""
        return self.is_anew and not self.merges

    @property
    def is_anew(self) -> bool:
        """Whether streams start from nothing, whatever their states say."""
        return self.refresh or self.slice is not None

    def begins(self, planned: PlannedStream) -> bool:
        """Whether what the stream brings is of a generation of its own."""
        return self.is_anew or planned.read is ReadMode.FULL_REFRESH

    @property
    def partition(self) -> str:
        """Where the states are kept; empty where it is no partition's."""
        return self.slice.key if self.slice else ""


def planned_streams(
    connection: Connection,
    catalog: Catalog,
    wanted: Wanted,
    known: Mapping[StreamId, KnownTable] = {},
) -> tuple[PlannedStream, ...]:
    """The streams of one sync, each with its table and modes; generations are the state store's to fill in. `known` are
    the tables that streams of the connection have had, of today and gone."""
    if wanted.slice is not None and not wanted.slice.key:
        raise ConfigError(_planning(connection), "the partition has no key")
    offered = {str(stream.id): stream for stream in catalog.streams}
    chosen = _chosen(connection, offered)
    # Told apart among all that the connection has: a stream that is synced alone must find its own table again.
    wishes = {offered[name].id: _wish(connection, offered[name], options) for name, options in chosen.items()}
    tables = _tables(wishes, known)
    if wanted.only is not None:
        asked = [_known(name, chosen, "--streams") for name in wanted.only]
        chosen = {name: chosen[name] for name in asked}
    if not chosen:
        raise ConfigError(
            _planning(connection),
            "no stream is chosen",
            remedy=f"The connector offers: {', '.join(sorted(offered)) or 'none'}",
        )
    planned = (_planned(connection, offered[name], options, wanted) for name, options in chosen.items())
    return tuple(msgspec.structs.replace(each, table=tables[each.id], wish=wishes[each.id]) for each in planned)


def _wish(connection: Connection, stream: Stream, options: StreamOptions) -> TableName:
    """What a stream's table would be called if there was no other."""
    source_namespace = stream.id.namespace or connection.name
    namespace = connection.namespace.replace("${source_namespace}", source_namespace)
    name = connection.destination.table_prefix + (options.rename or stream.id.name)
    return TableName(namespace, name)


def with_generations(
    streams: Sequence[PlannedStream], generations: Mapping[StreamId, int]
) -> tuple[PlannedStream, ...]:
    """The streams with the generations of this run; one that replaces its table asks for nothing older."""
    return tuple(
        msgspec.structs.replace(
            planned,
            generation_id=generations[planned.id],
            minimum_generation_id=generations[planned.id] if replaces(planned) else 0,
        )
        for planned in streams
    )


def replaces(planned: PlannedStream) -> bool:
    """Whether the sync's rows take the place of all older ones, at once, when the stream is complete."""
    return planned.write in REPLACING


def lands_aside(planned: PlannedStream) -> bool:
    """Whether loads of it may land on a branch of its table before the stream is complete. A slice lands as one, and so
    does what must leave no deletes in the table: from the second load on keys would be deleted."""
    leaves_no_deletes = planned.merge is Merge.COPY_ON_WRITE and planned.write in DEDUPLICATING
    return replaces(planned) and planned.slice is None and not leaves_no_deletes


def may_be_refreshed(planned: PlannedStream) -> bool:
    """Whether `sync --refresh` of a stream that adds to its table would land aside, and may change its columns so."""
    refreshed = msgspec.structs.replace(planned, write=_REFRESHED.get(planned.write, planned.write))
    return not replaces(planned) and lands_aside(refreshed)


def is_resumable(planned: PlannedStream) -> bool:
    """Whether its source can go on in the middle of a generation: it then says by states where it stands."""
    return lands_aside(planned) and (planned.read is ReadMode.INCREMENTAL or planned.stream.is_resumable)


def is_checkpointed(planned: PlannedStream) -> bool:
    """Whether rows may be landed at states, before the stream is complete.

    A full refresh starts from nothing when it is tried again, so its rows land together or not at all;
    what replaces a table does so at once.
    """
    return planned.read is ReadMode.INCREMENTAL and not replaces(planned)


def _chosen(connection: Connection, offered: Mapping[str, Stream]) -> dict[str, StreamOptions]:
    if connection.streams is None:
        return dict.fromkeys(offered, StreamOptions())
    named = {
        _known(name, offered, "streams"): options for name, options in connection.streams.items() if name != OTHERS
    }
    others = connection.streams.get(OTHERS)
    return named if others is None else {name: named.get(name, others) for name in offered}


def _known(name: str, offered: Collection[str], where: str) -> str:
    """The stream's full name; its namespace may be left out where that is no ambiguity."""
    if name in offered:
        return name
    ends_alike = [full for full in offered if full.endswith(f".{name}")]
    if len(ends_alike) == 1:
        return ends_alike[0]
    near = ends_alike or get_close_matches(name, offered, n=3)
    raise ConfigError(
        f"choosing streams ({where})",
        f"there is no stream {name!r}",
        remedy=f"Did you mean {' or '.join(repr(one) for one in near)}?"
        if near
        else f"The connector offers: {', '.join(sorted(offered)[:20]) or 'none'}",
    )


def _planned(connection: Connection, stream: Stream, options: StreamOptions, wanted: Wanted) -> PlannedStream:
    """All but its table."""
    read = _read_mode(connection, stream, options)
    write = _write_mode(stream, options, read)
    key = options.primary_key or stream.primary_key
    if write in _KEYED and not key:
        raise _fault(
            connection,
            stream,
            f"write: {write} needs a primary key, and the source names none",
            "Add primary_key: [...]",
        )
    in_table = _IN_TABLE.get(write, write)
    return PlannedStream(
        stream=stream,
        table=_wish(connection, stream, options),
        read=read,
        write=_REFRESHED.get(in_table, in_table) if wanted.replaces else in_table,
        primary_key=key,
        cursor=_cursor(stream, options),
        slice=wanted.slice.key if wanted.slice else None,
        shaping=_shaping(options),
        keeps_deleted=write is WriteMode.SOFT_DELETE,
        merge=options.merge or Merge.ON_READ,
        types=options.types.over(connection.types.over(TypeChoices())),
        policy=options.schema_policy or connection.destination.schema_policy,
        formerly=options.formerly or {},
        sdc_columns=connection.destination.sdc_columns,
    )


def _shaping(options: StreamOptions) -> Shaping | None:
    shaping = Shaping(
        options.select or (),
        options.exclude or (),
        tuple((options.rename_columns or {}).items()),
        options.hash or (),
        options.filter or "",
        options.partition_by or (),
        options.sort_by or (),
        options.cluster or (),
    )
    return None if shaping == Shaping() else shaping


def _read_mode(connection: Connection, stream: Stream, options: StreamOptions) -> ReadMode:
    if options.read is ReadMode.INCREMENTAL:
        if options.write in REPLACING:
            found = f"read: incremental with write: {options.write} would leave only the newest rows in the table"
            raise _fault(connection, stream, found, "Use read: full_refresh, or write: append_dedup")
        if not _can_resume(stream, options) and not stream.may_follow_log:
            why = "offers no incremental read" if not _is_incremental(stream) else "has no cursor of its own"
            found = f"read: incremental, but the source {why}"
            raise _fault(connection, stream, found, "Use read: full_refresh, or name a cursor")
    if options.read is not None:
        return options.read
    if options.write in REPLACING or not _can_resume(stream, options):
        return ReadMode.FULL_REFRESH
    return ReadMode.INCREMENTAL


def _write_mode(stream: Stream, options: StreamOptions, read: ReadMode) -> WriteMode:
    if options.write is not None:
        return options.write
    if read is ReadMode.FULL_REFRESH:
        return WriteMode.OVERWRITE
    return WriteMode.APPEND_DEDUP if options.primary_key or stream.primary_key else WriteMode.APPEND


def _is_incremental(stream: Stream) -> bool:
    return ReadMode.INCREMENTAL in stream.read_modes


def _can_resume(stream: Stream, options: StreamOptions) -> bool:
    return _is_incremental(stream) and (stream.is_cursor_fixed or bool(_cursor(stream, options)))


def _cursor(stream: Stream, options: StreamOptions) -> FieldPath:
    if stream.is_cursor_fixed and stream.cursor:
        return stream.cursor
    return options.cursor or stream.cursor


def _tables(wishes: Mapping[StreamId, TableName], known: Mapping[StreamId, KnownTable]) -> dict[StreamId, TableName]:
    """Where each stream lands. Two streams that would land in one table are told apart by a hash of their names; a
    table that a stream has had stays its own, also while the stream is gone."""
    kept = {stream: had.table for stream, had in known.items() if wishes.get(stream, had.wish) == had.wish}
    spaces = {stream: _namespace(wish.namespace) for stream, wish in wishes.items()}
    found: dict[StreamId, TableName] = {}
    for space in dict.fromkeys(map(folded, spaces.values())):
        here = [stream for stream in wishes if folded(spaces[stream]) == space]
        names = unique_names(
            [(table_name(wishes[stream].name), str(stream)) for stream in here],
            kept={str(stream): had.name for stream, had in kept.items() if folded(had.namespace) == space},
            longest_bytes=LONGEST_TABLE_BYTES,
        )
        found |= {stream: TableName(spaces[stream], name) for stream, name in zip(here, names, strict=True)}
    return found


def _namespace(wish: str) -> str:
    return shortened(table_name(wish) or "_", wish, LONGEST_TABLE_BYTES)


def _fault(connection: Connection, stream: Stream, found: str, remedy: str) -> ConfigError:
    return ConfigError(_planning(connection), found, remedy=remedy, stream=str(stream.id))


def _planning(connection: Connection) -> str:
    return f"planning the sync of connection {connection.name}"
