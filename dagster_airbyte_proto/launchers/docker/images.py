"""Images, as a daemon has them or pulls them."""

import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import docker
from docker.errors import APIError, ImageNotFound

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.docker.daemon import answers, refusal
from dagster_airbyte_proto.launchers.docker.deployment import Registry

_TELL_SECONDS = 5.0
_DOING = "looking for the connector's image"

Tell = Callable[[str], None]


class Image(NamedTuple):
    """`command` is run instead of what the image runs by itself. `pull` is `missing`, `always` or `never`."""

    name: str
    command: tuple[str, ...] = ()
    pull: str = "missing"
    platform: str | None = None


Described = Mapping[str, Any]
"""An image in the daemon's words."""


def described(daemon: docker.APIClient, image: Image, registry: Registry | None, tell: Tell | None) -> Described:
    """The image, pulled if need be. Raises ConfigError where there is none of that name, or none for us."""
    with answers(_DOING, image.name):
        if image.pull != "always":
            try:
                return dict(daemon.inspect_image(image.name))
            except ImageNotFound:
                if image.pull == "never":
                    raise
        if registry is not None:
            _log_in(daemon, registry)
        _pull(daemon, image, tell or _to_nobody)
        return dict(daemon.inspect_image(image.name))


def identity(image: Image, found: Described) -> str:
    """Its name and digest: a tag that is moved is another connector. Registries know an image by that digest, each by
    one of its own, but for an image that was never in any."""
    name = image.name.partition("@")[0]
    repository = re.sub(r":[^:/]+$", "", name)
    told = sorted(found.get("RepoDigests") or (), key=lambda each: each.partition("@")[0] != repository)
    digest = told[0].partition("@")[2] if told else found["Id"]
    return " ".join([f"{name}@{digest}", *image.command])


def entrypoint(image: Image, found: Described) -> list[str]:
    """What to run. Raises ConfigError where nobody says."""
    config = found["Config"]
    if own := image.command or config.get("Entrypoint"):
        return list(own)
    for each in config.get("Env") or ():
        if each.startswith("AIRBYTE_ENTRYPOINT="):
            return shlex.split(each.partition("=")[2])
    raise ConfigError(
        "starting the connector",
        f"image {image.name} does not say what it runs",
        remedy="Set command to a program of the image that speaks the protocol.",
    )


def _log_in(daemon: docker.APIClient, registry: Registry) -> None:
    try:
        daemon.login(registry.username, registry.password, registry=registry.url, reauth=True)
    except APIError as error:
        raise ConfigError(
            "logging in to the registry of images",
            f"{registry.url} refuses {registry.username}: {error.explanation or error}",
            remedy="Correct the registry of the deployment's run launcher, executor or container context.",
        ) from error


def _pull(daemon: docker.APIClient, image: Image, tell: Tell) -> None:
    tell(f"pulling image {image.name}")
    began, layers = time.monotonic(), Layers()
    told_at = began
    for told in daemon.pull(image.name, stream=True, decode=True, platform=image.platform):
        if "error" in told:
            raise refusal(_DOING, image.name, str(told["error"]))
        layers.take(told)
        if (now := time.monotonic()) - told_at >= _TELL_SECONDS:
            told_at = now
            tell(f"pulling image {image.name}: {layers.progress()}")
    tell(f"pulled image {image.name} in {time.monotonic() - began:.0f} s")


class Layers:
    """How far a pull is."""

    def __init__(self) -> None:
        self._bytes: dict[str, tuple[int, int]] = {}
        self._complete: set[str] = set()

    def take(self, told: Mapping[str, Any]) -> None:
        layer, status = told.get("id", ""), told.get("status", "")
        if status == "Downloading" and (progress := told.get("progressDetail")):
            self._bytes[layer] = (progress.get("current", 0), progress.get("total", 0))
        elif status == "Download complete" and layer in self._bytes:
            self._bytes[layer] = (self._bytes[layer][1],) * 2
        elif status in ("Pull complete", "Already exists"):
            self._complete.add(layer)

    def progress(self) -> str:
        """In words. How many layers there are in all is told as they come."""
        got, whole = (_megabytes(each) for each in zip(*self._bytes.values(), strict=True)) if self._bytes else (0, 0)
        return f"{got} of {whole} MB, {len(self._complete)} layers done"


def _megabytes(sizes: Iterable[int]) -> int:
    return sum(sizes) // 10**6


def _to_nobody(_: str) -> None: ...
