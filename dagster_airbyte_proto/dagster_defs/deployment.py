"""What Dagster's deployment says of its containers, for the connectors that run beside them."""

from typing import Any

import dagster as dg
from dagster._core.system_config.objects import ResolvedRunConfig

from dagster_airbyte_proto.launchers.deployment import Deployment, Registry, variables

_DOCKER_EXECUTOR = "docker"


def deployment_of(context: dg.AssetExecutionContext) -> Deployment:
    """As the run launcher, the code location and the run's executor say, the later ones first."""
    from dagster_docker import DockerRunLauncher  # Docker's client takes a while to import.
    from dagster_docker.container_context import DockerContainerContext

    launcher = context.instance.run_launcher
    said = DockerContainerContext.create_for_run(
        context.run, launcher if isinstance(launcher, DockerRunLauncher) else None
    ).merge(DockerContainerContext(**_of_executor(context)))
    return Deployment(
        registry=Registry(**said.registry) if said.registry else None,
        networks=tuple(dict.fromkeys(said.networks)),
        environment=variables(said.env_vars),
        kwargs=said.container_kwargs,
    )


def _of_executor(context: dg.AssetExecutionContext) -> dict[str, Any]:
    """What an executor that has a container for each step was configured with."""
    if context.job_def.executor_def.name != _DOCKER_EXECUTOR:
        return {}
    config = ResolvedRunConfig.build(context.job_def, context.run.run_config).execution.execution_engine_config
    networks = config.get("networks") or ([config["network"]] if config.get("network") else [])
    return {**{key: config.get(key) for key in ("registry", "env_vars", "container_kwargs")}, "networks": networks}
