"""A way past the daemon: a named pipe of this machine, mounted into a container, that its stdout is sent to.

What a container writes passes through the daemon at a fraction of what a pipe moves, and costs its CPU. Where that runs
beside us, and the image has a shell that can open the pipe, nothing has to pass through it; anywhere else all does. The
container's own stdout is read too, in either case: its end is the end, and what could not open the pipe says it there.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import APIError, NotFound
from docker.types import Mount

from dagster_airbyte_proto.launchers.run_folder import RunFolder
from dagster_airbyte_proto.launchers.stdout_pipe import StdoutPipe

SHELL: Final = "/bin/sh"
CALLED: Final = "airbyte-proto"
"""What the shell calls itself where it complains of the program."""

_PLACE = "/airbyte-proto.stdout"
_SCRIPT = f'(: >{_PLACE}) 2>/dev/null && exec >{_PLACE}; exec "$@"'
_THIS_MACHINES = "http+docker://localhost"
_RUNTIME = "runc"
_OUT_OF_SIGHT = "bind source path does not exist"
_APART = ("rootless", "selinux", "userns")
"""Security options of a daemon whose containers may not open what is ours."""


def is_beside_us(daemon: docker.APIClient, info: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a container with these arguments would open the same pipe as we do: it runs on our kernel, with nothing
    between the two. That it sees our files too is tried."""
    runtime = wanted.get("runtime") or info.get("DefaultRuntime")
    options = " ".join(info.get("SecurityOptions") or ())
    return (
        sys.platform == "linux"
        and daemon.base_url == _THIS_MACHINES
        and info.get("KernelVersion") == os.uname().release
        and runtime == _RUNTIME
        and not any(f"name={each}" in options for each in _APART)
    )


def hands_on(variables: Iterable[str]) -> bool:
    """Whether a shell gives all of these to what it runs: those whose names it could not write it may drop."""
    return all(each.isascii() and each.isidentifier() for each in variables)


def created_with(
    daemon: docker.APIClient, container: str, create: Callable[["Fifo"], None], parent: Path | None
) -> "Fifo | None":
    """Creates a container that is to open a pipe. None, and without it, where the daemon does not find the pipe, or the
    image has no shell."""
    try:
        fifo = Fifo.make(parent)
    except OSError:  # Not every file system has pipes.
        return None
    try:
        if _is_created(daemon, container, partial(create, fifo)):
            return fifo
    except BaseException:
        fifo.remove()
        raise
    fifo.remove()
    return None


def _is_created(daemon: docker.APIClient, container: str, create: Callable[[], None]) -> bool:
    try:
        create()
    except APIError as error:
        if _OUT_OF_SIGHT in str(error.explanation):
            return False
        raise
    try:
        shell, _ = daemon.get_archive(container, SHELL)
    except NotFound:
        daemon.remove_container(container, force=True)
        return False
    shell.close()
    return True


class Fifo:
    """The pipe of one container. It can be found for as long as that is there: the daemon looks for it whenever it is
    asked for a file of the container."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        path = folder.path / "stdout"
        os.mkfifo(path)
        path.chmod(0o622)  # The container's user is another; nobody else gets into the folder.
        # For writing too: so it has no end of its own.
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK), "rb", buffering=0)
        self._pipe = StdoutPipe(file)
        self.mount = Mount(_PLACE, str(path), type="bind", read_only=True)

    @classmethod
    def make(cls, parent: Path | None) -> "Fifo":
        folder = RunFolder.make(parent, {})
        try:
            return cls(folder)
        except BaseException:
            folder.remove()
            raise

    def opened_for(self, entrypoint: Sequence[str]) -> list[str]:
        """What runs an entry point with its stdout here, if it can be."""
        return [SHELL, "-c", _SCRIPT, CALLED, *entrypoint]

    def fileno(self) -> int:
        return self._pipe.fileno()

    def read(self) -> bytes:
        """Some of what is there."""
        return self._pipe.read()

    def rest(self) -> bytes:
        """All that is there, once whoever wrote has ended. More may come where the daemon that told so is the one that
        went away: that is lost with the container."""
        return self._pipe.rest()

    def remove(self) -> None:
        """Nobody finds it any more; who reads it may go on. Safe to call twice."""
        self._folder.remove()
