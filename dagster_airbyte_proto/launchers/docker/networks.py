"""The default network of connectors: they reach the world, but not each other."""

from contextlib import suppress
from uuid import uuid4

import docker
from docker.errors import APIError

from dagster_airbyte_proto.launchers.docker.containers import LABEL

_ROLE = {LABEL: "network"}


def ensure_own_network(daemon: docker.APIClient) -> str:
    """Returns the name of the network. It is created when first needed, and stays."""
    if not (found := _networks(daemon)):
        made = (
            f"{LABEL}-{uuid4().hex[:12]}"  # A random name: if two networks have the same name, Docker can use neither.
        )
        daemon.create_network(made, labels=_ROLE, options={"com.docker.network.bridge.enable_icc": "false"})
        found = _networks(daemon)
        if found[0] != made:  # Another process created one at the same moment: the oldest wins.
            with suppress(APIError):
                daemon.remove_network(made)
    return found[0]


def _networks(daemon: docker.APIClient) -> list[str]:
    """The names of our networks, the oldest first."""
    found = daemon.networks(filters={"label": [f"{key}={value}" for key, value in _ROLE.items()]})
    return [str(each["Name"]) for each in sorted(found, key=lambda each: (each["Created"], each["Name"]))]
