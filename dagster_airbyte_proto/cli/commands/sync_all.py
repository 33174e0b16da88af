"""`sync-all`. Slow modules are imported when the command runs; see call.py."""

import threading
from typing import TYPE_CHECKING, Any

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.interrupts import CANCELLED, cancelling
from dagster_airbyte_proto.cli.output import Answer, Grid
from dagster_airbyte_proto.cli.program import program

if TYPE_CHECKING:
    from dagster_airbyte_proto.sync.report import SyncReport

_COLUMNS = ("connection", "status", "streams", "emitted", "committed", "seconds")


@command_in(program, "sync-all")
@click.argument("connection_files", nargs=-1, required=True, metavar="C...")
def sync_all(call: Call, connection_files: tuple[str, ...]) -> Answer:
    """Syncs many connections at once, on the executors of a Spark cluster. One that fails takes no other along."""
    from dagster_airbyte_proto.sync.cluster.many_syncs import sync_connections
    from dagster_airbyte_proto.sync.run_options import RunOptions

    connections = [call.open(file) for file in connection_files]
    call.connection = None
    cancel = threading.Event()
    with call.engine() as engine, cancelling(cancel, lambda: True):
        reports = sync_connections(engine, connections, RunOptions(cancel))
    errors = [f"{each.connection}: {error}" for each in reports for error in each.error_lines()]
    value = {"connections": [each.as_json() for each in reports]}
    return Answer(value, (Grid(_COLUMNS, [*map(_row, reports)], counts=_COLUMNS[2:5]), *errors), _exit_code(reports))


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


def _exit_code(reports: "list[SyncReport]") -> int:
    statuses = {each.status.value for each in reports}
    if statuses == {"complete"}:
        return 0
    return CANCELLED if statuses <= {"complete", "cancelled"} else 1
