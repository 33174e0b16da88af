"""The connector containers of a Docker daemon, each with a volume of the same name that holds its files.

A daemon that is killed may leave a volume without its container, on creation or on removal. So both have one name, and
a volume without a container is listed and removed like a container.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import docker
import requests
from docker.errors import APIError, NotFound

from dagster_airbyte_proto.launchers.docker.daemon import UNREACHABLE

LABEL = "airbyte-proto"
"""The prefix of the labels of our containers, volumes and networks."""

VERB = "verb"
"""The label that names the request the connector was started for."""

_FILES_ONLY = "files only"
_CONNECTOR_FILTER = {"label": f"{LABEL}=connector"}


class Container(NamedTuple):
    """A connector container. `labels` are ours, without their prefix. `image` is empty if only its volume is left."""

    name: str
    image: str
    state: str
    created_at: datetime
    labels: Mapping[str, str]


def docker_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Our labels as the daemon stores them, with their prefix."""
    return {LABEL: "connector"} | {f"{LABEL}.{key}": value for key, value in labels.items()}


def connector_containers(daemon: docker.APIClient) -> list[Container]:
    """Lists the connector containers, running or not, the oldest first."""
    volumes = daemon.volumes(filters=_CONNECTOR_FILTER)["Volumes"] or ()
    running_or_stopped = {
        names[0].removeprefix("/"): each
        for each in daemon.containers(all=True, filters=_CONNECTOR_FILTER)
        if (names := each["Names"])  # One that is just being removed has lost its name.
    }
    found = [_container(name, each) for name, each in running_or_stopped.items()]
    found += [_leftover_files(each) for each in volumes if each["Name"] not in running_or_stopped]
    return sorted(found, key=lambda each: each.created_at)


def remove(daemon: docker.APIClient, name: str) -> bool:
    """Removes a container with its volume, running or not. Returns False if that could not be completed."""
    try:
        _remove_container(daemon, name)
        with suppress(NotFound):
            daemon.remove_volume(name)
    except UNREACHABLE:
        return False
    return True


def _remove_container(daemon: docker.APIClient, name: str) -> None:
    try:
        daemon.remove_container(name, v=True, force=True)
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != requests.codes.conflict:  # Conflict: its removal is already in progress.
            raise


def _container(name: str, found: Mapping[str, Any]) -> Container:
    created_at = datetime.fromtimestamp(found["Created"], UTC)
    return Container(name, found["Image"], found["State"], created_at, _own_labels(found["Labels"]))


def _leftover_files(volume: Mapping[str, Any]) -> Container:
    created_at = datetime.fromisoformat(volume["CreatedAt"])
    return Container(volume["Name"], "", _FILES_ONLY, created_at, _own_labels(volume["Labels"]))


def _own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix(f"{LABEL}."): value for key, value in labels.items()}
