"""The containers of connectors that a daemon has, each with a volume of the same name, which holds its files.

A daemon that is killed may have removed the container and not the volume, or have made the volume alone. So both go by
that name, and a volume without a container is found, and removed, as one with it is.
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
"""What the labels of our containers, volumes and networks begin with."""

VERB = "verb"
"""The label that says what the connector was started for."""

_FILES_ALONE = "files only"
_WANTED = {"label": f"{LABEL}=connector"}


class Container(NamedTuple):
    """`labels` are ours, by their names behind the prefix. Without an `image` it is what is left of one: its files."""

    name: str
    image: str
    state: str
    created_at: datetime
    labels: Mapping[str, str]


def labelled(labels: Mapping[str, str]) -> dict[str, str]:
    """Our labels as the daemon has them."""
    return {LABEL: "connector"} | {f"{LABEL}.{key}": value for key, value in labels.items()}


def containers(daemon: docker.APIClient) -> list[Container]:
    """Those of connectors, whether they run or not; the oldest first."""
    volumes = daemon.volumes(filters=_WANTED)["Volumes"] or ()
    whole = {each["Names"][0].removeprefix("/"): each for each in daemon.containers(all=True, filters=_WANTED)}
    found = [_whole(name, each) for name, each in whole.items()]
    found += [_files_alone(each) for each in volumes if each["Name"] not in whole]
    return sorted(found, key=lambda each: each.created_at)


def remove(daemon: docker.APIClient, name: str) -> bool:
    """A container with its files, whether it runs or not. False where that did not come to its end."""
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
        if error.status_code != requests.codes.conflict:  # Its removal is on its way.
            raise


def _whole(name: str, found: Mapping[str, Any]) -> Container:
    created_at = datetime.fromtimestamp(found["Created"], UTC)
    return Container(name, found["Image"], found["State"], created_at, _ours(found["Labels"]))


def _files_alone(volume: Mapping[str, Any]) -> Container:
    created_at = datetime.fromisoformat(volume["CreatedAt"])
    return Container(volume["Name"], "", _FILES_ALONE, created_at, _ours(volume["Labels"]))


def _ours(labels: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix(f"{LABEL}."): value for key, value in labels.items()}
