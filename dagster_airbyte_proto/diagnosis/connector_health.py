"""Health checks of what starts connectors: Docker, bubblewrap, Node, uv, Python's interpreters, installed packages, and
our own extras.

Not everybody needs each of these. What is absent is a warning that says who needs it, and fails if a connection that
was named does.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from typing import NamedTuple

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.launch import Connector
from dagster_airbyte_proto.connection.references import schemes
from dagster_airbyte_proto.diagnosis.health_check import Finding, HealthCheck, Verdict, ok
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.settings import Settings

_DOCKER, _BUBBLEWRAP, _NODE, _UV, _PYTHONS, _PACKAGES = "Docker", "bubblewrap", "Node", "uv", "Pythons", "packages"
_EXTRAS = "extras"
MODULES = {
    "aws": "boto3",
    "cluster": "cryptography",
    "connect": "grpc_status",
    "otel": "opentelemetry",
    "postgres": "psycopg",
    "rapidbyte": "wasmtime",
    "row-schemas": "jsonschema_rs",
    "syncmaven": "jsonschema_rs",
    "transforms": "datafusion",
    "vault": "hvac",
}
"""The module by which an extra is known to be installed."""
_DOCKER_SECONDS = 10
_PROGRAM_SECONDS = 10.0
_MINORS = ("3.10", "3.11", "3.12", "3.13", "3.14")


class Needs(NamedTuple):
    """The parts that the named connections, as the settings run them, cannot do without."""

    docker: bool = False
    sandbox: bool = False
    node: bool = False
    extras: tuple[str, ...] = ()

    @classmethod
    def of(cls, connections: Sequence[Connection], *, is_on_executors: bool, is_remote: bool) -> "Needs":
        connectors = [each for connection in connections for each in connectors_of(connection)]
        kinds = {each.launch.kind for each in connectors}
        secrets = {scheme for connection in connections for scheme in _schemes(connection)}
        needed = {
            "aws": "aws-sm" in secrets,
            "cluster": is_on_executors,
            "connect": is_remote,
            "rapidbyte": "wasm" in kinds,
            "syncmaven": any(each.protocol == "syncmaven" for each in connectors),
            "transforms": any(each.sql is not None for connection in connections for each in connection.transforms),
            "vault": "vault" in secrets,
        }
        is_sandboxed = any(connection.sandbox for connection in connections)
        return cls("docker" in kinds, is_sandboxed, "npm" in kinds, tuple(name for name in needed if needed[name]))


def connectors_of(connection: Connection) -> Iterator[Connector]:
    """All that a run starts: the connector, the destination of a relay, and enrichments."""
    yield connection.connector
    if connection.to is not None:
        yield connection.to.connector
    yield from (each.connector for each in connection.transforms if each.connector is not None)


def _schemes(connection: Connection) -> set[str]:
    """The kinds of secrets that a connection refers to. Its check says it where a config file cannot be read."""
    found = schemes(connection.hash_key)
    for each in (connection, connection.relay_destination, *connection.enrichments.values()):
        with suppress(ConfigError):
            found |= schemes(each.written_config()) if each is not None else set()
    return found


def connector_checks(settings: Settings, needs: Needs) -> Sequence[HealthCheck]:
    daemon = "Restart the Docker daemon: it takes calls and does not answer them."
    return [
        HealthCheck(_DOCKER, lambda: _docker(needs), seconds=2.0 * _DOCKER_SECONDS, late=daemon),
        HealthCheck(_BUBBLEWRAP, lambda: _bubblewrap(needs), seconds=30.0, late="Reinstall bubblewrap."),
        HealthCheck(_NODE, lambda: _node(needs), late="Reinstall Node."),
        HealthCheck(_UV, _uv, late="Reinstall uv."),
        HealthCheck(_PYTHONS, _pythons, seconds=60.0, late="Reinstall the Python that does not answer."),
        HealthCheck(
            _PACKAGES, lambda: _packages(settings), seconds=60.0, late="Move the home folder to a faster disk."
        ),
        HealthCheck(_EXTRAS, lambda: _extras(needs)),
    ]


def _absent(part: str, found: str, remedy: str, *, users: str, is_needed: bool) -> Finding:
    if is_needed:
        return Finding(part, Verdict.FAILS, found, remedy)
    return Finding(part, Verdict.WARNING, f"{found} (only {users} need it)", remedy)


def _docker(needs: Needs) -> Sequence[Finding]:
    # Docker's client takes a while to import.
    from dagster_airbyte_proto.launchers.docker.daemon import UNREACHABLE, open_daemon, root_cause

    place = os.environ.get("DOCKER_HOST") or "this machine"
    remedy = "Start its daemon, let this user use it, or set DOCKER_HOST to where it is."
    users = "connections with `launch: {kind: docker}`"
    try:
        version = open_daemon(_DOCKER_SECONDS).version()
    except ConfigError as error:
        found = f"no daemon on {place}: {error.found}"
        return [_absent(_DOCKER, found, remedy, users=users, is_needed=needs.docker)]
    except UNREACHABLE as error:
        found = f"the daemon on {place} does not answer: {root_cause(error)}"
        return [_absent(_DOCKER, found, remedy, users=users, is_needed=needs.docker)]
    return [ok(_DOCKER, f"{version.get('Version', 'a daemon')} on {place}")]


def _bubblewrap(needs: Needs) -> Sequence[Finding]:
    from dagster_airbyte_proto.launchers.local.sandbox import find_bubblewrap

    try:
        found = find_bubblewrap()
    except ConfigError as error:
        users = "connections with `sandbox: true`"
        return [_absent(_BUBBLEWRAP, error.found, error.remedy, users=users, is_needed=needs.sandbox)]
    return [ok(_BUBBLEWRAP, f"{_version(found)} makes sandboxes here")]


def _node(needs: Needs) -> Sequence[Finding]:
    from dagster_airbyte_proto.launchers.packages.npm.node import node_program

    node, npm = node_program(), shutil.which("npm")
    if node is None or npm is None:
        missing = [name for name, program in (("node", node), ("npm", npm)) if program is None]
        found = f"no {' and no '.join(missing)} on the PATH"
        users = "connections with `launch: {kind: npm}`, and local connectors that are written in JavaScript"
        return [_absent(_NODE, found, "Install Node with npm.", users=users, is_needed=needs.node)]
    return [ok(_NODE, f"{_version(node)}, npm {_version(npm)}")]


def _uv() -> Sequence[Finding]:
    from dagster_airbyte_proto.launchers.packages.interpreters import find_uv

    found = find_uv()
    if found is None:
        return [Finding(_UV, Verdict.WARNING, "not installed: pip installs connectors, slower", "pip install uv")]
    return [ok(_UV, f"{_version(found)} installs connectors ({found})")]


def _pythons() -> Sequence[Finding]:
    """The interpreters that connections can name: a connector may not run on ours."""
    own = ".".join(platform.python_version_tuple()[:2])
    # At once: a shim of pyenv takes a second to say what it is.
    with ThreadPoolExecutor(len(_MINORS)) as threads:
        others = [found for found in threads.map(_found_version, [each for each in _MINORS if each != own]) if found]
    named = f"beside ours {', '.join(others)}" if others else "only ours; `uv python install` brings others"
    return [ok(_PYTHONS, f"for packages: {platform.python_version()}, {named}")]


def _found_version(minor: str) -> str | None:
    from dagster_airbyte_proto.launchers.packages.interpreters import find_python

    try:
        return find_python(minor)[1]
    except ConfigError:
        return None


def _packages(settings: Settings) -> Sequence[Finding]:
    from dagster_airbyte_proto.launchers.packages.environments import is_complete
    from dagster_airbyte_proto.launchers.packages.installed import installed_environments

    installed = [each for each in installed_environments(settings.environments_folder) if each.package]
    findings = []
    for each in installed:
        if fault := each.fault():
            # One that is incomplete is installed again by the next run; of one that only looks complete nobody knows.
            verdict = Verdict.FAILS if is_complete(each.link) else Verdict.WARNING
            findings.append(
                Finding(_PACKAGES, verdict, f"{each.package}: {fault}", f"airbyte-proto envs prune {each.name}")
            )
    if findings:
        return findings
    return [ok(_PACKAGES, f"{len(installed)} installed, and their interpreters run" if installed else "none installed")]


def _extras(needs: Needs) -> Sequence[Finding]:
    installed = [extra for extra, module in MODULES.items() if find_spec(module) is not None]
    lacking = [extra for extra in needs.extras if extra not in installed]
    if lacking:
        found = (
            f"a named connection or the settings need {', '.join(lacking)}, which"
            f" {'is' if len(lacking) == 1 else 'are'} not installed"
        )
        return [Finding(_EXTRAS, Verdict.FAILS, found, f"pip install 'dagster_airbyte_proto[{','.join(lacking)}]'")]
    return [ok(_EXTRAS, f"installed: {', '.join(installed) or 'none'}")]


def _version(program: str) -> str:
    """The version that a program prints; empty if it does not."""
    try:
        ended = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=_PROGRAM_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next(iter(ended.stdout.splitlines()), "")
