"""The parts that all commands share: the common options, the home folder, and the decorator that registers a command.

Here and in the commands, modules that are slow to import (SQLAlchemy, pydantic, pyarrow, Spark) are imported inside
the functions that need them, so that `--help` and the cheap commands answer at once. A test checks that.
"""

import getpass
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from dagster_airbyte_proto.cli.connection_names import (
    complete_connections,
    connection_file,
    file_of_connection,
    is_file,
    written_name,
)
from dagster_airbyte_proto.cli.help_pages import write_example, write_options
from dagster_airbyte_proto.cli.output import Answer
from dagster_airbyte_proto.errors import ConfigError, InternalError, ProtoError
from dagster_airbyte_proto.project_folder import (
    HOME,
    HOME_VARIABLE,
    SETTINGS,
    expanded,
    project_folder,
    working_folder,
)

if TYPE_CHECKING:
    from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.settings import Settings
    from dagster_airbyte_proto.sync.engine import Engine


Function = TypeVar("Function", bound=Callable[..., Any])

_WITHOUT_ID = "without-id"
"""The name of the log of a run that got no id."""


class Target(NamedTuple):
    """A connection by its name. `connection` is None if a name was given instead of a file."""

    name: str
    connection: "Connection | None"


class Call:
    """One call of the command line. Click fills it while it parses the options; then the command uses it.

    `connection` is the name of the current connection, for error messages.
    """

    def __init__(self) -> None:
        self.home: Path | None = None
        self.settings_file: Path | None = None
        self.is_json = self.is_verbose = False
        self._has_named_home = False
        self.connection: str | None = None

    def settings(self, *, makes_home: bool = False) -> "Settings":
        """The settings of this folder or of the project above it. Names the home where the user may expect another."""
        from dagster_airbyte_proto.settings import Settings

        folder = project_folder(here := working_folder())
        found = folder / SETTINGS
        settings = Settings.load(self.home or folder / HOME, self.settings_file or (found if found.is_file() else None))
        if makes_home and settings.make_home():  # In the wrong folder all states and tables would seem to be gone.
            self._name_home(f"{settings.home} (new)")
        elif folder != here and self.home is None:
            self._name_home(f"{settings.home}")
        return settings

    def _name_home(self, text: str) -> None:
        if not self._has_named_home:
            self._has_named_home = True
            click.echo(f"home folder: {text}", err=True)

    def store(self) -> "DeliveryStore":
        from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore

        return SqlStore(self.settings(makes_home=True).state_url)

    def engine(self) -> "Engine":
        from dagster_airbyte_proto.sync.engine import Engine

        return Engine(self.settings(makes_home=True))

    def existing_store(self) -> "DeliveryStore | None":
        """The state store; None if its file is not there. It is not made only to be looked at: from then on commands in
        all folders below would take it for theirs."""
        from dagster_airbyte_proto.checkpoints.sqlite_files import sqlite_path

        settings = self.settings()
        is_there = not settings.state_url.startswith("sqlite") or is_file(sqlite_path(settings.state_url))
        if is_there or is_file(str(settings.home)):  # The error says that the home is a file.
            return self.store()
        if not settings.home.exists():
            self._name_home(f"{settings.home} (not there)")
        return None

    def _known_connections(self) -> list[str]:
        store = self.existing_store()
        return [] if store is None else list(store.connections())

    def open(self, named: str) -> "Connection":
        """Reads a connection file, by its path or by the name of the connection."""
        from dagster_airbyte_proto.connection import Connection

        connection = Connection.from_file(connection_file(named))
        self.connection = connection.name
        return connection

    def open_to_run(self, named: str) -> "Connection":
        """Reads a connection file to run it. A run that its file refuses has a log, as others have that are refused:
        for cron, whose mail nobody reads."""
        try:
            return self.open(named)
        except ConfigError as error:
            with suppress(ProtoError, OSError):  # That of the file is the one to see.
                self._log_refusal(written_name(named), error)
            raise

    def _log_refusal(self, name: str, error: ConfigError) -> None:
        """Writes the log of a run that its connection file refuses. It takes the place of the one before: the logs of
        real runs stay. There is none of a connection that never ran, so that no wrong name gets a folder."""
        folder = self.settings().logs_folder / name
        if not name or not folder.is_dir():
            return
        from dagster_airbyte_proto.sync.run_log import RunLog

        (folder / f"{_WITHOUT_ID}.log").unlink(missing_ok=True)
        with RunLog(folder, _WITHOUT_ID) as log:
            log.note_end("failed", [str(error)])

    def connection_target(self, named: str) -> Target:
        """Resolves a connection file, or the bare name of a connection."""
        if re.fullmatch("[a-z0-9_]+", named) and not is_file(named):
            self.connection = named
            return Target(named, None)
        connection = self.open(named)
        return Target(connection.name, connection)

    def new_connection_target(self, named: str) -> Target:
        """Resolves like `connection_target`, but a bare name must be in the state store, or that of a connection file:
        a typo would be a connection of its own from then on."""
        target = self.connection_target(named)
        if target.connection is None and target.name not in self._known_connections():
            return Target(named, self.open(named))
        return target

    def known_connection_target(self, named: str) -> Target:
        """Resolves like `connection_target`, but a bare name must be in the state store: otherwise it may be a typo."""
        target = self.connection_target(named)
        if target.connection is None:
            known = self._known_connections()
            if target.name not in known:
                file = file_of_connection(target.name)
                why = f"nothing of {file} has been synced yet" if file else "there is no such file"
                raise ConfigError(
                    f"looking up connection {target.name}",
                    f"the state store does not know it, and {why}",
                    remedy=f"Known here: {', '.join(known) or 'none'}. Is --home right?",
                )
        return target


class Command(click.Command):
    """A command that returns its Answer. While it runs, stdout is redirected to stderr, so that the output of libraries
    and child processes cannot mix with the answer."""

    def invoke(self, ctx: click.Context) -> Any:
        with _stdout_to_stderr():
            try:
                return super().invoke(ctx)
            except BrokenPipeError as error:  # Click would end the process without a word, as if stdout were meant.
                raise InternalError("running the command", "a pipe to another program was closed") from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_example(ctx, formatter)


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    sys.stdout.flush()
    with redirect_stdout(sys.stderr):
        saved = os.dup(1)
        try:
            os.dup2(2, 1)
            yield
        finally:
            os.dup2(saved, 1)
            os.close(saved)


def common_options(function: Function) -> Function:
    """Adds the options that are allowed before and after the command's name; the later one wins."""
    for option in (
        click.option(
            "--json", "is_json", is_flag=True, expose_value=False, callback=_set, help="Print one JSON document."
        ),
        click.option(
            "--verbose",
            "is_verbose",
            is_flag=True,
            expose_value=False,
            callback=_set,
            help="Show all that the connector logs, and stack traces.",
        ),
        click.option(
            "--settings",
            "settings_file",
            metavar="FILE",
            expose_value=False,
            callback=_set_path,
            help=f"Settings file; default {SETTINGS} in this folder or the nearest above that has one.",
        ),
        click.option(
            "--home",
            metavar="DIR",
            envvar=HOME_VARIABLE,
            expose_value=False,
            callback=_set_home,
            help=f"Home folder; default {HOME} in this folder or the nearest above that has one, or {HOME_VARIABLE}.",
        ),
    ):
        function = option(function)
    return function


def command_in(group: click.Group, name: str) -> Callable[[Callable[..., Answer]], click.Command]:
    """Registers a function as a command of `group`. It receives the Call first, then its own arguments."""

    def decorate(function: Callable[..., Answer]) -> click.Command:
        command: click.Command = group.command(name, cls=Command)(common_options(click.pass_obj(function)))
        complete_connections(command)
        return command

    return decorate


def _set(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value and parameter.name is not None:
        setattr(context.ensure_object(Call), parameter.name, value)


def _set_path(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    _set(context, parameter, expanded(value) if value else None)


def _set_home(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Sets the home folder. The environment variable counts only before the command's name: after it, it would override
    a --home that was written before."""
    is_written = context.get_parameter_source("home") is not click.core.ParameterSource.ENVIRONMENT
    if is_written or context.parent is None:
        _set_path(context, parameter, value)


def user_name() -> str:
    """The name of the user who runs the command, for changes by hand."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in many containers
        return f"uid {os.getuid()}"
