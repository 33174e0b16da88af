"""Singer BATCH files: records that a connector writes to files instead of its output.

The files belong to the connector. They lie on this machine or in an object store; pyarrow's file systems read both.
They are removed once their rows have landed. No Python code runs per line: replacing the newlines of a piece with the
frame of a RECORD message turns all its records into record lines at once.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyarrow.fs import FileSystem, LocalFileSystem

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.protocols.events import BatchEvent
from dagster_airbyte_proto.sync.read.completeness import READING

_PIECE_BYTES = 4 << 20
_COMPRESSIONS = {"": "detect", "none": None, "gzip": "gzip", "gz": "gzip", "bz2": "bz2", "zstd": "zstd", "lz4": "lz4"}
_LINE_ENDS = re.compile(rb"\s*\n\s*")


def record_lines(event: BatchEvent, url: str) -> Iterator[tuple[bytes, int]]:
    """Yields the record lines of one file of the batch, piece by piece, with the number of lines in each.

    Raises ConnectorError for a format that is not supported, and for a file that cannot be read.
    """
    if event.format != "jsonl" or event.compression not in _COMPRESSIONS:
        written = f"{event.format}, compressed by {event.compression}" if event.compression else event.format
        raise _batch_error(
            event,
            f"it writes batch files as {written}",
            "Configure it to write jsonl, compressed with gzip or not at all.",
        )
    before, behind = event.frame
    try:
        for piece in _whole_lines(url, _COMPRESSIONS[event.compression]):
            text = _LINE_ENDS.sub(b"\n", piece).strip(b"\n") if b"\n\n" in piece or b"\r" in piece else piece[:-1]
            if text:
                lines = text.replace(b"\n", behind + b"\n" + before)
                yield b"%b%b%b\n" % (before, lines, behind), text.count(b"\n") + 1
    except (OSError, pa.ArrowInvalid) as error:
        found = f"its batch file {url} cannot be read: {error}"
        raise _batch_error(
            event, found, "Check that the file is on this machine, and that this process may read it."
        ) from error


def remove_sources(urls: Iterable[str]) -> None:
    """Removes batch files whose rows have landed. One that cannot be removed stays: nothing in it is needed any
    more."""
    for url in urls:
        with suppress(OSError, pa.ArrowInvalid):
            system, path = _locate(url)
            system.delete_file(path)


def _locate(url: str) -> tuple[FileSystem, str]:
    """The file system and the path of a URL.

    Taps built with Meltano's SDK write the path behind `file://` as it is, without percent-encoding. So a local file is
    looked for under the literal path first.
    """
    path = url.removeprefix("file://")
    return (LocalFileSystem(), path) if Path(path).is_file() else FileSystem.from_uri(url)


def _whole_lines(url: str, compression: str | None) -> Iterator[bytes]:
    """Yields the decompressed content in pieces that end with a newline. A last line without one is given one."""
    system, path = _locate(url)
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


def _batch_error(event: BatchEvent, found: str, remedy: str) -> ConnectorError:
    return ConnectorError(READING, found, remedy=remedy, stream=str(event.stream), retryable=True)
