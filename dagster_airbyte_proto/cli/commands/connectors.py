"""`connectors`: what a connector registry lists, and how each of it is started. What takes long to import is imported
when a command runs; see call.py."""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dagster_airbyte_proto.cli.call import Call, answers
from dagster_airbyte_proto.cli.output import Answer, Grid, counted, plain
from dagster_airbyte_proto.cli.program import connectors
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from dagster_airbyte_proto.launchers.registry.listing import Listed, Registry

_FOUND = ("connector", "title", "version", "support", "starts as")

Function = TypeVar("Function", bound=Callable[..., Any])


def of_registry(function: Function) -> Function:
    """The option that names a registry."""
    option = click.option("--registry", metavar="FILE|URL", help="A registry file; default: the setting `registry`.")
    return option(function)


def opened_registry(call: Call, registry: str | None) -> "Registry":
    """The registry of the option or of the settings."""
    from dagster_airbyte_proto.launchers.registry.listing_file import open_registry

    settings = call.settings()
    place = registry or settings.registry
    if not place:
        raise ConfigError(
            "opening the connector registry",
            "none is set",
            remedy="Name the path or URL of one with --registry, or as `registry` in the settings.",
        )
    opened = open_registry(place, cache=settings.registry_folder, on_warning=_warn)
    if opened.unreadable:
        _warn(f"{counted(opened.unreadable, 'entry')} of the registry could not be read and is passed over")
    return opened


@answers(connectors, "search")
@click.argument("text", metavar="TEXT")
@of_registry
def search(call: Call, text: str, registry: str | None) -> Answer:
    """The connectors that have TEXT, each of its words, in their name or title."""
    opened = opened_registry(call, registry)
    found = opened.search(text)
    near = [] if found else opened.nearest(text)
    lines: tuple[str | Grid, ...] = (Grid(_FOUND, [_row(each) for each in found]),)
    if not found:
        lines = (f"no connector has {text!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""),)
    return Answer({"connectors": [_value(each) for each in found], "nearest": near}, lines)


@answers(connectors, "show")
@click.argument("name", metavar="NAME")
@of_registry
def show(call: Call, name: str, registry: str | None) -> Answer:
    """One connector: its image, its ways to start, its docs, what it needs and what it may reach."""
    listed = opened_registry(call, registry).named(name)
    rows = [(field, text) for field, text in _facts(listed) if text]
    return Answer(_value(listed), (Grid(("", listed.title), rows),))


def _warn(text: str) -> None:
    sys.stderr.write(f"WARN {plain(text)}\n")


def _row(listed: "Listed") -> tuple[str, ...]:
    return (listed.name, listed.title, listed.version, listed.support_level, listed.launches[0]["kind"])


def _value(listed: "Listed") -> dict[str, Any]:
    return {**listed._asdict(), "spec": listed.spec is not None}


def _facts(listed: "Listed") -> list[tuple[str, str]]:
    from dagster_airbyte_proto.connection.yaml_text import yaml_text

    return [
        ("name", listed.name),
        ("role", f"{listed.role}, retired: it is no longer offered" if listed.retired else listed.role),
        ("image", listed.image),
        ("released", listed.release_date),
        ("support", listed.support_level),
        ("language", " ".join(filter(None, (listed.language, listed.cdk_version and f"({listed.cdk_version})")))),
        *(("launch", yaml_text(launch)) for launch in listed.launches),
        ("docs", listed.documentation_url),
        ("allowed hosts", ", ".join(listed.allowed_hosts)),
        ("suggested streams", ", ".join(listed.suggested_streams)),
        *(("resources", text) for text in _resources(listed.resources)),
    ]


def _resources(resources: Mapping[str, Any]) -> list[str]:
    """A line for what every job gets, and one for each kind of job that gets something else."""
    jobs = resources.get("jobSpecific")
    specific = [each for each in jobs if isinstance(each, dict)] if isinstance(jobs, list) else []
    told = [
        ("", resources.get("default")),
        *((each.get("jobType"), each.get("resourceRequirements")) for each in specific),
    ]
    return [
        (f"{job}: " if job else "") + ", ".join(f"{name} {amount}" for name, amount in needs.items())
        for job, needs in told
        if isinstance(needs, dict) and needs
    ]
