"""Images for tests, made of this machine's own Python, and of its Node, without a registry."""

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import docker

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.docker import images as docker_images
from dagster_airbyte_proto.launchers.docker.containers import LABEL
from dagster_airbyte_proto.launchers.docker.daemon import open_daemon
from dagster_airbyte_proto.launchers.docker.fifo import SHELL
from tests.support.needs import lacks, require_npm

_REPOSITORY = "airbyte-proto-test"
_LEFT_OUT = re.compile(
    r"/(test|tests|site-packages|idlelib|tkinter|ensurepip|turtledemo|lib2to3|config-[^/]+|__pycache__)$"
)
_PASSWD = b"root:x:0:0:root:/root:/bin/sh\nairbyte:x:1000:1000::/home/airbyte:/bin/sh\n"


class Image(NamedTuple):
    """An image. Everything that is made of it has the label `test`."""

    name: str
    test: str
    daemon: docker.APIClient

    def launched(self, *command: str) -> docker_images.Image:
        """The image as the model of a launch."""
        return docker_images.Image(self.name, command)

    def leftovers(self) -> list[str]:
        """The remaining containers and volumes of the test."""
        wanted = {"label": f"{LABEL}.test={self.test}"}
        containers = [each["Id"] for each in self.daemon.containers(all=True, filters=wanted)]
        volumes = [each["Name"] for each in self.daemon.volumes(filters=wanted)["Volumes"] or ()]
        return [*containers, *volumes]


@contextmanager
def python_image(
    files: Mapping[str, Path], arguments: Sequence[str], *, has_shell: bool = True, **config: str
) -> Iterator[Image]:
    """An image that runs this Python with arguments, and has the files. It is made once, and stays. Skips the test
    where there is no engine."""
    with _image(files, [_python(), *arguments], config, has_shell=has_shell) as made:
        yield made


@contextmanager
def node_image(files: Mapping[str, Path], arguments: Sequence[str]) -> Iterator[Image]:
    """The same with this machine's Node."""
    require_npm()
    node = Path(str(shutil.which("node"))).resolve()
    loaded = {str(each): each.resolve() for each in (node, *_linked([node]))}
    with _image({**files, **loaded}, [str(node), *arguments], {}) as made:
        yield made


@contextmanager
def _image(
    files: Mapping[str, Path], entry: Sequence[str], config: Mapping[str, str], *, has_shell: bool = True
) -> Iterator[Image]:
    daemon = _daemon()
    if has_shell:
        files = {**files, SHELL: Path(SHELL).resolve()}
    changes = [f"ENTRYPOINT {_json(entry)}", *(f"{key} {value}" for key, value in config.items())]
    digest = hashlib.sha256("\n".join(changes).encode())
    for place, file in files.items():
        digest.update(place.encode())
        for each in sorted(file.rglob("*.py")) if file.is_dir() else [file]:
            digest.update(str(each.relative_to(file)).encode() + each.read_bytes())
    name = f"{_REPOSITORY}:{digest.hexdigest()[:16]}"
    if not daemon.images(name):
        _build(daemon, name, files, changes)
    image = Image(name, uuid4().hex, daemon)
    yield image
    daemon.close()


def _daemon() -> docker.APIClient:
    try:
        return open_daemon().api
    except ConfigError as error:
        lacks("docker", f"no Docker engine: {error.found}")


def _build(daemon: docker.APIClient, name: str, files: Mapping[str, Path], changes: Sequence[str]) -> None:
    content = io.BytesIO()
    found = {str(file): file for file in _python_files(files.values()) if str(file) not in files}
    with tarfile.open(fileobj=content, mode="w", dereference=True) as archive:
        for parent in sorted({str(each) for place in (*found, *files) for each in Path(place).parents} - {"/"}):
            folder = tarfile.TarInfo(parent.lstrip("/"))
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755  # Otherwise only root may read them in a rootless daemon.
            archive.addfile(folder)
        for place, file in found.items():
            archive.add(file, arcname=place.lstrip("/"), filter=_needed)
        for place, file in files.items():
            archive.add(file, arcname=place.lstrip("/"))
        passwd = tarfile.TarInfo("etc/passwd")
        passwd.size = len(_PASSWD)
        archive.addfile(passwd, io.BytesIO(_PASSWD))
    content.seek(0)
    repository, _, tag = name.partition(":")
    daemon.import_image_from_data(content.getvalue(), repository=repository, tag=tag, changes=list(changes))


def _needed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _LEFT_OUT.search(f"/{member.name}") else member


def _python_files(others: Collection[Path]) -> Sequence[Path]:
    """The interpreter, its standard library, and what these and the extensions in other folders are loaded with."""
    python, library = Path(_python()), Path(os.__file__).parent
    extensions = [each for folder in (library / "lib-dynload", *others) for each in folder.rglob("*.so")]
    linked = _linked([python, *extensions])
    return [python, library, *sorted(each for each in linked if not any(map(each.is_relative_to, others)))]


def _linked(programs: Sequence[Path]) -> set[Path]:
    """The libraries that these are loaded with."""
    told = subprocess.run(["ldd", *map(str, programs)], stdout=subprocess.PIPE, check=True, text=True).stdout
    return {Path(found) for found in re.findall(r"^\t(?:.* => )?(/\S+) \(0x", told, re.MULTILINE)}


def _python() -> str:
    return str(Path(sys.executable).resolve())


def _json(words: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"
