"""The launcher of connectors that are programs on this machine."""

import errno
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.launchers.local import guardian
from dagster_airbyte_proto.launchers.local.programs import find_program, program_identity
from dagster_airbyte_proto.launchers.local.running_program import GUARDIAN_END_SECONDS, LocalConnector, Pipes, RunPlace
from dagster_airbyte_proto.launchers.local.sandbox import SandboxedProgram, sandboxed_command
from dagster_airbyte_proto.launchers.permissions import joined_variables, parse_variables
from dagster_airbyte_proto.launchers.process import HostPlace, LaunchOptions
from dagster_airbyte_proto.launchers.run_folder import RunFolder, WatchedFile
from dagster_airbyte_proto.project_folder import working_folder
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation

_GUARDIAN_START_SECONDS = 30.0


class LocalLauncher:
    """Launches a program by its command line, followed by the invocation's arguments."""

    def __init__(self, command: Sequence[str], *, options: LaunchOptions | None = None) -> None:
        if not command:
            raise ConfigError("reading the connector's command", "it is empty", remedy="Name a program in `command`.")
        self._command = tuple(command)
        self._options = options or LaunchOptions()

    def identity(self) -> str:
        # A PATH among the variables of its connection says which program runs.
        own = parse_variables(self._options.permissions.variables, os.environ)
        program = self._program({**os.environ, **own})
        return program_identity(program, self._command, folder=self._working_folder())

    def host_place(self) -> HostPlace | None:
        return self._options.host_place

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> "LocalConnector":
        full_environment = joined_variables(self._options.permissions.program_environment(os.environ), environment)
        program = self._program(full_environment)
        if self._options.permissions.memory_bytes and not guardian.sees_memory() and self._options.on_notice:
            self._options.on_notice("This system does not show the memory of processes: limits: max_memory is not held")
        folder = RunFolder.make(self._options.runs_folder, invocation.files)
        try:
            arguments = [_argument_text(argument, folder.path) for argument in invocation.arguments]
            command = [str(program), *self._command[1:], *arguments]
            if self._options.permissions.sandbox:
                full_environment["TMPDIR"] = "/tmp"  # noqa: S108 - its own
                start = self._options.working_folder or folder.path
                sandboxed = SandboxedProgram(command, (folder.path, start), full_environment)
                command = sandboxed_command(sandboxed, self._options.permissions)
            place = RunPlace(folder, _watched_file(folder, invocation.rewritable_content))
            stdin = subprocess.PIPE if invocation.takes_input else subprocess.DEVNULL
            return _start(command, full_environment, place, self._options, stdin=stdin)
        except BaseException:
            folder.remove()
            raise

    def _program(self, environment: Mapping[str, str]) -> Path:
        search_path = environment.get("PATH", os.defpath)
        return find_program(self._command[0], search_path=search_path, folder=self._working_folder())

    def _working_folder(self) -> Path:
        folder = self._options.working_folder or working_folder()
        if not folder.is_dir():
            remedy = "Make it, or correct `working_folder` in the connection's launch."
            raise ConfigError("starting the connector", f"its working folder {folder} is no folder", remedy=remedy)
        return folder


def _argument_text(argument: str | FileArgument, folder: Path) -> str:
    return str(folder / argument.name) if isinstance(argument, FileArgument) else argument


def _watched_file(folder: RunFolder, rewritable: tuple[str, bytes] | None) -> WatchedFile | None:
    return None if rewritable is None else WatchedFile(folder.path / rewritable[0], rewritable[1])


def _start(
    command: list[str],
    environment: dict[str, str],
    place: RunPlace,
    options: LaunchOptions,
    *,
    stdin: int,
) -> "LocalConnector":
    control_reader, control = os.pipe()
    report, report_writer = os.pipe()
    prefix = [sys.executable, "-I", "-S", guardian.__file__, str(control_reader), str(report_writer), str(os.getpid())]
    limits = [str(options.permissions.memory_bytes or 0), str(options.permissions.seconds or 0)]
    is_sandboxed = guardian.SANDBOXED if options.permissions.sandbox else ""
    try:
        process = subprocess.Popen(
            [*prefix, str(options.stop_grace_seconds), *limits, str(place.folder.path), is_sandboxed, *command],
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            cwd=options.working_folder, env=environment, pass_fds=(control_reader, report_writer),
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        os.close(control)
        os.close(report)
        raise ConnectorError("starting the connector", error.strerror or str(error), retryable=True) from error
    finally:
        os.close(control_reader)
        os.close(report_writer)
    try:
        first_report = _first_report(report, command[0], process)
    except BaseException:
        os.close(control)  # this ends the guardian and whatever it started
        os.close(report)
        _wait_for_guardian_end(process)
        raise
    return LocalConnector(process, Pipes(control, report), first_report, place, options)


def _first_report(report: int, program: str, guardian_process: subprocess.Popen[bytes]) -> bytes:
    """The guardian's first report; more may have come with it. Raises ConfigError if the program cannot run."""
    poll = select.poll()
    poll.register(report, select.POLLIN)
    answer = os.read(report, 4096) if poll.poll(_GUARDIAN_START_SECONDS * 1000) else b""
    verb, _, number = answer.partition(b"\n")[0].partition(b" ")
    if verb == b"started":
        return answer
    if verb == b"failed":
        found = f"{program} does not start: {_start_failure(int(number))}"
        raise ConfigError("starting the connector", found, remedy="Repair it, or correct the connection's launch.")
    reason = _loader_error(guardian_process)
    raise ConnectorError(
        "starting the connector",
        f"its guardian did not start ({reason or sys.executable})",
        remedy="Name the variable that our Python needs, such as LD_LIBRARY_PATH, in env_vars." if reason else "",
        retryable=not reason,
    )


def _loader_error(guardian_process: subprocess.Popen[bytes]) -> str:
    """The line by which the system says why our Python cannot be loaded, if it does: Python may need a variable of our
    environment that a connector does not get. No other line, which a connector may have written."""
    assert guardian_process.stderr is not None, "it was started with a pipe"
    os.set_blocking(guardian_process.stderr.fileno(), False)
    said = guardian_process.stderr.read(4096) or b""
    lines = said.decode(errors="replace").splitlines()
    return next((each for each in lines if each.startswith(f"{sys.executable}: ")), "")


def _start_failure(error_number: int) -> str:
    if error_number == errno.ENOEXEC:
        return "it is neither a program for this machine nor a script with a #! line"
    if error_number == errno.ENOENT:  # the file itself existed a moment ago, so its interpreter is missing
        return "the interpreter that its #! line names does not exist"
    return os.strerror(error_number)


def _wait_for_guardian_end(process: subprocess.Popen[bytes]) -> None:
    """Closes the streams of a guardian that has to end, and waits for its end."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(GUARDIAN_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
