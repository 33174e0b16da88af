"""`loads list`, `loads show` and `loads resolve`. Slow modules are imported when a command runs; see call.py."""

from typing import TYPE_CHECKING, Any

import click

from dagster_airbyte_proto.checkpoints.slot import part_text
from dagster_airbyte_proto.cli.call import Call, command_in, user_name
from dagster_airbyte_proto.cli.output import Answer, Grid, plain, time_text
from dagster_airbyte_proto.cli.program import loads
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dagster_airbyte_proto.checkpoints.store import LoggedLoad
    from dagster_airbyte_proto.model import StreamId
    from dagster_airbyte_proto.tables.formats import LoadQuery

_LIST = ("load", "partition", "status", "announced", "rows", "streams", "states", "reason")
_SHOW = ("stream", "table", "write", "generation", "emitted", "rows", "rejected", "files", "committed", "snapshot")


@command_in(loads, "list")
@click.argument("connection", metavar="C")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="How many, newest first.")
def list_loads(call: Call, connection: str, limit: int) -> Answer:
    """Lists the loads of a connection, newest first."""
    target = call.known_connection_target(connection)
    logged = call.store().loads(target.name, limit=limit)
    has_partitions = any(entry.partition for entry in logged)
    rows = [
        (
            entry.load.load_id,
            *([entry.partition] if has_partitions else []),
            entry.status.value,
            time_text(entry.announced_at),
            sum(part.rows for part in entry.load.parts),
            ", ".join(str(part.stream) for part in entry.load.parts),
            len(entry.load.states),
            entry.reason or _not_landed(entry),
        )
        for entry in logged
    ]
    columns = [name for name in _LIST if has_partitions or name != "partition"]
    table = Grid(columns, rows, counts=("rows", "states"), texts=("streams", "reason"))
    value = {"connection": target.name, "loads": [_load_value(entry) for entry in logged]}
    return Answer(value, (table if rows else f"{target.name} has no loads",))


def _not_landed(entry: "LoggedLoad") -> str:
    """Names the streams of an ended load whose table or destination did not take their rows."""
    landed = {committed.stream for committed in entry.committed}
    missing = [str(part.stream) for part in entry.load.parts if part.stream not in landed]
    return f"not landed: {', '.join(missing)}" if missing and entry.status.value == "done" else ""


@command_in(loads, "show")
@click.argument("load_id", metavar="ID")
def show_load(call: Call, load_id: str) -> Answer:
    """Shows one load: its streams, its files, its commits, and queries by which to look for its rows."""
    from dagster_airbyte_proto.sync.maintenance.load_queries import load_queries

    entry = call.store().load(load_id)
    if entry is None:
        raise ConfigError(
            "showing a load",
            f"there is no load {load_id!r}",
            remedy="`airbyte-proto loads list C` shows the loads of C.",
        )
    call.connection = entry.load.connection
    landed = {committed.stream: committed for committed in entry.committed}
    rows = [
        (
            str(part.stream),
            str(part.table),
            part.write.value,
            part.generation_id,
            part.emitted,
            part.rows,
            sum(part.rejected.values()),
            len(part.files),
            "yes" if part.stream in landed else "no",
            landed[part.stream].snapshot_id if part.stream in landed else "",
        )
        for part in entry.load.parts
    ]
    name = part_text(entry.load.connection, entry.partition)
    head = f"{load_id} of {name}: {entry.status.value}, run {entry.load.run_id}"
    times = f"announced {time_text(entry.announced_at)}, ended {time_text(entry.ended_at) or 'not yet'}"
    paths = [f"{part.stream}: {file.path}" for part in entry.load.parts for file in part.files]
    table = Grid(_SHOW, rows, counts=("emitted", "rows", "rejected", "files"), texts=("stream", "table"))
    queries = load_queries(entry.load, call.settings().catalog)
    value = {
        **_load_value(entry, whole=True),
        "queries": {str(stream): [query._asdict() for query in found] for stream, found in queries.items()},
    }
    return Answer(value, (head, times, *filter(None, [entry.reason]), table, *paths, *_query_lines(queries)))


def _query_lines(queries: "Mapping[StreamId, Sequence[LoadQuery]]") -> "Iterator[str]":
    if queries:
        yield "To look yourself whether its rows are there, with `airbyte-proto query`:"
    for stream, found in queries.items():
        for query in found:
            yield f"{stream}: {query.sql}"
            yield f"    {query.answer}"


@command_in(loads, "resolve")
@click.argument("load_id", metavar="ID")
@click.option(
    "--as", "word", required=True, type=click.Choice(["landed", "lost"]), help="Whether its rows are in the table."
)
def resolve_load(call: Call, load_id: str, word: str) -> Answer:
    """Ends a load whose outcome is unknown: you say whether its rows have landed.

    landed: they are in the table, and its state moves. lost: they are not, and the connector sends them again. `loads
    show ID` has queries by which to look.
    """
    from dagster_airbyte_proto.checkpoints.load_ending import Resolution
    from dagster_airbyte_proto.sync.lease import LeaseWait
    from dagster_airbyte_proto.sync.maintenance.resolve import resolve_load

    def notify(text: str) -> None:
        click.echo(f"warning: {plain(text)}", err=True)

    with call.engine() as engine:
        resolution = Resolution(word == "landed", user_name())
        entry = resolve_load(engine, load_id, resolution, LeaseWait(notify=notify))
    call.connection = entry.load.connection
    name = part_text(entry.load.connection, entry.partition)
    return Answer(_load_value(entry), (f"{load_id} of {name}: {entry.status.value}, {entry.reason}",))


def _load_value(entry: "LoggedLoad", *, whole: bool = False) -> dict[str, Any]:
    import msgspec

    value: dict[str, Any] = {
        "load_id": entry.load.load_id,
        "connection": entry.load.connection,
        "run_id": entry.load.run_id,
        "partition": entry.partition,
        "status": entry.status.value,
        "announced_at": entry.announced_at.isoformat(),
        "ended_at": entry.ended_at.isoformat() if entry.ended_at else None,
        "ending": entry.ending,
        "reason": entry.reason,
        "states": len(entry.load.states),
        "streams": {
            str(part.stream): {"emitted": part.emitted, "rows": part.rows, "rejected": sum(part.rejected.values())}
            for part in entry.load.parts
        },
    }
    if whole:
        # What transforms keep may be secret, and is no part of the answer: `state show` has it, masked.
        parts = [msgspec.structs.replace(part, transform_states=()) for part in entry.load.parts]
        value["parts"] = [
            {**msgspec.to_builtins(part), "stream": str(part.stream), "table": str(part.table)} for part in parts
        ]
        value["committed"] = [
            {**msgspec.to_builtins(committed), "stream": str(committed.stream)} for committed in entry.committed
        ]
    return value
