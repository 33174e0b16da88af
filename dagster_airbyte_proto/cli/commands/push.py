"""`push`, `push rejected` and `push unknown`. Slow modules are imported when a command runs; see call.py."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.commands.partition_options import partition_options, partition_slice
from dagster_airbyte_proto.cli.commands.sync import stream_names
from dagster_airbyte_proto.cli.connection_names import ConnectionArgument
from dagster_airbyte_proto.cli.interrupts import CANCELLED, cancelling
from dagster_airbyte_proto.cli.listed_rows import PAGE_ROWS, ListedRows, Row
from dagster_airbyte_proto.cli.output import Answer, Grid, Pieces, value_text
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.cli.push_progress import push_view
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.plurals import counted

if TYPE_CHECKING:
    from dagster_airbyte_proto.checkpoints.deliveries import KeptRejection
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.sync.engine import Engine
    from dagster_airbyte_proto.sync.push.push_context import PushRequest
    from dagster_airbyte_proto.sync.push_report import PushReport

_COLUMNS = ("stream", "status", "from", "added", "changed", "removed", "sent", "acknowledged")
_COLUMNS_IF_NOT_ZERO = ("rejected", "unknown", "unchanged")
_MOST_LISTED = 10_000
_OF_REJECTED = ("reason", "rejected_at", "rejected_by", "may_be_there", "row")
_SHOWN_IF_NOT = {"rejected_by": "destination", "may_be_there": False}
_UNKNOWN_OF_RELAY = (
    "It is a relay: `airbyte-proto loads list {0}` has its loads, and those that are announced may have such rows. The"
    " error of `airbyte-proto sync {0}` counts them; with --retry-unknown it sends them again."
)


@command_in(program, "push")
@click.argument(
    "words",
    metavar="C | rejected C | unknown C",
    nargs=-1,
    required=True,
    type=ConnectionArgument(names=False, words=("rejected", "unknown")),
)
@click.option("--streams", metavar="A,B", help="Only these streams of the connection.")
@click.option("--plan", "only_plans", is_flag=True, help="Send nothing: show how many rows would go, with samples.")
@click.option(
    "--sample", type=click.IntRange(0, 1000), default=3, show_default=True, help="With --plan: rows of each kind."
)
@click.option("--full", is_flag=True, help="Send all rows, also those that were delivered before.")
@click.option("--retry-rejected", is_flag=True, help="Send the rejected rows again.")
@click.option("--retry-unknown", is_flag=True, help="Send again the rows that may have arrived or not.")
@click.option(
    "--unknown-landed",
    metavar="N/M",
    help="The first N of the M rows that `push unknown` lists have arrived: send only the others again.",
)
@partition_options
def push(
    call: Call,
    words: tuple[str, ...],
    streams: str | None,
    only_plans: bool,
    sample: int,
    full: bool,
    retry_rejected: bool,
    retry_unknown: bool,
    unknown_landed: str | None,
    partition: str | None,
    window: tuple[str, ...],
) -> Answer:
    """Pushes rows of tables to a destination: what is new, changed or gone since the last time.

    `push rejected C` lists the rows that were rejected, with the reasons; `push unknown C` those that may have arrived
    or not.
    """
    if len(words) == 2 and words[0] in _LISTS:
        return _LISTS[words[0]](call, words[1])
    if len(words) != 1:
        raise click.UsageError("name one connection: push C, push rejected C or push unknown C")
    from dagster_airbyte_proto.sync.push.push_context import PushRequest, landed_of

    landed = landed_of(unknown_landed) if unknown_landed is not None else None
    part = partition_slice(partition, window)
    request = PushRequest(stream_names(streams), only_plans, sample, full, retry_rejected, retry_unknown, part, landed)
    return _push(call, words[0], request)


def _push(call: Call, connection_file: str, request: "PushRequest") -> Answer:
    from dagster_airbyte_proto.sync.push.run import push_connection
    from dagster_airbyte_proto.sync.run_options import RunOptions

    connection = call.open(connection_file) if request.only_plans else call.open_to_run(connection_file)
    cancel = threading.Event()
    with (
        call.engine() as engine,
        push_view(connection.name, connection.push or (), engine.store, is_verbose=call.is_verbose) as watcher,
        cancelling(cancel, lambda: watcher.has_begun, "what is acknowledged is kept"),
    ):
        report = push_connection(engine, connection, request, RunOptions(cancel, watcher))
    code = {"complete": 0, "cancelled": CANCELLED}.get(report.status.value, 1)
    return Answer(report.as_json(), (*report_parts(report),), code)


def _rejected(call: Call, connection_file: str) -> Answer:
    """Lists the rejected rows of each stream, from the table that remembers them.

    Without such a table only those of the last push are known, by their places in it.
    """
    connection = call.open(connection_file)
    if connection.to is None and connection.push is None:
        doing = f"listing the rejected rows of connection {connection.name}"
        remedy = "Only pushes and relays keep rejected rows. Of a sync the report has them, with the reasons."
        raise ConfigError(doing, "it has neither `push` nor `to`", remedy=remedy)
    with call.engine() as engine:
        listed = ListedRows(engine.settings.home, _OF_REJECTED, _SHOWN_IF_NOT)
        of_streams = _rejected_of_relay if connection.push is None else _rejected_of_push
        for name, rows in of_streams(engine, connection):
            listed.add(name, rows)
    value = Pieces(listed.as_json(connection.name, "rejected"))
    return Answer(value, listed.as_parts("rejected", if_empty="no row is rejected"))


def _rejected_of_push(engine: "Engine", connection: "Connection") -> Iterator[tuple[str, Iterator[Row]]]:
    from dagster_airbyte_proto.model import BY_KEY

    known = {str(stream) for stream in engine.store.landed_tables(connection.name)}
    for name, options in (connection.push or {}).items():
        if options.changes_by not in BY_KEY:
            yield name, _rejected_of_last_push(engine, connection.name, StreamId.of(name))
        else:
            yield name, _rejected_by_key(engine, connection.name, StreamId.of(name)) if name in known else iter(())


def _rejected_of_last_push(engine: "Engine", connection: str, stream: StreamId) -> Iterator[Row]:
    delivery = engine.store.deliveries(connection, stream).get(stream)
    start = 0
    while delivery is not None and (page := engine.store.rejected_rows(delivery.plan, start=start, limit=PAGE_ROWS)):
        for row, reason in page:
            yield {"row": f"row {row + 1:,} of the last push", "reason": reason, "rejected_at": None}
        start = page[-1].row + 1


def _rejected_by_key(engine: "Engine", connection: str, stream: StreamId) -> Iterator[Row]:
    from dagster_airbyte_proto.sync.push.delivered_table import REJECTED, delivered_table_name
    from dagster_airbyte_proto.tables.sql_names import qualified

    place = qualified(engine.settings.catalog.name, delivered_table_name(connection, stream))
    # Rows that come one by one have times in the time zone of this process.
    fields = "_row, _reason, unix_micros(_pushed_at)"
    sql = f"SELECT {fields} FROM {place} WHERE _status = '{REJECTED}' ORDER BY 3"  # noqa: S608 - names of ours
    for row, reason, at in engine.query_rows(sql):
        rejected_at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at)
        yield {"row": row, "reason": reason, "rejected_at": rejected_at.isoformat()}


def _rejected_of_relay(engine: "Engine", connection: "Connection") -> Iterator[tuple[str, Iterator[Row]]]:
    """The records that the store keeps of each stream of a relay."""
    for stream in engine.store.kept_counts(connection.name):
        kept = engine.store.kept_rejections(connection.name, stream)
        yield str(stream), (_kept_record(each) for each in kept)


def _kept_record(kept: "KeptRejection") -> Row:
    return {
        "row": kept.record,
        "reason": kept.row.reason,
        "rejected_at": kept.rejected_at.isoformat(),
        "load_id": kept.load_id,
        "rejected_by": "source" if kept.is_of_source else "destination",
        "may_be_there": kept.may_be_there,
    }


def _unknown(call: Call, connection_file: str) -> Answer:
    """Lists the rows that were sent and not acknowledged, and on which a person has to decide."""
    from dagster_airbyte_proto.sync.push.unknown_rows import unknown_rows

    connection = call.open(connection_file)
    if connection.push is None:
        remedy = _UNKNOWN_OF_RELAY.format(connection.name) if connection.to is not None else ""
        raise ConfigError(
            f"listing the unknown rows of connection {connection.name}", "it has no `push`", remedy=remedy
        )
    parts: list[str | Grid] = []
    value: dict[str, dict[str, Any]] = {}
    with call.engine() as engine:
        deliveries = engine.store.deliveries(connection.name)
        for name in connection.push:
            delivery = deliveries.get(StreamId.of(name))
            count, found = 0, []
            if delivery is not None and (count := delivery.undecided):
                found = unknown_rows(delivery, engine.tables.storage, _MOST_LISTED)
            rows = [{"number": each.number, "removed": each.is_removal, "row": each.values} for each in found]
            partition = delivery.plan.partition if delivery is not None and count else None
            value[name] = {"count": count, "partition": partition, "rows": rows}
            of = f", of partition {partition}" if partition else ""
            parts.append(f"{name}: {counted(count, 'row')} sent and not acknowledged{of}")
            if found:
                # No mode that a person has to decide on removes rows.
                parts.append(Grid(["number", "row"], [[each.number, each.values] for each in found], counts=["number"]))
            if len(found) < count:
                parts.append(f"and {counted(count - len(found), 'row')} more")
    return Answer({"connection": connection.name, "unknown": value}, tuple(parts))


_LISTS = {"rejected": _rejected, "unknown": _unknown}


def report_parts(report: "PushReport") -> list[str | Grid]:
    """The report for people."""
    rows = []
    shown = [*_COLUMNS]
    values = {name: {**stream, **stream["planned"]} for name, stream in report.as_json()["streams"].items()}
    shown += [column for column in _COLUMNS_IF_NOT_ZERO if any(each[column] for each in values.values())]
    if report.is_plan:
        shown = [column for column in shown if column not in ("sent", "acknowledged")]
    for name, each in values.items():
        rows.append([name, *(_shown(column, each[column], report) for column in shown[1:])])
    what = "planned, nothing was sent" if report.is_plan else report.status.value
    line = f"{report.connection}: {what}, {report.seconds:.1f} s"
    if report.recovered_loads:
        line += f", {counted(report.recovered_loads, 'load')} of a dead run recovered"
    return [Grid(shown, rows, counts=shown[3:], texts=("stream", "from")), line, *_samples(report), *_problems(report)]


def _shown(column: str, value: Any, report: "PushReport") -> Any:
    if column == "removed" and value is None:
        return ""  # Its mode removes nothing.
    return "cannot tell" if value is None and report.is_plan else value


def _samples(report: "PushReport") -> list[str | Grid]:
    parts: list[str | Grid] = []
    for name, stream in report.streams.items():
        for kind, rows in stream.samples.items():
            columns = list(rows[0])
            parts += [
                f"{name}, {kind}:",
                Grid(columns, [[value_text(row[column]) for column in columns] for row in rows]),
            ]
    return parts


def _problems(report: "PushReport") -> list[str]:
    lines = [*(f"warning: {text}" for text in report.warnings), *(f"note: {text}" for text in report.notes)]
    for name, stream in report.streams.items():
        if stream.resumed:
            lines.append(f"{name}: {counted(stream.resumed, 'row')} of its plan were acknowledged before")
        lines += [f"{name}: {counted(rows, 'row')} rejected: {reason}" for reason, rows in stream.rejections.items()]
        if stream.unnamed:
            lines.append(f"{name}: the destination rejected {counted(stream.unnamed, 'row')} and does not name them")
        if stream.error and stream.status.value != "cancelled":  # That it was cancelled is no error.
            lines.append(f"error: {name}: {stream.error}")
    return [*lines, *([f"log: {report.log}"] if report.status.value != "complete" else [])]
