"""`envs list` and `envs prune`. Slow modules are imported when a command runs; see call.py."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.output import Answer, Grid, time_text
from dagster_airbyte_proto.cli.program import envs
from dagster_airbyte_proto.cli.progress import size_text
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.plurals import counted

if TYPE_CHECKING:
    from dagster_airbyte_proto.launchers.packages.installed import InstalledEnvironment
    from dagster_airbyte_proto.launchers.wasm.compiled_components import KeptComponent

_LIST = ("environment", "package", "runs on", "size", "last use", "connections", "now")


@command_in(envs, "list")
def list_environments(call: Call) -> Answer:
    """Lists the installed packages of connectors: their size, their last use, and the connections that use them."""
    from dagster_airbyte_proto.launchers.packages.installed import is_in_use
    from dagster_airbyte_proto.launchers.wasm.compiled_components import kept_components

    rows = [(each, each.size_bytes(), is_in_use(each)) for each in _installed(call)]
    total = f"{counted(len(rows), 'environment')}, {size_text(sum(size for _, size, _ in rows))}"
    components = kept_components(call.settings().environments_folder)
    value = {
        "environments": [{**_value(each, size), "in_use": in_use} for each, size, in_use in rows],
        "size_bytes": sum(size for _, size, _ in rows),
        "components": _components_value(components),
    }
    return Answer(
        value, (*([environments_table(rows)] if rows else []), total, *_components_line(components, "compiled"))
    )


@command_in(envs, "prune")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--unused-days",
    default=30,
    show_default=True,
    type=click.IntRange(min=0, max=36_500),
    help="Remove those that were not used for this many days.",
)
@click.option("--all", "takes_all", is_flag=True, help="Also those that were used just now.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
def prune(call: Call, names: tuple[str, ...], unused_days: int, takes_all: bool, dry_run: bool) -> Answer:
    """Removes packages of connectors that were not used for a while, or the named ones; never one in use.

    The next sync that needs a package installs it again, with the same versions. NAME is a package or an environment.
    Without a name, compiled components that were not used go as well.
    """
    from dagster_airbyte_proto.launchers.packages.installed import is_in_use, remove_environment
    from dagster_airbyte_proto.launchers.wasm.compiled_components import remove_component, unused_components

    before = datetime.now(UTC) - timedelta(days=0 if takes_all else unused_days)
    chosen = (
        _environments_named(_installed(call), names)
        if names
        else [each for each in _installed(call) if each.used_at <= before]
    )
    removed: list[tuple[InstalledEnvironment, int, bool]] = []
    in_use: list[tuple[InstalledEnvironment, int, bool]] = []
    for each in chosen:
        size = each.size_bytes()
        is_removed = not is_in_use(each) if dry_run else remove_environment(each)
        (removed if is_removed else in_use).append((each, size, not is_removed))
    components = [] if names else unused_components(call.settings().environments_folder, before)
    for component in components if not dry_run else ():
        remove_component(component)
    freed = sum(size for _, size, _ in removed)
    word = "would be removed" if dry_run else "removed"
    lines = [f"{counted(len(removed), 'environment')} {word}, {size_text(freed)}"]
    lines += [f"{each.name} is in use, and stays" for each, _, _ in in_use]
    lines += _components_line(components, word)
    value = {
        "components": _components_value(components),
        "removed": [_value(each, size) for each, size, _ in removed],
        "in_use": [each.name for each, _, _ in in_use],
        "size_bytes": freed,
        "dry_run": dry_run,
    }
    return Answer(value, (*([environments_table(removed)] if removed else []), *lines))


def _components_value(components: "Sequence[KeptComponent]") -> dict[str, int]:
    return {"count": len(components), "size_bytes": sum(each.size_bytes for each in components)}


def _components_line(components: "Sequence[KeptComponent]", word: str) -> list[str]:
    size = size_text(sum(each.size_bytes for each in components))
    return [f"{counted(len(components), 'component')} {word}, {size}"] if components else []


def _installed(call: Call) -> "list[InstalledEnvironment]":
    from dagster_airbyte_proto.launchers.packages.installed import installed_environments

    return installed_environments(call.settings().environments_folder)


def _environments_named(
    installed: "Sequence[InstalledEnvironment]", names: Sequence[str]
) -> "list[InstalledEnvironment]":
    found = {name: [each for each in installed if name in _names(each)] for name in names}
    if unknown := [name for name, environments in found.items() if not environments]:
        raise ConfigError(
            "removing environments",
            f"no environment or package is called {', '.join(unknown)}",
            remedy="`airbyte-proto envs list` shows them.",
        )
    return [each for each in installed if any(each in environments for environments in found.values())]


def _names(environment: "InstalledEnvironment") -> tuple[str, ...]:
    return environment.name, environment.package, environment.package_name


def environments_table(rows: "Sequence[tuple[InstalledEnvironment, int, bool]]") -> Grid:
    """The table for people: each environment with its size in bytes, and whether it is in use."""
    return Grid(
        _LIST,
        [
            (
                each.name,
                each.package or "(an installation that was cut off)",
                each.interpreter,
                size_text(size),
                time_text(each.used_at),
                ", ".join(each.users),
                "in use" if in_use else "",
            )
            for each, size, in_use in rows
        ],
    )


def _value(environment: "InstalledEnvironment", size_bytes: int) -> dict[str, Any]:
    return {
        "name": environment.name,
        "package": environment.package or None,
        "python": environment.python or None,
        "node": environment.node or None,
        "size_bytes": size_bytes,
        "used_at": environment.used_at.isoformat(timespec="seconds"),
        "connections": list(environment.users),
        "folder": str(environment.folder),
    }
