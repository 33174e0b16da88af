"""Files in which a connector hands records over instead of printing them: read, and removed once their rows are in.

They are the connector's, on this machine or in an object store, and pyarrow's file systems know both. Nothing in Python
is done for a line of them: a record becomes a record line where the newlines are replaced.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyarrow.fs import FileSystem, LocalFileSystem

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.protocols.events import BatchEvent
from dagster_airbyte_proto.sync.read.verdict import READING

_PIECE_BYTES = 4 << 20
_COMPRESSIONS = {"": "detect", "none": None, "gzip": "gzip", "gz": "gzip", "bz2": "bz2", "zstd": "zstd", "lz4": "lz4"}
_ENDS = re.compile(rb"\s*\n\s*")


def record_lines(event: BatchEvent, url: str) -> Iterator[tuple[bytes, int]]:
    """The record lines of one of its files, piece by piece, and how many each piece has. Raises ConnectorError."""
    if event.format != "jsonl" or event.compression not in _COMPRESSIONS:
        written = f"{event.format}, compressed by {event.compression}" if event.compression else event.format
        raise _refusal(event, f"it hands records over as {written}", "Have it write jsonl, with gzip or plain.")
    before, behind = event.frame
    try:
        for piece in _whole_lines(url, _COMPRESSIONS[event.compression]):
            text = _ENDS.sub(b"\n", piece).strip(b"\n") if b"\n\n" in piece or b"\r" in piece else piece[:-1]
            if text:
                lines = text.replace(b"\n", behind + b"\n" + before)
                yield b"%b%b%b\n" % (before, lines, behind), text.count(b"\n") + 1
    except (OSError, pa.ArrowInvalid) as error:
        found = f"{url}, which it handed over, cannot be read: {error}"
        raise _refusal(event, found, "Is it on this machine, and may we read it?") from error


def remove_sources(urls: Iterable[str]) -> None:
    """What cannot be removed stays: it holds nothing that is still needed."""
    for url in urls:
        with suppress(OSError, pa.ArrowInvalid):
            system, path = _place(url)
            system.delete_file(path)


def _place(url: str) -> tuple[FileSystem, str]:
    """Taps of meltano's SDK write a path as it is behind the scheme, and encode nothing of it."""
    path = url.removeprefix("file://")
    return (LocalFileSystem(), path) if Path(path).is_file() else FileSystem.from_uri(url)


def _whole_lines(url: str, compression: str | None) -> Iterator[bytes]:
    system, path = _place(url)
    with system.open_input_stream(path, compression=compression) as file:
        rest: list[bytes] = []
        while piece := file.read(_PIECE_BYTES):
            end = piece.rfind(b"\n") + 1
            if end:
                yield b"".join([*rest, piece[:end]])
                rest = []
            rest.append(piece[end:])
        if last := b"".join(rest):
            yield last + b"\n"


def _refusal(event: BatchEvent, found: str, remedy: str) -> ConnectorError:
    return ConnectorError(READING, found, remedy=remedy, stream=str(event.stream), retryable=True)
