"""What Dagster's deployment says of its containers, for the connectors that run beside them."""

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import dagster as dg
from dagster._core.instance.ref import InstanceRef
from dagster._core.launcher import RunLauncher
from dagster._core.system_config.objects import ResolvedRunConfig

from dagster_airbyte_proto.launchers.docker.deployment import Deployment, Registry, variables

if TYPE_CHECKING:
    from dagster_docker.container_context import DockerContainerContext

_DOCKER_EXECUTOR = "docker"
_OF_LOCATION = "DAGSTER_CONTAINER_CONTEXT"


class InRun(Protocol):
    """The context of whatever a run does."""

    @property
    def instance(self) -> dg.DagsterInstance: ...

    @property
    def run(self) -> dg.DagsterRun: ...

    @property
    def job_def(self) -> dg.JobDefinition: ...


def deployment_of(context: InRun) -> Deployment:
    """As the run launcher, the code location and the run's executor say, the later ones first."""
    origin = context.run.job_code_origin
    of_location = origin.repository_origin.container_context if origin else None
    return _deployment(context.instance.run_launcher, of_location, _of_executor(context))


def deployment_around(instance: dg.DagsterInstance | None = None) -> Deployment:
    """The same outside of a run, as the run launcher says, and the code location where its server was told in the
    environment. Without an instance it is DAGSTER_HOME's: of that, only what its file says is looked at."""
    of_location = json.loads(os.environ.get(_OF_LOCATION) or "{}")
    home = os.environ.get("DAGSTER_HOME")
    if instance is not None:
        return _deployment(instance.run_launcher, of_location)
    return _deployment(InstanceRef.from_dir(home).run_launcher if home else None, of_location)


def _deployment(
    launcher: RunLauncher | None, of_location: Mapping[str, Any] | None, of_executor: Mapping[str, Any] | None = None
) -> Deployment:
    from dagster_docker.container_context import DockerContainerContext  # Docker's client takes a while to import.

    read = DockerContainerContext.create_from_config
    location: DockerContainerContext = read(of_location)  # type: ignore[no-untyped-call]  # Dagster's
    said = _of_launcher(launcher).merge(location).merge(DockerContainerContext(**(of_executor or {})))
    return Deployment(
        registry=Registry(**said.registry) if said.registry else None,
        networks=tuple(dict.fromkeys(said.networks)),
        environment=variables(said.env_vars),
        kwargs=said.container_kwargs,
    )


def _of_launcher(launcher: RunLauncher | None) -> "DockerContainerContext":
    from dagster_docker import DockerRunLauncher
    from dagster_docker.container_context import DockerContainerContext

    if not isinstance(launcher, DockerRunLauncher):
        return DockerContainerContext()
    return DockerContainerContext(launcher.registry, launcher.env_vars, launcher.networks, launcher.container_kwargs)


def _of_executor(context: InRun) -> dict[str, Any]:
    """What an executor that has a container for each step was configured with."""
    if context.job_def.executor_def.name != _DOCKER_EXECUTOR:
        return {}
    config = ResolvedRunConfig.build(context.job_def, context.run.run_config).execution.execution_engine_config
    networks = config.get("networks") or ([config["network"]] if config.get("network") else [])
    return {**{key: config.get(key) for key in ("registry", "env_vars", "container_kwargs")}, "networks": networks}
