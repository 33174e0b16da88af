"""The launcher of connectors that are Docker images: one confined container per request, removed afterwards."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import docker
from docker.errors import InvalidArgument
from docker.types import Mount

from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.launchers.docker import guardian as guardian_program
from dagster_airbyte_proto.launchers.docker.containers import (
    VERB,
    Container,
    connector_containers,
    docker_labels,
    remove,
)
from dagster_airbyte_proto.launchers.docker.daemon import docker_errors, open_daemon
from dagster_airbyte_proto.launchers.docker.deployment import Deployment
from dagster_airbyte_proto.launchers.docker.fifo import Fifo, create_with_fifo, pass_through_shell, shares_our_kernel
from dagster_airbyte_proto.launchers.docker.files import (
    FOLDER,
    VOLUME,
    run_user,
    start_folder,
    user_and_group_ids,
    write_files,
)
from dagster_airbyte_proto.launchers.docker.images import (
    Image,
    ImageDetails,
    ensure_image,
    image_entrypoint,
    image_identity,
)
from dagster_airbyte_proto.launchers.docker.networks import (
    can_join_another,
    ensure_link_local_network,
    ensure_own_network,
    gateway_of,
    is_own_address,
)
from dagster_airbyte_proto.launchers.docker.running_container import (
    ContainerHandle,
    DockerConnector,
    Guardian,
    remove_or_hand_over,
)
from dagster_airbyte_proto.launchers.docker.stdin_socket import StdinSocket
from dagster_airbyte_proto.launchers.permissions import joined_variables, parse_variables
from dagster_airbyte_proto.launchers.process import OUR_MACHINE, HostPlace, LaunchOptions
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation

_ENVIRONMENT = {
    "DEPLOYMENT_MODE": "OSS",
    "JAVA_OPTS": "-XX:+ExitOnOutOfMemoryError",
    "LOG_LEVEL": "INFO",
    "USE_STREAM_CAPABLE_STATE": "true",
}
_LIMITS = {"MemoryLimit": "memory", "CpuCfsQuota": "cpus", "PidsLimit": "pids"}


class Confinement(NamedTuple):
    """The limits of a container.

    - `network`: None is a network that reaches the world but no other connector. "none" is no network.
    - `memory`: unless the permissions have a limit of it.
    - `user`: None is the image's user, or nobody if that is root. "image" is the image's user, even root.
    - `read_only`: the root file system is read-only. /tmp (at most `tmp`) and the private folder are writable.
    - `kwargs`: added to ours; arguments of docker-py's `containers.create`.
    """

    network: str | None = None
    memory: str = "2g"
    cpus: float = 2.0
    pids: int = 1024
    tmp: str = "512m"
    user: str | None = None
    read_only: bool = True
    new_privileges: bool = False
    capabilities: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    kwargs: Mapping[str, Any] = {}


class ContainerOwner(NamedTuple):
    """The owner of containers: their `labels` name it.

    Before a start, containers for which `is_orphan` is true are removed: their guardian died together with their owner,
    for example when a machine went down.
    """

    labels: Mapping[str, str] = {}
    is_orphan: Callable[[Container], bool] = lambda _: False


class DockerLauncher:
    """Runs an image with the invocation's arguments."""

    def __init__(
        self,
        image: Image,
        confinement: Confinement | None = None,
        *,
        deployment: Deployment | None = None,
        owner: ContainerOwner = ContainerOwner(),  # noqa: B008  # a tuple, and frozen
        options: LaunchOptions | None = None,
    ) -> None:
        self._image = image
        self._confinement = confinement or Confinement()
        self._deployment = deployment or Deployment()
        self._owner = owner
        self._options = options or LaunchOptions()
        self._details: ImageDetails | None = None

    def identity(self) -> str:
        return image_identity(self._image, self._image_details(open_daemon().api))

    def host_place(self) -> HostPlace | None:
        daemon = open_daemon().api
        network = self._confinement.network or ensure_own_network(daemon)
        if network == "host":
            return OUR_MACHINE
        gateway = gateway_of(daemon, network)
        return None if gateway is None or not is_own_address(gateway) else HostPlace(gateway, gateway)

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> DockerConnector:
        client, image = open_daemon(), self._image.name
        daemon = client.api
        self._ensure_image(daemon)  # before anything is created
        with docker_errors("removing containers of dead runs", image):
            for each in connector_containers(daemon):
                if self._owner.is_orphan(each):
                    remove(daemon, each.name)
        name = f"airbyte-proto-{uuid4().hex[:12]}"
        guardian, fifo = _start_guardian(name), None
        try:
            with docker_errors("starting the connector", image):
                fifo = self._create_container(client, name, invocation, environment)
                write_files(daemon, name, invocation.files, user_and_group_ids(daemon, name, self._user(daemon)))
                stdout, stderr = (_attach(daemon, name, each) for each in ("stdout", "stderr"))
                stdin = StdinSocket(_attach(daemon, name, "stdin")) if invocation.takes_input else None
                watched = invocation.rewritable_content
                container = ContainerHandle(daemon, name, stdout, stderr, guardian, image, watched, fifo, stdin)
                daemon.start(name)
        except BaseException:
            remove_or_hand_over(daemon, name, guardian)
            if fifo is not None:
                fifo.remove()
            raise
        return DockerConnector(container, self._options, over_memory=self._over_memory())

    def _image_details(self, daemon: docker.APIClient) -> ImageDetails:
        if self._details is None:
            self._details = ensure_image(daemon, self._image, self._deployment.registry, self._options.on_notice)
        return self._details

    def _ensure_image(self, daemon: docker.APIClient) -> None:
        """Pulls the image if necessary, also one that was there before: it may have been pruned since. One that is
        always pulled is pulled once by this launcher, and then only where it is gone."""
        was_pulled = self._details is not None and self._image.pull == "always"
        image = self._image._replace(pull="missing") if was_pulled else self._image
        self._details = ensure_image(daemon, image, self._deployment.registry, self._options.on_notice)

    def _user(self, daemon: docker.APIClient) -> str:
        return run_user(self._image_details(daemon), self._confinement.user)

    def _create_container(
        self, client: docker.DockerClient, name: str, invocation: Invocation, environment: Mapping[str, str]
    ) -> Fifo | None:
        """Creates the container. Returns the pipe that its stdout goes to; None if it goes through the daemon."""
        daemon = client.api
        info, details = daemon.info(), self._image_details(daemon)
        kwargs = self._kwargs(daemon, info, docker_labels({**self._owner.labels, VERB: invocation.verb}), environment)
        kwargs["stdin_open"] = invocation.takes_input  # docker-py then sets StdinOnce too; otherwise it is /dev/null.
        has_arguments = bool(invocation.arguments)
        kwargs["working_dir"] = start_folder(details, has_arguments=has_arguments)
        mount = Mount(VOLUME, name, type="volume", labels=kwargs["labels"])

        def create(entry: list[str], *mounts: Mount) -> None:
            self._create_from(client, name, invocation, {**kwargs, "entrypoint": entry, "mounts": [mount, *mounts]})

        entry = image_entrypoint(self._image, details, has_arguments=has_arguments)
        variables = [*kwargs["environment"], *(each.partition("=")[0] for each in details["Config"].get("Env") or ())]
        fifo = None
        if shares_our_kernel(daemon, info, kwargs) and pass_through_shell(variables):
            parent = self._options.runs_folder
            fifo = create_with_fifo(daemon, name, lambda fifo: create(fifo.wrap_entrypoint(entry), fifo.mount), parent)
        if fifo is None:
            create(entry)
        return fifo

    def _create_from(
        self, client: docker.DockerClient, name: str, invocation: Invocation, kwargs: Mapping[str, Any]
    ) -> None:
        network, *networks = self._networks(client.api)
        arguments = [
            f"{FOLDER}/{each.name}" if isinstance(each, FileArgument) else each for each in invocation.arguments
        ]
        try:
            client.containers.create(self._image.name, arguments, name=name, network_mode=network, **kwargs)
        except (TypeError, InvalidArgument) as error:
            raise ConfigError(
                "starting the connector",
                f"container_kwargs has an argument that Docker's client does not take: {error}",
                remedy="Use the arguments of its containers.create.",
            ) from error
        for each in networks:
            client.api.connect_container_to_network(name, each)

    def _kwargs(
        self,
        daemon: docker.APIClient,
        info: Mapping[str, Any],
        labels: Mapping[str, str],
        environment: Mapping[str, str],
    ) -> dict[str, Any]:
        """The arguments of `containers.create`.

        The user's arguments are added, but never replace ours: those confine.
        """
        confined, deployment = self._confinement, self._deployment
        user_kwargs = {**deployment.connector_kwargs(), **confined.kwargs}
        privileges = () if confined.new_privileges else ("no-new-privileges",)
        return (
            user_kwargs
            | self._limits(info)
            | {
                "cap_add": list(confined.capabilities),
                "cap_drop": ["ALL"],
                "environment": joined_variables(self._environment(daemon), environment),
                "init": True,
                "labels": dict(labels),
                # The output holds records: none of it may lie on the daemon's disk.
                "log_config": {"Type": "none", "Config": {}},
                "platform": self._image.platform,
                "read_only": confined.read_only,
                "security_opt": [*privileges, *user_kwargs.get("security_opt", ())],
                "tmpfs": {"/tmp": f"rw,nosuid,nodev,exec,mode=1777,size={confined.tmp}"},  # noqa: S108 - the container's own
                "user": self._user(daemon),
                "volumes": list(confined.volumes),
            }
        )

    def _environment(self, daemon: docker.APIClient) -> dict[str, str]:
        """The variables of a connector, before those of this launch.

        What the image and Docker's own settings say of NO_PROXY is among them: a variable of ours would replace it.
        """
        image = parse_variables(self._image_details(daemon)["Config"].get("Env") or (), {})
        settings = daemon._proxy_configs.get_environment()  # docker-py has no public name for it.
        outer = {**image, **settings}
        return {
            **{name: value for name, value in outer.items() if name.lower() == "no_proxy"},
            **_ENVIRONMENT,
            "WORKER_CONNECTOR_IMAGE": self._image.name,
            **self._deployment.connector_environment(),
            **self._options.permissions.named_variables(os.environ),
        }

    def _limits(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """The resource limits. Notes those that the daemon cannot enforce: a rootless one may ignore all of them."""
        confined, memory = self._confinement, self._options.permissions.memory_bytes or self._confinement.memory
        unlimited = [word for key, word in _LIMITS.items() if info.get(key) is False]
        if unlimited and self._options.on_notice is not None:
            self._options.on_notice(
                f"Docker's daemon does not limit {', '.join(unlimited)}: it has no cgroups for that"
            )
        return {
            "mem_limit": memory,
            "memswap_limit": memory,
            "nano_cpus": int(min(confined.cpus, info["NCPU"]) * 10**9),
            "pids_limit": confined.pids,
        }

    def _over_memory(self) -> str:
        permissions, memory = self._options.permissions, self._confinement.memory
        if permissions.memory_bytes is not None:
            return permissions.over_memory()
        return f"it took more memory than {memory} (`memory` in its launch; raise that, or have it read less at once)"

    def _networks(self, daemon: docker.APIClient) -> Sequence[str]:
        """The networks to join: the one that says what is reached, and the one that keeps link-local addresses away."""
        network = self._confinement.network or ensure_own_network(daemon)
        if not can_join_another(network):
            return [network]
        link_local = ensure_link_local_network(daemon)
        if link_local is None and self._options.on_notice is not None:
            self._options.on_notice("Docker's daemon cannot keep the metadata service (169.254.0.0/16) from connectors")
        return [each for each in (network, link_local) if each is not None]


def _attach(daemon: docker.APIClient, name: str, stream: str) -> Any:
    """Attaches a socket to one stream. Done before the start, so that no output is missed."""
    params = {"stdin": 0, "stdout": 0, "stderr": 0, stream: 1, "stream": 1, "logs": 0}
    found = daemon.attach_socket(name, params=params)
    return getattr(found, "_sock", found)


def _start_guardian(name: str) -> Guardian:
    control_reader, control = os.pipe()
    search_path = [each for each in sys.path if each]  # Docker's client may be a package of the user.
    arguments = [str(control_reader), str(os.getpid()), name, *search_path]
    command = [sys.executable, "-I", guardian_program.__file__, *arguments]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(control_reader,), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        os.close(control)
        raise ConnectorError("starting the connector", error.strerror or str(error), retryable=True) from error
    finally:
        os.close(control_reader)
    return Guardian(process, control)
