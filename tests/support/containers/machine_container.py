"""Containers that see this machine's files, so that its Python and this code run in them, as in a deployment."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.containers.images import Image, python_image

REPOSITORY = Path(__file__).parents[3]
_SOCKET = Path("/var/run/docker.sock")


@contextmanager
def machine_image() -> Iterator[Image]:
    """The image of such containers. Each one sets its own program."""
    with python_image({}, [], ENTRYPOINT="[]") as image:
        yield image


def machine_volumes(*folders: Path) -> list[str]:
    """Where a Python of this machine and all that it needs is, the folders, and the daemon's socket."""
    return [f"{each}:{each}" for each in dict.fromkeys((*_python_folders(), *folders, _SOCKET))]


def _python_folders() -> Iterator[Path]:
    yield from {Path(sys.base_prefix), Path(sys.prefix), REPOSITORY}
    yield from (path for path in map(Path, ("/usr", "/bin", "/lib", "/lib64", "/etc/ssl")) if path.exists())
