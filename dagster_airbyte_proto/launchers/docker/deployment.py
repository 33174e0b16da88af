"""The settings of the deployment that a sync runs in, as far as they concern the containers it starts."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dagster_airbyte_proto.launchers.permissions import PROXY_VARIABLES


class ImageRegistry(NamedTuple):
    """The registry that images are pulled from, with a login."""

    url: str
    username: str
    password: str


class Deployment(NamedTuple):
    """The container settings of a deployment's runs, of which a connector gets a part.

    A connector is not trusted. It resolves names as the run does. It sees neither the run's secrets nor its networks,
    where databases trust whoever can reach them, nor its volumes, among which may be the socket of Docker itself.
    `kwargs` are arguments of docker-py's `containers.create`.
    """

    registry: ImageRegistry | None = None
    environment: Mapping[str, str] = {}
    kwargs: Mapping[str, Any] = {}

    def connector_environment(self) -> dict[str, str]:
        """The part of the environment that a connector gets: the proxy settings."""
        return {key: value for key, value in self.environment.items() if key.lower() in PROXY_VARIABLES}

    def connector_kwargs(self) -> dict[str, Any]:
        """The arguments that a connector's container gets: name resolution, cgroup parent and runtime."""
        return {key: value for key, value in self.kwargs.items() if key in _CONNECTOR_KWARGS}


_CONNECTOR_KWARGS: Final = frozenset({"cgroup_parent", "dns", "dns_opt", "dns_search", "extra_hosts", "runtime"})
