"""A connector that is an image: a container for each question, confined, and gone afterwards."""

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
from dagster_airbyte_proto.launchers.docker import guardian as docker_guardian
from dagster_airbyte_proto.launchers.docker.containers import VERB, Container, containers, labelled, remove
from dagster_airbyte_proto.launchers.docker.daemon import answers, open_daemon
from dagster_airbyte_proto.launchers.docker.deployment import Deployment
from dagster_airbyte_proto.launchers.docker.fifo import Fifo, created_with, hands_on, is_beside_us
from dagster_airbyte_proto.launchers.docker.files import FOLDER, VOLUME, numbers_of, put, user_of
from dagster_airbyte_proto.launchers.docker.images import Described, Image, described, entrypoint, identity
from dagster_airbyte_proto.launchers.docker.networks import own_network
from dagster_airbyte_proto.launchers.docker.running import DockerConnector, Guardian, Held, give_up
from dagster_airbyte_proto.launchers.process import RunOptions
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation

_ENVIRONMENT = {
    "DEPLOYMENT_MODE": "OSS",
    "JAVA_OPTS": "-XX:+ExitOnOutOfMemoryError",
    "LOG_LEVEL": "INFO",
    "USE_STREAM_CAPABLE_STATE": "true",
}
_LIMITS = {"MemoryLimit": "memory", "CpuCfsQuota": "cpus", "PidsLimit": "pids"}


class Confinement(NamedTuple):
    """What a container may do and take. With no `network` it gets the deployment's, or else one where it sees the
    world, but no other connector; "none" gives it none. `user` None is the image's own, or nobody where that is root;
    "image" is the image's own whatever it is. The root file system is read-only; /tmp, of `tmp` at most, and its
    working folder are not. `environment` and `kwargs`, those of docker-py's `containers.create`, come on top."""

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
    environment: Mapping[str, str] = {}
    kwargs: Mapping[str, Any] = {}


class DockerLauncher:
    """Runs an image with the invocation's arguments.

    `labels` tell whose the containers are. Before one is started, those are removed that nobody owns any more, as
    `is_orphan` says: the guardian died too, as when a machine goes down.
    """

    def __init__(
        self,
        image: Image,
        confinement: Confinement | None = None,
        *,
        deployment: Deployment | None = None,
        labels: Mapping[str, str] | None = None,
        is_orphan: Callable[[Container], bool] = lambda _: False,
        options: RunOptions | None = None,
    ) -> None:
        self._image = image
        self._confinement = confinement or Confinement()
        self._deployment = deployment or Deployment()
        self._labels = dict(labels or {})
        self._is_orphan = is_orphan
        self._options = options or RunOptions()
        self._known: Described | None = None

    def identity(self) -> str:
        return identity(self._image, self._described(open_daemon().api))

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> DockerConnector:
        client, image = open_daemon(), self._image.name
        daemon = client.api
        self._described(daemon)  # Pulled, where it has to be, before anything is made.
        with answers("removing containers of dead runs", image):
            for each in containers(daemon):
                if self._is_orphan(each):
                    remove(daemon, each.name)
        name = f"airbyte-proto-{uuid4().hex[:12]}"
        guardian, fifo = _guardian(name), None
        try:
            with answers("starting the connector", image):
                fifo = self._made(client, name, invocation, environment)
                put(daemon, name, invocation.files, numbers_of(daemon, name, self._user(daemon)))
                stdout, stderr = (_attached(daemon, name, each) for each in ("stdout", "stderr"))
                memory, watched = self._confinement.memory, invocation.changeable
                held = Held(daemon, name, stdout, stderr, guardian, image, memory, watched, fifo)
                daemon.start(name)
        except BaseException:
            give_up(daemon, name, guardian)
            if fifo is not None:
                fifo.remove()
            raise
        return DockerConnector(held, self._options)

    def _described(self, daemon: docker.APIClient) -> Described:
        if self._known is None:
            self._known = described(daemon, self._image, self._deployment.registry, self._options.on_notice)
        return self._known

    def _user(self, daemon: docker.APIClient) -> str:
        return user_of(self._described(daemon), self._confinement.user)

    def _made(
        self, client: docker.DockerClient, name: str, invocation: Invocation, environment: Mapping[str, str]
    ) -> Fifo | None:
        """Makes the container. Gives the pipe that its stdout goes to, where that is not the daemon."""
        daemon = client.api
        info, found = daemon.info(), self._described(daemon)
        kwargs = self._kwargs(daemon, info, labelled({**self._labels, VERB: invocation.verb}), environment)
        mount = Mount(VOLUME, name, type="volume", labels=kwargs["labels"])

        def create(entry: list[str], *mounts: Mount) -> None:
            self._create(client, name, invocation, {**kwargs, "entrypoint": entry, "mounts": [mount, *mounts]})

        entry = entrypoint(self._image, found)
        variables = [*kwargs["environment"], *(each.partition("=")[0] for each in found["Config"].get("Env") or ())]
        fifo = None
        if is_beside_us(daemon, info, kwargs) and hands_on(variables):
            parent = self._options.runs_folder
            fifo = created_with(daemon, name, lambda fifo: create(fifo.opened_for(entry), fifo.mount), parent)
        if fifo is None:
            create(entry)
        return fifo

    def _create(
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
                f"container_kwargs has what Docker's client does not take: {error}",
                remedy="They are those of its containers.create.",
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
        """Those of `containers.create`. What is given comes in beside these, and takes the place of none."""
        confined, deployment = self._confinement, self._deployment
        given = {**deployment.kwargs_of_connectors(), **confined.kwargs}
        privileges = () if confined.new_privileges else ("no-new-privileges",)
        return (
            given
            | self._limits(info)
            | {
                "cap_add": list(confined.capabilities),
                "cap_drop": ["ALL"],
                "environment": {
                    **_ENVIRONMENT,
                    "WORKER_CONNECTOR_IMAGE": self._image.name,
                    **deployment.environment_of_connectors(),
                    **confined.environment,
                    **environment,
                },
                "init": True,
                "labels": dict(labels),
                # Nothing of what it says is to lie on the daemon's disk.
                "log_config": {"Type": "none", "Config": {}},
                "platform": self._image.platform,
                "read_only": confined.read_only,
                "security_opt": [*privileges, *given.get("security_opt", ())],
                "tmpfs": {"/tmp": f"rw,nosuid,nodev,exec,mode=1777,size={confined.tmp}"},  # noqa: S108 - the container's own
                "user": self._user(daemon),
                "volumes": list(confined.volumes),
                "working_dir": FOLDER,
            }
        )

    def _limits(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """What it may take. Which of it the daemon does not limit is told: a rootless one may pass over all."""
        confined = self._confinement
        unlimited = [word for key, word in _LIMITS.items() if info.get(key) is False]
        if unlimited and self._options.on_notice is not None:
            self._options.on_notice(f"Docker's daemon limits no {', no '.join(unlimited)}: it has no cgroups for that")
        return {
            "mem_limit": confined.memory,
            "memswap_limit": confined.memory,
            "nano_cpus": int(min(confined.cpus, info["NCPU"]) * 10**9),
            "pids_limit": confined.pids,
        }

    def _networks(self, daemon: docker.APIClient) -> Sequence[str]:
        """At least one."""
        if self._confinement.network is not None:
            return [self._confinement.network]
        return self._deployment.networks or [own_network(daemon)]


def _attached(daemon: docker.APIClient, name: str, stream: str) -> Any:
    """A socket with one of its streams. Before it starts, so that nothing is missed or read ahead."""
    params = {"stdout": 0, "stderr": 0, stream: 1, "stream": 1, "logs": 0}
    found = daemon.attach_socket(name, params=params)
    return getattr(found, "_sock", found)


def _guardian(name: str) -> Guardian:
    guarded, control = os.pipe()
    command = [sys.executable, "-I", docker_guardian.__file__, str(guarded), str(os.getpid()), name]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(guarded,), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        os.close(control)
        raise ConnectorError("starting the connector", error.strerror or str(error), retryable=True) from error
    finally:
        os.close(guarded)
    return Guardian(process, control)
