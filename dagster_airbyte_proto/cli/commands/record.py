"""`record`: a real connector's bytes, kept so that `launch: {kind: replay}` runs from them with no connector at all.

Nothing lands in tables and no state moves: what is recorded is a first read, from nothing.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagster_airbyte_proto.cli.call import Call, answers
from dagster_airbyte_proto.cli.commands.ask import asked
from dagster_airbyte_proto.cli.commands.partition_options import chosen, of_partition
from dagster_airbyte_proto.cli.commands.sync import stream_names
from dagster_airbyte_proto.cli.output import Answer, counted
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.cli.progress import size_text

if TYPE_CHECKING:
    from dagster_airbyte_proto.launchers.process import RunningConnector
    from dagster_airbyte_proto.protocols.conversation import ReadRequest
    from dagster_airbyte_proto.sync.connector.source import Source
    from dagster_airbyte_proto.sync.plan.stream_plan import Wanted

_READ_TIMEOUT_SECONDS = 1.0
_EXIT_SECONDS = 60.0
_TELL_SECONDS = 10.0


@answers(program, "record")
@click.argument("connection_file", metavar="C")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--streams", metavar="A,B", help="Only these streams of the connection.")
@of_partition
def record(
    call: Call,
    connection_file: str,
    folder: Path,
    streams: str | None,
    partition: str | None,
    window: tuple[str, ...],
) -> Answer:
    """Keeps a real run's bytes in DIR, secrets masked, for `launch: {kind: replay}`."""
    from dagster_airbyte_proto.sync.connector.source import recorded
    from dagster_airbyte_proto.sync.plan.stream_plan import Wanted

    wanted = Wanted(only=stream_names(streams), slice=chosen(partition, window))
    with asked(call, connection_file, wanted.slice) as (_, source):
        source.check_config()  # from here on the spec's secrets are known, and masked in what is kept
        source.connector = recorded(source, folder)
        source.spec(anew=True)
        verdict = source.check()
        request = _request(source, wanted)
        running = source.connector.launch(source.protocol.read(request))
        size_bytes, exit_code = _drain(running)
    value = {
        "connection": call.connection,
        "status": "complete" if exit_code == 0 else "failed",
        "folder": str(folder),
        "check": verdict.succeeded,
        "streams": [str(planned.id) for planned in request.streams],
        "bytes": size_bytes,
        "connector": {"exit_code": exit_code},
    }
    told = f"{counted(len(request.streams), 'stream')}, {size_text(size_bytes)}, exit code {exit_code}, in {folder}"
    return Answer(value, (f"{call.connection}: {told}",), 0 if exit_code == 0 else 1)


def _request(source: "Source", wanted: "Wanted") -> "ReadRequest":
    from dagster_airbyte_proto.protocols.conversation import ReadRequest
    from dagster_airbyte_proto.sync.plan.stream_plan import planned_streams, with_generations

    catalog = source.catalog(anew=True)
    planned = planned_streams(source.connection, catalog, wanted)
    streams = with_generations(planned, {stream.id: 1 for stream in planned})
    return ReadRequest(source.config, streams, states=(), sync_id=1, offered=catalog.streams)


def _drain(running: "RunningConnector") -> tuple[int, Any]:
    """Reads to the end, for the recording's sake; how much it was, and the exit code (None: ended by a signal)."""
    size_bytes = 0
    told = time.monotonic()
    try:
        while (chunk := running.read(_READ_TIMEOUT_SECONDS)) != b"":
            size_bytes += len(chunk or b"")
            if time.monotonic() - told >= _TELL_SECONDS:
                told = time.monotonic()
                sys.stderr.write(f"{size_text(size_bytes)} recorded\n")
        report = running.wait(_EXIT_SECONDS)
    finally:
        running.stop()
    report = report or running.wait(0)
    return size_bytes, report.code if report else None
