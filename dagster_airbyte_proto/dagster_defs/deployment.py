"""The container settings of Dagster's deployment, for connectors that run in containers beside it."""

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import dagster as dg
from dagster._core.instance.ref import InstanceRef
from dagster._core.launcher import RunLauncher
from dagster._core.system_config.objects import ResolvedRunConfig

from dagster_airbyte_proto.launchers.docker.deployment import Deployment, ImageRegistry
from dagster_airbyte_proto.launchers.permissions import parse_variables

if TYPE_CHECKING:
    from dagster_docker.container_context import DockerContainerContext

_DOCKER_EXECUTOR = "docker"
_LOCATION_VARIABLE = "DAGSTER_CONTAINER_CONTEXT"


class RunContext(Protocol):
    """The context of a step or a check in a run."""

    @property
    def instance(self) -> dg.DagsterInstance: ...

    @property
    def run(self) -> dg.DagsterRun: ...

    @property
    def job_def(self) -> dg.JobDefinition: ...


def run_deployment(context: RunContext) -> Deployment:
    """The settings of the run launcher, the code location and the run's executor; the later ones win."""
    origin = context.run.job_code_origin
    location_context = origin.repository_origin.container_context if origin else None
    return _deployment(context.instance.run_launcher, location_context, _executor_context(context))


def deployment_outside_run(instance: dg.DagsterInstance | None = None) -> Deployment:
    """The settings outside of a run: those of the run launcher, and those of the code location if its server has them
    in the environment. Without an instance, the run launcher is read from the instance file in DAGSTER_HOME."""
    location_context = json.loads(os.environ.get(_LOCATION_VARIABLE) or "{}")
    home = os.environ.get("DAGSTER_HOME")
    if instance is not None:
        return _deployment(instance.run_launcher, location_context)
    return _deployment(InstanceRef.from_dir(home).run_launcher if home else None, location_context)


def _deployment(
    launcher: RunLauncher | None,
    location_context: Mapping[str, Any] | None,
    executor_context: Mapping[str, Any] | None = None,
) -> Deployment:
    from dagster_docker.container_context import DockerContainerContext  # Docker's client takes a while to import.

    read = DockerContainerContext.create_from_config
    location: DockerContainerContext = read(location_context)  # type: ignore[no-untyped-call]  # Dagster's
    merged = _launcher_context(launcher).merge(location).merge(DockerContainerContext(**(executor_context or {})))
    return Deployment(
        registry=ImageRegistry(**merged.registry) if merged.registry else None,
        environment=parse_variables(merged.env_vars, os.environ),
        kwargs=merged.container_kwargs,
    )


def _launcher_context(launcher: RunLauncher | None) -> "DockerContainerContext":
    from dagster_docker import DockerRunLauncher
    from dagster_docker.container_context import DockerContainerContext

    if not isinstance(launcher, DockerRunLauncher):
        return DockerContainerContext()
    return DockerContainerContext(launcher.registry, launcher.env_vars, launcher.networks, launcher.container_kwargs)


def _executor_context(context: RunContext) -> dict[str, Any]:
    """The config of an executor that starts a container for each step; empty for any other."""
    if context.job_def.executor_def.name != _DOCKER_EXECUTOR:
        return {}
    config = ResolvedRunConfig.build(context.job_def, context.run.run_config).execution.execution_engine_config
    return {key: config.get(key) for key in ("registry", "env_vars", "container_kwargs")}
