"""`init`: a connection file from a connector's spec. Slow modules are imported when it runs; see call.py."""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.commands.connectors import opened_registry, registry_option
from dagster_airbyte_proto.cli.commands.spec_check_discover import check_connection, show_log_line
from dagster_airbyte_proto.cli.output import Answer, plain
from dagster_airbyte_proto.cli.program import program

if TYPE_CHECKING:
    from dagster_airbyte_proto.connection.drafting.config_fields import Field, Prompter
    from dagster_airbyte_proto.connection.drafting.connection_file import Draft, PushedTable
    from dagster_airbyte_proto.sync.connector.new_connection import NewConnection, NewConnector

_KINDS = {"pypi": "pypi", "npm": "npm", "command": "local", "manifest": "manifest", "image": "docker"}


@command_in(program, "init")
@click.argument("name", metavar="NAME", required=False)
@registry_option
@click.option("--pypi", metavar="PACKAGE==VERSION", help="A pinned package of the index.")
@click.option("--npm", metavar="PACKAGE@VERSION", help="A pinned package of npm: a Syncmaven destination.")
@click.option("--command", metavar="COMMAND", help="A program on this machine.")
@click.option("--manifest", metavar="FILE", help="A low-code manifest file.")
@click.option("--image", metavar="IMAGE", help="A Docker image.")
@click.option(
    "--protocol",
    type=click.Choice(["airbyte", "singer", "syncmaven"]),
    help="Default: singer if the name is like tap-… or target-…, syncmaven for a package of npm.",
)
@click.option("--from", "table", metavar="TABLE", help="Write a push of this table.")
@click.option("--key", metavar="COLUMNS", help="The columns that identify a row of the table: id,day.")
@click.option("--to", metavar="CONNECTOR", help="Write a relay to this destination, named as NAME can be.")
@click.option("--new-connector", type=click.Choice(["rapidbyte"]), help="Write a connector of this protocol instead.")
@click.option("--language", metavar="LANGUAGE", help="With --new-connector: python, c or rust.")
@click.option("--file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Default: NAME.yaml.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--no-input", is_flag=True, help="Ask no questions, even on a terminal.")
@click.option("--no-check", is_flag=True, help="Skip the check at the end.")
def init(
    call: Call, name: str | None, registry: str | None, protocol: str | None, table: str | None, key: str | None,
    to: str | None, new_connector: str | None, language: str | None, file: Path | None, force: bool, no_input: bool,
    no_check: bool, **launched: str | None,
) -> Answer:  # fmt: skip
    """Writes a connection file with the fields of the connector's config, and checks it.

    NAME is a connector of the registry, or itself a package (airbyte-source-faker==7.2.1), an image, a manifest file or
    a command. If an option names the connector, NAME is the name of the new connection. A destination or a target gets
    a push; a source with --to gets a relay.

    With --new-connector a folder NAME (default: new_source) is written, with a small source to begin from.
    """
    if new_connector is not None or language is not None:
        others = (registry, protocol, table, key, to, file, force or None, no_check or None, *launched.values())
        if new_connector is None or any(other is not None for other in others):
            raise click.UsageError("--new-connector takes --language and NAME, and no other option of init.")
        return _new_connector(Path(name or "new_source"), language)
    if name is None:
        raise click.UsageError("Missing argument 'NAME'.")
    from dagster_airbyte_proto.sync.connector.new_connection import (
        connection_name,
        draft_connection,
        file_exists,
        new_connection,
        write_connection,
    )

    name, connection = name.strip(), connection_name(name)
    path = file or Path(f"{connection}.yaml")
    call.connection = connection
    if path.exists() and not force:
        raise file_exists(path)
    options = {kind: text for kind, text in launched.items() if text is not None}
    pushed = _pushed_table(table, key)
    chosen = _Chosen(call, path, registry)
    connector = chosen.connector(name, options, protocol, role="destination" if pushed else "source")
    receiving = chosen.connector(to.strip(), {}, None, role="destination") if to is not None else None
    new = new_connection(connection, path, connector, pushed, receiving)
    prompter = _prompter(asks=not no_input and sys.stdin is not None and sys.stdin.isatty())
    made = draft_connection(call.engine, new, prompter, partial(show_log_line, is_verbose=call.is_verbose))
    write_connection(path, made.text, overwrite=force)
    sys.stderr.write(f"wrote {path}\n")
    return _answer(call, new, made, wants_check=not no_check)


def _new_connector(folder: Path, language: str | None) -> Answer:
    """Writes the folder of a new connector, and shows the commands that build and run it."""
    from dagster_airbyte_proto.connector_kit.skeleton import LANGUAGES, write_skeleton

    if language is None:
        raise click.UsageError(f"--new-connector needs --language: {', '.join(LANGUAGES)}.")
    made = write_skeleton(folder, language)
    sys.stderr.write(f"wrote {folder}\n")
    lines = [
        f"cd {shlex.quote(str(folder))}",
        made.tools,
        "python build.py",
        "airbyte-proto sync connection.yaml",
    ]
    value = {"folder": str(folder), "language": language, "files": [*made.files], "then": lines}
    return Answer(value, tuple(lines), 0)


class _Chosen(NamedTuple):
    """Finds the connectors of the file that is to be written, in the registry that the user names."""

    call: Call
    file: Path
    registry: str | None

    def connector(self, name: str, options: Mapping[str, str], protocol: str | None, *, role: str) -> "NewConnector":
        from dagster_airbyte_proto.sync.connector.new_connection import chosen_connector, named_connector

        if len(options) > 1:
            raise click.UsageError(f"{' and '.join(f'--{option}' for option in options)} cannot be combined.")
        for option, text in options.items():
            return named_connector(_KINDS[option], text, self.file, protocol)
        open_registry = partial(opened_registry, self.call, self.registry)
        return chosen_connector(name, self.file, open_registry, protocol, role=role)


def _pushed_table(table: str | None, key: str | None) -> "PushedTable | None":
    from dagster_airbyte_proto.connection.drafting.connection_file import PushedTable

    if table is None and key is None:
        return None
    return PushedTable(table, tuple(column.strip() for column in (key or "").split(",") if column.strip()))


def _answer(call: Call, new: "NewConnection", made: "Draft", *, wants_check: bool) -> Answer:
    path = new.file
    lines = made.steps(os.environ)
    check = None
    if not lines and wants_check:
        check = check_connection(call, str(path))
        lines += [str(part) for part in check.parts]
    elif wants_check:
        lines.append(f"then: airbyte-proto check {shlex.quote(str(path))}")
    value = {
        "connection": new.name,
        "file": str(path),
        "launch": dict(new.connector.launch),
        "push": made.is_push,
        "to": new.to and dict(new.to.launch),
        "to_fill_in": list(made.to_fill_in),
        "variables": list(made.variables),
        "check": check and {key: check.value[key] for key in ("status", "message")},
    }
    return Answer(value, tuple(lines), check.exit_code if check else 0)


def _prompter(*, asks: bool) -> "Prompter":
    from dagster_airbyte_proto.connection.drafting.config_fields import NoPrompter

    return _Terminal() if asks else NoPrompter()


class _Terminal:
    """Asks on the terminal. An empty answer leaves the field to be filled in later."""

    def value(self, field: "Field") -> Any:
        click.echo("\n" + plain("\n".join(filter(None, (field.title, field.description)))), err=True)
        kind = field.types[0] if field.types else "string"

        def read(text: str) -> Any:
            return _read(text.strip(), kind, field.allowed) if text.strip() else None

        label = f"{field.path[-1]}" + (f" ({', '.join(map(str, field.allowed))})" if field.allowed else "")
        return click.prompt(plain(label), default="", show_default=False, value_proc=read, err=True)

    def choice(self, field: "Field", titles: Sequence[str]) -> int:
        click.echo("\n" + plain("\n".join(filter(None, (field.title, field.description)))), err=True)
        for number, title in enumerate(titles, start=1):
            click.echo(f"  {number}  {plain(title)}", err=True)
        label = plain(str(field.path[-1]))
        return int(click.prompt(label, default=1, type=click.IntRange(1, len(titles)), err=True)) - 1


def _read(text: str, kind: str, allowed: Sequence[Any]) -> Any:
    """Parses the typed text as that type. Raises click's BadParameter, on which click asks again."""
    value = _value(text, kind)
    if allowed and value not in allowed:
        raise click.BadParameter(f"must be one of {', '.join(map(str, allowed))}")
    return value


def _value(text: str, kind: str) -> Any:
    if kind == "string":
        return text
    if kind == "boolean":
        known = {"true": True, "yes": True, "y": True, "false": False, "no": False, "n": False}
        if text.lower() in known:
            return known[text.lower()]
        raise click.BadParameter("must be yes or no")
    if kind == "array" and not text.startswith("["):
        return [part.strip() for part in text.split(",")]
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    wanted = {"integer": int, "number": int | float, "array": list, "object": dict}.get(kind)
    if wanted is None or not isinstance(value, wanted) or isinstance(value, bool):
        words = {"integer": "a whole number", "number": "a number", "object": "a JSON object"}.get(kind, "JSON")
        raise click.BadParameter(f"must be {words}")
    return value
