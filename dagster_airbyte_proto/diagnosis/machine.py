"""The whole diagnosis: every check of this machine and these settings, in the order in which they are of use."""

import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.diagnosis.connector_health import Needs, connector_checks
from dagster_airbyte_proto.diagnosis.executor_health import cluster_checks, executor_checks, runs_on_executors
from dagster_airbyte_proto.diagnosis.health_check import Finding, HealthCheck, fails, findings, ok, warning
from dagster_airbyte_proto.diagnosis.spark_health import spark_checks
from dagster_airbyte_proto.diagnosis.storage_health import storage_checks
from dagster_airbyte_proto.diagnosis.store_health import store_checks
from dagster_airbyte_proto.masking import Mask, named_secrets
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.tables.remote_sessions import tokens_of

_PYTHON = "Python"
_TESTED, _UNTRIED = "Linux", "Darwin"


def diagnosis(
    settings: Settings,
    connections: Sequence[Connection],
    *,
    is_quick: bool = False,
    on_check: Callable[[str], None] = lambda _part: None,
) -> Iterator[Finding]:
    """Yields the findings as they come. With `is_quick` Spark is not started.

    A part that is absent fails only if one of the connections needs it. `on_check` gets the name of each part before it
    is tried.
    """
    engine = Engine(settings)
    needs = Needs.of(
        connections,
        is_on_executors=any(runs_on_executors(settings, each) for each in connections),
        is_remote=engine.spark_settings.is_remote,
    )
    checks = [
        HealthCheck(_PYTHON, _python),
        *storage_checks(settings),
        *store_checks(settings),
        *cluster_checks(engine, connections),
        *spark_checks(engine, is_quick=is_quick),
        *(() if is_quick else executor_checks(engine, connections)),
        *connector_checks(settings, needs),
    ]
    return findings(checks, Mask(_secrets(settings)), on_check)


def _python() -> Sequence[Finding]:
    text = f"{platform.python_version()} ({sys.executable}), dagster_airbyte_proto {version('dagster_airbyte_proto')}"
    system = platform.system()
    if system == _UNTRIED:
        found = f"{text} on macOS, where nobody has tried it"
        return [warning(_PYTHON, found, "Expect most of it to work, and run what matters on Linux, as the tests do.")]
    if system != _TESTED:
        return [fails(_PYTHON, f"{text} on {system}", "Use Linux; on Windows, WSL 2.")]
    return [ok(_PYTHON, text)]


def _secrets(settings: Settings) -> frozenset[str]:
    """The secrets of the settings, and those that object stores take from the environment."""
    of_environment = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "PG"))}
    secrets = named_secrets(dict(settings.spark)) | named_secrets(of_environment) | tokens_of(settings.spark)
    try:
        url = make_url(settings.state_url)
    except (ArgumentError, ValueError):
        return secrets | {settings.state_url}
    return secrets | ({url.password} if url.password else frozenset())
