"""Makes the launcher that a connection's `launch` option names."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.connection import Connection, Connector, DockerLaunch, ProgramLaunch
from dagster_airbyte_proto.connection.connection import PARTITIONS_AT_ONCE
from dagster_airbyte_proto.launchers.docker.deployment import Deployment
from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.packages.manifest_launcher import Interpreter, ManifestLauncher
from dagster_airbyte_proto.launchers.packages.npm.installation import NpmPackage
from dagster_airbyte_proto.launchers.packages.npm.launcher import NpmLauncher
from dagster_airbyte_proto.launchers.packages.pypi_launcher import PypiLauncher
from dagster_airbyte_proto.launchers.permissions import Permissions
from dagster_airbyte_proto.launchers.process import Launcher, LaunchOptions
from dagster_airbyte_proto.launchers.recordings.replay import ReplayLauncher
from dagster_airbyte_proto.launchers.wasm.launcher import WasmLauncher
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.protocols.destination import DestinationProtocol
from dagster_airbyte_proto.protocols.lookup import destination_protocol, source_protocol
from dagster_airbyte_proto.protocols.rapidbyte.destination import RapidbyteDestination
from dagster_airbyte_proto.protocols.rapidbyte.grants import Narrowing
from dagster_airbyte_proto.protocols.rapidbyte.source import RapidbyteSource
from dagster_airbyte_proto.protocols.rapidbyte.stream_context import (
    Overrides,
    SchemaEvolution,
    SourceHints,
    SourcePolicies,
)
from dagster_airbyte_proto.sync.connector.answer_cache import AnswerCache
from dagster_airbyte_proto.sync.connector.container_owners import Ownership, container_labels, ownership
from dagster_airbyte_proto.sync.run_log import RunLog

if TYPE_CHECKING:
    from dagster_airbyte_proto.launchers.docker.containers import Container


class ConnectorOptions(NamedTuple):
    """Options of an engine for the connectors that it runs.

    - `deployment`: returns what containers get of this deployment's settings. It is called for containers only.
    - `stop_grace_seconds`: how long a connector that is stopped may take to end by itself.
    - `hidden_files`: files that no connector may see, whatever its sandbox shows.
    - `answer_cache`: where its answers are kept (None: in the engine's home folder).
    """

    deployment: Callable[[], Deployment] = Deployment
    stop_grace_seconds: float = 5.0
    hidden_files: tuple[Path, ...] = ()
    answer_cache: AnswerCache | None = None


def source_protocol_of(connection: Connection) -> SourceProtocol:
    """The protocol that the connection's source speaks, with the connection's own hints. Raises ConfigError."""
    if connection.connector.protocol == "rapidbyte":
        side_by_side = min(connection.parallel or PARTITIONS_AT_ONCE, os.cpu_count() or 1)
        overrides = Overrides(**connection.overrides.model_dump())
        # More often than a load is cut no checkpoint is of use.
        checkpoint_bytes = min(connection.load.max_bytes, SourceHints().checkpoint_bytes)
        hints = SourceHints(overrides, source_policies(connection), checkpoint_bytes)
        return RapidbyteSource(hints, side_by_side=side_by_side)
    return source_protocol(connection.connector.protocol)


def source_policies(connection: Connection) -> SourcePolicies:
    """The user's answers to what is at fault in what a Rapidbyte source sends. `on_error` of a relay is for its
    destination."""
    evolution = SchemaEvolution(**connection.schema_evolution.model_dump())
    return SourcePolicies(evolution, connection.on_error if connection.to is None else "reject")


def destination_protocol_of(connection: Connection) -> DestinationProtocol:
    """The same of its destination."""
    if connection.connector.protocol == "rapidbyte":
        return RapidbyteDestination(Overrides(**connection.overrides.model_dump()))
    return destination_protocol(connection.connector.protocol)


def launcher_for(
    connection: Connection,
    environments: Path,
    log: RunLog,
    store: Callable[[], StateStore],
    engine_options: ConnectorOptions,
) -> Launcher:
    """The connection's launcher. What the connector writes to stderr goes to the log.

    `store` is called for containers only, to find the owners of other ones.
    """
    launch = connection.connector.launch
    options = _launch_options(connection, environments, log, engine_options)
    if launch.kind == "local":
        return LocalLauncher(launch.command, options=options)
    if launch.kind == "pypi":
        return PypiLauncher(
            launch.package, launch.executable, cache=environments, python=launch.python, options=options
        )
    if launch.kind == "npm":
        package = NpmPackage.of(launch.package, launch.overrides)
        return NpmLauncher(
            package, launch.main, cache=environments, install_scripts=launch.install_scripts, options=options
        )
    if launch.kind == "manifest":
        return ManifestLauncher(
            launch.path,
            Interpreter(launch.version, launch.python),
            custom_components=launch.custom_components,
            cache=environments,
            options=options,
        )
    if launch.kind == "docker":
        deployment, labels = engine_options.deployment(), container_labels(connection.name, log.run_id)
        return _docker_launcher(launch, options, labels, deployment, lambda found: ownership(found, store))
    if launch.kind == "wasm":
        return WasmLauncher(launch.path, _narrowing(connection.connector), cache=environments, options=options)
    return ReplayLauncher(Path(launch.recording))


def _launch_options(
    connection: Connection, environments: Path, log: RunLog, engine_options: ConnectorOptions
) -> LaunchOptions:
    def on_stderr(line: bytes) -> None:
        log.write("STDERR", line.decode(errors="replace").rstrip())

    launch, batch_folder = connection.connector.launch, connection.connector.batch_folder
    limits = connection.connector.limits
    return LaunchOptions(
        permissions=Permissions(
            connection.connector.variables,
            sandbox=connection.sandbox,
            network=isinstance(launch, ProgramLaunch) and launch.network == "host",
            memory_bytes=limits.max_memory,
            seconds=limits.timeout_seconds,
            hidden=(environments.parent,),  # our home folder: states, logs, the files of other connectors
            hidden_files=engine_options.hidden_files,
            writable=(Path(batch_folder),) if batch_folder and "://" not in batch_folder else (),
        ),
        connection=connection.name,
        working_folder=launch.working_folder if isinstance(launch, ProgramLaunch) else None,
        stop_grace_seconds=engine_options.stop_grace_seconds,
        on_stderr=on_stderr,
        on_notice=lambda text: log.write("NOTE", text),
        read_file=connection.read_file,
    )


def _narrowing(connector: Connector) -> Narrowing:
    permissions, limits = connector.permissions, connector.limits
    return Narrowing(
        hosts=permissions.network.allowed_hosts,
        variables=permissions.env.allowed_vars,
        preopens=permissions.fs.allowed_preopens,
        memory_bytes=limits.max_memory,
        timeout_seconds=limits.timeout_seconds,
    )


def _docker_launcher(
    launch: DockerLaunch,
    options: LaunchOptions,
    labels: Mapping[str, str],
    deployment: Deployment,
    ownership_of: "Callable[[Container], Ownership]",
) -> Launcher:
    # Docker's client takes a while to import, and few connections are images.
    from dagster_airbyte_proto.launchers.docker.images import Image
    from dagster_airbyte_proto.launchers.docker.launcher import Confinement, ContainerOwner, DockerLauncher

    image = Image(launch.image, command=launch.command, pull=launch.pull, platform=launch.platform)
    confinement = Confinement(
        network=launch.network,
        memory=launch.memory,
        cpus=launch.cpus,
        pids=launch.pids,
        tmp=launch.tmp,
        user=launch.user,
        read_only=launch.read_only,
        new_privileges=launch.new_privileges,
        capabilities=launch.capabilities,
        volumes=launch.volumes,
        kwargs=launch.container_kwargs,
    )
    return DockerLauncher(
        image,
        confinement,
        deployment=deployment,
        owner=ContainerOwner(labels, lambda found: ownership_of(found) is Ownership.ORPHAN),
        options=options,
    )
