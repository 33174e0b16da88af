"""Files that are read from containers: a connector may have put anything in their place."""

import io
import tarfile
from collections.abc import Iterator
from typing import Any, cast

import docker
import pytest

from dagster_airbyte_proto.launchers.docker.files import read_file
from dagster_airbyte_proto.launchers.run_folder import MAX_REWRITTEN_BYTES

_REGULAR, _FOLDER, _LINK = 0o600, 1 << 31, 1 << 27


class _Daemon:
    """Tells one thing of a path, and sends another. Counts the bytes that were read of it."""

    def __init__(self, chunks: Iterator[bytes], mode: int, size: int) -> None:
        self._chunks = chunks
        self._about = {"mode": mode, "size": size}
        self.sent_bytes = 0

    def get_archive(self, _: str, __: str) -> tuple[Iterator[bytes], dict[str, Any]]:
        return self._counted(), self._about

    def _counted(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.sent_bytes += len(chunk)
            yield chunk


def _archive(kind: bytes, content: bytes, *, told_size: int | None = None) -> Iterator[bytes]:
    member = tarfile.TarInfo("config.json")
    member.type, member.size = kind, len(content) if told_size is None else told_size
    data = member.tobuf() + content
    data += bytes(-len(data) % 512 + 1024)
    for at in range(0, len(data), 1000):
        yield data[at : at + 1000]


def _endless(kind: bytes, size: int) -> Iterator[bytes]:
    member = tarfile.TarInfo("config.json")
    member.type, member.size = kind, size
    yield member.tobuf()
    while True:
        yield bytes(1 << 20)


def _read(daemon: _Daemon) -> bytes | None:
    return read_file(cast("docker.APIClient", daemon), "container", "/config/run/config.json")


@pytest.mark.parametrize("content", [b"", b"{}", b"x" * 100_000])
def test_a_regular_file_is_read_whole(content: bytes) -> None:
    assert _read(_Daemon(_archive(tarfile.REGTYPE, content), _REGULAR, len(content))) == content


@pytest.mark.parametrize("mode", [_FOLDER, _LINK])
def test_what_the_daemon_calls_no_file_is_not_read_at_all(mode: int) -> None:
    daemon = _Daemon(_endless(tarfile.DIRTYPE, 0), mode | 0o700, 4096)
    assert (_read(daemon), daemon.sent_bytes) == (None, 0)


@pytest.mark.parametrize(
    ("kind", "size"), [(tarfile.DIRTYPE, 0), (tarfile.REGTYPE, 8 << 30), (tarfile.XHDTYPE, 8 << 30)]
)
def test_what_became_something_else_meanwhile_is_read_to_the_limit_at_most(kind: bytes, size: int) -> None:
    daemon = _Daemon(_endless(kind, size), _REGULAR, 2)
    assert _read(daemon) is None
    assert daemon.sent_bytes <= MAX_REWRITTEN_BYTES + (3 << 20)


def test_an_archive_that_breaks_off_gives_nothing() -> None:
    data = io.BytesIO(b"".join(_archive(tarfile.REGTYPE, b"x" * 5000))).read(2000)
    assert _read(_Daemon(iter([data]), _REGULAR, 5000)) is None
