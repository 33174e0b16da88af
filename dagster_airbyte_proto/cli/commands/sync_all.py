"""`sync-all`. Slow modules are imported when the command runs; see call.py."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.interrupts import CANCELLED, cancelling
from dagster_airbyte_proto.cli.output import Answer, Grid, plain
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.sync.report import SyncReport

_COLUMNS = ("connection", "status", "streams", "emitted", "committed", "seconds")
_FAILED, _USAGE = 1, 2


@command_in(program, "sync-all")
@click.argument("connection_files", nargs=-1, required=True, metavar="C...")
def sync_all(call: Call, connection_files: tuple[str, ...]) -> Answer:
    """Syncs many connections at once, on the executors of a Spark cluster. One that fails, or whose file cannot be
    read, does not stop the others."""
    from dagster_airbyte_proto.sync.cluster.many_syncs import sync_connections
    from dagster_airbyte_proto.sync.report import failed_report
    from dagster_airbyte_proto.sync.run_options import RunOptions

    opened = [(Path(file), _opened(call, file)) for file in dict.fromkeys(connection_files)]
    call.connection = None
    connections = [found for _, found in opened if not isinstance(found, ConfigError)]
    cancel = threading.Event()
    synced: list[SyncReport] = []
    if connections:
        with call.engine() as engine, cancelling(cancel, lambda: True):
            synced = sync_connections(engine, connections, RunOptions(cancel))
    left = iter(synced)
    reports = [
        failed_report(file.stem, "", found, "") if isinstance(found, ConfigError) else next(left)
        for file, found in opened
    ]
    errors = [f"{each.connection}: {error}" for each in reports for error in each.error_lines()]
    value = {"connections": [each.as_json() for each in reports]}
    table = Grid(_COLUMNS, [*map(_row, reports)], counts=_COLUMNS[2:5])
    return Answer(value, (table, *errors), _exit_code(reports) if connections else _USAGE)


def _opened(call: Call, file: str) -> "Connection | ConfigError":
    """The connection of a file, or the error of one that cannot be read: it is shown before the others run, too."""
    try:
        return call.open_to_run(file)
    except ConfigError as error:
        click.echo(f"error: {plain(str(error), max_characters=20_000)}", err=True)
        return error


def _row(report: "SyncReport") -> tuple[Any, ...]:
    streams = report.streams.values()
    return (
        report.connection,
        report.status.value,
        len(streams),
        sum(each.emitted for each in streams),
        sum(each.committed for each in streams),
        f"{report.seconds.total:.1f}",
    )


def _exit_code(reports: "Sequence[SyncReport]") -> int:
    statuses = {each.status.value for each in reports}
    if statuses == {"complete"}:
        return 0
    return CANCELLED if statuses <= {"complete", "cancelled"} else _FAILED
