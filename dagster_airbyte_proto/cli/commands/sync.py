"""`sync` and `recover`. Slow modules are imported when a command runs; see call.py."""

import threading
from typing import TYPE_CHECKING, Any

import click

from dagster_airbyte_proto.checkpoints.slot import part_text
from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.commands.partition_options import partition_options, partition_slice, states_partition
from dagster_airbyte_proto.cli.interrupts import CANCELLED, cancelling
from dagster_airbyte_proto.cli.output import Answer, Grid, plain, value_text
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.cli.progress import progress_view, size_text
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.plurals import counted

if TYPE_CHECKING:
    from dagster_airbyte_proto.checkpoints.store import Lease
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
    from dagster_airbyte_proto.sync.report import ResentRecords, StreamReport, SyncReport

_COLUMNS = ("stream", "status", "table", "emitted", "committed")
_COLUMNS_IF_NOT_ZERO = ("uncommitted", "rejected", "unknown", "changed", "deleted")


@command_in(program, "sync")
@click.argument("connection_file", metavar="C")
@click.option("--streams", metavar="A,B", help="Only these streams of the connection.")
@click.option("--refresh", is_flag=True, help="Read everything from the start, as a new generation.")
@click.option("--merge", is_flag=True, help="With --refresh: keep the existing rows, and append or upsert.")
@click.option("--retry-unknown", is_flag=True, help="Of a relay: send again the rows that may have arrived or not.")
@click.option("--retry-rejected", is_flag=True, help="Of a relay: first send again the records that were rejected.")
@click.option("--plan", "only_plans", is_flag=True, help="Write nothing: show the first rows of each stream.")
@click.option(
    "--sample", type=click.IntRange(1, 1000), default=3, show_default=True, help="With --plan: rows of each stream."
)
@click.option(
    "--parallel",
    type=click.IntRange(min=1),
    metavar="N",
    help="Read the streams by up to N processes of the connector.",
)
@partition_options
def sync(
    call: Call,
    connection_file: str,
    streams: str | None,
    refresh: bool,
    merge: bool,
    retry_unknown: bool,
    retry_rejected: bool,
    only_plans: bool,
    sample: int,
    parallel: int | None,
    partition: str | None,
    window: tuple[str, ...],
) -> Answer:
    """Runs one sync: reads the connector, and loads its records into tables, or into the destination of a relay.

    It goes on from the saved states. A stream that fails does not stop the others.
    """
    from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
    from dagster_airbyte_proto.sync.run import sync_connection
    from dagster_airbyte_proto.sync.run_options import RunOptions

    if merge and (partition is not None or not refresh):
        raise click.UsageError("--merge needs --refresh, and no --partition: a partition is always replaced")
    if retry_rejected and only_plans:
        raise click.UsageError("--plan sends nothing, so there is nothing to retry")
    connection = call.open(connection_file) if only_plans else call.open_to_run(connection_file)
    if parallel is not None:
        connection = connection.model_copy(update={"parallel": parallel})
    request = SyncRequest(
        stream_names(streams),
        refresh,
        slice=partition_slice(partition, window),
        merges=merge,
        retries_unknown=retry_unknown,
        retries_rejected=retry_rejected,
    )
    cancel = threading.Event()
    if only_plans:
        return _planned(call, connection, request, sample, cancel)
    with (
        call.engine() as engine,
        progress_view(connection.name, is_verbose=call.is_verbose) as watcher,
        cancelling(cancel, lambda: watcher.is_reading),
    ):
        report = sync_connection(engine, connection, request, RunOptions(cancel, watcher))
    return Answer(report.as_json(), (*report_parts(report, is_relay=connection.to is not None),), _exit_code(report))


def _planned(
    call: Call, connection: "Connection", request: "SyncRequest", sample: int, cancel: threading.Event
) -> Answer:
    from dagster_airbyte_proto.sync.read.dry_run import dry_run

    with call.engine() as engine, cancelling(cancel, lambda: True):
        streams = dry_run(engine, connection, request, sample, cancel)
    is_complete = not cancel.is_set() and all(each.error is None for each in streams.values())
    status = "cancelled" if cancel.is_set() else "complete" if is_complete else "failed"
    parts: list[str | Grid] = []
    for name, stream in streams.items():
        parts.append(f"{name}: {counted(len(stream.samples), 'row')} for {stream.table}; nothing has landed")
        if stream.samples:
            columns = list(stream.samples[0])
            parts.append(Grid(columns, [[value_text(row[column]) for column in columns] for row in stream.samples]))
        parts += [f"{name}: {_rejected_text(rows, reason)}" for reason, rows in stream.rejections.items()]
        parts += [f"error: {name}: {stream.error}"] if stream.error else []
    value = {
        "connection": connection.name,
        "status": status,
        "is_plan": True,
        "streams": {name: stream.as_json() for name, stream in streams.items()},
    }
    return Answer(value, tuple(parts), {"complete": 0, "cancelled": CANCELLED}.get(status, 1))


@command_in(program, "recover")
@click.argument("connection", metavar="C")
@click.option(
    "--dead-run",
    "dead_runs",
    metavar="RUN",
    multiple=True,
    help="First end the lease of this run, whose process you know to be dead. May be repeated.",
)
@states_partition
def recover(call: Call, connection: str, dead_runs: tuple[str, ...], partition: str | None) -> Answer:
    """Completes or removes the loads that dead runs of a connection left.

    With --partition only those of this partition, so that runs of others may go on meanwhile.
    """
    from dagster_airbyte_proto.checkpoints.sql.leases import process_text
    from dagster_airbyte_proto.sync.lease import end_leases
    from dagster_airbyte_proto.sync.maintenance.stored_partitions import check_partition, partitions_text
    from dagster_airbyte_proto.sync.run import recover_connection

    target = call.known_connection_target(connection)
    if partition is not None:
        check_partition(call.store(), target.name, partition, "recovering what dead runs have left")
    # Before the recovery, whatever becomes of that: the lease alone may be what other runs wait for, and where others
    # work, or loads go to a destination, their next runs recover.
    ended: list[Lease] = []
    for lease in end_leases(call.store(), target.name, dead_runs) if dead_runs else ():
        ended.append(lease)
        of_partition = f" of partition {lease.partition}" if lease.partition else ""
        text = f"ended the lease of run {lease.run_id}{of_partition}, {process_text(lease.holder)}"
        click.echo(plain(text), err=True)
    try:
        with call.engine() as engine:
            loads = recover_connection(engine, target.name, partition or "")
    except ProtoError as error:
        if ended:
            runs = ", ".join(lease.run_id for lease in ended)
            error.remedy = f"{error.remedy} The lease of {runs} has ended: leave --dead-run out from now on.".strip()
        raise
    value: dict[str, Any] = {"connection": target.name, "status": "complete", "recovered_loads": len(loads)}
    value["loads"] = [{"load_id": each.load.load_id, "partition": each.partition} for each in loads]
    if ended:
        value["ended_leases"] = [lease.run_id for lease in ended]
    line = f"{counted(len(loads), 'load')} of dead runs recovered" if loads else "nothing to recover"
    keys = sorted({each.partition for each in loads if each.partition})
    of_partitions = f", of {partitions_text(keys)}" if keys and keys != [partition] else ""
    return Answer(value, (f"{part_text(target.name, partition or '')}: {line}{of_partitions}",))


def stream_names(text: str | None) -> list[str] | None:
    """The names in `--streams a,b`, each once; None for all streams."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise click.BadParameter("name at least one stream, with commas between them", param_hint="--streams")
    return list(dict.fromkeys(names))


def _exit_code(report: "SyncReport") -> int:
    return {"complete": 0, "cancelled": CANCELLED}.get(report.status.value, 1)


def report_parts(report: "SyncReport", *, is_relay: bool = False) -> list[str | Grid]:
    """The report for people. Streams of a relay go to streams of its destination."""
    streams = report.streams.values()
    columns = [
        *_COLUMNS,
        *(column for column in _COLUMNS_IF_NOT_ZERO if any(_shown(stream, column) for stream in streams)),
    ]
    rows = [[name, *(_shown(stream, column) for column in columns[1:])] for name, stream in report.streams.items()]
    size = size_text(sum(stream.bytes for stream in streams))
    # Loads with rows, as Dagster shows them for each asset. `report.loads` has those too that only moved a state.
    loads = counted(len({load_id for stream in streams for load_id in stream.load_ids}), "load")
    name = part_text(report.connection, report.partition)
    line = f"{name}: {report.status.value}, {loads}, {size}, {report.seconds.total:.1f} s"
    if report.recovered_loads:
        line += f", {counted(report.recovered_loads, 'load')} of a dead run recovered"
    shown = ["to stream" if is_relay and column == "table" else column for column in columns]
    table = Grid(shown, rows, counts=columns[3:], texts=("stream", shown[2]))
    return [table, line, *_warnings_and_errors(report)]


def _shown(stream: "StreamReport", column: str) -> Any:
    """The value of a column. For people a row that comes again is not rejected."""
    return stream.rejected - stream.uncommitted if column == "rejected" else getattr(stream, column)


def _rejected_text(rows: int, reason: str, when: str = "the next sync") -> str:
    from dagster_airbyte_proto.sync.report import ON_BRANCH, UNCOVERED

    if reason == UNCOVERED:
        return f"{counted(rows, 'row')} not committed yet: {when} reads {'it' if rows == 1 else 'them'} again"
    return f"{counted(rows, 'row')} {reason if reason == ON_BRANCH else f'rejected: {reason}'}"


def _resent_texts(name: str, resent: "ResentRecords") -> list[str]:
    from dagster_airbyte_proto.sync.report import resent_text

    reasons = (_rejected_text(rows, reason) for reason, rows in resent.rejections.items())
    return [f"{name}: {resent_text(resent)}", *(f"{name}: {text}" for text in reasons)]


def _warnings_and_errors(report: "SyncReport") -> list[str]:
    from dagster_airbyte_proto.schema.evolution import ChangeKind
    from dagster_airbyte_proto.schema.stream_profile import change_text
    from dagster_airbyte_proto.sync.report import SyncStatus

    lines = [f"warning: {warning}" for warning in report.warnings]
    for name, stream in report.streams.items():
        # A refused column is in the error of its stream.
        changes = [
            each for each in stream.schema_changes if not (stream.error and each.kind is ChangeKind.COLUMN_REFUSED)
        ]
        lines += [f"{name}: {change_text(change)}" for change in changes]
        when = "the next sync that can commit" if stream.error and not stream.retryable else "the next sync"
        lines += [f"{name}: {_rejected_text(rows, reason, when)}" for reason, rows in stream.rejections.items()]
        if stream.resent is not None:
            lines += _resent_texts(name, stream.resent)
        if stream.ignored_fields:
            lines.append(f"{name}: fields without a column: {', '.join(sorted(stream.ignored_fields))}")
    lines += [f"error: {error}" for error in report.error_lines()]
    return [*lines, *([f"log: {report.log}"] if report.status is not SyncStatus.COMPLETE else [])]
