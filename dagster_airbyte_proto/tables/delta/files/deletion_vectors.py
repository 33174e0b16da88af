"""Writes deletion vectors by Delta's protocol: the rows of a file that readers leave out.

A small one goes into the log itself, any other into a file in the table's folder.
"""

import base64
import uuid
from typing import Any

from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.tables.deleted_rows import Positions, framed, roaring_bitmap
from dagster_airbyte_proto.tables.delta.history import to_z85

_MAX_INLINE_BYTES = 8 << 10
_VERSION = b"\x01"


def deletion_vector(rows: Positions, location: str, storage: Storage) -> dict[str, Any]:
    """Returns the `deletionVector` of an `add` action for the deleted rows of its file (in order, each once).

    Writes a file into the table's folder at `location` where the bitmap is too large for the log.
    """
    data = roaring_bitmap(rows)
    fields = {"sizeInBytes": len(data), "cardinality": len(rows)}
    if len(data) <= _MAX_INLINE_BYTES:
        return {"storageType": "i", "pathOrInlineDv": _z85(data), **fields}
    name = uuid.uuid4()
    filesystem, folder = storage.at(location)
    with filesystem.open_output_stream(f"{folder}/deletion_vector_{name}.bin") as file:
        file.write(_VERSION + framed(data))
    return {"storageType": "u", "pathOrInlineDv": _z85(name.bytes), "offset": len(_VERSION), **fields}


def _z85(data: bytes) -> str:
    """Encodes bytes as text: four bytes make five letters, and zero bytes fill the last four."""
    return to_z85(base64.b85encode(data + bytes(-len(data) % 4)).decode())
