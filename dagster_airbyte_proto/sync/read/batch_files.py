"""Singer BATCH files: records that a connector writes to files instead of its output.

The files belong to the connector. They lie on this machine or in an object store; pyarrow's file systems read both.
They are removed once their rows have landed. No Python code runs per line: replacing the newlines of a piece with the
frame of a RECORD message turns all its records into record lines at once.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.loads.batch_folder import BatchFolder, open_batch_file
from dagster_airbyte_proto.protocols.events import BatchEvent
from dagster_airbyte_proto.protocols.lines import BYTE_ORDER_MARK
from dagster_airbyte_proto.staging.lines.demux import MAX_LINE_BYTES
from dagster_airbyte_proto.sync.landing.completeness import READING

_PIECE_BYTES = 4 << 20
# Rows as JSON shrink to a tenth or a thirtieth. gzip packs zeros to a thousandth, and other methods to much less. Small
# files may be of one row, repeated.
_MAX_RATIO = 200
_ANY_BYTES = 64 << 20
_COMPRESSIONS = {"": "by name", "none": None, "gzip": "gzip", "gz": "gzip", "bz2": "bz2", "zstd": "zstd", "lz4": "lz4"}
_ENDINGS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
# Blank lines, and spaces before a line. Searched from a newline on: spaces without one are passed over once, where
# `\s*\n` would begin anew at each of them.
_BLANKS = re.compile(rb"\n\s+")
_NAME_THE_FOLDER = (
    "Set batch_folder, beside protocol and launch of the connection's connector, to the folder that holds its batch "
    "files; or take batch_config out of its config."
)


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
            text = _BLANKS.sub(b"\n", piece.removeprefix(BYTE_ORDER_MARK)).strip()
            if text:
                lines = text.replace(b"\n", behind + b"\n" + before)
                yield b"%b%b%b\n" % (before, lines, behind), text.count(b"\n") + 1
    except (OSError, pa.ArrowInvalid) as error:
        raise _unreadable_error(event, url, error) from error


def locate_files(event: BatchEvent, folder: BatchFolder | None) -> list[str]:
    """Returns the resolved URLs of the batch's files. Raises ConnectorError if one is not below the folder."""
    return [_locate(event, named, folder) for named in event.files]


def replayed_batch_error(event: BatchEvent) -> ConnectorError:
    """The error of a batch in a replay: a recording comes from anywhere, and has no files of its run."""
    found, remedy = (
        "its recording names files of records, and a replay reads no files",
        "Record it without batch_config.",
    )
    return ConnectorError(READING, found, remedy=remedy, stream=str(event.stream))


def _locate(event: BatchEvent, named: str, folder: BatchFolder | None) -> str:
    if folder is None:
        found, remedy = "it passes records in files, and its connection names no folder for them", _NAME_THE_FOLDER
    else:
        try:
            located = folder.locate(named)
        except (OSError, ValueError) as error:
            raise _unreadable_error(event, named, error) from error
        if located is not None:
            return located
        found, remedy = f"its batch file {named} is not below {folder.place}", _NAME_THE_FOLDER
    raise ConnectorError(READING, found, remedy=remedy, stream=str(event.stream))


def _whole_lines(url: str, compression: str | None) -> Iterator[bytes]:
    """Yields the decompressed content in pieces that end with a newline. A last line without one is given one."""
    with open_batch_file(url) as (stored, size), _unpacked(stored, url, compression) as file:
        most_bytes = max(_ANY_BYTES, size * _MAX_RATIO)
        held: list[bytes] = []
        unpacked_bytes = held_bytes = 0
        while piece := file.read(_PIECE_BYTES):
            unpacked_bytes += len(piece)
            if unpacked_bytes > most_bytes:
                raise OSError(f"its {size} bytes unpack to more than {most_bytes}")
            end = piece.rfind(b"\n") + 1
            if end:
                yield b"".join([*held, piece[:end]])
                held, held_bytes = [], 0
            held.append(piece[end:])
            held_bytes += len(piece) - end
            if held_bytes > MAX_LINE_BYTES:
                raise OSError(f"it has a line of more than {MAX_LINE_BYTES} bytes")
        if last := b"".join(held):
            yield last + b"\n"


def _unpacked(stored: pa.NativeFile, url: str, compression: str | None) -> pa.NativeFile:
    if compression == "by name":
        compression = _ENDINGS.get(Path(url.partition("?")[0]).suffix)
    return pa.CompressedInputStream(stored, compression) if compression else stored


def _unreadable_error(event: BatchEvent, named: str, error: Exception) -> ConnectorError:
    found = f"its batch file {named} cannot be read: {error}"
    return _batch_error(event, found, "Check that the file is on this machine, and that this process may read it.")


def _batch_error(event: BatchEvent, found: str, remedy: str) -> ConnectorError:
    return ConnectorError(READING, found, remedy=remedy, stream=str(event.stream), retryable=True)
