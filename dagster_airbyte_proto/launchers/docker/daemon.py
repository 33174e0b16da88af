"""The client of the Docker daemon, and the translation of docker-py's errors into errors of this package."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils import kwargs_from_env
from urllib3.exceptions import HTTPError

from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtoError

_ANSWER_SECONDS = 120
# The daemon reports these causes only as text, which decides the class of our error: who can fix it, and how.
_NO_PROGRAM = ("executable file not found", "no such file or directory", "no command specified")
_OTHER_MACHINE = ("exec format error", "no matching manifest", "does not match the specified platform")
_NO_PERMISSION = re.compile(r"\bexec\b.*permission denied", re.DOTALL)
_NO_IMAGE = ("no such image:",)
_INVALID_SETTING = re.compile(
    r"^network .* not found|^unable to find (user|group)|^invalid volume specification|invalid reference format"
)
# `docker system prune` removes a network in which no container runs yet. The daemon names it by its name or its id.
_PRUNED_NETWORK = re.compile("^network (airbyte-proto-|[0-9a-f]{64} )")
_NO_ACCESS = ("pull access denied", "manifest unknown", "unauthorized", "no basic auth credentials")
_NO_REGISTRY = ("dial tcp", "tls handshake timeout", "client.timeout exceeded")
_DISK_FULL = ("no space left on device",)

UNREACHABLE = (DockerException, requests.RequestException, OSError)
"""The errors of docker-py if the daemon does not answer or refuses a request."""


def open_daemon(answer_seconds: int = _ANSWER_SECONDS) -> docker.DockerClient:
    """Opens the daemon that DOCKER_HOST names, else this machine's. Raises ConfigError if there is none."""
    try:
        return docker.DockerClient(version="auto", timeout=answer_seconds, **kwargs_from_env())
    except (DockerException, OSError) as error:
        failure = ConfigError(
            "connecting to Docker",
            root_cause(error),
            remedy="Is its daemon running, and may you use it? DOCKER_HOST says where it is, if it is not on this "
            "machine.",
        )
        # One that restarts, or that is started beside us, refuses connections for a moment.
        failure.retryable = isinstance(_root(error), ConnectionError | TimeoutError)
        raise failure from error


@contextmanager
def docker_errors(action: str, image: str) -> Iterator[None]:
    """Turns the daemon's errors inside the block into errors of this package."""
    try:
        yield
    except APIError as error:
        message = str(error.explanation or error)
        known = error_from_message(action, image, message)
        if known.retryable and isinstance(error, ImageNotFound):
            known = ConfigError(action, f"there is no image {image}: {message}", remedy=_FIND_IMAGE)
        elif known.retryable and error.status_code == requests.codes.bad_request:
            known = ConfigError(action, message, remedy=_CORRECT_LAUNCH)
        raise known from error
    except HTTPError as error:  # docker-py reads the messages of a pull past requests, and passes urllib3's errors on
        found = "Docker's daemon went away in the middle of its answer"
        raise ConnectorError(action, found, remedy="Is it running?", retryable=True) from error
    except UNREACHABLE as error:
        raise ConnectorError(
            action, f"Docker's daemon does not answer: {root_cause(error)}", remedy="Is it running?", retryable=True
        ) from error


_CORRECT_LAUNCH = "Correct it in the connection's launch."
_FIND_IMAGE = "Correct its name, log in to its registry (`docker login`), or load it (`docker load`)."


def error_from_message(action: str, image: str, message: str) -> ProtoError:
    """The error for a message of the daemon, of the class that says who can fix it."""
    words = message.lower()
    if any(word in words for word in _DISK_FULL):
        return ConnectorError(action, f"Docker's disk is full: {message}", remedy="Make room there.", retryable=True)
    if any(word in words for word in _OTHER_MACHINE):
        remedy = "Set platform to one that this machine runs and the image is made for; `pull: always` fetches it."
        return ConfigError(action, f"image {image} is made for another kind of machine: {message}", remedy=remedy)
    if _NO_PERMISSION.search(words):
        remedy = "Set user to one who may: `image` is the user that the image itself names, even root."
        return ConfigError(action, f"the user may not run the program of image {image}: {message}", remedy=remedy)
    if any(word in words for word in _NO_PROGRAM):
        remedy = "Set command to a program of the image that speaks the protocol."
        return ConfigError(action, f"image {image} does not have the program to run: {message}", remedy=remedy)
    if _INVALID_SETTING.search(words) and not _PRUNED_NETWORK.match(words):
        return ConfigError(action, message, remedy=_CORRECT_LAUNCH)
    if any(word in words for word in _NO_IMAGE):
        return ConfigError(action, f"there is no image {image}", remedy=_FIND_IMAGE)
    if any(word in words for word in _NO_ACCESS):
        return ConfigError(action, f"image {image} cannot be pulled: {message}", remedy=_FIND_IMAGE)
    if any(word in words for word in _NO_REGISTRY):
        remedy = "Is there a network? Without one, load the image (`docker load`)."
        found = f"image {image} is not here, and its registry does not answer: {message}"
        return ConnectorError(action, found, remedy=remedy, retryable=True)
    return ConnectorError(action, message, retryable=True)


def root_cause(error: BaseException) -> str:
    """The text of the error at the bottom of a chain: docker-py wraps requests, which wraps urllib3."""
    return str(_root(error))


def _root(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error
