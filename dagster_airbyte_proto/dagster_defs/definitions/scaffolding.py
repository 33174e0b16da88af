"""`dg scaffold defs dagster_airbyte_proto.ConnectorComponent shop --connector "source-faker"`."""

import re
import shlex
from typing import Any, Literal

import click
import dagster as dg
from pydantic import BaseModel, Field

_IMAGE = re.compile(r"[\w.-]+(:\d+)?(/[\w.-]+)+(:[\w.-]+|@sha256:[0-9a-f]+)")
_REQUIREMENT = re.compile(r"[\w.-]+(\[[\w,.-]*\])?==\S+")


class ScaffoldedConnection(BaseModel):
    """The parameters of the scaffold command."""

    connector: str = Field(
        description='A command ("source-faker"), a package ("airbyte-source-faker==7.2.1"), or an image '
        '("airbyte/source-faker:7.2.1").'
    )
    protocol: Literal["airbyte", "singer", "rapidbyte", "syncmaven"] = Field(
        default="airbyte", description="The connector's protocol."
    )


class ConnectorScaffolder(dg.Scaffolder[ScaffoldedConnection]):
    """Writes a connection without config; `airbyte-proto spec` shows the config that the connector takes."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldedConnection]:
        return ScaffoldedConnection

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldedConnection]) -> None:
        connector = {"protocol": request.params.protocol, "launch": launch_of(request.params.connector)}
        connection = {"name": _name(request.target_path.name), "connector": connector, "config": {}}
        dg.scaffold_component(request, {"connection": connection})
        click.echo("Fill in its config, then run `dg utils refresh-defs-state`: that makes its streams assets.")


def launch_of(connector: str) -> dict[str, Any]:
    """The launch settings for a package, an image or a command."""
    if _REQUIREMENT.fullmatch(connector):
        return {"kind": "pypi", "package": connector}
    if _IMAGE.fullmatch(connector):
        return {"kind": "docker", "image": connector}
    return {"kind": "local", "command": shlex.split(connector)}


def _name(folder: str) -> str:
    return re.sub("[^a-z0-9_]+", "_", folder.lower())
