"""`init`: a connection file from a connector's spec. What takes long to import is imported when it runs (call.py)."""

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dagster_airbyte_proto.cli.call import Call, answers
from dagster_airbyte_proto.cli.commands.ask import checked
from dagster_airbyte_proto.cli.commands.connectors import of_registry, opened_registry
from dagster_airbyte_proto.cli.output import Answer, plain
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from dagster_airbyte_proto.connection.drafting import Asker, Draft, Field
    from dagster_airbyte_proto.launchers.registry.listing import Listed

_OPTIONS = ("pypi", "command", "manifest", "image")
_TAP = re.compile(r"(?:^|[/._-])tap[_-]", re.IGNORECASE)


class _Chosen(NamedTuple):
    """How the connector starts: as the file is to say it, whose folder need not be there yet, and `here`. `listed` is
    what a registry knows of it."""

    launch: Mapping[str, Any]
    here: Mapping[str, Any]
    listed: "Listed | None" = None
    protocol: str = "airbyte"


@answers(program, "init")
@click.argument("name", metavar="NAME")
@of_registry
@click.option("--pypi", metavar="PACKAGE==VERSION", help="A package of the index, pinned.")
@click.option("--command", metavar="COMMAND", help="A program of this machine.")
@click.option("--manifest", metavar="FILE", help="A low-code manifest.")
@click.option("--image", metavar="IMAGE", help="An image.")
@click.option("--protocol", type=click.Choice(["airbyte", "singer"]), help="Default: singer if it is called tap-….")
@click.option("--file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Default: NAME.yaml.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--no-input", is_flag=True, help="Ask nothing, also on a terminal.")
@click.option("--no-check", is_flag=True, help="Leave out the check at the end.")
def init(
    call: Call, name: str, registry: str | None, protocol: str | None, file: Path | None, force: bool, no_input: bool,
    no_check: bool, **launched: str | None,
) -> Answer:  # fmt: skip
    """Writes a connection file, every field of its config with a comment, and checks it.

    NAME is a connector of the registry; where an option says what is started, it is the new connection's name.
    """
    name, connection = name.strip(), connection_name(name)
    path = file or Path(f"{connection}.yaml")
    call.connection = connection
    if path.exists() and not force:
        raise _in_the_way(path)
    options = {kind: launched[kind] for kind in _OPTIONS if launched[kind]}
    protocol = protocol or _protocol(name, options)
    if protocol == "singer" and not options.keys() - {"manifest"}:
        raise click.UsageError("A tap is named by --pypi, --command or --image: registries list Airbyte's connectors.")
    chosen = _chosen(call, name, path, registry, options)._replace(protocol=protocol)
    asker = _asker(asks=not no_input and sys.stdin is not None and sys.stdin.isatty())
    made = _drafted(call, connection, path, chosen, asker)
    _write(path, made.text, force=force)
    sys.stderr.write(f"wrote {path}\n")
    return _told(call, connection, path, chosen, made, wants_check=not no_check)


def connection_name(name: str) -> str:
    """What a connection to a connector of this name is called: `source-google-ads` and `tap-google-ads` make
    google_ads."""
    bare = re.sub("^(source-|tap[_-])", "", name.strip().lower().rpartition("/")[2].partition(":")[0])
    made = re.sub("[^a-z0-9_]+", "_", bare).strip("_")
    if not made:
        raise ConfigError("naming the connection", f"{name!r} has no letter or digit", remedy="Give another NAME.")
    return made


def _protocol(name: str, options: Mapping[str, Any]) -> str:
    """What the connector speaks, by its name: nearly all taps are called so, and nothing else is."""
    program: str = options.get("command", "").partition(" ")[0]
    called = (options.get("pypi") or options.get("image") or program) if options else name
    return "singer" if _TAP.search(called) else "airbyte"


def _chosen(call: Call, name: str, path: Path, registry: str | None, options: Mapping[str, Any]) -> _Chosen:
    if len(options) > 1:
        raise click.UsageError(f"{' and '.join(f'--{kind}' for kind in options)} exclude each other.")
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
    """A program's path starts at the folder of the file that it is written in."""
    if not words:
        raise click.UsageError("--command is empty.")
    if "/" not in words[0] or words[0].startswith(("/", "~")):
        return words
    relative = os.path.relpath(words[0], path.parent)
    return [relative if "/" in relative else f"./{relative}", *words[1:]]


def _launch_of(listed: "Listed") -> Mapping[str, Any]:
    if listed.role != "source":
        raise ConfigError(
            f"writing a connection to {listed.name}", "it is a destination", remedy="Connections read from sources."
        )
    launch = listed.launches[0]
    if launch["kind"] == "manifest":
        raise ConfigError(
            f"writing a connection to {listed.name}",
            "it is a low-code manifest, which the registry does not hold",
            remedy=f"Get its manifest.yaml ({listed.documentation_url}) and name it with --manifest.",
        )
    return launch


def _drafted(call: Call, connection: str, path: Path, chosen: _Chosen, asker: "Asker") -> "Draft":
    from dagster_airbyte_proto.connection.drafting import Heading, draft

    listed = chosen.listed
    connector = {"protocol": chosen.protocol, "launch": chosen.here}
    spec = listed.spec if listed and listed.spec else _asked_spec(call, connection, connector)
    title = listed.title if listed else spec.get("connectionSpecification", {}).get("title") or connection
    docs = spec.get("documentationUrl") or (listed.documentation_url if listed else "")
    heading = Heading(
        connection,
        None if path.stem == connection else connection,
        {**connector, "launch": chosen.launch},
        plain(str(title)) + (f": {plain(str(docs))}" if docs else ""),
        listed.suggested_streams if listed else (),
    )
    return draft(heading, spec["connectionSpecification"], asker)


def _asked_spec(call: Call, connection: str, connector: Mapping[str, Any]) -> Mapping[str, Any]:
    """The connector's own answer."""
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.sync.connector.open_source import opened_source

    document = {"name": connection, "connector": connector, "config": {}}
    unwritten = Connection.model_validate(document, context={"folder": Path()})
    with call.engine() as engine, opened_source(engine, unwritten, on_line=_note) as source:
        return {"connectionSpecification": {}, **source.spec(anew=True).message}


def _note(level: str, text: str) -> None:
    if level in ("NOTE", "WARN", "ERROR", "FATAL"):
        sys.stderr.write(f"{level} {plain(text)}\n")


def _write(path: Path, text: str, *, force: bool) -> None:
    from dagster_airbyte_proto.whole_files import write_whole

    try:
        write_whole(path, text.encode("utf-8", "replace"), over=force)
    except FileExistsError:
        raise _in_the_way(path) from None
    except OSError as error:
        raise ConfigError(
            f"writing {path}", error.strerror or str(error), remedy="Name another with --file."
        ) from error


def _in_the_way(path: Path) -> ConfigError:
    return ConfigError(f"writing {path}", "there is one", remedy="Name another with --file, or write over it: --force.")


def _told(call: Call, connection: str, path: Path, chosen: _Chosen, made: "Draft", *, wants_check: bool) -> Answer:
    unset = [name for name in made.variables if name not in os.environ]
    lines = [
        *([f"to fill in: {', '.join(made.to_fill_in)}"] if made.to_fill_in else []),
        *([f"to set in the environment: {', '.join(unset)}"] if unset else []),
    ]
    check = None
    if not lines and wants_check:
        check = checked(call, str(path))
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


def _asker(*, asks: bool) -> "Asker":
    from dagster_airbyte_proto.connection.drafting import AskNobody

    return _Terminal() if asks else AskNobody()


class _Terminal:
    """Asks on the terminal; an empty answer leaves a field to be filled in."""

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
    """What was typed, as a value of that type. Raises click's error, which asks again."""
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
