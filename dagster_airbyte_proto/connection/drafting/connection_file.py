"""Drafts a connection file: its connector, the config that config_fields.py writes, and the sections beside it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dagster_airbyte_proto.connection.drafting.config_fields import ConfigWriter, Field, Prompter, Schema, comment
from dagster_airbyte_proto.connection.faults import path_text
from dagster_airbyte_proto.connection.yaml_text import yaml_text
from dagster_airbyte_proto.model import PushMode

_INTRODUCTION = (
    "Fields that begin with # are optional: remove it to set one. Secrets come from the environment.\n"
    "`airbyte-proto spec` describes every field in full."
)
_NO_SPEC = 'The connector declares no config fields: see its documentation. Write secrets as "${env:NAME}".'
_ENRICHMENT = (
    "It is an enrichment, and no destination. Put `connector` and `config` among the `transforms` of a connection,\n"
    "with the `columns` that it fills; or enrich a frame of Spark: enrich(frame, Connection.from_file(...))."
)
_WHOLE_CONFIGS = ("config", "to.config")
_TABLE = Field(
    ("from",),
    {"title": "Table", "type": "string", "description": "The table whose rows are pushed, such as lake.shop.users."},
    required=True,
)
_KEY = Field(
    ("key",),
    {"title": "Key", "type": "array", "description": "The columns that make a row the same row, such as id."},
    required=True,
)


class Draft(NamedTuple):
    """A drafted file.

    `to_fill_in` are its fields without a value, `variables` the environment variables of its secrets.
    """

    text: str
    to_fill_in: tuple[str, ...]
    variables: tuple[str, ...]
    is_push: bool = False

    def steps(self, environment: Mapping[str, str]) -> list[str]:
        """Lists the steps that are left to a person before the connection works."""
        unset = [name for name in self.variables if name not in environment]
        undeclared = [name for name in self.to_fill_in if name in _WHOLE_CONFIGS]
        open_fields = [name for name in self.to_fill_in if name not in undeclared]
        return [
            *([f"to fill in: {', '.join(open_fields)}"] if open_fields else []),
            *([f"to fill in if it needs any: {', '.join(undeclared)}, without declared fields"] if undeclared else []),
            *([f"to set in the environment: {', '.join(unset)}"] if unset else []),
        ]


class DraftedConnector(NamedTuple):
    """A connector of the file, and the schema of its config. If that is empty, all of it is left to fill in.

    An enrichment has no section beside it: it is used in the transforms of other files.
    """

    connector: Mapping[str, Any]
    schema: Schema
    writes_defaults: bool
    about: str = ""
    is_enrichment: bool = False


class PushedTable(NamedTuple):
    """The table that the file pushes, and its key. What is missing is prompted for, or left to fill in."""

    table: str | None = None
    key: tuple[str, ...] = ()

    def stream(self, connection: str) -> str:
        return self.table.rpartition(".")[2] if self.table else connection


class FileHeader(NamedTuple):
    """The parts of the file beside its connector. `name` is set if it differs from the file's stem."""

    connection: str
    name: str | None
    suggested_streams: Sequence[str] = ()
    push: PushedTable | None = None
    to: DraftedConnector | None = None


def draft(header: FileHeader, drafted: DraftedConnector, prompter: Prompter) -> Draft:
    """Drafts the whole file: a push if the header has a table, a relay if it has another connector, else a sync."""
    writer = _writer(header.connection, drafted, prompter)
    lines = [
        *comment(f"{drafted.about}\n{_INTRODUCTION if drafted.schema else _NO_SPEC}"),
        *(comment(_ENRICHMENT) if drafted.is_enrichment else ()),
        *([f"name: {header.name}"] if header.name else []),
        *_connector_lines(writer, drafted),
    ]
    to_fill_in, variables = writer.to_fill_in, writer.variables
    if header.suggested_streams and header.push is None:
        suggestion = "Which streams are synced; without it all of them. The connector's authors suggest these:"
        lines += ["", *comment(suggestion), f"#streams: {yaml_text(list(header.suggested_streams))}"]
    if header.push is not None:
        pushed = _prompted(header.push, prompter)
        lines += ["", "push:", *_indented(_push_lines(pushed, pushed.stream(header.connection)))]
        to_fill_in += _missing(pushed, f"push.{path_text((pushed.stream(header.connection),))}")
    if header.to is not None:
        receiving = _writer(f"{header.connection}_to", header.to, prompter)
        title = ": ".join(filter(None, ("The destination of the records", header.to.about)))
        about = title if header.to.schema else f"{title}\n{_NO_SPEC}"
        lines += ["", *comment(about), "to:", *_indented(_connector_lines(receiving, header.to))]
        to_fill_in += [f"to.config.{field}" if field != "config" else "to.config" for field in receiving.to_fill_in]
        variables += receiving.variables
    return Draft("\n".join(lines) + "\n", tuple(to_fill_in), tuple(dict.fromkeys(variables)), header.push is not None)


def _writer(secrets_prefix: str, drafted: DraftedConnector, prompter: Prompter) -> ConfigWriter:
    return ConfigWriter(secrets_prefix, drafted.schema, prompter, writes_defaults=drafted.writes_defaults)


def _connector_lines(writer: ConfigWriter, drafted: DraftedConnector) -> list[str]:
    fields = writer.lines(drafted.schema)
    if not drafted.schema:
        writer.to_fill_in.append("config")
    return [
        "connector:",
        *(f"  {key}: {yaml_text(value)}" for key, value in drafted.connector.items()),
        "",
        "config:" if fields else "config: {}",
        *_indented(fields),
    ]


def _prompted(push: PushedTable, prompter: Prompter) -> PushedTable:
    table = push.table or prompter.value(_TABLE)
    key = push.key or prompter.value(_KEY)
    return PushedTable(table, tuple(map(str, key or ())))


def _push_lines(push: PushedTable, stream: str) -> list[str]:
    """Returns the one stream of the push. The optional lines are those that most users come to look for."""
    fill_in = "  # fill in"
    return [
        *comment("A stream of the destination, and the rows that it gets."),
        f"{yaml_text(stream)}:",
        f"  from: {yaml_text(push.table)}" + ('  # a table; or sql: "SELECT …"' if push.table else fill_in),
        f"  key: {yaml_text(list(push.key) or None)}" + ("  # what makes a row the same row" if push.key else fill_in),
        f"  mode: upsert  # or {', '.join(mode for mode in PushMode if mode is not PushMode.UPSERT)}",
        "  #map: {id: id, email: email_address}  # fields and their columns; without it all that no sync added",
    ]


def _missing(push: PushedTable, path: str) -> list[str]:
    given = {"from": push.table, "key": push.key}
    return [f"{path}.{name}" for name, value in given.items() if not value]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]
