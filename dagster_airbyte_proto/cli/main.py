"""The entry point of the command line: arguments in, an exit code out.

Exit codes: 0 all streams complete, 1 something failed, 2 the user's config or usage, 130 cancelled. With `--json`,
stdout gets exactly one JSON document, also for an error; everything else goes to stderr.
"""

import errno
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dagster_airbyte_proto.atomic_files import has_no_room
from dagster_airbyte_proto.cli.call import Call
from dagster_airbyte_proto.cli.commands import (
    connectors,
    init,
    loads,
    push,
    query,
    record,
    spec_check_discover,
    status,
    sync,
    sync_all,
    table,
)
from dagster_airbyte_proto.cli.commands.certification import certify
from dagster_airbyte_proto.cli.commands.imports import project_import
from dagster_airbyte_proto.cli.commands.machine import completion, containers, doctor, envs, version
from dagster_airbyte_proto.cli.commands.states import config, state
from dagster_airbyte_proto.cli.interrupts import CANCELLED, terminable
from dagster_airbyte_proto.cli.output import Answer, error_value, plain, show
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.cli.standard_streams import give_up, kept_stdout, standard_streams
from dagster_airbyte_proto.errors import ConfigError, InternalError, ProtoError, StagingError, mask_signatures

COMMANDS = (
    connectors,
    init,
    loads,
    project_import,
    push,
    query,
    record,
    spec_check_discover,
    config,
    state,
    status,
    sync,
    sync_all,
    table,
    certify,
    completion,
    containers,
    doctor,
    envs,
    version,
)
"""The modules of the commands. Importing a module registers its commands with `program`."""

_FAILED = 1
_USAGE = 2
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_PLACE = (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code for the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    call = Call()
    with standard_streams():
        with kept_stdout() as printed:
            answer = _answer(words, call)
        # A usage error may come before click has parsed `--json`.
        return _shown(answer, printed(), as_json=call.is_json or "--json" in words)


def _shown(answer: Answer, printed: str, *, as_json: bool) -> int:
    """Prints what click has printed (help, versions, completions) and the answer, and returns the exit code."""
    try:
        sys.stdout.write(printed)
        show(answer, sys.stdout, as_json=as_json)
    except BrokenPipeError:  # the reader has seen enough (`| head`)
        give_up(sys.stdout)
    except OSError as error:
        give_up(sys.stdout)
        click.echo(f"error: printing the answer: stdout cannot be written: {error.strerror}", err=True)
        return answer.exit_code or _FAILED
    except KeyboardInterrupt:
        give_up(sys.stdout)
        return CANCELLED
    return answer.exit_code


def _answer(words: list[str], call: Call) -> Answer:
    try:
        with terminable():
            answer = program.main(words, prog_name="airbyte-proto", obj=call, standalone_mode=False)
        # Click prints help itself and then returns an exit code.
        return answer if isinstance(answer, Answer) else Answer(None, (), int(answer or 0))
    except SystemExit as error:  # Click ends a process that completes words for a shell.
        return Answer(None, (), error.code if isinstance(error.code, int) else _FAILED)
    except click.ClickException as error:
        error.show()
        return _error_answer(call, {"kind": "UsageError", "message": error.format_message()}, _USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("cancelled", err=True)
        return _error_answer(call, {"kind": "Cancelled", "message": "cancelled before it was done"}, CANCELLED)
    except InternalError as error:
        _report_bug(error)
        return _error_answer(call, error_value(error), _FAILED)
    except ProtoError as error:
        return _known_error_answer(call, error)
    except Exception as error:  # noqa: BLE001 - the edge of the process: it prints the traceback and exits with 1
        if isinstance(error, OSError) and (known := _error_of_machine(error)) is not None:
            return _known_error_answer(call, known)
        _report_bug(error)
        return _error_answer(call, {"kind": "InternalError", "message": f"{type(error).__name__}: {error}"}, _FAILED)


def _known_error_answer(call: Call, error: ProtoError) -> Answer:
    if call.is_verbose:
        _print_stack_trace(error)
    click.echo(f"error: {plain(str(error), max_characters=20_000)}", err=True)
    return _error_answer(call, error_value(error), _USAGE if isinstance(error, ConfigError) else _FAILED)


def _error_of_machine(error: OSError) -> ProtoError | None:
    """The error for a file that this user may not have, that cannot be at its place, or that has no room; None for one
    of ours."""
    found = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    if error.errno in _NOT_ALLOWED:
        remedy = "Give this user the right to it, or name another place. --verbose shows where this was raised."
        return ConfigError("using a file", found, remedy=remedy)
    if error.errno in _NO_PLACE and error.filename:
        remedy = "Name another place. --verbose shows where this was raised."
        return ConfigError("using a file", found, remedy=remedy)
    if has_no_room(error):
        return StagingError("writing a file", found, remedy="Make room there, then run the command again.")
    return None


def _error_answer(call: Call, error: Mapping[str, Any], exit_code: int) -> Answer:
    status = "cancelled" if exit_code == CANCELLED else "failed"
    named = {"connection": call.connection} if call.connection else {}
    return Answer({**named, "status": status, "error": error}, (), exit_code)


def _print_stack_trace(error: Exception) -> None:
    mask_signatures(error)
    traceback.print_exc()


def _report_bug(error: Exception) -> None:
    _print_stack_trace(error)
    click.echo(
        "This is a bug of airbyte-proto. Please report it, with the lines above and the output of "
        "`airbyte-proto version`.",
        err=True,
    )
