"""The program that a destination is, as far as a connection says: its protocol and program, without the version.

It tells one destination from another where a run goes on with what an earlier one has delivered. The config does not:
passwords and batch sizes change, and no spec says which of its fields name a place.
"""

import re

from dagster_airbyte_proto.connection.launch import Connector, DockerLaunch, LocalLaunch, NpmLaunch, PypiLaunch
from dagster_airbyte_proto.loads.load import RELAY_ID_PREFIX


def relay_identity(connector: Connector) -> str:
    """The identity that a destination has in the place of a table."""
    return f"{RELAY_ID_PREFIX}{connector.protocol} {connector.launch.kind} {' '.join(_words(connector))}".strip()


def destination_program(connector: Connector) -> str:
    """The program for people. It is the same one from another folder, registry or kind of launch."""
    return " ".join([connector.protocol, *(word.rpartition("/")[2] for word in _words(connector))])


def _words(connector: Connector) -> list[str]:
    launch = connector.launch
    if isinstance(launch, DockerLaunch):
        return [re.sub(r"(?<=[^/]):[^:/]+$|@.*$", "", launch.image)]
    if isinstance(launch, PypiLaunch):
        return [launch.package.partition("==")[0]]
    if isinstance(launch, NpmLaunch):
        return [launch.package.rpartition("@")[0]]
    return list(launch.command) if isinstance(launch, LocalLaunch) else []
