"""The private files of a container: in a volume of its own, written by the daemon's archive call before it starts, and
owned by the user that the connector runs as. No folder of ours is mounted, so the daemon may be on another machine, or
map users to others; and the root file system may be read-only.
"""

import io
import tarfile
from collections.abc import Mapping
from typing import Any

import docker
from docker.errors import NotFound

from dagster_airbyte_proto.launchers.run_folder import LARGEST_CHANGED_BYTES

VOLUME = "/config"
FOLDER = f"{VOLUME}/run"
_NOBODY = "65534:65534"


def user_of(image: Mapping[str, Any], wanted: str | None) -> str:
    """Whom the connector runs as: who is `wanted`, or whom the image names; nobody instead of root, but for `image`."""
    own = str(image["Config"].get("User") or "")
    if wanted == "image":
        return own
    return wanted or (_NOBODY if own.partition(":")[0] in ("", "0", "root") else own)


def numbers_of(daemon: docker.APIClient, container: str, user: str) -> tuple[int, int]:
    """A user's and their group's, by the image's own list where names are given; root's where it does not know them."""
    name, _, group = user.partition(":")
    if name.isdigit() and group.isdigit():
        return int(name), int(group)
    known = _known(daemon, container, "/etc/passwd")
    found = known.get(name) or next((line for line in known.values() if line[2] == name), ["", "", "0", "0"])
    number = int(name) if name.isdigit() else int(found[2])
    if not group:
        return number, int(found[3])
    groups = {} if group.isdigit() else _known(daemon, container, "/etc/group")
    return number, int(group) if group.isdigit() else int(groups.get(group, found)[2])


def put(daemon: docker.APIClient, container: str, files: Mapping[str, bytes], owner: tuple[int, int]) -> None:
    """The folder of the run with its files, for its owner alone, who may write it."""
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


def taken(daemon: docker.APIClient, container: str, path: str) -> bytes | None:
    """What stands in a file, whether the container runs or not; None where there is none, or one that is very large. A
    link is none: where it leads is not in the archive."""
    try:
        chunks, about = daemon.get_archive(container, path)
    except NotFound:
        return None
    if about["size"] > LARGEST_CHANGED_BYTES:
        return None
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        member = archive.getmembers()[0]
        file = archive.extractfile(member) if member.isfile() else None
        return file.read() if file else None


def _known(daemon: docker.APIClient, container: str, path: str) -> dict[str, list[str]]:
    """The lines of a list of users, or groups, by their names."""
    text = (taken(daemon, container, path) or b"").decode(errors="replace")
    lines = (line.split(":") for line in text.splitlines())
    return {line[0]: line for line in lines if len(line) >= 4 and line[2].isdigit()}
