"""`state list|show|set|reset|history|rollback|copy`.

Slow modules are imported when a command runs; see call.py.

Manual changes take the lease of the connection, or of the partition that they are about, so they never collide with a
sync. The history names the OS user.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from dagster_airbyte_proto.checkpoints.slot import part_text, partition_option
from dagster_airbyte_proto.cli.call import Call, Target, command_in, user_name
from dagster_airbyte_proto.cli.commands.partition_options import states_partition
from dagster_airbyte_proto.cli.commands.states.state_view import (
    HISTORY_COLUMNS,
    HISTORY_TEXTS,
    StateView,
    state_change_answer,
    states_of,
    stream_text,
)
from dagster_airbyte_proto.cli.commands.states.state_words import (
    check_known_partition,
    check_not_masked,
    check_partition_to_change,
    check_position,
    displaced_line,
    hand_lease,
    json_text,
    known_stream,
    other_partitions_line,
    rollback_line,
    stream_of,
    stream_to_set,
)
from dagster_airbyte_proto.cli.output import Answer, Grid, short
from dagster_airbyte_proto.cli.program import state as group
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from dagster_airbyte_proto.checkpoints.kept_values import Asset
    from dagster_airbyte_proto.checkpoints.store import StateChange
    from dagster_airbyte_proto.model import StreamId

_LIST = ("connection", "stream", "state", "version", "changed", "run")
_SHOW = _LIST[1:]
_KEY_HELP = "Repeat it for a key of several segments."
_REWOUND = ("table", "snapshot", "")
_READ_FROM_START = "The next sync of the partition reads it from the start all the same."


@command_in(group, "list")
def list_states(call: Call) -> Answer:
    """Lists every connection with its states."""
    store = call.store()
    by_name = {name: store.states(name, partition=None) for name in store.connections()}
    shown = {name: StateView(Target(name, None), store) for name in by_name}
    rows = [(name, *shown[name].row(stored)) for name, states in by_name.items() for stored in states]
    rows += [(name, "", "", "", "", "") for name, states in by_name.items() if not states]
    value = {
        "connections": [
            {"connection": name, "states": [shown[name].value(stored) for stored in states]}
            for name, states in by_name.items()
        ]
    }
    grid = Grid(_LIST, sorted(rows), texts=("state",))
    return Answer(value, (grid if rows else "no connection has synced into this state store yet",))


@command_in(group, "show")
@click.argument("connection", metavar="C")
@click.argument("stream", required=False)
@states_partition
def show_states(call: Call, connection: str, stream: str | None, partition: str | None) -> Answer:
    """Shows the current states of a connection, or of one stream."""
    target = call.known_connection_target(connection)
    store = call.store()
    check_known_partition(store, target, partition, "showing the state")
    states = store.states(target.name, partition=partition)
    sizes = [size for size in store.kept_sizes(target.name) if partition in (None, size.asset.partition)]
    shown = StateView(target, store)
    parts = {id(stored): shown.parts(stored) for stored in states}
    chosen: StreamId | None = None
    if stream is not None:
        own = [*(stored.state.stream for stored in states), *(size.asset.stream for size in sizes)]
        known = [*own, *(part for streams in parts.values() for part in streams)]
        chosen = known_stream(stream, known, is_shared=any(stored.state.stream is None for stored in states))
        states = [stored for stored in states if stored.state.stream == chosen or chosen in parts[id(stored)]]
        sizes = [size for size in sizes if size.asset.stream == chosen]
    kept = {size.asset[1:]: shown.kept(size, with_values=stream is not None) for size in sizes}
    of_states = {(stored.state.stream, stored.partition) for stored in states}
    value: dict[str, Any] = {"connection": target.name}
    value["states"] = [
        shown.value(stored, part=chosen)
        | ({"kept_values": kept[key]} if (key := (stored.state.stream, stored.partition)) in kept else {})
        for stored in states
    ]
    # Those beside a state that all streams share, and those of a stream that has no state yet.
    value["kept_values"] = [
        {"stream": str(of) if of else None, "partition": partition, **found}
        for (of, partition), found in kept.items()
        if (of, partition) not in of_states
    ]
    rows = [
        row
        for stored in states
        for row in (shown.row(stored, max_characters=2000), *shown.part_rows(stored, max_characters=2000))
        if chosen is None or stored.state.stream or row[0].partition(" [")[0] == str(chosen)
    ]
    grids = [
        Grid(_SHOW, rows, texts=("state",)) if rows else f"{part_text(target.name, partition or '')} has no states",
        *_kept_grids(kept),
    ]
    if chosen is not None and any(stored.state.stream is None for stored in states):
        rest = f"airbyte-proto state show {target.name}{partition_option(partition or '')}"
        grids.append(f"It is a part of the state that its streams share, and that {rest} shows as a whole.")
    enriched = 0 if stream is not None or partition is not None else store.count_enriched_rows(target.name)
    if enriched:
        value["enriched_rows"] = enriched
        grids.append(f"Its enrichments keep what came of {enriched:,} rows.")
    return Answer(value, tuple(grids))


def _kept_grids(kept: "Mapping[tuple[StreamId | None, str], Mapping[str, Any]]") -> Iterator[Grid | str]:
    """Shows how much connectors keep beside their states, and the values where a stream was named."""
    for (stream, partition), found in kept.items():
        name = stream_text(stream, partition) if stream else "no stream"
        yield f"The connector keeps {found['count']:,} values of {name}, {found['bytes']:,} bytes."
        if "values" in found:
            rows = [(" / ".join(each["key"]), short(each["value"])) for each in found["values"]]
            yield Grid(("key", "value"), rows, texts=("key", "value"))


@command_in(group, "set")
@click.argument("connection", metavar="C")
@click.argument("stream_and_value", metavar="[STREAM] VALUE", nargs=-1)
@click.option("--namespace", help="The stream's namespace, if it has no state yet.")
@click.option("--key", multiple=True, metavar="SEGMENT", help=f"Set a value that the connector keeps. {_KEY_HELP}")
@states_partition
def set_state(
    call: Call,
    connection: str,
    stream_and_value: tuple[str, ...],
    namespace: str | None,
    key: tuple[str, ...],
    partition: str | None,
) -> Answer:
    """Sets the state of a stream, or of the whole connection, or a value that its connector keeps.

    VALUE is JSON, or @FILE for a file with JSON. A sync of a partition reads it from the start, whatever its state is.
    """
    if len(stream_and_value) not in (1, 2):
        raise click.UsageError("give a VALUE, or a STREAM and its VALUE")
    *streams, written = stream_and_value
    if key and not streams:
        raise click.UsageError("with --key, give a STREAM and the VALUE: kept values belong to a stream")
    from dagster_airbyte_proto.checkpoints.kept_values import Asset
    from dagster_airbyte_proto.protocols.raw_json import exact_value

    text = json_text(written, "kept value" if key else "new state")
    target = call.connection_target(connection) if key else call.new_connection_target(connection)
    store = call.store()
    check_partition = check_known_partition if key else check_partition_to_change
    check_partition(store, target, partition, "setting the state")
    stream = stream_to_set(store, target, streams[0], namespace, partition) if streams else None
    if stream is not None and key:
        asset = Asset(target.name, stream, partition or "")
        check_not_masked(text, filter(None, [store.kept_value(asset, key)]))
        return state_change_answer(target, store, [_set_kept_value(call, target, asset, key, text.encode())])
    before = store.states(target.name, partition=partition or "")
    check_not_masked(text, (each.state.message for each in before))
    change = put_state(call, target, stream, exact_value(text.encode()), partition)
    answer = state_change_answer(target, store, [change])
    lines = other_partitions_line(store, target) if partition is None else [_READ_FROM_START]
    return answer._replace(parts=(*answer.parts, *displaced_line(target, before, change), *lines))


def _set_kept_value(call: Call, target: Target, asset: "Asset", key: tuple[str, ...], value: bytes) -> "StateChange":
    from dagster_airbyte_proto.sync.state_server.values_by_hand import ValuesByHand

    store = call.store()
    with hand_lease(call, store, target.name, asset.partition) as lease:
        values = ValuesByHand(store, lease, asset, who=user_name())
        return values.set(key, value, of_component=_may_be_component(target))


def _may_be_component(target: Target) -> bool:
    """False if the file of the connection says that none of its connectors is a component."""
    found = target.connection
    ends = () if found is None else (found.connector, *([found.to.connector] if found.to else []))
    return not ends or any(each.protocol == "rapidbyte" for each in ends)


def put_state(
    call: Call, target: Target, stream: "StreamId | None", value: Any, partition: str | None = None
) -> "StateChange":
    """Sets the state of a stream, or of the whole connection, as a manual change: in a partition, or without one."""
    from dagster_airbyte_proto.protocols.lookup import PUSH
    from dagster_airbyte_proto.protocols.raw_json import MemberError

    store = call.store()
    codec = states_of(target, store)
    check_position(target, store, stream, value)
    try:
        new = codec.from_value(stream, value)
    except MemberError as error:
        remedy = f"Write it as `airbyte-proto state show {target.name} --json` prints it."
        raise ConfigError(f"setting the state of connection {target.name}", str(error), remedy=remedy) from None
    with hand_lease(call, store, target.name, partition) as lease:
        if target.connection is not None:
            is_push = target.connection.push is not None
            store.note_protocol(lease, PUSH if is_push else target.connection.connector.protocol)
        states = [each.state for each in store.states(target.name, partition=lease.partition)]
        shared = next((state for state in states if state.stream is None), None)
        if stream is None or shared is None:
            return store.change_state(lease, new.stream, new, who=user_name())
        # This stream's part of a state that all streams share: the parts of the others stay.
        joined = codec.with_stream(shared, stream, value)
        return store.change_state(lease, stream, new, who=user_name(), shared=joined)


@command_in(group, "reset")
@click.argument("connection", metavar="C")
@click.argument("stream", required=False)
@click.option(
    "--key", multiple=True, metavar="SEGMENT", help=f"Delete only the kept values under this key. {_KEY_HELP}"
)
@states_partition
def reset_state(call: Call, connection: str, stream: str | None, key: tuple[str, ...], partition: str | None) -> Answer:
    """Deletes the state of a stream, or of all, with the values that connectors keep: the next sync reads from the
    start, the next push sends all rows.

    With --key it deletes kept values alone, and nothing is read or sent again. With --partition it deletes what is of
    that partition; without, states of partitions stay.
    """
    from dagster_airbyte_proto.checkpoints.kept_values import Asset
    from dagster_airbyte_proto.sync.maintenance.reset import reset_state, streams_to_reset
    from dagster_airbyte_proto.sync.maintenance.stored_partitions import check_states_without_partition
    from dagster_airbyte_proto.sync.state_server.values_by_hand import ValuesByHand

    if key and stream is None:
        raise click.UsageError("with --key, give a STREAM: kept values belong to a stream")
    target = call.known_connection_target(connection)
    store = call.store()
    check_partition = check_known_partition if key else check_partition_to_change
    check_partition(store, target, partition, "resetting the state")
    known = [] if stream is None else streams_to_reset(store, target.name, partition or "")
    if stream is not None and partition is None and not known:
        check_states_without_partition(store, target.name, "Name one: --partition KEY.")
    if stream is not None and key:
        asset = Asset(target.name, known_stream(stream, known), partition or "")
        with hand_lease(call, store, target.name, partition) as lease:
            dropped = ValuesByHand(store, lease, asset, who=user_name()).drop(key)
            return state_change_answer(target, store, [dropped])
    # If all streams share one state, any name passes: `reset_state` explains why one stream cannot be reset.
    chosen = None if stream is None else stream_of(stream) if None in known else known_stream(stream, known)
    with hand_lease(call, store, target.name, partition) as lease:
        change = reset_state(store, lease, chosen, who=user_name())
    answer = state_change_answer(target, store, [change])
    lines = other_partitions_line(store, target) if partition is None else []
    return answer._replace(parts=(*answer.parts, *lines))


@command_in(group, "history")
@click.argument("connection", metavar="C")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="How many, newest first.")
@states_partition
def history(call: Call, connection: str, limit: int, partition: str | None) -> Answer:
    """Lists each change of a connection's states: who, when, why, in which run."""
    target = call.known_connection_target(connection)
    store = call.store()
    check_known_partition(store, target, partition, "listing the history")
    changes = store.history(target.name, limit=limit, partition=partition)
    shown = StateView(target, store)
    rows = [shown.change_row(change) for change in changes]
    value = {"connection": target.name, "history": [shown.change_value(change) for change in changes]}
    grid = Grid(HISTORY_COLUMNS, rows, texts=HISTORY_TEXTS)
    return Answer(value, (grid if rows else f"no state of {target.name} has ever changed",))


@command_in(group, "rollback")
@click.argument("connection", metavar="C")
@click.option("--to", "version", required=True, type=click.IntRange(min=0), help="A version of the history.")
@click.option("--tables", "with_tables", is_flag=True, help="Roll back the rows of the tables too.")
@states_partition
def rollback(call: Call, connection: str, version: int, partition: str | None, *, with_tables: bool) -> Answer:
    """Rolls all states of a connection, or those of one partition, back to a version."""
    if with_tables and partition is not None:
        raise click.UsageError(
            "--tables takes whole tables back, and no --partition: sync the partition again, which replaces its rows"
        )
    target = call.known_connection_target(connection)
    if with_tables:
        return _roll_back_with_tables(call, target, version)
    store = call.store()
    check_partition_to_change(store, target, partition, "rolling back the state")
    with hand_lease(call, store, target.name, partition) as lease:
        line = None if partition is not None else rollback_line(store, target, version)
        changes = store.rollback(lease, version, who=user_name())
    if line and changes:
        click.echo(line, err=True)
    answer = state_change_answer(target, store, changes)
    return answer if changes else answer._replace(parts=(_nothing_changed(target, version, partition),))


def _roll_back_with_tables(call: Call, target: Target, version: int) -> Answer:
    from dagster_airbyte_proto.sync.maintenance.rollback import REPEAT, roll_back

    try:
        with call.engine() as engine, hand_lease(call, engine.store, target.name) as lease:
            done = roll_back(engine, lease, version, who=user_name())
    except KeyboardInterrupt:
        click.echo(f"The states may have moved by now, and not all tables. {REPEAT}", err=True)
        raise
    answer = state_change_answer(target, call.store(), done.changes)
    if not done.changes and not done.tables:
        answer = answer._replace(parts=(_nothing_changed(target, version),))
    tables = [
        {"table": str(each.table), "snapshot_id": each.snapshot_id, "has_moved": each.has_moved} for each in done.tables
    ]
    rows = [
        (str(each.table), each.snapshot_id or "(nothing)", "" if each.has_moved else "unchanged")
        for each in done.tables
    ]
    return Answer({**answer.value, "tables": tables}, (*answer.parts, *([Grid(_REWOUND, rows)] if rows else [])))


def _nothing_changed(target: Target, version: int, partition: str | None = None) -> str:
    return f"nothing to take back: {part_text(target.name, partition or '')} is as it was at version {version}"


@command_in(group, "copy")
@click.argument("url")
def copy_to(call: Call, url: str) -> Answer:
    """Copies the state store into the empty database of URL, as from SQLite to PostgreSQL."""
    from dagster_airbyte_proto.checkpoints.sql.database import Database
    from dagster_airbyte_proto.checkpoints.sql.migrations.store_copy import copy_store

    if call.existing_store() is None:
        raise ConfigError("copying the state store", "there is none here", remedy="Is --home right?")
    source, target = Database(call.settings().state_url), Database(url)
    copied = copy_store(source, target)
    lines = (
        f"{target} has the states and loads of {len(copied)} connections: {', '.join(copied) or '(none)'}",
        "Set it as state_url wherever this store is used, and run nothing with the old one any more.",
    )
    return Answer({"store": str(target), "connections": copied}, lines)
