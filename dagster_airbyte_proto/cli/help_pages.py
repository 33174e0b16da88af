"""The help of commands and groups: an example at the end, and no text cut off."""

import click

from dagster_airbyte_proto.cli.examples import example_line

_NO_LIMIT = 10_000


class CommandGroup(click.Group):
    """A group whose list of commands wraps: click would cut off what is said of each at the terminal's width."""

    group_class = type

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(_NO_LIMIT)) for name, each in commands if each and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def write_example(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Writes the example of the context's command."""
    if line := example_line(ctx.command_path):
        with formatter.section("Example"):
            # Not as a text, which would be wrapped.
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")
