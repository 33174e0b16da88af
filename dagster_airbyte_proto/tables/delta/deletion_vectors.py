"""Deletion vectors, as Delta's protocol has them: which rows of a file readers leave out.

A small one stands in the log, any other in a file of its own beside the table's.
"""

import base64
import uuid
from typing import Any

from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.tables.deleted_rows import Positions, bitmap, framed
from dagster_airbyte_proto.tables.delta.history import to_z85

_LONGEST_IN_LOG = 8 << 10
_VERSION = b"\x01"


def deletion_vector(rows: Positions, location: str, storage: Storage) -> dict[str, Any]:
    """What an `add` action says of the deleted rows of its file (in order, each once), which is in the table at a
    location. Writes what does not fit into the log."""
    data = bitmap(rows)
    told = {"sizeInBytes": len(data), "cardinality": len(rows)}
    if len(data) <= _LONGEST_IN_LOG:
        return {"storageType": "i", "pathOrInlineDv": _coded(data), **told}
    name = uuid.uuid4()
    filesystem, folder = storage.at(location)
    with filesystem.open_output_stream(f"{folder}/deletion_vector_{name}.bin") as file:
        file.write(_VERSION + framed(data))
    return {"storageType": "u", "pathOrInlineDv": _coded(name.bytes), "offset": len(_VERSION), **told}


def _coded(data: bytes) -> str:
    """As text, of which each four bytes make five letters."""
    return to_z85(base64.b85encode(data + bytes(-len(data) % 4)).decode())
