"""`table show|history|changes|compact|expire|rollback`. Slow modules are imported when a command runs; see call.py.

If one table fails, the others are still processed: each reports its own result, and the exit code is 1.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.connection_names import is_file
from dagster_airbyte_proto.cli.output import Answer, Grid, error_value, time_text
from dagster_airbyte_proto.cli.program import table as group
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.plurals import counted

if TYPE_CHECKING:
    from dagster_airbyte_proto.model import TableName
    from dagster_airbyte_proto.sync.engine import Engine
    from dagster_airbyte_proto.tables.care import SnapshotChange, TableCare, TableFacts, TableHistory

_HISTORY = ("snapshot", "at", "operation", "added", "removed", "deletes", "load", "run", "")
_COMPACTED = ("table", "rewritten files", "written files", "delete files", "attempts", "status")
_EXPIRED = ("table", "snapshots", "orphans", "status")
_CHANGES = ("at", "stream", "table", "change", "run")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_SECONDS = 100 * 365 * 86400


class _OpenTables(NamedTuple):
    """The tables of a home folder, and the named ones among them."""

    engine: "Engine"
    care: "TableCare"
    named: "list[TableName]"


@contextmanager
def _open_tables(call: Call, names: Sequence[str]) -> Iterator[_OpenTables]:
    from dagster_airbyte_proto.sync.maintenance.care import tables_there
    from dagster_airbyte_proto.tables.formats import care_of

    with call.engine() as engine:
        # Before a Spark session starts: a connection without tables is an error.
        known = [_of_connection(call, engine, name) for name in names]
        care = care_of(engine.tables)
        every = [] if all(known) else [*care.names()]
        found = [
            tables_there(engine.tables, tables, _note) if tables else [_table(name, every, engine)]
            for name, tables in zip(names, known, strict=True)
        ]
        yield _OpenTables(engine, care, list(dict.fromkeys(each for tables in found for each in tables)))


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str) -> float:
    """Parses a duration such as 12h."""
    if not (found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", value)):
        raise click.BadParameter(f"{value!r} is not a duration; write 90s, 30m, 12h or 7d")
    if (seconds := float(found[1]) * _SECONDS[found[2]]) > _MOST_SECONDS:
        raise click.BadParameter(f"{value!r} is more than 100 years")
    return seconds


@command_in(group, "show")
@click.argument("names", metavar="NAME_OR_CONNECTION...", nargs=-1, required=True)
def show_tables(call: Call, names: tuple[str, ...]) -> Answer:
    """Shows a table's rows, files, deletes, snapshots, size and columns."""
    with _open_tables(call, names) as opened:
        facts = [opened.care.facts(name) for name in opened.named]
    parts: list[str | Grid] = []
    for each in facts:
        parts += [_headline(each), Grid(("column", "type"), each.columns, texts=("column", "type"))]
    return Answer({"tables": [_facts_value(each) for each in facts]}, tuple(parts))


@command_in(group, "history")
@click.argument("names", metavar="NAME_OR_CONNECTION...", nargs=-1, required=True)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="How many, newest first.")
def history(call: Call, names: tuple[str, ...], limit: int) -> Answer:
    """Lists each change of a table: when, what, by which load and run."""
    with _open_tables(call, names) as opened:
        found = {name: opened.care.history(name) for name in opened.named}
        runs = _runs(opened.engine, [change for each in found.values() for change in each.changes[-limit:]])
    value = {
        "tables": [
            {"table": str(name), "history": [_change_value(each, change, runs) for change in _newest(each, limit)]}
            for name, each in found.items()
        ]
    }
    parts: list[str | Grid] = []
    for name, each in found.items():
        parts += [str(name), _history_grid([_change_row(each, change, runs) for change in _newest(each, limit)])]
    return Answer(value, tuple(parts))


@command_in(group, "changes")
@click.argument("names", metavar="NAME_OR_CONNECTION...", nargs=-1, required=True)
@click.option("--limit", default=100, show_default=True, type=click.IntRange(min=1), help="How many, newest first.")
def changes(call: Call, names: tuple[str, ...], limit: int) -> Answer:
    """Lists the changes of columns, keys and cursors: what, when, and by which run. Starts no Spark."""
    from dagster_airbyte_proto.schema.stream_profile import change_text
    from dagster_airbyte_proto.sync.plan.stream_profiles import recorded_changes

    store = call.store()
    found = recorded_changes(store, [_connection_name(call, name) for name in names], limit)
    value = [
        {
            "connection": each.connection,
            "stream": str(each.stream_change.stream),
            "table": str(each.table),
            "at": each.stream_change.changed_at.isoformat(),
            "what": each.stream_change.change.kind.value,
            "column": each.stream_change.change.column,
            "before": each.stream_change.change.before,
            "after": each.stream_change.change.after,
            "run_id": each.stream_change.run_id,
        }
        for each in found
    ]
    rows = [
        (
            time_text(each.stream_change.changed_at),
            str(each.stream_change.stream),
            str(each.table),
            change_text(each.stream_change.change),
            each.stream_change.run_id,
        )
        for each in found
    ]
    grid = Grid(_CHANGES, rows, texts=("change",))
    return Answer({"changes": value}, (grid if rows else "no column, key or cursor has changed",))


@command_in(group, "compact")
@click.argument("names", metavar="NAME_OR_CONNECTION...", nargs=-1, required=True)
def compact(call: Call, names: tuple[str, ...]) -> Answer:
    """Compacts small files and applies deletes, also while syncs run."""
    with _open_tables(call, names) as opened:
        done = _for_each_table(opened, lambda name: opened.care.compact(name)._asdict())
    return _results_answer(done, _COMPACTED, ("rewritten_files", "written_files", "removed_delete_files", "attempts"))


@command_in(group, "expire")
@click.argument("names", metavar="NAME_OR_CONNECTION...", nargs=-1, required=True)
@click.option(
    "--keep",
    "keep_seconds",
    default="7d",
    show_default=True,
    callback=_seconds,
    help="How far back a rollback stays possible.",
)
@click.option(
    "--orphans-after",
    "orphan_seconds",
    default="3d",
    show_default=True,
    callback=_seconds,
    help="Age at which files of no snapshot are deleted.",
)
def expire(call: Call, names: tuple[str, ...], keep_seconds: float, orphan_seconds: float) -> Answer:
    """Expires old snapshots that no rollback and no recovery needs, and deletes files of dead loads."""
    from dagster_airbyte_proto.sync.maintenance.care import clean

    def expired(opened: _OpenTables, name: "TableName") -> dict[str, Any]:
        gone = clean(opened.engine.store, opened.care, name, keep_seconds=keep_seconds, orphan_seconds=orphan_seconds)
        return {"snapshots": gone.snapshots, "orphans": list(gone.orphans)}

    with _open_tables(call, names) as opened:
        done = _for_each_table(opened, lambda name: expired(opened, name))
    return _results_answer(done, _EXPIRED, ("snapshots", "orphans"))


@command_in(group, "rollback")
@click.argument("name", metavar="NAME")
@click.option("--to", "snapshot_id", required=True, metavar="SNAPSHOT", help="A snapshot of `table history`.")
def rollback(call: Call, name: str, snapshot_id: str) -> Answer:
    """Rolls a table back to a snapshot, unless states of a connection belong to its rows: they have to go back too."""
    from dagster_airbyte_proto.sync.maintenance.table_rollback import roll_back_table

    with _open_tables(call, [name]) as opened:
        if len(opened.named) != 1:
            raise ConfigError(
                "rolling a table back",
                f"{name} is a connection with {counted(len(opened.named), 'table')}",
                remedy=f"Name one of {', '.join(map(str, opened.named))}, or roll all of them back with their states: "
                f"airbyte-proto state rollback {name} --to VERSION --tables",
            )
        has_moved = roll_back_table(opened.engine, opened.care, opened.named[0], snapshot_id)
    value = {"status": "complete", "table": str(opened.named[0]), "snapshot_id": snapshot_id, "has_moved": has_moved}
    line = f"{opened.named[0]} is at snapshot {snapshot_id}"
    return Answer(value, (line if has_moved else f"{line}, as before",))


def _connection_name(call: Call, named: str) -> str:
    """The connection's name if `named` is its file, else `named` itself."""
    return call.open(named).name if is_file(named) else named


def _of_connection(call: Call, engine: "Engine", named: str) -> "list[TableName]":
    """The tables of the connection with this file or name; empty if `named` is the name of a table."""
    if not is_file(named) and named not in engine.store.connections():
        return []
    connection = _connection_name(call, named)
    call.connection = connection
    if not (found := [*engine.store.loaded_tables(connection)]):
        raise ConfigError(
            f"looking up the tables of connection {connection}",
            "no load of it has been committed to a table",
            remedy="Sync it first. Is --home right?",
        )
    return found


def _note(text: str) -> None:
    click.echo(f"note: {text}", err=True)


def _table(named: str, every: "Sequence[TableName]", engine: "Engine") -> "TableName":
    by_name = {str(each): each for each in every}
    if named in by_name:
        return by_name[named]
    near = difflib.get_close_matches(named, [*by_name, *engine.store.connections()], n=1)
    raise ConfigError(
        f"looking up table {named}",
        "there is no table and no connection of that name",
        remedy=f"Do you mean {near[0]}?" if near else "Write NAMESPACE.TABLE, or a connection. Is --home right?",
    )


def _for_each_table(opened: _OpenTables, care: "Callable[[TableName], dict[str, Any]]") -> list[dict[str, Any]]:
    return [{"table": str(name), **_result(care, name)} for name in opened.named]


def _result(care: "Callable[[TableName], dict[str, Any]]", name: "TableName") -> dict[str, Any]:
    try:
        return {"status": "complete", **care(name), "error": None}
    except ConfigError:  # a fault of the command, and not of this table
        raise
    except ProtoError as error:
        return {"status": "failed", "error": error_value(error)}


def _results_answer(done: list[dict[str, Any]], columns: Sequence[str], keys: Sequence[str]) -> Answer:
    failed = [each for each in done if each["error"]]
    value = {"status": "failed" if failed else "complete", "tables": done}
    rows = [(each["table"], *(_number(each.get(key)) for key in keys), each["status"]) for each in done]
    errors = [f"{each['table']}: {each['error']['message']}" for each in failed]
    return Answer(value, (Grid(columns, rows, counts=columns), *errors), 1 if failed else 0)


def _number(value: Any) -> Any:
    return len(value) if isinstance(value, list) else value


def _headline(facts: "TableFacts") -> str:
    sliced = f", {counted(facts.slices, 'slice')} by {facts.partitioned_by}" if facts.partitioned_by else ""
    load = f"; last load {facts.last_load} {time_text(facts.last_load_at)}".rstrip() if facts.last_load else ""
    return (
        f"{facts.table} ({facts.format}): {counted(facts.rows, 'row')}{sliced} in {counted(facts.files, 'file')} "
        f"({facts.small_files:,} small), {counted(facts.delete_files, 'delete file')}, {facts.size_bytes:,} bytes, "
        f"{counted(facts.snapshots, 'snapshot')}{load}"
    )


def _facts_value(facts: "TableFacts") -> dict[str, Any]:
    at = facts.last_load_at.isoformat() if facts.last_load_at else None
    columns = [{"name": name, "type": kind} for name, kind in facts.columns]
    return {**facts._asdict(), "last_load_at": at, "columns": columns}


def _newest(history: "TableHistory", limit: int) -> "Sequence[SnapshotChange]":
    return history.changes[::-1][:limit]


def _runs(engine: "Engine", changes: "Sequence[SnapshotChange]") -> dict[str, str]:
    """The run of each load, as far as the state store knows it."""
    loads = {change.load_id for change in changes if change.load_id}
    return {load_id: entry.load.run_id for load_id in loads if (entry := engine.store.load(load_id)) is not None}


def _change_value(history: "TableHistory", change: "SnapshotChange", runs: dict[str, str]) -> dict[str, Any]:
    value = change._asdict()
    at = change.at.isoformat() if change.at else None
    is_current = change.snapshot_id == history.current
    return {**value, "at": at, "run_id": runs.get(change.load_id or ""), "is_current": is_current}


def _history_grid(rows: Sequence[Sequence[Any]]) -> Grid:
    return Grid(_HISTORY, rows, counts=("added", "removed", "deletes"))


def _change_row(history: "TableHistory", change: "SnapshotChange", runs: dict[str, str]) -> tuple[Any, ...]:
    return (
        change.snapshot_id,
        time_text(change.at),
        change.operation,
        change.added_rows,
        change.removed_rows,
        change.deletes,
        change.load_id,
        runs.get(change.load_id or ""),
        "current" if change.snapshot_id == history.current else "",
    )
