"""A connector that is an image: a container for each question, confined, and gone afterwards."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import docker
from docker.errors import ImageNotFound
from docker.types import Mount

from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.launchers import docker_guardian
from dagster_airbyte_proto.launchers.docker_containers import LABEL, VERB, containers, labelled
from dagster_airbyte_proto.launchers.docker_daemon import answers, open_daemon
from dagster_airbyte_proto.launchers.docker_files import FOLDER, VOLUME, numbers_of, put, user_of
from dagster_airbyte_proto.launchers.docker_running import DockerConnector, Guardian, Held, give_up, remove
from dagster_airbyte_proto.launchers.process import RunOptions
from dagster_airbyte_proto.protocols.session import FileArgument, Invocation

_NETWORK = "airbyte-proto"
_ENVIRONMENT = {
    "DEPLOYMENT_MODE": "OSS",
    "JAVA_OPTS": "-XX:+ExitOnOutOfMemoryError",
    "LOG_LEVEL": "INFO",
    "USE_STREAM_CAPABLE_STATE": "true",
}


class Confinement(NamedTuple):
    """What a container may do and take. With no `network` it gets one where it sees the world, but no other connector;
    "none" gives it none. `user` None is the image's own, or nobody where that is root; "image" is the image's own
    whatever it is. The root file system is read-only; /tmp, of `tmp` at most, and its working folder are not."""

    network: str | None = None
    memory: str = "2g"
    cpus: float = 2.0
    pids: int = 1024
    tmp: str = "512m"
    user: str | None = None
    read_only: bool = True
    capabilities: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()


class DockerLauncher:
    """Runs `command`, or what the image runs by itself, with the invocation's arguments.

    `pull` is `missing`, `always` or `never`. `labels` tell whose the containers are. Before one is started, those are
    removed that nobody owns any more, as their labels tell `is_orphan`: the guardian died too, as when a machine goes
    down.
    """

    def __init__(
        self,
        image: str,
        confinement: Confinement | None = None,
        *,
        command: Sequence[str] = (),
        platform: str | None = None,
        pull: str = "missing",
        environment: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        is_orphan: Callable[[Mapping[str, str]], bool] = lambda _: False,
        options: RunOptions | None = None,
    ) -> None:
        self._image = image
        self._confinement = confinement or Confinement()
        self._command = tuple(command)
        self._platform = platform
        self._pull = pull
        self._environment = dict(environment or {})
        self._labels = dict(labels or {})
        self._is_orphan = is_orphan
        self._options = options or RunOptions()
        self._known: Mapping[str, Any] | None = None

    def identity(self) -> str:
        """The image's name and digest: a tag that is moved is another connector."""
        digest = str(self._described(open_daemon())["Id"]).removeprefix("sha256:")
        return "-".join([self._image, digest[:16], *self._command])

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> DockerConnector:
        daemon, doing = open_daemon(), "starting the connector"
        described = self._described(daemon)
        with answers("removing containers of dead runs", self._image):
            for each in containers(daemon):
                if self._is_orphan(each.labels):
                    remove(daemon, each.name)
        name = f"airbyte-proto-{uuid4().hex[:12]}"
        guardian = _guardian(name)
        try:
            with answers(doing, self._image):
                user = user_of(described, self._confinement.user)
                self._create(daemon, name, (described, user), invocation, environment)
                put(daemon, name, invocation.files, numbers_of(daemon, name, user))
                stdout, stderr = (_attached(daemon, name, each) for each in ("stdout", "stderr"))
                held = Held(daemon, name, stdout, stderr, guardian, self._image, self._confinement.memory)
                daemon.start(name)
        except BaseException:
            give_up(daemon, name, guardian)
            raise
        return DockerConnector(held, self._options)

    def _described(self, daemon: docker.APIClient) -> Mapping[str, Any]:
        """The image as the daemon has it, pulled if need be."""
        if self._known is None:
            with answers("looking for the connector's image", self._image):
                self._known = self._found(daemon)
        return self._known

    def _found(self, daemon: docker.APIClient) -> Mapping[str, Any]:
        if self._pull != "always":
            try:
                return dict(daemon.inspect_image(self._image))
            except ImageNotFound:
                if self._pull == "never":
                    raise
        if self._options.on_notice:
            self._options.on_notice(f"pulling image {self._image}")
        for told in daemon.pull(self._image, stream=True, decode=True, platform=self._platform):
            if "error" in told:
                raise ImageNotFound(told["error"], explanation=told["error"])
        return dict(daemon.inspect_image(self._image))

    def _create(
        self,
        daemon: docker.APIClient,
        name: str,
        image: tuple[Mapping[str, Any], str],
        invocation: Invocation,
        environment: Mapping[str, str],
    ) -> None:
        confined, (described, user) = self._confinement, image
        entrypoint = list(self._command) or _entrypoint(described, self._image)
        labels = labelled({**self._labels, VERB: str(invocation.arguments[0])})
        own = {**_ENVIRONMENT, "WORKER_CONNECTOR_IMAGE": self._image, **self._environment, **environment}
        host = daemon.create_host_config(
            binds=list(confined.volumes),
            cap_add=list(confined.capabilities),
            cap_drop=["ALL"],
            init=True,
            # Nothing of what it says is to lie on the daemon's disk.
            log_config={"Type": "none", "Config": {}},
            mem_limit=confined.memory,
            memswap_limit=confined.memory,
            mounts=[Mount(VOLUME, None, type="volume", labels=labels)],
            nano_cpus=int(min(confined.cpus, daemon.info()["NCPU"]) * 10**9),
            network_mode=_network(daemon, confined.network),
            pids_limit=confined.pids,
            read_only=confined.read_only,
            security_opt=["no-new-privileges"],
            tmpfs={"/tmp": f"rw,nosuid,nodev,exec,mode=1777,size={confined.tmp}"},  # noqa: S108 - the container's own
        )
        daemon.create_container(
            self._image,
            [f"{FOLDER}/{each.name}" if isinstance(each, FileArgument) else each for each in invocation.arguments],
            entrypoint=entrypoint,
            environment=own,
            host_config=host,
            labels=labels,
            name=name,
            platform=self._platform,
            user=user,
            working_dir=FOLDER,
        )


def _entrypoint(described: Mapping[str, Any], image: str) -> list[str] | None:
    """What to run, where the image does not run it by itself."""
    config = described["Config"]
    if config.get("Entrypoint"):
        return None
    for each in config.get("Env") or ():
        if each.startswith("AIRBYTE_ENTRYPOINT="):
            return shlex.split(each.partition("=")[2])
    raise ConfigError(
        "starting the connector",
        f"image {image} does not say what it runs",
        remedy="Set command to a program of the image that speaks the protocol.",
    )


def _attached(daemon: docker.APIClient, name: str, stream: str) -> Any:
    """A socket with one of its streams. Before it starts, so that nothing is missed or read ahead."""
    params = {"stdout": 0, "stderr": 0, stream: 1, "stream": 1, "logs": 0}
    found = daemon.attach_socket(name, params=params)
    return getattr(found, "_sock", found)


def _network(daemon: docker.APIClient, wanted: str | None) -> str:
    """Ours is made when it is first needed, and stays. Connectors in it do not see each other."""
    if wanted is not None:
        return wanted
    if not daemon.networks(names=[f"^{_NETWORK}$"]):
        daemon.create_network(
            _NETWORK, check_duplicate=True, labels={LABEL: "network"},
            options={"com.docker.network.bridge.enable_icc": "false"},
        )  # fmt: skip
    return _NETWORK


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
