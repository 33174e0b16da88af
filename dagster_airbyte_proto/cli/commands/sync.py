"""`sync` and `recover`. What takes long to import is imported when a command runs; see call.py."""

import threading
from typing import TYPE_CHECKING

import click

from dagster_airbyte_proto.cli.call import Call, answers
from dagster_airbyte_proto.cli.commands.partition_options import chosen, of_partition
from dagster_airbyte_proto.cli.interrupts import CANCELLED, cancelling
from dagster_airbyte_proto.cli.output import Answer, Grid, counted, short
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.cli.progress import size_text, view

if TYPE_CHECKING:
    from dagster_airbyte_proto.sync.report import SyncReport

_COLUMNS = ("stream", "status", "table", "emitted", "committed", "rejected", "changed", "deleted", "state")


@answers(program, "sync")
@click.argument("connection_file", metavar="C")
@click.option("--streams", metavar="A,B", help="Only these streams of the connection.")
@click.option("--refresh", is_flag=True, help="Read everything from nothing, as a new generation.")
@click.option("--merge", is_flag=True, help="With --refresh: keep the rows that are there, and add to or upsert them.")
@of_partition
def sync(
    call: Call,
    connection_file: str,
    streams: str | None,
    refresh: bool,
    merge: bool,
    partition: str | None,
    window: tuple[str, ...],
) -> Answer:
    """One sync: what the connector has to tell, into the tables."""
    from dagster_airbyte_proto.sync.plan.stream_plan import Wanted
    from dagster_airbyte_proto.sync.run import Terms, sync_connection

    if merge and (partition is not None or not refresh):
        raise click.UsageError("--merge needs --refresh, and no --partition: a partition is always replaced")
    connection = call.open(connection_file)
    wanted = Wanted(stream_names(streams), refresh, slice=chosen(partition, window), merges=merge)
    cancel = threading.Event()
    with call.engine() as engine, view(connection.name) as watcher, cancelling(cancel, lambda: watcher.is_reading):
        report = sync_connection(engine, connection, wanted, Terms(cancel, watcher))
    return Answer(report.as_json(), (*_summary(report),), _exit_code(report))


@answers(program, "recover")
@click.argument("connection", metavar="C")
def recover(call: Call, connection: str) -> Answer:
    """Ends or removes what dead runs of a connection left."""
    from dagster_airbyte_proto.sync.run import recover_connection

    target = call.known_target(connection)
    with call.engine() as engine:
        recovered = recover_connection(engine, target.name)
    value = {"connection": target.name, "status": "complete", "recovered_loads": recovered}
    told = f"{counted(recovered, 'load')} of a dead run brought to an end" if recovered else "nothing to recover"
    return Answer(value, (f"{target.name}: {told}",))


def stream_names(text: str | None) -> list[str] | None:
    """The names in `--streams a,b`, each once; None when all are meant."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise click.BadParameter("name at least one stream, with commas between them", param_hint="--streams")
    return list(dict.fromkeys(names))


def _exit_code(report: "SyncReport") -> int:
    return {"complete": 0, "cancelled": CANCELLED}.get(report.status.value, 1)


def _summary(report: "SyncReport") -> list[str | Grid]:
    rows = [
        (
            name,
            told.status.value,
            told.table,
            told.emitted,
            told.committed,
            told.rejected,
            told.changed,
            told.deleted,
            short(told.state),
        )
        for name, told in report.streams.items()
    ]
    size = size_text(sum(told.bytes for told in report.streams.values()))
    loads = counted(report.loads, "load")
    line = f"{report.connection}: {report.status.value}, {loads}, {size}, {report.seconds.total:.1f} s"
    if report.recovered_loads:
        line += f", {counted(report.recovered_loads, 'load')} of a dead run recovered"
    return [Grid(_COLUMNS, rows), line, *_complaints(report)]


def _complaints(report: "SyncReport") -> list[str]:
    from dagster_airbyte_proto.schema.shape import text

    lines = [f"warning: {warning}" for warning in report.warnings]
    for name, told in report.streams.items():
        lines += [f"{name}: {text(change)}" for change in told.schema_changes]
        lines += [f"{name}: {counted(rows, 'row')} rejected: {reason}" for reason, rows in told.rejections.items()]
        if told.ignored_fields:
            lines.append(f"{name}: fields without a column: {', '.join(sorted(told.ignored_fields))}")
        if told.error and told.error != report.error:
            lines.append(f"{name}: {told.error}")
    return [*lines, *([f"error: {report.error}"] if report.error else [])]
