"""The networks of connectors that we make. Both are created when first needed, and stay.

- The default network: its connectors reach the world, but not each other.
- The link-local network: whoever joins it cannot reach 169.254.0.0/16, where clouds answer with the credentials of the
  machine. It has that range for itself, and a route to a network is preferred to the default route: what is sent there
  ends in a bridge where nobody is. The machine itself must not get such a route, so the bridge has no address of its
  own (`inhibit_ipv4`); `internal` and `enable_icc` keep connectors from each other. Rules of the firewall would be
  better, but only root on the daemon's machine can make them.
"""

import socket
from contextlib import suppress
from typing import Any
from uuid import uuid4

import docker
from docker.errors import APIError, NotFound
from docker.types import IPAMConfig, IPAMPool

from dagster_airbyte_proto.launchers.docker.containers import LABEL

_LINK_LOCAL = "169.254.0.0/16"
_OLDEST_API = (1, 40)  # Older daemons ignore `inhibit_ipv4`, and would take the range from their own machine.
_SEPARATE = {"com.docker.network.bridge.enable_icc": "false"}
_WITHOUT_ADDRESS = {"com.docker.network.bridge.inhibit_ipv4": "true"}


def ensure_own_network(daemon: docker.APIClient) -> str:
    """Returns the name of the default network."""
    return _ensure(daemon, "network", options=_SEPARATE)


def ensure_link_local_network(daemon: docker.APIClient) -> str | None:
    """Returns the name of the link-local network; None if this daemon cannot have one."""
    version = daemon.version()
    is_docker = any(each["Name"] == "Engine" for each in version.get("Components") or ())  # Podman is another
    if not is_docker or tuple(map(int, version["ApiVersion"].split("."))) < _OLDEST_API:
        return None
    ipam = IPAMConfig(pool_configs=[IPAMPool(subnet=_LINK_LOCAL)])
    try:
        return _ensure(daemon, "link-local", options=_SEPARATE | _WITHOUT_ADDRESS, internal=True, ipam=ipam)
    except APIError:  # somebody else's network has the range
        return None


def can_join_another(network: str) -> bool:
    """False for those that a container must be in alone."""
    return network not in ("none", "host") and not network.startswith("container:")


def gateway_of(daemon: docker.APIClient, network: str) -> str | None:
    """Returns the address that this machine has in a network; None if it has none there."""
    if not can_join_another(network):
        return None
    try:
        found = daemon.inspect_network(network)
    except NotFound:
        return None
    addresses = [each.get("Gateway") for each in found["IPAM"]["Config"] or ()]
    return next((str(each) for each in addresses if each and ":" not in each), None)


def is_own_address(address: str) -> bool:
    """True if we can listen there: the daemon is on this machine, and so is its bridge."""
    try:
        with socket.create_server((address, 0)):
            return True
    except OSError:
        return False


def _ensure(daemon: docker.APIClient, role: str, **options: Any) -> str:
    if not (found := _networks(daemon, role)):
        made = (
            f"{LABEL}-{uuid4().hex[:12]}"  # A random name: if two networks have the same name, Docker can use neither.
        )
        try:
            daemon.create_network(made, driver="bridge", labels={LABEL: role}, **options)
        except APIError:  # Another process created one at the same moment, with the same addresses.
            if not (found := _networks(daemon, role)):
                raise
            return found[0]
        found = _networks(daemon, role)
        if found[0] != made:  # Another process created one at the same moment: the oldest wins.
            with suppress(APIError):
                daemon.remove_network(made)
    return found[0]


def _networks(daemon: docker.APIClient, role: str) -> list[str]:
    """The names of our networks, the oldest first."""
    found = daemon.networks(filters={"label": [f"{LABEL}={role}"]})
    return [str(each["Name"]) for each in sorted(found, key=lambda each: (each["Created"], each["Name"]))]
