"""`connectors search` and `connectors show`. Slow modules are imported when a command runs; see call.py."""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.output import Answer, Grid, plain
from dagster_airbyte_proto.cli.program import connectors

if TYPE_CHECKING:
    from dagster_airbyte_proto.launchers.registry.connectors import ConnectorRegistry, RegistryEntry

_FOUND = ("connector", "title", "version", "support", "starts as")

Function = TypeVar("Function", bound=Callable[..., Any])


def registry_option(function: Function) -> Function:
    """Adds the option that names a registry."""
    option = click.option(
        "--registry", metavar="FILE|URL", help="A registry file; default: the setting `registry`, Airbyte's public one."
    )
    return option(function)


def opened_registry(call: Call, registry: str | None) -> "ConnectorRegistry":
    """Opens the registry of the option, or else of the settings."""
    from dagster_airbyte_proto.launchers.registry.download import open_registry

    settings = call.settings()
    opened = open_registry(registry or settings.registry, cache=settings.registry_folder, on_warning=_warn)
    if opened.unreadable:
        entries = "1 entry" if opened.unreadable == 1 else f"{opened.unreadable:,} entries"
        _warn(f"{entries} of the registry could not be read: skipped")
    return opened


@command_in(connectors, "search")
@click.argument("text", metavar="TEXT")
@registry_option
def search(call: Call, text: str, registry: str | None) -> Answer:
    """Finds connectors whose name or title has every word of TEXT."""
    opened = opened_registry(call, registry)
    found = opened.search(text)
    near = [] if found else opened.nearest(text)
    lines: tuple[str | Grid, ...] = (Grid(_FOUND, [_row(each) for each in found], texts=("title",)),)
    if not found:
        lines = (f"no connector matches {text!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""),)
    return Answer({"connectors": [_value(each) for each in found], "nearest": near}, lines)


@command_in(connectors, "show")
@click.argument("name", metavar="NAME")
@registry_option
def show(call: Call, name: str, registry: str | None) -> Answer:
    """Shows one connector: image, launch options, docs, resources and allowed hosts."""
    listed = opened_registry(call, registry).named(name)
    rows = [(field, text) for field, text in _facts(listed) if text]
    return Answer(_value(listed), (Grid(("", listed.title), rows, texts=(listed.title,)),))


def _warn(text: str) -> None:
    sys.stderr.write(f"WARN {plain(text)}\n")


def _row(listed: "RegistryEntry") -> tuple[str, ...]:
    return (listed.name, listed.title, listed.version, listed.support_level, listed.launches[0]["kind"])


def _value(listed: "RegistryEntry") -> dict[str, Any]:
    return {**listed._asdict(), "spec": listed.spec is not None}


def _facts(listed: "RegistryEntry") -> list[tuple[str, str]]:
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
    """A line for the default of all jobs, and one for each kind of job with other resources."""
    jobs = resources.get("jobSpecific")
    specific = [each for each in jobs if isinstance(each, dict)] if isinstance(jobs, list) else []
    requirements = [
        ("", resources.get("default")),
        *((each.get("jobType"), each.get("resourceRequirements")) for each in specific),
    ]
    return [
        (f"{job}: " if job else "") + ", ".join(f"{name} {amount}" for name, amount in needs.items())
        for job, needs in requirements
        if isinstance(needs, dict) and needs
    ]
