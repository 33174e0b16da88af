"""The edge of the process: words in, an exit code out.

Exit codes: 0 all streams complete, 1 something failed, 2 the user's config or usage, 130 cancelled. Under `--json`
stdout gets one JSON document, an error too; everything else goes to stderr.
"""

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click

from dagster_airbyte_proto import points
from dagster_airbyte_proto.cli.call import Call
from dagster_airbyte_proto.cli.commands import ask as asking
from dagster_airbyte_proto.cli.commands import connectors, containers, loads, query, version
from dagster_airbyte_proto.cli.commands import import_meltano as importing
from dagster_airbyte_proto.cli.commands import init as initialising
from dagster_airbyte_proto.cli.commands import record as recording
from dagster_airbyte_proto.cli.commands import state as states
from dagster_airbyte_proto.cli.commands import sync as syncing
from dagster_airbyte_proto.cli.commands import table as tables
from dagster_airbyte_proto.cli.crash_points import crash_hook
from dagster_airbyte_proto.cli.interrupts import CANCELLED, terminable
from dagster_airbyte_proto.cli.output import Answer, error_value, plain, show
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.errors import ConfigError, InternalError, ProtoError

COMMANDS = (
    asking,
    connectors,
    containers,
    importing,
    initialising,
    loads,
    query,
    recording,
    states,
    syncing,
    tables,
    version,
)
"""The modules whose commands hang on `program`: importing them puts them there."""

_FAILED = 1
_USAGE = 2

# For the crash sweep, and for nothing else: at which point to die by SIGKILL ("load.announced", or
# "load.announced:3" for the third time it is reached), and a file to note every reached point in.
_CRASH_AT = "AIRBYTE_PROTO_CRASH_AT"
_POINTS_LOG = "AIRBYTE_PROTO_POINTS_LOG"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code is for the caller to exit with."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    call = Call()
    answer = _answer(words, call)
    try:
        # An error in the words themselves may come before `--json` was read.
        show(answer, sys.stdout, as_json=call.is_json or "--json" in words)
    except BrokenPipeError:
        # The reader has seen enough (`| head`). Python flushes once more at its end, which must not fail.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return answer.exit_code


def _answer(words: list[str], call: Call) -> Answer:
    try:
        _arm_crash_points(os.environ)
        with terminable():
            answer = program.main(words, prog_name="airbyte-proto", obj=call, standalone_mode=False)
        # Help is click's own answer, shown already: what comes back then is an exit code.
        return answer if isinstance(answer, Answer) else Answer(None, (), int(answer or 0))
    except click.ClickException as error:
        error.show()
        return _refusal(call, {"kind": "UsageError", "message": error.format_message()}, _USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("cancelled", err=True)
        return _refusal(call, {"kind": "Cancelled", "message": "cancelled before it was done"}, CANCELLED)
    except InternalError as error:
        _tell_bug()
        return _refusal(call, error_value(error), _FAILED)
    except ProtoError as error:
        click.echo(f"error: {plain(str(error), max_characters=20_000)}", err=True)
        return _refusal(call, error_value(error), _USAGE if isinstance(error, ConfigError) else _FAILED)
    except Exception as error:  # noqa: BLE001 - the edge of the process: shown whole, and it exits with 1
        _tell_bug()
        return _refusal(call, {"kind": "InternalError", "message": f"{type(error).__name__}: {error}"}, _FAILED)


def _refusal(call: Call, error: Mapping[str, Any], exit_code: int) -> Answer:
    status = "cancelled" if exit_code == CANCELLED else "failed"
    named = {"connection": call.connection} if call.connection else {}
    return Answer({**named, "status": status, "error": error}, (), exit_code)


def _arm_crash_points(environment: Mapping[str, str]) -> None:
    at, log = environment.get(_CRASH_AT, ""), environment.get(_POINTS_LOG, "")
    if at or log:
        points.arm(crash_hook(at, log))


def _tell_bug() -> None:
    traceback.print_exc()
    click.echo(
        "This is our mistake. Please report it, with the lines above and the output of `airbyte-proto version`.",
        err=True,
    )
