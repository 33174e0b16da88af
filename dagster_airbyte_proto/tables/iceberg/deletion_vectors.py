"""Deletion vectors, which Iceberg's third format has in the place of files of position deletes: for each data file one,
several of them in a Puffin file.
"""

import json
import struct
from collections.abc import Mapping
from typing import NamedTuple

from dagster_airbyte_proto.tables.deleted_rows import Positions, bitmap, framed

_MAGIC = b"PFA1"
_NO_FLAGS = bytes(4)
_ROW_POSITION_ID = 2147483645
# Those of the snapshot that is to bring it, which is not known yet.
_INHERITED = -1


class Vector(NamedTuple):
    """Where in the file it stands, and how many rows of its data file it takes out."""

    data_file: str
    offset: int
    size_bytes: int
    rows: int


class Vectors(NamedTuple):
    """A Puffin file."""

    content: bytes
    inside: tuple[Vector, ...]


def vectors(deleted: Mapping[str, Positions]) -> Vectors:
    """Of the deleted rows of data files, in order, each once."""
    content, inside = bytearray(_MAGIC), []
    for data_file, rows in deleted.items():
        blob = framed(bitmap(rows))
        inside.append(Vector(data_file, len(content), len(blob), len(rows)))
        content += blob
    footer = json.dumps({"blobs": [_described(each) for each in inside], "properties": {}}).encode()
    content += _MAGIC + footer + struct.pack("<i", len(footer)) + _NO_FLAGS + _MAGIC
    return Vectors(bytes(content), tuple(inside))


def _described(vector: Vector) -> dict[str, object]:
    return {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION_ID],
        "snapshot-id": _INHERITED,
        "sequence-number": _INHERITED,
        "offset": vector.offset,
        "length": vector.size_bytes,
        "properties": {"referenced-data-file": vector.data_file, "cardinality": str(vector.rows)},
    }
