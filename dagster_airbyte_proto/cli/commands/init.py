"""`init`: a connection file from a connector's spec. Slow modules are imported when it runs; see call.py."""

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.commands.connectors import opened_registry, registry_option
from dagster_airbyte_proto.cli.commands.spec_check_discover import check_connection
from dagster_airbyte_proto.cli.output import Answer, plain
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from dagster_airbyte_proto.connection.drafting import Draft, Field, Prompter
    from dagster_airbyte_proto.launchers.registry.connectors import RegistryEntry

_OPTIONS = ("pypi", "command", "manifest", "image")
_TAP = re.compile(r"(?:^|[/._-])tap[_-]", re.IGNORECASE)


class _Chosen(NamedTuple):
    """The connector's launch settings, with paths relative to the new file's folder (`launch`) and to the working
    directory (`here`): the new folder may not exist yet. `listed` is the connector's registry entry."""

    launch: Mapping[str, Any]
    here: Mapping[str, Any]
    listed: "RegistryEntry | None" = None
    protocol: str = "airbyte"


@command_in(program, "init")
@click.argument("name", metavar="NAME")
@registry_option
@click.option("--pypi", metavar="PACKAGE==VERSION", help="A pinned package of the index.")
@click.option("--command", metavar="COMMAND", help="A program on this machine.")
@click.option("--manifest", metavar="FILE", help="A low-code manifest file.")
@click.option("--image", metavar="IMAGE", help="A Docker image.")
@click.option("--protocol", type=click.Choice(["airbyte", "singer"]), help="Default: singer if the name is like tap-….")
@click.option("--file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Default: NAME.yaml.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--no-input", is_flag=True, help="Ask no questions, even on a terminal.")
@click.option("--no-check", is_flag=True, help="Skip the check at the end.")
def init(
    call: Call, name: str, registry: str | None, protocol: str | None, file: Path | None, force: bool, no_input: bool,
    no_check: bool, **launched: str | None,
) -> Answer:  # fmt: skip
    """Writes a connection file, with a comment for every field of its config, and checks it.

    NAME is a connector of the registry. If an option names the connector, NAME is the name of the new connection.
    """
    name, connection = name.strip(), connection_name(name)
    path = file or Path(f"{connection}.yaml")
    call.connection = connection
    if path.exists() and not force:
        raise _file_exists(path)
    options = {kind: launched[kind] for kind in _OPTIONS if launched[kind]}
    protocol = protocol or _protocol(name, options)
    if protocol == "singer" and not options.keys() - {"manifest"}:
        raise click.UsageError(
            "Name a tap with --pypi, --command or --image: registries list only Airbyte's connectors."
        )
    chosen = _chosen(call, name, path, registry, options)._replace(protocol=protocol)
    asker = _asker(asks=not no_input and sys.stdin is not None and sys.stdin.isatty())
    made = _draft(call, connection, path, chosen, asker)
    _write(path, made.text, force=force)
    sys.stderr.write(f"wrote {path}\n")
    return _answer(call, connection, path, chosen, made, wants_check=not no_check)


def connection_name(name: str) -> str:
    """The name of a connection to this connector: google_ads for `source-google-ads` and `tap-google-ads`."""
    bare = re.sub("^(source-|tap[_-])", "", name.strip().lower().rpartition("/")[2].partition(":")[0])
    made = re.sub("[^a-z0-9_]+", "_", bare).strip("_")
    if not made:
        raise ConfigError("naming the connection", f"{name!r} has no letter or digit", remedy="Give another NAME.")
    return made


def _protocol(name: str, options: Mapping[str, Any]) -> str:
    """Guesses the protocol from the connector's name: nearly all taps are called tap-…, and nothing else is."""
    program: str = options.get("command", "").partition(" ")[0]
    connector = (options.get("pypi") or options.get("image") or program) if options else name
    return "singer" if _TAP.search(connector) else "airbyte"


def _chosen(call: Call, name: str, path: Path, registry: str | None, options: Mapping[str, Any]) -> _Chosen:
    if len(options) > 1:
        raise click.UsageError(f"{' and '.join(f'--{kind}' for kind in options)} cannot be combined.")
    if not options:
        listed = opened_registry(call, registry).named(name)
        launch = _launch_of(listed)
        return _Chosen(launch, launch, listed)
    [(kind, value)] = options.items()
    here: dict[str, Any] = {"kind": kind, "package": value}
    if kind == "manifest":
        here = {"kind": "manifest", "path": value}
        return _Chosen({**here, "path": os.path.relpath(value, path.parent)}, here)
    if kind == "command":
        words = shlex.split(value)
        here = {"kind": "local", "command": words}
        return _Chosen({**here, "command": _command(words, path)}, here)
    if kind == "image":
        here = {"kind": "docker", "image": value}
    return _Chosen(here, here)


def _command(words: list[str], path: Path) -> list[str]:
    """The command with the program's path relative to the folder of the connection file."""
    if not words:
        raise click.UsageError("--command is empty.")
    if "/" not in words[0] or words[0].startswith(("/", "~")):
        return words
    relative = os.path.relpath(words[0], path.parent)
    return [relative if "/" in relative else f"./{relative}", *words[1:]]


def _launch_of(listed: "RegistryEntry") -> Mapping[str, Any]:
    if listed.role != "source":
        raise ConfigError(
            f"writing a connection to {listed.name}", "it is a destination", remedy="Connections read from sources."
        )
    launch = listed.launches[0]
    if launch["kind"] == "manifest":
        raise ConfigError(
            f"writing a connection to {listed.name}",
            "it is a low-code manifest, which the registry does not contain",
            remedy=f"Get its manifest.yaml ({listed.documentation_url}) and name it with --manifest.",
        )
    return launch


def _draft(call: Call, connection: str, path: Path, chosen: _Chosen, asker: "Prompter") -> "Draft":
    from dagster_airbyte_proto.connection.drafting import FileHeader, draft

    listed = chosen.listed
    connector = {"protocol": chosen.protocol, "launch": chosen.here}
    spec = listed.spec if listed and listed.spec else _fetch_spec(call, connection, connector)
    title = listed.title if listed else spec.get("connectionSpecification", {}).get("title") or connection
    docs = spec.get("documentationUrl") or (listed.documentation_url if listed else "")
    heading = FileHeader(
        connection,
        None if path.stem == connection else connection,
        {**connector, "launch": chosen.launch},
        plain(str(title)) + (f": {plain(str(docs))}" if docs else ""),
        listed.suggested_streams if listed else (),
    )
    return draft(heading, spec["connectionSpecification"], asker)


def _fetch_spec(call: Call, connection: str, connector: Mapping[str, Any]) -> Mapping[str, Any]:
    """Asks the connector itself for its spec."""
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.sync.connector.opened_source import opened_source

    document = {"name": connection, "connector": connector, "config": {}}
    unwritten = Connection.model_validate(document, context={"folder": Path()})
    with call.engine() as engine, opened_source(engine, unwritten, on_line=_show_log_line) as source:
        return {"connectionSpecification": {}, **source.spec(fresh=True).message}


def _show_log_line(level: str, text: str) -> None:
    if level in ("NOTE", "WARN", "ERROR", "FATAL"):
        sys.stderr.write(f"{level} {plain(text)}\n")


def _write(path: Path, text: str, *, force: bool) -> None:
    from dagster_airbyte_proto.atomic_files import write_atomically

    try:
        write_atomically(path, text.encode("utf-8", "replace"), overwrite=force)
    except FileExistsError:
        raise _file_exists(path) from None
    except OSError as error:
        raise ConfigError(
            f"writing {path}", error.strerror or str(error), remedy="Name another with --file."
        ) from error


def _file_exists(path: Path) -> ConfigError:
    return ConfigError(
        f"writing {path}", "the file exists", remedy="Name another with --file, or overwrite it with --force."
    )


def _answer(call: Call, connection: str, path: Path, chosen: _Chosen, made: "Draft", *, wants_check: bool) -> Answer:
    unset = [name for name in made.variables if name not in os.environ]
    lines = [
        *([f"to fill in: {', '.join(made.to_fill_in)}"] if made.to_fill_in else []),
        *([f"to set in the environment: {', '.join(unset)}"] if unset else []),
    ]
    check = None
    if not lines and wants_check:
        check = check_connection(call, str(path))
        lines += [str(part) for part in check.parts]
    elif wants_check:
        lines.append(f"then: airbyte-proto check {shlex.quote(str(path))}")
    value = {
        "connection": connection,
        "file": str(path),
        "launch": dict(chosen.launch),
        "to_fill_in": list(made.to_fill_in),
        "variables": list(made.variables),
        "check": check and {key: check.value[key] for key in ("status", "message")},
    }
    return Answer(value, tuple(lines), check.exit_code if check else 0)


def _asker(*, asks: bool) -> "Prompter":
    from dagster_airbyte_proto.connection.drafting import NoPrompter

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
