"""Folders of installed packages, each built once, in a folder of its own, and named by a link.

A folder is built under a lock (flock: the kernel frees it however its holder ends), under a random name. Then a
symbolic link with its real name is moved into place, atomically. So a name that exists is a complete folder, and
readers need no lock.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dagster_airbyte_proto.launchers.packages.environment_use import locks_alone

LOCK_FILE = "lock.txt"
"""The file with the version of the interpreter and the installed packages. It is written last: it marks a complete
build."""
BUILD = ".build-"
"""The part of a folder's name that stands between the name of its environment and a random end."""


def link_of_build(folder: Path) -> Path:
    """The link with the name of the environment that was built in this folder."""
    return folder.with_name(folder.name.partition(BUILD)[0])


def lock_of_build(link: Path) -> Path:
    """The file whose lock the builder of an environment holds."""
    return link.with_name(f"{link.name}.lock")


def build_and_link(link: Path, install: Callable[[Path], None]) -> None:
    """Has a new folder filled, then moves the link to it into place. Needs the lock of the build."""
    for remnant in link.parent.glob(f"{link.name}{BUILD}*"):
        shutil.rmtree(remnant, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{link.name}{BUILD}", dir=link.parent))
    try:
        install(folder)
        fresh = folder / "link"
        fresh.symlink_to(folder.name, target_is_directory=True)
        fresh.replace(link)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Gives True with the lock held, or False if another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield locks_alone(descriptor)
    finally:
        os.close(descriptor)
