"""The command `airbyte-proto` and its groups; the modules in `commands` register their commands here."""

import click

from dagster_airbyte_proto.cli.call import common_options
from dagster_airbyte_proto.cli.help_pages import ProgramGroup


@click.group(cls=ProgramGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="dagster_airbyte_proto", prog_name="airbyte-proto", message="%(prog)s %(version)s")
@common_options
def program() -> None:
    """Runs connectors of Airbyte, Singer, Syncmaven and Rapidbyte: loads their records into Spark tables, each exactly
    once, and sends rows of tables to destinations.

    C is a connection file, or the name of a connection. `init` writes such a file. Exit codes: 0 all streams complete,
    1 something failed, 2 your config or usage, 130 cancelled.
    """


@program.group("state")
@common_options
def state() -> None:
    """Shows, changes and rolls back the connector's checkpoints."""


@program.group("config")
@common_options
def config() -> None:
    """Shows and drops the config that a connector wrote back."""


@program.group("loads")
@common_options
def loads() -> None:
    """Shows the log of loads, and ends one whose outcome is unknown."""


@program.group("table")
@common_options
def table() -> None:
    """Shows, compacts, expires and rolls back tables.

    Name a table as namespace.table. A connection, by its file or its name, stands for all of its tables.
    """


@program.group("containers")
@common_options
def containers() -> None:
    """Lists the containers of connectors, and removes those without an owner."""


@program.group("connectors")
@common_options
def connectors() -> None:
    """Searches a connector registry and shows how each connector is started."""


@program.group("envs")
@common_options
def envs() -> None:
    """Lists the installed packages of connectors, and removes those that are not used."""
