"""`record`: saves the output of a real connector, so that `launch: {kind: replay}` can run without the connector.

It records a first read, without states. Nothing is written to tables and no state moves.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.commands.partition_options import partition_options, partition_slice
from dagster_airbyte_proto.cli.commands.spec_check_discover import open_connector
from dagster_airbyte_proto.cli.commands.sync import stream_names
from dagster_airbyte_proto.cli.output import Answer
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.cli.progress import size_text
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.plurals import counted

if TYPE_CHECKING:
    from dagster_airbyte_proto.launchers.process import ExitReport, RunningConnector
    from dagster_airbyte_proto.protocols.conversation import ReadRequest
    from dagster_airbyte_proto.sync.connector.source import Source
    from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest

_READ_TIMEOUT_SECONDS = 1.0
_EXIT_SECONDS = 60.0
_REPORT_SECONDS = 10.0


@command_in(program, "record")
@click.argument("connection_file", metavar="C")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--streams", metavar="A,B", help="Only these streams of the connection.")
@partition_options
def record(
    call: Call,
    connection_file: str,
    folder: Path,
    streams: str | None,
    partition: str | None,
    window: tuple[str, ...],
) -> Answer:
    """Saves a connector's output in DIR, secrets masked, for `launch: {kind: replay}`.

    The source is read from the beginning. No state moves, and nothing is written to tables.
    """
    from dagster_airbyte_proto.sync.connector.source import recorded_connector
    from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest

    connection = call.open(connection_file)
    if connection.push is not None:
        found = "its connector is the destination of a push, and only the output of sources is recorded"
        remedy = "Name a connection whose connector is a source."
        raise ConfigError(f"recording connection {connection.name}", found, remedy=remedy)
    sync_request = SyncRequest(only=stream_names(streams), slice=partition_slice(partition, window))
    with open_connector(call, connection_file, sync_request.slice) as (_, source):
        source.check_config()  # this reads the spec: from here on its secrets are known and masked
        with recorded_connector(source, folder):
            source.spec(fresh=True)
            verdict = source.check()
            request = _request(source, sync_request)
            running = source.connector.launch(source.protocol.read(request))
            size_bytes, ended = _drain(running, source)
    is_complete = ended is not None and ended.code == 0
    value = {
        "connection": call.connection,
        "status": "complete" if is_complete else "failed",
        "folder": str(folder),
        "check": verdict.succeeded,
        "streams": [str(planned.id) for planned in request.streams],
        "bytes": size_bytes,
        "connector": {"exit_code": ended and ended.code, "signal": ended and ended.signal},
    }
    found = f"{counted(len(request.streams), 'stream')}, {size_text(size_bytes)}, in {folder}"
    lines = [f"{call.connection}: {found}; the connector {ended.how_it_ended if ended else 'has not ended'}"]
    if not verdict.succeeded:
        lines.append(f"warning: its check failed, and is recorded so: {source.mask.text(verdict.message)}")
    return Answer(value, (*lines, *([] if is_complete else [f"log: {source.log_path}"])), 0 if is_complete else 1)


def _request(source: "Source", sync_request: "SyncRequest") -> "ReadRequest":
    from dagster_airbyte_proto.protocols.conversation import ReadRequest
    from dagster_airbyte_proto.sync.plan.stream_plan import planned_streams, with_generations

    catalog = source.catalog(fresh=True)
    planned = planned_streams(source.connection, catalog, sync_request)
    streams = with_generations(planned, {stream.id: 1 for stream in planned})
    return ReadRequest(source.config.current, streams, states=(), sync_id=1, available=catalog.streams)


def _drain(running: "RunningConnector", source: "Source") -> tuple[int, "ExitReport | None"]:
    """Reads the output to its end. Returns its size and how the connector ended.

    The source takes the configs that the connector sends back: their secrets are masked then.
    """
    from dagster_airbyte_proto.protocols.conversation import parse_config_file
    from dagster_airbyte_proto.protocols.events import ConfigEvent
    from dagster_airbyte_proto.staging.lines.demux import Demux

    demux = Demux(source.protocol.record_wire)
    size_bytes = 0
    reported_at = time.monotonic()
    try:
        while (chunk := running.read(_READ_TIMEOUT_SECONDS)) != b"":
            size_bytes += len(chunk or b"")
            for line in demux.feed(chunk or b""):
                event = source.protocol.event(line) if isinstance(line, bytes) else None
                if isinstance(event, ConfigEvent):
                    source.try_rewritten_config(event)
            if time.monotonic() - reported_at >= _REPORT_SECONDS:
                reported_at = time.monotonic()
                sys.stderr.write(f"{size_text(size_bytes)} recorded\n")
        report = running.wait(_EXIT_SECONDS)
    finally:
        running.stop()
    rewritten = parse_config_file(running.rewritten_file() or b"")
    if rewritten is not None:
        source.try_rewritten_config(rewritten)
    return size_bytes, report or running.wait(0)
