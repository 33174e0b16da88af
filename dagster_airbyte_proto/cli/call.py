"""What every command shares: the options around it, and the home it works in.

Here and in the commands, what takes long to import (SQLAlchemy, pydantic, pyarrow, Spark) is imported inside the
functions that need it: `--help` and the cheap commands answer at once, and a test holds them to it.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from dagster_airbyte_proto.cli.output import Answer
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from dagster_airbyte_proto.checkpoints.store import StateStore
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.settings import Settings
    from dagster_airbyte_proto.sync.engine import Engine

HOME_VARIABLE = "AIRBYTE_PROTO_HOME"
_HOME = Path(".airbyte-proto")
_SETTINGS = Path("airbyte-proto.yaml")

Function = TypeVar("Function", bound=Callable[..., Any])


class Target(NamedTuple):
    """A connection by its name; its file is known where it was given."""

    name: str
    connection: "Connection | None"


class Call:
    """One call of the command line: filled while its words are read, then asked by the command.

    `connection` is the name of the connection in hand, for the error that may come.
    """

    def __init__(self) -> None:
        self.home = _HOME
        self.settings_file: Path | None = None
        self.is_json = False
        self.connection: str | None = None

    def settings(self) -> "Settings":
        from dagster_airbyte_proto.settings import Settings

        file = self.settings_file or (_SETTINGS if _SETTINGS.is_file() else None)
        return Settings.load(self.home, file)

    def store(self) -> "StateStore":
        from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStateStore

        return SqlStateStore(self.settings().state_url)

    def engine(self) -> "Engine":
        from dagster_airbyte_proto.sync.engine import Engine

        settings = self.settings()
        try:
            settings.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                "opening the home folder",
                f"{settings.home} cannot be made: {error.strerror}",
                remedy=f"Name another with --home or {HOME_VARIABLE}.",
            ) from error
        return Engine(settings)

    def open(self, file: str) -> "Connection":
        """The connection that a file describes."""
        from dagster_airbyte_proto.connection import Connection

        connection = Connection.from_file(Path(file))
        self.connection = connection.name
        return connection

    def target(self, named: str) -> Target:
        """A connection file, or the bare name of a connection."""
        if re.fullmatch("[a-z0-9_]+", named) and not Path(named).is_file():
            self.connection = named
            return Target(named, None)
        connection = self.open(named)
        return Target(connection.name, connection)

    def known_target(self, named: str) -> Target:
        """The same; a bare name must be one that the store knows, for it may be a slip of the pen."""
        target = self.target(named)
        if target.connection is None:
            known = self.store().connections()
            if target.name not in known:
                raise ConfigError(
                    f"looking up connection {target.name}",
                    "the state store does not know it, and there is no such file",
                    remedy=f"Known here: {', '.join(known) or 'none'}. Is --home right?",
                )
        return target


class Command(click.Command):
    """A command that returns its Answer. While it works, stdout is stderr: whatever a library or a child process
    prints there cannot get between the lines of the answer."""

    def invoke(self, ctx: click.Context) -> Any:
        with _stdout_aside():
            return super().invoke(ctx)


@contextmanager
def _stdout_aside() -> Iterator[None]:
    sys.stdout.flush()
    with redirect_stdout(sys.stderr):
        kept = os.dup(1)
        try:
            os.dup2(2, 1)
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)


def around_command(function: Function) -> Function:
    """The options that are taken before the command and after it alike; the later one wins."""
    for option in (
        click.option("--json", "is_json", is_flag=True, expose_value=False, callback=_tell, help="One JSON document."),
        click.option(
            "--settings",
            "settings_file",
            metavar="FILE",
            expose_value=False,
            callback=_tell_path,
            help=f"Settings; default {_SETTINGS} if it stands here.",
        ),
        click.option(
            "--home",
            metavar="DIR",
            envvar=HOME_VARIABLE,
            expose_value=False,
            callback=_tell_home,
            help=f"Where everything lives; default {_HOME}, or {HOME_VARIABLE}.",
        ),
    ):
        function = option(function)
    return function


def answers(group: click.Group, name: str) -> Callable[[Callable[..., Answer]], click.Command]:
    """Makes a function a command of `group`. It gets the Call first, then its own arguments."""

    def decorate(function: Callable[..., Answer]) -> click.Command:
        command: click.Command = group.command(name, cls=Command)(around_command(click.pass_obj(function)))
        return command

    return decorate


def _tell(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value and parameter.name is not None:
        setattr(context.ensure_object(Call), parameter.name, value)


def _tell_path(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    _tell(context, parameter, Path(value) if value else None)


def _tell_home(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """The variable speaks once, at the front: behind the command it would win over a --home before it."""
    is_written = context.get_parameter_source("home") is not click.core.ParameterSource.ENVIRONMENT
    if is_written or context.parent is None:
        _tell_path(context, parameter, value)
