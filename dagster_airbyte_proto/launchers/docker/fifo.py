"""A named pipe of this machine, mounted into a container, that takes the container's stdout past the daemon.

The daemon passes on a container's output at a fraction of the speed of a pipe (0.3 against 1.3 GB/s), and costs CPU.

1. The pipe is used only if the daemon runs on our machine and kernel, and the image has a shell that can open the pipe.
   Otherwise the output goes through the daemon.
2. The container's own stdout is read in both cases: its end is the end of the output, and a program whose shell could
   not open the pipe writes there.
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

from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.launchers.run_folder import RunFolder
from dagster_airbyte_proto.launchers.stdout_pipe import StdoutPipe

SHELL: Final = "/bin/sh"
SHELL_NAME: Final = "airbyte-proto"
"""The name that the shell puts before its own error messages."""

_PATH_IN_CONTAINER = "/airbyte-proto.stdout"
_SCRIPT = f'(: >{_PATH_IN_CONTAINER}) 2>/dev/null && exec >{_PATH_IN_CONTAINER}; exec "$@"'
_LOCAL_DAEMON_URL = "http+docker://localhost"
_RUNTIME = "runc"
_PATH_NOT_FOUND = "bind source path does not exist"
_ISOLATING_OPTIONS = ("rootless", "selinux", "userns")
"""Security options of a daemon whose containers may not be able to open our files."""


def shares_our_kernel(daemon: docker.APIClient, info: Mapping[str, Any], kwargs: Mapping[str, Any]) -> bool:
    """True if a container with these arguments runs directly on our kernel, so that it could open our pipe.

    Whether the daemon also sees our files is found by a try: see `create_with_fifo`.
    """
    runtime = kwargs.get("runtime") or info.get("DefaultRuntime")
    options = " ".join(info.get("SecurityOptions") or ())
    return (
        sys.platform == "linux"
        and daemon.base_url == _LOCAL_DAEMON_URL
        and info.get("KernelVersion") == os.uname().release
        and runtime == _RUNTIME
        and not any(f"name={each}" in options for each in _ISOLATING_OPTIONS)
    )


def pass_through_shell(variables: Iterable[str]) -> bool:
    """True if a shell passes all of these variables on. It may drop those whose names are no shell identifiers."""
    return all(each.isascii() and each.isidentifier() for each in variables)


def create_with_fifo(
    daemon: docker.APIClient, container: str, create: Callable[["Fifo"], None], parent: Path | None
) -> "Fifo | None":
    """Creates a container whose stdout goes to a pipe.

    Returns None, and leaves no container, if the daemon does not see the pipe or the image has no shell.
    """
    try:
        fifo = Fifo.make(parent)
    except (OSError, StagingError):  # Not every file system supports named pipes, and not every one has room.
        return None
    try:
        if _try_to_create(daemon, container, partial(create, fifo)):
            return fifo
    except BaseException:
        fifo.remove()
        raise
    fifo.remove()
    return None


def _try_to_create(daemon: docker.APIClient, container: str, create: Callable[[], None]) -> bool:
    try:
        create()
    except APIError as error:
        if _PATH_NOT_FOUND in str(error.explanation):
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
    """The pipe of one container. It must exist as long as the container: the daemon resolves the mount again whenever a
    file of the container is requested."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        path = folder.path / "stdout"
        os.mkfifo(path)
        path.chmod(0o622)  # The container runs as another user. The folder (0700) keeps everybody else out.
        # Opened for writing too, so that it never ends: the end of the container's own stdout is the end.
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK), "rb", buffering=0)
        self._pipe = StdoutPipe(file)
        self.mount = Mount(_PATH_IN_CONTAINER, str(path), type="bind", read_only=True)

    @classmethod
    def make(cls, parent: Path | None) -> "Fifo":
        folder = RunFolder.make(parent, {})
        try:
            return cls(folder)
        except BaseException:
            folder.remove()
            raise

    def wrap_entrypoint(self, entrypoint: Sequence[str]) -> list[str]:
        """A command that runs an entry point with its stdout in this pipe, if the shell can open it."""
        return [SHELL, "-c", _SCRIPT, SHELL_NAME, *entrypoint]

    def fileno(self) -> int:
        return self._pipe.fileno()

    def read(self) -> bytes:
        """Returns one chunk of what the pipe holds."""
        return self._pipe.read()

    def read_rest(self) -> bytes:
        """Returns everything the pipe holds, after the writer has ended.

        If it was the daemon that went away, the container may still write: that output is lost with the container.
        """
        return self._pipe.read_rest()

    def remove(self) -> None:
        """Removes the pipe from the file system. A reader may read on. Safe to call twice."""
        self._folder.remove()
