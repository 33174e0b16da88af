"""The help of commands and groups: what is their own before what all of them have, an example at the end, and no text
cut off."""

from collections.abc import Iterable

import click

from dagster_airbyte_proto.cli.examples import example_line

_NO_LIMIT = 10_000
_SHARED = ("home", "settings_file", "is_verbose", "is_json", "help")

TASKS = {
    "Set up a connection": ("connectors", "init", "import", "spec", "check", "discover"),
    "Move data": ("sync", "sync-all", "push"),
    "See what is there": ("status", "query"),
    "Look after states and tables": ("state", "config", "loads", "recover", "table"),
    "Test a connector": ("certify", "record"),
    "Look after this machine": ("doctor", "envs", "containers", "version", "completion"),
}
"""The commands of the program, by the task that they are for, in the order in which its help lists them."""


class CommandGroup(click.Group):
    """A group whose list of commands wraps: click would cut off what is said of each at the terminal's width."""

    group_class: type[click.Group] | type[type] | None = type

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        write_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self._write_commands(ctx, formatter, "Commands", self.list_commands(ctx))

    def _write_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter, title: str, names: Iterable[str]
    ) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in names]
        rows = [(name, each.get_short_help_str(_NO_LIMIT)) for name, each in commands if each and not each.hidden]
        with formatter.section(title):
            formatter.write_dl(rows)


class ProgramGroup(CommandGroup):
    """The group of all commands, too many for one list: its help has a list for each task."""

    group_class = CommandGroup

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for task, names in TASKS.items():
            self._write_commands(ctx, formatter, task, names)


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Writes the options of a command, and after them those that every command has."""
    own: list[tuple[str, str]] = []
    shared: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        if row := parameter.get_help_record(ctx):
            (shared if parameter.name in _SHARED else own).append(row)
    for title, rows in (("Options", own), ("Options of every command", shared)):
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def write_example(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Writes the example of the context's command."""
    if line := example_line(ctx.command_path):
        with formatter.section("Example"):
            # Not as a text, which would be wrapped.
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")
