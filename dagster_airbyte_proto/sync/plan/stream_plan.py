"""Plans a sync: the user's choices and the connector's catalog become one planned stream each, or its ConfigError.

- A stream's read and write modes follow from what the user chose, and else from what the source offers: incremental
  where there is a cursor, deduplicated where there is a key, a replaced table for a full refresh.
- A stream keeps the table that it was given first, so that a stream that is synced alone, or after another one with a
  similar name came, finds its own rows again.
- `replaces_table`, `may_land_on_branch`, `can_resume_generation` and `is_checkpointed` are the questions by which the
  commit decides when rows of a planned stream may land.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.connection import Connection, StreamOptions
from dagster_airbyte_proto.connection.stream_names import unmistakable_name
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import (
    DEDUPLICATING,
    REPLACING,
    Catalog,
    FieldPath,
    MergeMode,
    NamingPolicy,
    PlannedStream,
    ReadMode,
    Shaping,
    Stream,
    StreamId,
    TableName,
    TypeChoices,
    WriteMode,
)
from dagster_airbyte_proto.protocols.rapidbyte.changes import as_changes
from dagster_airbyte_proto.schema.names import (
    MAX_TABLE_NAME_BYTES,
    case_folded,
    shortened,
    snake_name,
    table_name,
    unique_names,
)
from dagster_airbyte_proto.sync.plan.relayed_stream import relayed_stream
from dagster_airbyte_proto.sync.plan.stream_choice import chosen_streams, offered_text, requested_streams

_NEEDS_KEY = DEDUPLICATING | {WriteMode.SOFT_DELETE}
_TABLE_MODES = {WriteMode.SOFT_DELETE: WriteMode.APPEND_DEDUP}
_REPLACING_MODES = {WriteMode.APPEND: WriteMode.OVERWRITE, WriteMode.APPEND_DEDUP: WriteMode.OVERWRITE_DEDUP}


class SharedStatePolicy(StrEnum):
    """The answer to a request that leaves out streams that share a state with requested ones: refuse, or sync all."""

    REFUSE = "refuse"
    SYNC_ALL = "whole"


class Slice(NamedTuple):
    """One partition of a connection: a slice of each table, with states of its own.

    `window` has what templates of the config may use beside `key`: `start` and `end`, or the partition's dimensions.
    """

    key: str
    window: Mapping[str, str] = {}

    @property
    def template_values(self) -> Mapping[str, str]:
        """The value of each template variable, by its name."""
        return {**self.window, "key": self.key}


class KnownTable(NamedTuple):
    """The table that a stream got when it was first synced, and the name that it would have got without conflicts."""

    preferred_table: TableName
    table: TableName


class SyncRequest(NamedTuple):
    """The part of a connection that one sync reads: all streams or some, from their states or from the start, or one
    partition.

    `only` has streams, or names as a person writes them; None means all of them. A `catalog` takes the place of what
    the connector offers today. `shared_state` says what to do about streams that were not requested and share a state
    with requested ones.
    With `retries_unknown` a relay sends the rows again of which nobody knows whether its destination has them, with
    `retries_rejected` the records that it rejected, before it reads on.
    A `slice` is read from the start and replaced as a whole once its stream is complete; its states are saved only for
    people to look at. A `refresh` replaces the tables' rows too, unless it `merges`: then the rows of the new
    generation are written in the stream's usual write mode.
    """

    only: Collection[StreamId | str] | None = None
    refresh: bool = False
    catalog: Catalog | None = None
    shared_state: SharedStatePolicy = SharedStatePolicy.REFUSE
    slice: Slice | None = None
    merges: bool = False
    retries_unknown: bool = False
    retries_rejected: bool = False

    @property
    def replaces(self) -> bool:
        """True if new rows replace all older ones, whatever the stream's write mode."""
        return self.starts_over and not self.merges

    @property
    def starts_over(self) -> bool:
        """True if streams are read from the start, whatever their states say."""
        return self.refresh or self.slice is not None

    def begins_generation(self, planned: PlannedStream) -> bool:
        """True if the rows of the stream form a generation of their own."""
        return self.starts_over or planned.read is ReadMode.FULL_REFRESH

    @property
    def partition(self) -> str:
        """The partition whose states the sync reads and saves; empty for a connection without partitions."""
        return self.slice.key if self.slice else ""


class ChosenStreams(NamedTuple):
    """The streams of one sync. Those with `faults` cannot be planned: they stand there to be refused, each alone."""

    planned: tuple[PlannedStream, ...]
    faults: Mapping[StreamId, ConfigError]

    @property
    def sound(self) -> tuple[PlannedStream, ...]:
        """The streams without a fault."""
        return tuple(each for each in self.planned if each.id not in self.faults)


def planned_streams(
    connection: Connection,
    catalog: Catalog,
    request: SyncRequest,
    known_tables: Mapping[StreamId, KnownTable] = {},
) -> tuple[PlannedStream, ...]:
    """Returns the streams of one sync as `plan_streams` does. Raises the error of the first that cannot be planned."""
    chosen = plan_streams(connection, catalog, request, known_tables)
    for fault in chosen.faults.values():
        raise fault
    return chosen.planned


def plan_streams(
    connection: Connection,
    catalog: Catalog,
    request: SyncRequest,
    known_tables: Mapping[StreamId, KnownTable] = {},
) -> ChosenStreams:
    """Plans the streams of one sync, each with its table and modes. The state store fills in their generations later.

    `known_tables` are the tables of all streams that the connection has ever had. Raises ConfigError for a fault that
    is of no stream: a name that the catalog does not have, or no stream at all.
    """
    if request.slice is not None and not request.slice.key:
        raise ConfigError(_doing(connection), "the partition has no key")
    offered = {stream.id: stream for stream in catalog.streams}
    chosen = chosen_streams(connection, offered)
    # Names are made unique among all chosen streams, not only the requested ones: a stream that is synced alone must
    # find its own table again.
    preferred = {stream: _preferred_table(connection, offered[stream], options) for stream, options in chosen.items()}
    tables = _table_names(preferred, known_tables)
    if request.only is not None:
        chosen = {stream: chosen[stream] for stream in requested_streams(request.only, chosen)}
    if not chosen:
        found = "no stream is chosen" if offered else "the connector offers no stream"
        raise ConfigError(_doing(connection), found, remedy=offered_text(offered))
    planned: list[PlannedStream] = []
    faults: dict[StreamId, ConfigError] = {}
    for stream, options in chosen.items():
        try:
            each = _planned_stream(connection, offered[stream], options, request)
        except ConfigError as error:
            faults[stream] = error
            each = _unplanned_stream(offered[stream], options, tables[stream])
        planned.append(msgspec.structs.replace(each, table=tables[stream], preferred_table=preferred[stream]))
    return ChosenStreams(tuple(planned), faults)


def _preferred_table(connection: Connection, stream: Stream, options: StreamOptions) -> TableName:
    """The name of the stream's table if no other stream wanted the same one."""
    source_namespace, source_name = stream.id.namespace or connection.name, stream.id.name
    if connection.destination.names is NamingPolicy.SNAKE:
        source_namespace, source_name = snake_name(source_namespace), snake_name(source_name)
    namespace = connection.namespace.replace("${source_namespace}", source_namespace)
    name = connection.destination.table_prefix + (options.rename or source_name)
    return TableName(namespace, name)


def with_generations(
    streams: Sequence[PlannedStream], generations: Mapping[StreamId, int]
) -> tuple[PlannedStream, ...]:
    """Returns the streams with the generations of this run. A stream that replaces its table needs no older rows, so
    its minimum generation is its own."""
    return tuple(
        msgspec.structs.replace(
            planned,
            generation_id=generations[planned.id],
            minimum_generation_id=generations[planned.id] if replaces_table(planned) else 0,
        )
        for planned in streams
    )


def replaces_table(planned: PlannedStream) -> bool:
    """True if the rows of this sync replace all older ones at once, when the stream is complete."""
    return planned.write in REPLACING


def may_land_on_branch(planned: PlannedStream) -> bool:
    """True if its loads may land on a branch of its table before the stream is complete.

    A slice lands in one load. So does a stream that must leave no delete files in its table (copy on write): from the
    second load on a branch, its repeated keys would have to be deleted there.
    """
    leaves_no_deletes = planned.merge is MergeMode.COPY_ON_WRITE and planned.write in DEDUPLICATING
    return replaces_table(planned) and planned.slice is None and not leaves_no_deletes


def refresh_can_change_columns(planned: PlannedStream) -> bool:
    """True if `sync --refresh` of a stream that adds to its table would land on a branch and may change its columns."""
    refreshed = msgspec.structs.replace(planned, write=_REPLACING_MODES.get(planned.write, planned.write))
    return not replaces_table(planned) and may_land_on_branch(refreshed)


def can_resume_generation(planned: PlannedStream) -> bool:
    """True if its source can resume in the middle of a generation. Such a source sends states on the way."""
    return may_land_on_branch(planned) and (planned.read is ReadMode.INCREMENTAL or planned.stream.is_resumable)


def is_checkpointed(planned: PlannedStream) -> bool:
    """True if its rows may land at states, before the stream is complete.

    A full refresh starts over when it is retried, so its rows land together or not at all. A stream that replaces its
    table does so at once.
    """
    return planned.read is ReadMode.INCREMENTAL and not replaces_table(planned)


def _planned_stream(
    connection: Connection, stream: Stream, options: StreamOptions, request: SyncRequest
) -> PlannedStream:
    """The stream with its modes and options. Its table is only the preferred one: the caller sets the final one."""
    _check_read_mode(connection, stream, options)
    read = _read_mode(stream, options)
    write = _write_mode(stream, options, read)
    key = options.primary_key or stream.primary_key
    if write in _NEEDS_KEY and not key:
        found = f"write: {write} needs a primary key, and the source names none"
        raise _plan_error(connection, stream, found, "Add primary_key: [...]")
    in_table = _TABLE_MODES.get(write, write)
    planned = PlannedStream(
        stream=stream,
        table=_preferred_table(connection, stream, options),
        read=read,
        write=_REPLACING_MODES.get(in_table, in_table) if request.replaces else in_table,
        primary_key=key,
        cursor=_cursor(stream, options),
        slice=request.slice.key if request.slice else None,
        shaping=_shaping(options),
        keeps_deleted=write is WriteMode.SOFT_DELETE,
        merge=options.merge or MergeMode.ON_READ,
        types=options.types.over(connection.types.over(TypeChoices())),
        schema_policy=options.schema_policy or connection.destination.schema_policy,
        formerly=options.formerly or {},
        sdc_columns=connection.destination.sdc_columns,
        naming=connection.destination.names,
        transforms=connection.transforms_of(stream.id),
        is_key_configured=bool(options.primary_key),
    )
    planned = as_changes(planned) if connection.connector.protocol == "rapidbyte" else planned
    return planned if connection.to is None else relayed_stream(connection, planned, options)


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


def _unplanned_stream(stream: Stream, options: StreamOptions, table: TableName) -> PlannedStream:
    """A stream that cannot be planned, with what decides whether it shares a state with others."""
    read = _read_mode(stream, options)
    if ReadMode.INCREMENTAL not in stream.read_modes and not stream.supports_log_replication:
        read = ReadMode.FULL_REFRESH
    return PlannedStream(stream, table, read, WriteMode.APPEND, cursor=_cursor(stream, options))


def _check_read_mode(connection: Connection, stream: Stream, options: StreamOptions) -> None:
    """Raises ConfigError where the user chose to read the stream incrementally, and it cannot be."""
    if options.read is not ReadMode.INCREMENTAL:
        return
    if options.write in REPLACING:
        found = f"read: incremental with write: {options.write} would leave only the newest rows in the table"
        raise _plan_error(connection, stream, found, "Use read: full_refresh, or write: append_dedup")
    if not _can_read_incrementally(stream, options) and not stream.supports_log_replication:
        is_offered = ReadMode.INCREMENTAL in stream.read_modes
        why = "has no cursor of its own" if is_offered else "offers no incremental read"
        found = f"read: incremental, but the source {why}"
        raise _plan_error(connection, stream, found, "Use read: full_refresh, or name a cursor")


def _read_mode(stream: Stream, options: StreamOptions) -> ReadMode:
    if options.read is not None:
        return options.read
    only_changes = stream.supports_log_replication and stream.read_modes == (ReadMode.INCREMENTAL,)
    if options.write not in REPLACING and (only_changes or _can_read_incrementally(stream, options)):
        return ReadMode.INCREMENTAL
    return ReadMode.FULL_REFRESH


def _write_mode(stream: Stream, options: StreamOptions, read: ReadMode) -> WriteMode:
    if options.write is not None:
        return options.write
    if read is ReadMode.FULL_REFRESH:
        return WriteMode.OVERWRITE
    return WriteMode.APPEND_DEDUP if options.primary_key or stream.primary_key else WriteMode.APPEND


def _can_read_incrementally(stream: Stream, options: StreamOptions) -> bool:
    return ReadMode.INCREMENTAL in stream.read_modes and (stream.is_cursor_fixed or bool(_cursor(stream, options)))


def _cursor(stream: Stream, options: StreamOptions) -> FieldPath:
    if stream.is_cursor_fixed and stream.cursor:
        return stream.cursor
    return options.cursor or stream.cursor


def _table_names(
    preferred: Mapping[StreamId, TableName], known_tables: Mapping[StreamId, KnownTable]
) -> dict[StreamId, TableName]:
    """The table of each stream. Two streams that prefer the same table get names that end in a hash of their own names.
    A table that a stream once had stays reserved for it, also while the source does not offer the stream."""
    reserved = {
        stream: had.table
        for stream, had in known_tables.items()
        if preferred.get(stream, had.preferred_table) == had.preferred_table
    }
    identities = _identities({*preferred, *reserved})
    namespaces = {stream: _namespace(name.namespace) for stream, name in preferred.items()}
    found: dict[StreamId, TableName] = {}
    for namespace in dict.fromkeys(map(case_folded, namespaces.values())):
        here = [stream for stream in preferred if case_folded(namespaces[stream]) == namespace]
        names = unique_names(
            [(table_name(preferred[stream].name), identities[stream]) for stream in here],
            assigned={
                identities[stream]: had.name
                for stream, had in reserved.items()
                if case_folded(had.namespace) == namespace
            },
            max_bytes=MAX_TABLE_NAME_BYTES,
        )
        found |= {stream: TableName(namespaces[stream], name) for stream, name in zip(here, names, strict=True)}
    return found


def _identities(streams: Collection[StreamId]) -> dict[StreamId, str]:
    """A text for each stream that no other has. Tables are named after hashes of these, so they stay."""
    uses = Counter(map(str, streams))
    return {stream: str(stream) if uses[str(stream)] == 1 else unmistakable_name(stream) for stream in streams}


def _namespace(preferred: str) -> str:
    return shortened(table_name(preferred) or "_", preferred, MAX_TABLE_NAME_BYTES)


def _plan_error(connection: Connection, stream: Stream, found: str, remedy: str) -> ConfigError:
    return ConfigError(_doing(connection), found, remedy=remedy, stream=str(stream.id))


def _doing(connection: Connection) -> str:
    return f"planning the sync of connection {connection.name}"
