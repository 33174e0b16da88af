"""Tells whether a path lies on a network file system, where SQLite's locks and shared memory do not hold."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

# The kernel calls those that a program serves by FUSE "fuse." and the program's kind.
_NETWORK = frozenset(("afs", "afpfs", "ceph", "cifs", "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.sshfs",
                      "glusterfs", "lustre", "nfs", "nfs4", "smb3", "smbfs", "webdav"))  # fmt: skip


class Mount(Protocol):
    """A mounted file system, as psutil has it."""

    @property
    def mountpoint(self) -> str: ...

    @property
    def fstype(self) -> str: ...


def network_file_system(path: Path, mounts: Iterable[Mount]) -> str:
    """The kind of the network file system that a path lies on; empty if it is local, or nothing is known."""
    whole = path.absolute().resolve()
    above = [mount for mount in mounts if whole.is_relative_to(mount.mountpoint)]
    # Of several at the same place the last one is seen.
    nearest = max(enumerate(above), key=lambda found: (len(Path(found[1].mountpoint).parts), found[0]), default=None)
    kind = nearest[1].fstype.lower() if nearest else ""
    return kind if kind in _NETWORK else ""
