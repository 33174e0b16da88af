"""Drafts a connection file: its connector, the config that config_fields.py writes, and the sections beside it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dagster_airbyte_proto.connection.drafting.config_fields import ConfigWriter, Prompter, Schema, comment
from dagster_airbyte_proto.connection.yaml_text import yaml_text

_INTRODUCTION = (
    "Fields that begin with # are optional: remove it to set one. Secrets come from the environment.\n"
    "`airbyte-proto spec` describes every field in full."
)
_NO_SPEC = 'The connector declares no config fields: see its documentation. Write secrets as "${env:NAME}".'


class Draft(NamedTuple):
    """A drafted file.

    `to_fill_in` are its fields without a value, `variables` the environment variables of its secrets.
    """

    text: str
    to_fill_in: tuple[str, ...]
    variables: tuple[str, ...]

    def steps(self, environment: Mapping[str, str]) -> list[str]:
        """Lists the steps that are left to a person before the connection works."""
        unset = [name for name in self.variables if name not in environment]
        return [
            *([f"to fill in: {', '.join(self.to_fill_in)}"] if self.to_fill_in else []),
            *([f"to set in the environment: {', '.join(unset)}"] if unset else []),
        ]


class FileHeader(NamedTuple):
    """The parts of the file around the config. `name` is set if it differs from the file's stem.

    Airbyte's own platform writes the defaults of a spec into each config, and some connectors fail without them:
    `writes_defaults` does the same. A tap fills in its defaults itself.
    """

    connection: str
    name: str | None
    connector: Mapping[str, Any]
    writes_defaults: bool
    about: str = ""
    suggested_streams: Sequence[str] = ()


def draft(header: FileHeader, spec_schema: Schema, prompter: Prompter) -> Draft:
    """Drafts the whole file. Without a schema, all of the config is left to fill in."""
    writer = ConfigWriter(header.connection, spec_schema, prompter, writes_defaults=header.writes_defaults)
    fields = writer.lines(spec_schema)
    if not spec_schema:
        writer.to_fill_in.append("config")
    lines = [
        *comment(f"{header.about}\n{_INTRODUCTION if spec_schema else _NO_SPEC}"),
        *([f"name: {header.name}"] if header.name else []),
        "connector:",
        *(f"  {key}: {yaml_text(value)}" for key, value in header.connector.items()),
        "",
        "config:" if fields else "config: {}",
        *(f"  {line}" if line else "" for line in fields),
        "",
        *comment("Which streams are synced; without it all of them. The connector's authors suggest these:"),
        f"#streams: {yaml_text(list(header.suggested_streams))}",
    ]
    if not header.suggested_streams:
        lines = lines[:-3]
    return Draft("\n".join(lines) + "\n", tuple(writer.to_fill_in), tuple(dict.fromkeys(writer.variables)))
