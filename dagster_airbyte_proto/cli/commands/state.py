"""`state list|show|set|reset|history|rollback` and `config history|reset`.

Slow modules are imported when a command runs; see call.py.

Manual changes take the connection's lease, so they never collide with a sync. The history names the OS user.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from dagster_airbyte_proto.cli.call import Call, Target, command_in, user_name
from dagster_airbyte_proto.cli.commands.state_view import (
    HISTORY_COLUMNS,
    HISTORY_TEXTS,
    StateView,
    state_change_answer,
    states_of,
    stream_text,
)
from dagster_airbyte_proto.cli.output import Answer, Grid, short
from dagster_airbyte_proto.cli.program import config as config_group
from dagster_airbyte_proto.cli.program import state as group
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.protocols.lookup import PUSH

if TYPE_CHECKING:
    from dagster_airbyte_proto.checkpoints.store import Lease, StateChange, StateStore
    from dagster_airbyte_proto.model import StreamId

_LIST = ("connection", "stream", "state", "version", "changed", "run")
_SHOW = _LIST[1:]
_CONFIG_HISTORY = ("version", "of", "changed", "who", "run", "keys")
_KEY_HELP = "Repeat it for a key of several segments."
_REWOUND = ("table", "snapshot", "")


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
    return Answer(value, (Grid(_LIST, sorted(rows), texts=("state",)),))


@command_in(group, "show")
@click.argument("connection", metavar="C")
@click.argument("stream", required=False)
def show_states(call: Call, connection: str, stream: str | None) -> Answer:
    """Shows the current states of a connection, or of one stream."""
    target = call.known_connection_target(connection)
    store = call.store()
    states = store.states(target.name, partition=None)
    sizes = store.kept_sizes(target.name)
    shown = StateView(target, store)
    parts = {id(stored): shown.parts(stored) for stored in states}
    chosen: StreamId | None = None
    if stream is not None:
        own = [*(stored.state.stream for stored in states), *(size.asset.stream for size in sizes)]
        known = [*own, *(part for streams in parts.values() for part in streams)]
        chosen = _known_stream(stream, known, is_shared=any(stored.state.stream is None for stored in states))
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
        Grid(_SHOW, rows, texts=("state",)) if rows else f"{target.name} has no states",
        *_kept_grids(kept),
    ]
    if chosen is not None and any(stored.state.stream is None for stored in states):
        rest = f"airbyte-proto state show {target.name}"
        grids.append(f"It is a part of the state that its streams share, and that {rest} shows as a whole.")
    enriched = 0 if stream is not None else store.count_enriched_rows(target.name)
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
def set_state(
    call: Call, connection: str, stream_and_value: tuple[str, ...], namespace: str | None, key: tuple[str, ...]
) -> Answer:
    """Sets the state of a stream, or of the whole connection, or a value that its connector keeps.

    VALUE is JSON, or @FILE for a file with JSON.
    """
    if len(stream_and_value) not in (1, 2):
        raise click.UsageError("give a VALUE, or a STREAM and its VALUE")
    *streams, written = stream_and_value
    if key and not streams:
        raise click.UsageError("with --key, give a STREAM and the VALUE: kept values belong to a stream")
    from dagster_airbyte_proto.protocols.raw_json import exact_value

    text = _json_text(written, "kept value" if key else "new state")
    target = call.connection_target(connection)
    store = call.store()
    stream = _stream_to_set(store, target, streams[0], namespace) if streams else None
    if stream is not None and key:
        return state_change_answer(target, store, [_set_kept_value(call, target, stream, key, text.encode())])
    return state_change_answer(target, store, [put_state(call, target, stream, exact_value(text.encode()))])


def _set_kept_value(
    call: Call, target: Target, stream: "StreamId", key: tuple[str, ...], value: bytes
) -> "StateChange":
    from dagster_airbyte_proto.checkpoints.kept_values import Asset
    from dagster_airbyte_proto.sync.state_server.values_by_hand import ValuesByHand

    store, asset = call.store(), Asset(target.name, stream)
    with _lease(call, store, target.name) as lease:
        values = ValuesByHand(store, lease, asset, who=user_name())
        return values.set(key, value, of_component=_may_be_component(target))


def _may_be_component(target: Target) -> bool:
    """False if the file of the connection says that none of its connectors is a component."""
    found = target.connection
    ends = () if found is None else (found.connector, *([found.to.connector] if found.to else []))
    return not ends or any(each.protocol == "rapidbyte" for each in ends)


def put_state(call: Call, target: Target, stream: "StreamId | None", value: Any) -> "StateChange":
    """Sets the state of a stream, or of the whole connection, as a manual change."""
    store = call.store()
    codec = states_of(target, store)
    new = codec.from_value(stream, value)
    with _lease(call, store, target.name) as lease:
        if target.connection is not None:
            is_push = target.connection.push is not None
            store.note_protocol(lease, PUSH if is_push else target.connection.connector.protocol)
        shared = next((each.state for each in store.states(target.name) if each.state.stream is None), None)
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
def reset_state(call: Call, connection: str, stream: str | None, key: tuple[str, ...]) -> Answer:
    """Deletes the state of a stream, or of all, with the values that connectors keep: the next sync reads from the
    start, the next push sends all rows.

    With --key it deletes kept values alone, and nothing is read or sent again.
    """
    from dagster_airbyte_proto.checkpoints.kept_values import Asset
    from dagster_airbyte_proto.sync.maintenance.reset import reset_state, streams_to_reset
    from dagster_airbyte_proto.sync.state_server.values_by_hand import ValuesByHand

    if key and stream is None:
        raise click.UsageError("with --key, give a STREAM: kept values belong to a stream")
    target = call.known_connection_target(connection)
    store = call.store()
    known = [] if stream is None else streams_to_reset(store, target.name)
    if stream is not None and key:
        asset = Asset(target.name, _known_stream(stream, known))
        with _lease(call, store, target.name) as lease:
            dropped = ValuesByHand(store, lease, asset, who=user_name()).drop(key)
            return state_change_answer(target, store, [dropped])
    # If all streams share one state, any name passes: `reset_state` explains why one stream cannot be reset.
    chosen = None if stream is None else _stream_of(stream) if None in known else _known_stream(stream, known)
    with _lease(call, store, target.name) as lease:
        change = reset_state(store, lease, chosen, who=user_name())
    return state_change_answer(target, store, [change])


@command_in(group, "history")
@click.argument("connection", metavar="C")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="How many, newest first.")
def history(call: Call, connection: str, limit: int) -> Answer:
    """Lists each change of a connection's states: who, when, why, in which run."""
    target = call.known_connection_target(connection)
    store = call.store()
    changes = store.history(target.name, limit=limit)
    shown = StateView(target, store)
    rows = [shown.change_row(change) for change in changes]
    value = {"connection": target.name, "history": [shown.change_value(change) for change in changes]}
    return Answer(value, (Grid(HISTORY_COLUMNS, rows, texts=HISTORY_TEXTS),))


@command_in(config_group, "history")
@click.argument("connection", metavar="C")
def config_history(call: Call, connection: str) -> Answer:
    """Lists the last configs that a connector wrote back: when, in which run, with which keys."""
    target = call.known_connection_target(connection)
    # No value is shown: any may be secret.
    changes = [
        {
            "version": change.version,
            "of": change.owner.value,
            "changed_at": change.changed_at.isoformat(),
            "who": change.who,
            "run_id": change.run_id,
            "keys": None if change.config is None else sorted(change.config),
        }
        for change in call.store().config_changes(target.name)
    ]
    rows = [(*(str(value) for value in list(change.values())[:-1]), _keys_text(change["keys"])) for change in changes]
    return Answer({"connection": target.name, "history": changes}, (Grid(_CONFIG_HISTORY, rows, texts=("keys",)),))


def _keys_text(keys: Any) -> str:
    return "(dropped)" if keys is None else ", ".join(keys)


@command_in(config_group, "reset")
@click.argument("connection", metavar="C")
def reset_config(call: Call, connection: str) -> Answer:
    """Drops the configs that connector and destination wrote back: the next run uses the connection's own."""
    target = call.known_connection_target(connection)
    store = call.store()
    with _lease(call, store, target.name) as lease:
        was_there = store.drop_config(lease, who=user_name())
    done = "dropped the config that the connector wrote back" if was_there else "the connector wrote no config back"
    return Answer({"connection": target.name, "dropped": was_there}, (f"{target.name}: {done}",))


@command_in(group, "rollback")
@click.argument("connection", metavar="C")
@click.option("--to", "version", required=True, type=click.IntRange(min=0), help="A version of the history.")
@click.option("--tables", "with_tables", is_flag=True, help="Roll back the rows of the tables too.")
def rollback(call: Call, connection: str, version: int, *, with_tables: bool) -> Answer:
    """Rolls all states of a connection back to a version."""
    target = call.known_connection_target(connection)
    if with_tables:
        return _roll_back_with_tables(call, target, version)
    store = call.store()
    with _lease(call, store, target.name) as lease:
        changes = store.rollback(lease, version, who=user_name())
    answer = state_change_answer(target, store, changes)
    return answer if changes else answer._replace(parts=(_nothing_changed(target, version),))


def _roll_back_with_tables(call: Call, target: Target, version: int) -> Answer:
    from dagster_airbyte_proto.sync.maintenance.rollback import roll_back

    with call.engine() as engine, _lease(call, engine.store, target.name) as lease:
        done = roll_back(engine, lease, version, who=user_name())
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


def _nothing_changed(target: Target, version: int) -> str:
    return f"nothing to take back: {target.name} is as it was at version {version}"


@contextmanager
def _lease(call: Call, store: "StateStore", name: str) -> "Iterator[Lease]":
    from dagster_airbyte_proto.sync.lease import acquire_lease

    run_id = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-hand-{uuid4().hex[:5]}"
    with acquire_lease(store, name, run_id, call.settings().lease_seconds) as keeper:
        yield keeper.lease


def _stream_of(name: str, namespace: str | None = None) -> "StreamId":
    from dagster_airbyte_proto.model import StreamId

    return StreamId.of(name, namespace)


def _known_stream(name: str, known: "Sequence[StreamId | None]", *, is_shared: bool = False) -> "StreamId":
    """The stream with this full name, or with this bare name if only one stream has it. An error says so if the known
    streams are those of a state that all share."""
    from dagster_airbyte_proto.connection.stream_names import streams_named, unmistakable_name

    streams = list(dict.fromkeys(stream for stream in known if stream is not None))
    found = streams_named(name, streams)
    if len(found) == 1:
        return found[0]
    named = ", ".join(map(unmistakable_name, found) if found else map(str, streams))
    if is_shared and not found:
        raise ConfigError(
            "looking up a stream's state",
            f"the streams share one state, and it names no stream {name!r}",
            remedy=f"It names {named or 'none'}. Without a stream, `airbyte-proto state show` shows all of it.",
        )
    problem = f"there are {len(found)} streams {name!r}" if found else f"there is no state of a stream {name!r}"
    raise ConfigError("looking up a stream's state", problem, remedy=f"There are states of: {named or 'none'}")


def _stream_to_set(store: "StateStore", target: Target, name: str, namespace: str | None) -> "StreamId":
    """The stream to set: one that had a state before is found by its full name; a new one needs `namespace`."""
    from dagster_airbyte_proto.connection.stream_names import full_name

    if namespace is None:
        known = {change.stream for change in store.history(target.name, limit=10_000)}
        for stored in store.states(target.name):
            if stored.state.stream is None:
                known |= states_of(target, store).streams_sharing_position(stored.state, (), ()) or set()
        if any(stream is not None and name in (full_name(stream), str(stream)) for stream in known):
            return _known_stream(name, [*known])
    return _stream_of(name, namespace)


def _json_text(written: str, named: str) -> str:
    """Returns the JSON that a user has written, or has in a file."""
    doing = f"reading the {named}"
    if written.startswith("@"):
        doing = f"reading the {named} from {written[1:]}"
        try:
            written = Path(written[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(doing, str(getattr(error, "strerror", None) or "it is not UTF-8 text")) from error
    try:
        found = json.loads(written, parse_constant=refuse_constant, parse_float=_refuse_infinite)
        json.dumps(found, ensure_ascii=False).encode()  # not half a surrogate pair, of which "?" would be stored
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            doing, f"it is not JSON: {error}", remedy='Write JSON such as {"next": 5}, or @FILE.'
        ) from error
    return written.strip()


def refuse_constant(name: str) -> Any:
    """Refuses NaN and Infinity, which Python reads as JSON and no connector does."""
    raise ValueError(f"{name} is no value of it")


def _refuse_infinite(number: str) -> float:
    """Most connectors read a number that is too large as Infinity, and write that back."""
    if math.isinf(found := float(number)):
        raise ValueError(f"no connector reads the number {number[:40]}")
    return found
