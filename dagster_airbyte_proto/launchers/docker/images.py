"""The images of a daemon: inspecting, pulling, their identity and entry point."""

import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import docker
from docker.errors import APIError, ImageNotFound

from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.launchers.docker.daemon import docker_errors, error_from_message
from dagster_airbyte_proto.launchers.docker.deployment import ImageRegistry

_NOTIFY_SECONDS = 5.0
_STALL_SECONDS = 1800.0  # While a large layer is checked or unpacked, few messages come.
_ACTION = "looking for the connector's image"

Notify = Callable[[str], None]


class Image(NamedTuple):
    """A connector's image. `command` replaces its entry point. `pull` is `missing`, `always` or `never`."""

    name: str
    command: tuple[str, ...] = ()
    pull: str = "missing"
    platform: str | None = None


ImageDetails = Mapping[str, Any]
"""The daemon's description of an image, from `inspect`."""


def ensure_image(
    daemon: docker.APIClient, image: Image, registry: ImageRegistry | None, notify: Notify | None
) -> ImageDetails:
    """Returns the details of the image, pulled if necessary.

    Raises ConfigError if it does not exist or is not accessible.
    """
    with docker_errors(_ACTION, image.name):
        if image.pull != "always":
            try:
                return dict(daemon.inspect_image(image.name))
            except ImageNotFound:
                if image.pull == "never":
                    raise
        if registry is not None:
            _log_in(daemon, registry)
        _pull(daemon, image, notify or _ignore)
        return dict(daemon.inspect_image(image.name))


def image_identity(image: Image, found: ImageDetails) -> str:
    """The image's name and digest: a tag that was moved is another connector.

    Each registry has its own digest for an image, and the one of the image's repository is preferred. An image that was
    never in a registry has none: its id takes its place.
    """
    name = image.name.partition("@")[0]
    repository = re.sub(r":[^:/]+$", "", name)
    digests = sorted(found.get("RepoDigests") or (), key=lambda each: each.partition("@")[0] != repository)
    digest = digests[0].partition("@")[2] if digests else found["Id"]
    return " ".join([f"{name}@{digest}", *image.command])


def image_entrypoint(image: Image, found: ImageDetails, *, has_arguments: bool) -> list[str]:
    """The command to run, without the arguments that the connector gets. Where it gets none, those that the image names
    for this case are part of it, as `docker run` has it. Raises ConfigError if neither the connection nor the image
    names a command."""
    config = found["Config"]
    own_arguments = () if has_arguments else config.get("Cmd") or ()
    if own := image.command or (*(config.get("Entrypoint") or ()), *own_arguments):
        return list(own)
    for each in config.get("Env") or ():
        if each.startswith("AIRBYTE_ENTRYPOINT="):
            return shlex.split(each.partition("=")[2])
    raise ConfigError(
        "starting the connector",
        f"image {image.name} declares no command",
        remedy="Set command to a program of the image that speaks the protocol.",
    )


def _log_in(daemon: docker.APIClient, registry: ImageRegistry) -> None:
    try:
        daemon.login(registry.username, registry.password, registry=registry.url, reauth=True)
    except APIError as error:
        raise ConfigError(
            "logging in to the registry of images",
            f"{registry.url} refuses {registry.username}: {error.explanation or error}",
            remedy="Correct the registry of the deployment's run launcher, executor or container context.",
        ) from error


def _pull(daemon: docker.APIClient, image: Image, notify: Notify) -> None:
    notify(f"pulling image {image.name}")
    began, progress = time.monotonic(), PullProgress()
    notified_at = began
    for message in _messages(daemon, image):
        if "error" in message:
            raise error_from_message(_ACTION, image.name, str(message["error"]))
        progress.update(message)
        if (now := time.monotonic()) - notified_at >= _NOTIFY_SECONDS:
            notified_at = now
            notify(f"pulling image {image.name}: {progress.summary()}")
    notify(f"pulled image {image.name} in {time.monotonic() - began:.0f} s")


def _messages(daemon: docker.APIClient, image: Image) -> Iterator[Mapping[str, Any]]:
    """The messages of a pull. Raises ConnectorError if no more come: docker-py would wait for them for ever, and so
    does the daemon for a registry that has stopped in the middle of a layer."""
    came: SimpleQueue[Mapping[str, Any] | BaseException | None] = SimpleQueue()

    def read() -> None:
        try:
            for message in daemon.pull(image.name, stream=True, decode=True, platform=image.platform):
                came.put(message)
            came.put(None)
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: raised again where it is waited for
            came.put(error)

    threading.Thread(target=read, name="image-pull", daemon=True).start()
    while True:
        try:
            found = came.get(timeout=_STALL_SECONDS)
        except Empty:
            stalled = f"the pull of image {image.name} has not moved for {_STALL_SECONDS:,.0f} s"
            remedy = "Does its registry answer? Try `docker pull` on the daemon's machine."
            raise ConnectorError(_ACTION, stalled, remedy=remedy, retryable=True) from None
        if isinstance(found, BaseException):
            raise found
        if found is None:
            return
        yield found


class PullProgress:
    """The progress of a pull, from the daemon's messages."""

    def __init__(self) -> None:
        self._bytes: dict[str, tuple[int, int]] = {}
        self._complete: set[str] = set()

    def update(self, message: Mapping[str, Any]) -> None:
        layer, status = message.get("id", ""), message.get("status", "")
        if status == "Downloading" and (progress := message.get("progressDetail")):
            self._bytes[layer] = (progress.get("current", 0), progress.get("total", 0))
        elif status == "Download complete" and layer in self._bytes:
            self._bytes[layer] = (self._bytes[layer][1],) * 2
        elif status in ("Pull complete", "Already exists"):
            self._complete.add(layer)

    def summary(self) -> str:
        """The progress in words. The total grows while the daemon announces more layers."""
        received, total = (
            (_megabytes(each) for each in zip(*self._bytes.values(), strict=True)) if self._bytes else (0, 0)
        )
        return f"{received} of {total} MB, {len(self._complete)} layers done"


def _megabytes(sizes: Iterable[int]) -> int:
    return sum(sizes) // 10**6


def _ignore(_: str) -> None: ...
