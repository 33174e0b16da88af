"""The program that a connector is, as far as a connection says: its protocol and program, without version and folder.

It tells one destination from another where a run goes on with what an earlier one has delivered. The config does not:
passwords and batch sizes change, and no spec says which of its fields name a place.

Names are kept in the state store. Those that earlier releases stored have to match still: they have the version of
Python, and no file for a component.
"""

import re

from dagster_airbyte_proto.connection.launch import Connector, DockerLaunch, LocalLaunch, NpmLaunch, PypiLaunch
from dagster_airbyte_proto.connection.rapidbyte.component_options import WasmLaunch
from dagster_airbyte_proto.loads.load import RELAY_ID_PREFIX

_PYTHON = re.compile(r"python[0-9.]+")
_PIN = re.compile(r"(?<=[\w\]])(?:[<>~!]=|[<>]).*")
_UNNAMED = "rapidbyte"
"""The name that earlier releases gave to every component."""


def relay_identity(connector: Connector) -> str:
    """The identity that a destination has in the place of a table."""
    return f"{RELAY_ID_PREFIX}{connector.protocol} {connector.launch.kind} {' '.join(_words(connector))}".strip()


def connector_program(connector: Connector) -> str:
    """The program for people. It is the same one from another folder, registry or kind of launch."""
    return " ".join([connector.protocol, *map(_name, _words(connector))])


def program_in(identity: str) -> str:
    """The program that a `relay_identity` names, for people."""
    protocol, _, words = f"{identity.removeprefix(RELAY_ID_PREFIX)}  ".split(" ", 2)
    return " ".join([protocol, *map(_name, words.split())])


def is_same_program(one: str, other: str) -> bool:
    """True if these are names of one program."""
    if _UNNAMED in (one, other):
        return one.partition(" ")[0] == other.partition(" ")[0]
    return [*map(_name, one.split())] == [*map(_name, other.split())]


def is_same_target(one: str, other: str) -> bool:
    """True if these are the identities of one table, or of one destination."""
    are_relays = one.startswith(RELAY_ID_PREFIX) and other.startswith(RELAY_ID_PREFIX)
    return is_same_program(program_in(one), program_in(other)) if are_relays else one == other


def _name(word: str) -> str:
    """A word of a command without its folder, and without a version that says nothing about what it is."""
    name = word.rpartition("/")[2]
    return "python" if _PYTHON.fullmatch(name) else _PIN.sub("", name)


def _words(connector: Connector) -> list[str]:
    launch = connector.launch
    if isinstance(launch, DockerLaunch):
        return [re.sub(r"(?<=[^/]):[^:/]+$|@.*$", "", launch.image)]
    if isinstance(launch, PypiLaunch):
        return [launch.package.partition("==")[0]]
    if isinstance(launch, NpmLaunch):
        return [launch.package.rpartition("@")[0]]
    if isinstance(launch, WasmLaunch):
        return [launch.path.name]
    return list(launch.command) if isinstance(launch, LocalLaunch) else []
