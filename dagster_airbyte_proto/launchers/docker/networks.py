"""The network that connectors get when they are given none: they see the world, and not each other."""

from contextlib import suppress
from uuid import uuid4

import docker
from docker.errors import APIError

from dagster_airbyte_proto.launchers.docker.containers import LABEL

_ROLE = {LABEL: "network"}


def own_network(daemon: docker.APIClient) -> str:
    """Its name. It is made when it is first needed, and stays."""
    if not (found := _networks(daemon)):
        made = f"{LABEL}-{uuid4().hex[:12]}"  # A name of its own: of two networks of one name, Docker can use neither.
        daemon.create_network(made, labels=_ROLE, options={"com.docker.network.bridge.enable_icc": "false"})
        found = _networks(daemon)
        if found[0] != made:  # Others made theirs at the same moment.
            with suppress(APIError):
                daemon.remove_network(made)
    return found[0]


def _networks(daemon: docker.APIClient) -> list[str]:
    """The oldest first."""
    found = daemon.networks(filters={"label": [f"{key}={value}" for key, value in _ROLE.items()]})
    return [str(each["Name"]) for each in sorted(found, key=lambda each: (each["Created"], each["Name"]))]
