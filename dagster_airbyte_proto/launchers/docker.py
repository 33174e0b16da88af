"""A connector that is an image: a container for each question, confined, and gone afterwards.

The config's files go into a volume of the container's own by the daemon's archive call, owned by the user that the
connector runs as: no folder of ours is mounted, so the daemon may be on another machine, or map users to others.
"""

import io
import os
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import docker
from docker.errors import ImageNotFound, NotFound
from docker.types import Mount

from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.launchers import docker_guardian
from dagster_airbyte_proto.launchers.docker_containers import LABEL, VERB, containers, labelled
from dagster_airbyte_proto.launchers.docker_daemon import answers, open_daemon
from dagster_airbyte_proto.launchers.docker_running import DockerConnector, Guardian, Held, give_up, remove
from dagster_airbyte_proto.launchers.process import RunOptions
from dagster_airbyte_proto.protocols.session import FileArgument, Invocation

_VOLUME = "/config"
_FOLDER = f"{_VOLUME}/run"
_NETWORK = "airbyte-proto"
_NOBODY = 65534
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
                self._create(daemon, name, described, invocation, environment)
                _put(daemon, name, invocation.files, _owner(daemon, name, described, self._confinement.user))
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
        described: Mapping[str, Any],
        invocation: Invocation,
        environment: Mapping[str, str],
    ) -> None:
        confined = self._confinement
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
            mounts=[Mount(_VOLUME, None, type="volume", labels=labels)],
            nano_cpus=int(min(confined.cpus, daemon.info()["NCPU"]) * 10**9),
            network_mode=_network(daemon, confined.network),
            pids_limit=confined.pids,
            read_only=confined.read_only,
            security_opt=["no-new-privileges"],
            tmpfs={"/tmp": f"rw,nosuid,nodev,exec,mode=1777,size={confined.tmp}"},  # noqa: S108 - the container's own
        )
        daemon.create_container(
            self._image,
            [f"{_FOLDER}/{each.name}" if isinstance(each, FileArgument) else each for each in invocation.arguments],
            entrypoint=entrypoint,
            environment=own,
            host_config=host,
            labels=labels,
            name=name,
            platform=self._platform,
            user=_user(described, confined.user),
            working_dir=_FOLDER,
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


def _user(described: Mapping[str, Any], wanted: str | None) -> str:
    own = str(described["Config"].get("User") or "")
    if wanted == "image":
        return own
    is_root = own.partition(":")[0] in ("", "0", "root")
    return wanted or (f"{_NOBODY}:{_NOBODY}" if is_root else own)


def _owner(daemon: docker.APIClient, name: str, described: Mapping[str, Any], wanted: str | None) -> tuple[int, int]:
    """The numbers of the user and group that the connector runs as."""
    user, _, group = _user(described, wanted).partition(":")
    if user.isdigit() and group.isdigit():
        return int(user), int(group)
    users = {line[0]: line for line in _lines(daemon, name, "/etc/passwd")}
    groups = {line[0]: line for line in _lines(daemon, name, "/etc/group")} if group else {}
    known = users.get(user) or next((line for line in users.values() if line[2] == user), None)
    number = int(user) if user.isdigit() else int(known[2]) if known else 0
    if group:
        return number, int(group) if group.isdigit() else int(groups[group][2]) if group in groups else number
    return number, int(known[3]) if known else 0


def _lines(daemon: docker.APIClient, name: str, path: str) -> list[list[str]]:
    try:
        chunks, _ = daemon.get_archive(name, path)
    except NotFound:
        return []
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        file = archive.extractfile(archive.getmembers()[0])
        text = file.read().decode(errors="replace") if file else ""
    return [line.split(":") for line in text.splitlines() if line.count(":") >= 2]


def _put(daemon: docker.APIClient, name: str, files: Mapping[str, bytes], owner: tuple[int, int]) -> None:
    """The private folder of the run: readable by its user alone, who may write it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        folder = tarfile.TarInfo("run")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o700
        folder.uid, folder.gid = owner
        archive.addfile(folder)
        for path, data in files.items():
            file = tarfile.TarInfo(f"run/{path}")
            file.size, file.mode = len(data), 0o600
            file.uid, file.gid = owner
            archive.addfile(file, io.BytesIO(data))
    daemon.put_archive(name, _VOLUME, content.getvalue())


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
