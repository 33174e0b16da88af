"""The private files of a container.

They are in a volume of the container, written by the daemon's archive call before the start, and owned by the user that
the connector runs as. No folder of ours is mounted: so the daemon may be on another machine or map user ids, and the
root file system may be read-only.
"""

import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import docker
from docker.errors import NotFound

from dagster_airbyte_proto.launchers.run_folder import MAX_REWRITTEN_BYTES

VOLUME = "/config"
FOLDER = f"{VOLUME}/run"
_NOBODY = "65534:65534"
# Headers and padding in addition to the file.
_MAX_ARCHIVE_BYTES = MAX_REWRITTEN_BYTES + (1 << 20)
_READ_BYTES = 1 << 20
# Go's file modes: folder, link, pipe, socket, devices and irregular ones.
_NO_REGULAR_FILE = 0x8F280000


def run_user(image: Mapping[str, Any], requested: str | None) -> str:
    """The user that the connector runs as: the requested one, else the image's; nobody in place of root, except for
    `image`."""
    own = str(image["Config"].get("User") or "")
    if requested == "image":
        return own
    return requested or (_NOBODY if own.partition(":")[0] in ("", "0", "root") else own)


def start_folder(image: Mapping[str, Any], *, has_arguments: bool) -> str:
    """The folder that the connector starts in: its private one, which it may write to.

    One that gets no arguments is run as its image has it: `ENTRYPOINT ["node", "main.js"]` is of the image's folder.
    """
    return FOLDER if has_arguments else str(image["Config"].get("WorkingDir") or FOLDER)


def user_and_group_ids(daemon: docker.APIClient, container: str, user: str) -> tuple[int, int]:
    """The ids of a user and its group.

    Names are looked up in the image's /etc/passwd and /etc/group; unknown ones are root.
    """
    name, _, group = user.partition(":")
    if name.isdigit() and group.isdigit():
        return int(name), int(group)
    known = _account_lines(daemon, container, "/etc/passwd")
    found = known.get(name) or next((line for line in known.values() if line[2] == name), ["", "", "0", "0"])
    number = int(name) if name.isdigit() else int(found[2])
    if not group:
        return number, int(found[3])
    groups = {} if group.isdigit() else _account_lines(daemon, container, "/etc/group")
    return number, int(group) if group.isdigit() else int(groups.get(group, found)[2])


def write_files(daemon: docker.APIClient, container: str, files: Mapping[str, bytes], owner: tuple[int, int]) -> None:
    """Writes the run folder with its files into the volume. Only the owner may read and write it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        folder = tarfile.TarInfo("run")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o700
        folder.uid, folder.gid = owner
        archive.addfile(folder)
        for name, data in files.items():
            file = tarfile.TarInfo(f"run/{name}")
            file.size, file.mode = len(data), 0o600
            file.uid, file.gid = owner
            archive.addfile(file, io.BytesIO(data))
    daemon.put_archive(container, VOLUME, content.getvalue())


def read_file(daemon: docker.APIClient, container: str, path: str) -> bytes | None:
    """The content of a regular file, whether the container runs or not; None if there is none, or it is very large.

    A symbolic link gives None too: the daemon's archive does not contain its target. The connector may have put
    anything in the place of the file. So the archive is read only as far as its first member, and counted: that of a
    folder has all that lies below it, and a file may have grown since its size was read.
    """
    try:
        chunks, about = daemon.get_archive(container, path)
    except NotFound:
        return None
    with closing(chunks):
        if about["mode"] & _NO_REGULAR_FILE or about["size"] > MAX_REWRITTEN_BYTES:
            return None
        try:
            with tarfile.open(
                fileobj=_BoundedReader(chunks, _MAX_ARCHIVE_BYTES), mode="r|", bufsize=_READ_BYTES
            ) as archive:
                member = archive.next()
                if member is None or not member.isfile() or member.size > MAX_REWRITTEN_BYTES:
                    return None
                file = archive.extractfile(member)
                return file.read() if file else None
        except tarfile.ReadError:
            return None


class _BoundedReader(io.RawIOBase):
    """The first bytes of some chunks, as a file that tarfile reads: what comes behind the limit is never asked for."""

    def __init__(self, chunks: Iterator[bytes], limit: int) -> None:
        self._chunks, self._left, self._held = chunks, limit, b""

    def read(self, size: int = -1) -> bytes:
        while len(self._held) < size and self._left > 0:
            chunk = next(self._chunks, b"")[: self._left]
            self._left = self._left - len(chunk) if chunk else 0
            self._held += chunk
        taken, self._held = self._held[:size], self._held[size:]
        return taken


def _account_lines(daemon: docker.APIClient, container: str, path: str) -> dict[str, list[str]]:
    """The lines of /etc/passwd or /etc/group by their names."""
    text = (read_file(daemon, container, path) or b"").decode(errors="replace")
    lines = (line.split(":") for line in text.splitlines())
    return {line[0]: line for line in lines if len(line) >= 4 and line[2].isdigit()}
