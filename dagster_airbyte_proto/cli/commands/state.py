"""`state list|show|set|reset|history|rollback`. What takes long to import is imported when a command runs; see call.py.

Changes by hand take the connection's lease, so that they never collide with a sync; the history names the OS user.
"""

import getpass
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from dagster_airbyte_proto.cli.call import Call, Target, answers
from dagster_airbyte_proto.cli.commands.state_view import HISTORY_COLUMNS, Shown, changed
from dagster_airbyte_proto.cli.output import Answer, Grid
from dagster_airbyte_proto.cli.program import state as group
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from dagster_airbyte_proto.checkpoints.store import Lease, StateChange, StateStore
    from dagster_airbyte_proto.model import StreamId
    from dagster_airbyte_proto.protocols.conversation import SourceProtocol

_LIST = ("connection", "stream", "state", "version", "changed", "run")
_SHOW = _LIST[1:]
_REWOUND = ("table", "snapshot", "")


@answers(group, "list")
def list_states(call: Call) -> Answer:
    """Every connection with its states."""
    store = call.store()
    by_name = {name: store.states(name, partition=None) for name in store.connections()}
    shown = {name: Shown(Target(name, None)) for name in by_name}
    rows = [(name, *shown[name].row(stored)) for name, states in by_name.items() for stored in states]
    rows += [(name, "", "", "", "", "") for name, states in by_name.items() if not states]
    value = {
        "connections": [
            {"connection": name, "states": [shown[name].value(stored) for stored in states]}
            for name, states in by_name.items()
        ]
    }
    return Answer(value, (Grid(_LIST, sorted(rows)),))


@answers(group, "show")
@click.argument("connection", metavar="C")
@click.argument("stream", required=False)
def show_states(call: Call, connection: str, stream: str | None) -> Answer:
    """The states of a connection as they stand, or of one stream."""
    target = call.known_target(connection)
    states = call.store().states(target.name, partition=None)
    shown = Shown(target)
    parts = {id(stored): shown.parts(stored) for stored in states}
    if stream is not None:
        own = [stored.state.stream for stored in states]
        wanted = _known_stream(stream, [*own, *(part for told in parts.values() for part in told)])
        states = [stored for stored in states if stored.state.stream == wanted or wanted in parts[id(stored)]]
    value = {"connection": target.name, "states": [shown.value(stored) for stored in states]}
    rows = [
        row
        for stored in states
        for row in (shown.row(stored, max_characters=2000), *shown.part_rows(stored, max_characters=2000))
        if stream is None or stored.state.stream or row[0].partition(" [")[0] == str(wanted)
    ]
    return Answer(value, (Grid(_SHOW, rows),))


@answers(group, "set")
@click.argument("connection", metavar="C")
@click.argument("stream_and_value", metavar="[STREAM] VALUE", nargs=-1)
@click.option("--namespace", help="The stream's namespace, where it has no state yet.")
def set_state(call: Call, connection: str, stream_and_value: tuple[str, ...], namespace: str | None) -> Answer:
    """Sets the state of a stream, or of the whole connection; VALUE is JSON, or @FILE with JSON in it."""
    if len(stream_and_value) not in (1, 2):
        raise click.UsageError("give a VALUE, or a STREAM and its VALUE")
    *streams, written = stream_and_value
    value = _json_value(written)
    target = call.target(connection)
    store = call.store()
    stream = _stream_to_set(store, target.name, streams[0], namespace) if streams else None
    return changed(target, [put_state(call, target, stream, value)])


def put_state(call: Call, target: Target, stream: "StreamId | None", value: Any) -> "StateChange":
    """Sets the state of a stream, or of the whole connection, as a change by hand."""
    store = call.store()
    protocol = _protocol(target, store)
    new = protocol.state_from_value(stream, value)
    with _held(call, store, target.name) as lease:
        if stream is not None and new.stream is None:
            # The stream's part of a state that all share: what it says of the others stays.
            new = protocol.merged(tuple(stored.state for stored in store.states(target.name)), new)[0]
        return store.change_state(lease, new.stream, new, who=_user())


@answers(group, "reset")
@click.argument("connection", metavar="C")
@click.argument("stream", required=False)
def reset_state(call: Call, connection: str, stream: str | None) -> Answer:
    """Forgets the state of a stream, or of all: the next sync reads it from nothing."""
    from dagster_airbyte_proto.sync.maintenance.reset import reset_state

    target = call.known_target(connection)
    store = call.store()
    known = [stored.state.stream for stored in store.states(target.name)]
    # A connection with one state for all answers for itself why one stream of it cannot be reset.
    wanted = None if stream is None else _stream_of(stream) if None in known else _known_stream(stream, known)
    with _held(call, store, target.name) as lease:
        change = reset_state(store, lease, wanted, who=_user())
    return changed(target, [change])


@answers(group, "history")
@click.argument("connection", metavar="C")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="How many, newest first.")
def history(call: Call, connection: str, limit: int) -> Answer:
    """Each change of a connection's states: who, when, why, in which run."""
    target = call.known_target(connection)
    changes = call.store().history(target.name, limit=limit)
    shown = Shown(target)
    rows = [shown.change_row(change) for change in changes]
    value = {"connection": target.name, "history": [shown.change_value(change) for change in changes]}
    return Answer(value, (Grid(HISTORY_COLUMNS, rows),))


@answers(group, "rollback")
@click.argument("connection", metavar="C")
@click.option("--to", "version", required=True, type=click.IntRange(min=0), help="A version of the history.")
@click.option("--tables", "with_tables", is_flag=True, help="The rows of the tables too, as they were then.")
def rollback(call: Call, connection: str, version: int, *, with_tables: bool) -> Answer:
    """Puts all states of a connection back to where they stood at a version."""
    target = call.known_target(connection)
    if with_tables:
        return _roll_back_with_tables(call, target, version)
    store = call.store()
    with _held(call, store, target.name) as lease:
        changes = store.rollback(lease, version, who=_user())
    return changed(target, changes)


def _roll_back_with_tables(call: Call, target: Target, version: int) -> Answer:
    from dagster_airbyte_proto.sync.maintenance.rollback import roll_back

    with call.engine() as engine, _held(call, engine.store, target.name) as lease:
        done = roll_back(engine, lease, version, who=_user())
    answer = changed(target, done.changes)
    tables = [
        {"table": str(each.table), "snapshot_id": each.snapshot_id, "has_moved": each.has_moved} for each in done.tables
    ]
    rows = [
        (str(each.table), each.snapshot_id or "(nothing)", "" if each.has_moved else "stood there")
        for each in done.tables
    ]
    return Answer({**answer.value, "tables": tables}, (*answer.parts, Grid(_REWOUND, rows)))


@contextmanager
def _held(call: Call, store: "StateStore", name: str) -> "Iterator[Lease]":
    from dagster_airbyte_proto.sync.lease import held_lease

    run_id = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-hand-{uuid4().hex[:5]}"
    with held_lease(store, name, run_id, call.settings().lease_seconds) as keeper:
        yield keeper.lease


def _protocol(target: Target, store: "StateStore") -> "SourceProtocol":
    """The connection's own; for a bare name that of the states that are kept of it."""
    from dagster_airbyte_proto.protocols.lookup import protocol_of_state, source_protocol

    if target.connection is not None:
        return source_protocol(target.connection.connector.protocol)
    kept = store.states(target.name, partition=None)
    return protocol_of_state(kept[0].state) if kept else source_protocol("airbyte")


def _stream_of(name: str, namespace: str | None = None) -> "StreamId":
    from dagster_airbyte_proto.model import StreamId

    return StreamId.of(name, namespace)


def _known_stream(name: str, known: "Sequence[StreamId | None]") -> "StreamId":
    """The stream whose full name, or bare name where that is no ambiguity, is meant."""
    streams = list(dict.fromkeys(stream for stream in known if stream is not None))
    found = [stream for stream in streams if str(stream) == name] or [
        stream for stream in streams if stream.name == name
    ]
    if len(found) == 1:
        return found[0]
    what = f"there are {len(found)} streams {name!r}" if found else f"there is no state of a stream {name!r}"
    remedy = f"There are states of: {', '.join(map(str, streams)) or 'none'}"
    raise ConfigError("looking up a stream's state", what, remedy=remedy)


def _stream_to_set(store: "StateStore", connection: str, name: str, namespace: str | None) -> "StreamId":
    """A stream that had a state before goes by its full name; a new one needs its namespace beside it."""
    if namespace is None:
        for stream in {change.stream for change in store.history(connection, limit=10_000)}:
            if stream is not None and str(stream) == name:
                return stream
    return _stream_of(name, namespace)


def _json_value(written: str) -> Any:
    where = "reading the new state"
    if written.startswith("@"):
        where = f"reading the new state from {written[1:]}"
        try:
            written = Path(written[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(where, str(getattr(error, "strerror", None) or "it is not UTF-8 text")) from error
    try:
        return json.loads(written)
    except json.JSONDecodeError as error:
        raise ConfigError(
            where, f"it is not JSON: {error}", remedy='Write JSON such as {"next": 5}, or @FILE.'
        ) from error


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in many containers
        return f"uid {os.getuid()}"
