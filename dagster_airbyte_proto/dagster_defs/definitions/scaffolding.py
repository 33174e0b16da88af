"""`dg scaffold defs dagster_airbyte_proto.ConnectorComponent shop --connector source-faker`.

It writes what a component needs: a connection file with the fields of the connector's config, the resources if the
project has none, and a line of `.gitignore` for the home folder.
"""

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import click
import dagster as dg
from pydantic import BaseModel, Field

from dagster_airbyte_proto.connection.drafting.config_fields import NoPrompter
from dagster_airbyte_proto.connection.drafting.connection_file import Draft
from dagster_airbyte_proto.dagster_defs.deployment import deployment_outside_run
from dagster_airbyte_proto.errors import REFRESH_COMPONENTS, ProtoError
from dagster_airbyte_proto.launchers.registry.connectors import ConnectorRegistry
from dagster_airbyte_proto.launchers.registry.download import open_registry
from dagster_airbyte_proto.project_folder import home_folder
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.stack_traces import brief_log_line
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.connector.new_connection import (
    NewConnector,
    chosen_connector,
    draft_connection,
    new_connection,
    write_connection,
)
from dagster_airbyte_proto.sync.engine import Engine

_CONNECTION_FILE = "connection.yaml"
_RESOURCES = '''\
"""The resources of all connector components: states and tables are kept in `.airbyte-proto`, where `dg` runs."""

import dagster as dg
from dagster_airbyte_proto import ConnectorResource, SparkSessionResource, SparkTableIOManager


@dg.definitions
def resources() -> dg.Definitions:
    tables = SparkTableIOManager(spark=SparkSessionResource())
    return dg.Definitions(resources={"connector": ConnectorResource(), "io_manager": tables})
'''


class ScaffoldedConnection(BaseModel):
    """The parameters of the scaffold command."""

    connector: str = Field(
        description='A connector of the registry ("source-faker"), a package ("airbyte-source-faker==7.2.1"), an image '
        '("airbyte/source-faker:7.2.1"), a low-code manifest ("shop-api.yaml"), or a command ("./my-source --fast").'
    )
    protocol: Literal["airbyte", "singer", "syncmaven"] | None = Field(
        default=None,
        description="The connector's protocol; by default singer if it is called tap-… or target-…, else airbyte.",
    )
    registry: str = Field(default="", description="The path or URL of a registry file; by default Airbyte's.")


class ConnectorScaffolder(dg.Scaffolder[ScaffoldedConnection]):
    """Writes a component with a connection file. The connector is asked for the fields of its config."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldedConnection]:
        return ScaffoldedConnection

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldedConnection]) -> None:
        file = request.target_path / _CONNECTION_FILE
        try:
            new = new_connection(_name(request.target_path.name), file, _connector(request.params, file))
            made = draft_connection(_engine, new, NoPrompter(), _show_log_line)
            write_connection(file, made.text, overwrite=False)
        except ProtoError as error:
            with suppress(OSError):  # dg has made the folder, and refuses one that is there
                request.target_path.rmdir()
            raise click.ClickException(str(error)) from None
        dg.scaffold_component(request, {"connection_file": _CONNECTION_FILE})
        click.echo(f"wrote {file}")
        _write_resources(request)
        _ignore_home(request.project_root or Path())
        for line in _steps(made, file, pushes=new.pushed is not None):
            click.echo(line)


def _connector(params: ScaffoldedConnection, file: Path) -> NewConnector:
    def registry() -> ConnectorRegistry:
        settings = Settings.load(home_folder())
        return open_registry(params.registry or settings.registry, cache=settings.registry_folder, on_warning=_warn)

    return chosen_connector(params.connector.strip(), file, registry, params.protocol)


def _engine() -> Engine:
    settings = Settings.load(home_folder())
    settings.make_home()
    return Engine(settings, connector_options=ConnectorOptions(deployment_outside_run))


def _write_resources(request: dg.ScaffoldRequest[ScaffoldedConnection]) -> None:
    """Writes the resources, unless a module of the project names them already."""
    folder = request.target_path.parent
    if any("ConnectorResource" in path.read_text(errors="replace") for path in _modules(request.project_root, folder)):
        return
    path = folder / "resources.py"
    if path.exists():
        click.echo(f"{path} names no ConnectorResource: give the definitions one as `connector`")
        return
    path.write_text(_RESOURCES)
    click.echo(f"wrote {path}")


def _modules(project_root: Path | None, folder: Path) -> Iterator[Path]:
    root = project_root / "src" if project_root and (project_root / "src").is_dir() else folder
    yield from root.rglob("*.py")


def _ignore_home(project: Path) -> None:
    """Adds a line to `.gitignore`, whose other bytes stay as they are: they may be of any encoding."""
    file, line = project / ".gitignore", b".airbyte-proto/"
    written = file.read_bytes() if file.is_file() else b""
    if line not in written.split():
        with file.open("ab") as end:
            end.write((b"" if not written or written.endswith(b"\n") else b"\n") + line + b"\n")


def _steps(made: Draft, file: Path, *, pushes: bool) -> Iterator[str]:
    """Yields what is left to do, in order."""
    yield from made.steps(os.environ)
    yield f"then: airbyte-proto check {shlex.quote(os.path.relpath(file))}"
    if not pushes:
        yield f"and:  {REFRESH_COMPONENTS}    (makes its streams assets)"


def _name(folder: str) -> str:
    return re.sub("[^a-z0-9_]+", "_", folder.lower())


def _show_log_line(level: str, text: str) -> None:
    if line := brief_log_line(level, text):
        click.echo(line, err=True)


def _warn(text: str) -> None:
    _show_log_line("WARN", text)
