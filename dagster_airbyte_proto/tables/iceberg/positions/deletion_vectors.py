"""Writes deletion vectors, which replace files of position deletes in Iceberg's format 3.

There is one vector for each data file. Several vectors share one Puffin file.
"""

import json
import struct
from collections.abc import Mapping
from typing import NamedTuple

from dagster_airbyte_proto.tables.deleted_rows import Positions, framed, roaring_bitmap

_MAGIC = b"PFA1"
_NO_FLAGS = bytes(4)
# The field id that Iceberg reserves for the position of a row.
_ROW_POSITION_ID = 2147483645
# The snapshot that adds the vector is not known yet. Iceberg reads -1 as "inherit from it".
_INHERITED = -1


class VectorInFile(NamedTuple):
    """The place of a vector in the Puffin file, and the number of rows that it deletes from its data file."""

    data_file: str
    offset: int
    size_bytes: int
    rows: int


class PuffinFile(NamedTuple):
    """The content of a Puffin file, and the vectors in it."""

    content: bytes
    vectors: tuple[VectorInFile, ...]


def puffin_file(deleted: Mapping[str, Positions]) -> PuffinFile:
    """Returns a Puffin file for deleted rows by data file: positions that are sorted and without duplicates."""
    content, vectors = bytearray(_MAGIC), []
    for data_file, rows in deleted.items():
        blob = framed(roaring_bitmap(rows))
        vectors.append(VectorInFile(data_file, len(content), len(blob), len(rows)))
        content += blob
    footer = json.dumps({"blobs": [_blob_metadata(each) for each in vectors], "properties": {}}).encode()
    content += _MAGIC + footer + struct.pack("<i", len(footer)) + _NO_FLAGS + _MAGIC
    return PuffinFile(bytes(content), tuple(vectors))


def _blob_metadata(vector: VectorInFile) -> dict[str, object]:
    return {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION_ID],
        "snapshot-id": _INHERITED,
        "sequence-number": _INHERITED,
        "offset": vector.offset,
        "length": vector.size_bytes,
        "properties": {"referenced-data-file": vector.data_file, "cardinality": str(vector.rows)},
    }
