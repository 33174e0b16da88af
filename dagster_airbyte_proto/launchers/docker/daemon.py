"""Docker's daemon, as a launcher speaks to it: docker-py's calls, and what they raise as errors of ours."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils import kwargs_from_env

from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtoError

_ANSWER_SECONDS = 120
# What the daemon says in words alone, who can mend it, and how.
_NO_PROGRAM = ("executable file not found", "no such file or directory", "no command specified")
_OTHER_MACHINE = ("exec format error", "no matching manifest", "does not match the specified platform")
_NO_PERMISSION = re.compile(r"\bexec\b.*permission denied", re.DOTALL)
_NO_IMAGE = ("no such image:",)
_WRONG = re.compile(
    r"^network .* not found|^unable to find (user|group)|^invalid volume specification|invalid reference format"
)
_NOT_FOR_US = ("pull access denied", "manifest unknown", "unauthorized", "no basic auth credentials")
_FULL = ("no space left on device",)

UNREACHABLE = (DockerException, requests.RequestException, OSError)
"""What its client raises where it does not answer, or refuses."""


def open_daemon() -> docker.DockerClient:
    """The client of the daemon that DOCKER_HOST names, else this machine's. Raises ConfigError where there is none."""
    try:
        return docker.DockerClient(version="auto", timeout=_ANSWER_SECONDS, **kwargs_from_env())
    except (DockerException, OSError) as error:
        raise ConfigError(
            "connecting to Docker",
            innermost(error),
            remedy="Is its daemon running, and may you use it? DOCKER_HOST says where it is, if it is not this "
            "machine's.",
        ) from error


@contextmanager
def answers(doing: str, image: str) -> Iterator[None]:
    """What the daemon refuses, and that it does not answer, as errors of ours."""
    try:
        yield
    except APIError as error:
        told = str(error.explanation or error)
        known = refusal(doing, image, told)
        if known.retryable and isinstance(error, ImageNotFound):
            known = ConfigError(doing, f"there is no image {image}: {told}", remedy=_FIND_IMAGE)
        elif known.retryable and error.status_code == requests.codes.bad_request:
            known = ConfigError(doing, told, remedy=_CORRECT)
        raise known from error
    except UNREACHABLE as error:
        raise ConnectorError(
            doing, f"Docker's daemon does not answer: {innermost(error)}", remedy="Is it running?", retryable=True
        ) from error


_CORRECT = "Correct what the connection's launch says of it."
_FIND_IMAGE = "Correct its name, log in to its registry (`docker login`), or load it (`docker load`)."


def refusal(doing: str, image: str, told: str) -> ProtoError:
    """What was told, by the class of error that says who can mend it."""
    words = told.lower()
    if any(word in words for word in _FULL):
        return ConnectorError(doing, f"Docker's disk is full: {told}", remedy="Make room there.", retryable=True)
    if any(word in words for word in _OTHER_MACHINE):
        remedy = "Set platform to one that this machine runs and the image is made for; `pull: always` gets that one."
        return ConfigError(doing, f"image {image} is made for another kind of machine: {told}", remedy=remedy)
    if _NO_PERMISSION.search(words):
        remedy = "Set user to one who may: `image` is whom the image itself names, even root."
        return ConfigError(doing, f"the user may not run the program of image {image}: {told}", remedy=remedy)
    if any(word in words for word in _NO_PROGRAM):
        remedy = "Set command to a program of the image that speaks the protocol."
        return ConfigError(doing, f"image {image} does not have the program that it is to run: {told}", remedy=remedy)
    if _WRONG.search(words):
        return ConfigError(doing, told, remedy=_CORRECT)
    if any(word in words for word in _NO_IMAGE):
        return ConfigError(doing, f"there is no image {image}", remedy=_FIND_IMAGE)
    if any(word in words for word in _NOT_FOR_US):
        return ConfigError(doing, f"image {image} cannot be pulled: {told}", remedy=_FIND_IMAGE)
    return ConnectorError(doing, told, retryable=True)


def innermost(error: BaseException) -> str:
    """The reason that a stack of libraries has wrapped."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return str(error)
