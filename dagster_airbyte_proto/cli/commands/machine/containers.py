"""`containers list` and `containers reap`. Slow modules are imported when a command runs; see call.py."""

from typing import TYPE_CHECKING, Any

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.output import Answer, Grid, time_text
from dagster_airbyte_proto.cli.program import containers
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.plurals import counted

if TYPE_CHECKING:
    from dagster_airbyte_proto.launchers.docker.containers import Container
    from dagster_airbyte_proto.sync.connector.container_owners import Ownership

_LIST = ("container", "connection", "for", "image", "state", "since", "is", "owner")


@command_in(containers, "list")
def list_containers(call: Call) -> Answer:
    """Lists the containers of connectors on the Docker daemon, also those that other machines started."""
    found = _owned_containers(call)
    return Answer(
        {"containers": [_value(each, owned) for each, owned in found]},
        (_grid(found) if found else "no connector is in a container",),
    )


@command_in(containers, "reap")
@click.argument("names", nargs=-1, metavar="[NAME]...")
def reap(call: Call, names: tuple[str, ...]) -> Answer:
    """Removes containers whose owner has ended, with their files; or the named ones, whoever owns them."""
    from dagster_airbyte_proto.launchers.docker.containers import remove
    from dagster_airbyte_proto.launchers.docker.daemon import open_daemon
    from dagster_airbyte_proto.sync.connector.container_owners import Ownership

    found = _owned_containers(call)
    if unknown := set(names) - {each.name for each, _ in found}:
        raise ConfigError(
            "removing containers",
            f"no container of a connector is called {', '.join(sorted(unknown))}",
            remedy="`airbyte-proto containers list` shows them.",
        )
    chosen = [(each, owned) for each, owned in found if each.name in names or (not names and owned is Ownership.ORPHAN)]
    daemon = open_daemon().api
    removed: list[tuple[Container, Ownership]] = []
    left: list[str] = []
    for each, owned in chosen:
        if remove(daemon, each.name):
            removed.append((each, owned))
        else:
            left.append(each.name)
    lines = [f"{counted(len(removed), 'container')} removed"]
    lines += [f"error: {name} is still there: Docker's daemon did not remove it, and its log says why" for name in left]
    value = {"removed": [each.name for each, _ in removed], "not_removed": left}
    return Answer(value, (*([_grid(removed)] if removed else []), *lines), 1 if left else 0)


def _owned_containers(call: Call) -> "list[tuple[Container, Ownership]]":
    from dagster_airbyte_proto.launchers.docker.containers import connector_containers
    from dagster_airbyte_proto.launchers.docker.daemon import docker_errors as answering
    from dagster_airbyte_proto.launchers.docker.daemon import open_daemon
    from dagster_airbyte_proto.sync.connector.container_owners import ownership

    with answering("listing the containers of connectors", ""):
        found = connector_containers(open_daemon().api)
    return [(each, ownership(each, call.store)) for each in found]


def _grid(found: "list[tuple[Container, Ownership]]") -> Grid:
    return Grid(_LIST, [_row(each, owned) for each, owned in found])


def _row(each: "Container", owned: "Ownership") -> tuple[Any, ...]:
    labels = each.labels
    texts = (labels.get("connection", ""), labels.get("verb", ""), each.image, each.state, time_text(each.created_at))
    return (each.name, *texts, owned.value, labels.get("owner", ""))


def _value(each: "Container", owned: "Ownership") -> dict[str, Any]:
    return {
        "name": each.name,
        "connection": each.labels.get("connection"),
        "run": each.labels.get("run"),
        "verb": each.labels.get("verb"),
        "image": each.image,
        "state": each.state,
        "created_at": each.created_at.isoformat(),
        "ownership": owned.value,
        "owner": each.labels.get("owner"),
    }
