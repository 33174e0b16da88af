"""The command `airbyte-proto` and its groups; the commands hang themselves up here."""

import click

from dagster_airbyte_proto.cli.call import around_command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@around_command
def program() -> None:
    """Runs Airbyte connectors and lands their records in Spark tables, each exactly once.

    C is a connection file; where state and loads are concerned, a connection's bare name will do. Exit codes: 0 all
    streams complete, 1 something failed, 2 your config or usage, 130 cancelled.
    """


@program.group("state")
@around_command
def state() -> None:
    """The connector's checkpoints: look at them, change them, go back."""


@program.group("loads")
@around_command
def loads() -> None:
    """The log of what was committed."""


@program.group("table")
@around_command
def table() -> None:
    """The tables: look at them, compact them, let go of what is old, go back.

    A table goes by namespace.table; a connection, by its file or its name, stands for all of its tables.
    """


@program.group("containers")
@around_command
def containers() -> None:
    """The containers that connectors run in: look at them, remove what nobody owns any more."""


@program.group("connectors")
@around_command
def connectors() -> None:
    """What a connector registry lists, and how each of it is started."""
