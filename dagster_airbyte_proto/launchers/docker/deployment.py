"""What the deployment that a sync runs in says of the containers that it starts."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple


class Registry(NamedTuple):
    """Where images are pulled from, and as whom."""

    url: str
    username: str
    password: str


class Deployment(NamedTuple):
    """Said once, for its runs; a connector beside them needs a part of it. `kwargs` are those of docker-py's
    `containers.create`.

    A connector is a stranger's program. It comes into the same networks and finds names as the run does, but sees
    nothing of the run's secrets and none of its volumes, among which Docker's own socket may be.
    """

    registry: Registry | None = None
    networks: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    kwargs: Mapping[str, Any] = {}

    def environment_of_connectors(self) -> dict[str, str]:
        """How the world is reached."""
        return {key: value for key, value in self.environment.items() if key.lower() in _PROXIES}

    def kwargs_of_connectors(self) -> dict[str, Any]:
        """How names are found, and where the container is accounted for."""
        return {key: value for key, value in self.kwargs.items() if key in _TAKEN_OVER}


def variables(written: Iterable[str]) -> dict[str, str]:
    """Those that are written as KEY=VALUE, or as KEY for what our own environment has. Where it has none they are left
    out, as Docker does."""
    pairs = (each.partition("=") for each in written)
    found = {key: value if equals else os.environ.get(key) for key, equals, value in pairs}
    return {key: value for key, value in found.items() if value is not None}


_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
_TAKEN_OVER: Final = frozenset({"cgroup_parent", "dns", "dns_opt", "dns_search", "extra_hosts", "runtime"})
