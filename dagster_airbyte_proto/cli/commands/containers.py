"""`containers list` and `containers reap`. What takes long to import is imported when a command runs; see call.py."""

from typing import TYPE_CHECKING, Any

import click

from dagster_airbyte_proto.cli.call import Call, answers
from dagster_airbyte_proto.cli.output import Answer, Grid, counted, time_text
from dagster_airbyte_proto.cli.program import containers
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from dagster_airbyte_proto.launchers.docker.containers import Container
    from dagster_airbyte_proto.sync.connector.containers import Ownership

_LIST = ("container", "connection", "for", "image", "state", "since", "is", "owner")


@answers(containers, "list")
def list_containers(call: Call) -> Answer:
    """The containers of connectors that Docker's daemon has, also those that other machines started there."""
    found = _found(call)
    return Answer({"containers": [_value(each, owned) for each, owned in found]}, (_grid(found),))


@answers(containers, "reap")
@click.argument("names", nargs=-1, metavar="[NAME]...")
def reap(call: Call, names: tuple[str, ...]) -> Answer:
    """Removes the containers whose owner is no more, with their files; or those of these names, whoever owns them."""
    from dagster_airbyte_proto.launchers.docker.containers import remove
    from dagster_airbyte_proto.launchers.docker.daemon import open_daemon
    from dagster_airbyte_proto.sync.connector.containers import Ownership

    found = _found(call)
    if strange := set(names) - {each.name for each, _ in found}:
        raise ConfigError(
            "removing containers",
            f"no connector runs in {', '.join(sorted(strange))}",
            remedy="`airbyte-proto containers list` names those there are.",
        )
    meant = [(each, owned) for each, owned in found if each.name in names or (not names and owned is Ownership.ORPHAN)]
    daemon = open_daemon().api
    gone = [(each, owned) for each, owned in meant if remove(daemon, each.name)]
    said = f"{counted(len(gone), 'container')} removed"
    return Answer({"removed": [each.name for each, _ in gone]}, (_grid(gone), said) if gone else (said,))


def _found(call: Call) -> "list[tuple[Container, Ownership]]":
    from dagster_airbyte_proto.launchers.docker.containers import containers
    from dagster_airbyte_proto.launchers.docker.daemon import answers as answering
    from dagster_airbyte_proto.launchers.docker.daemon import open_daemon
    from dagster_airbyte_proto.sync.connector.containers import ownership

    with answering("looking at the containers of connectors", ""):
        found = containers(open_daemon().api)
    return [(each, ownership(each, call.store)) for each in found]


def _grid(found: "list[tuple[Container, Ownership]]") -> Grid:
    return Grid(_LIST, [_row(each, owned) for each, owned in found])


def _row(each: "Container", owned: "Ownership") -> tuple[Any, ...]:
    labels = each.labels
    told = (labels.get("connection", ""), labels.get("verb", ""), each.image, each.state, time_text(each.created_at))
    return (each.name, *told, owned.value, labels.get("owner", ""))


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
