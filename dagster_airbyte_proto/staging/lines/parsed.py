"""What both roads make of a segment: the record's fields as arrays, as the wire has them, and what was left out."""

from collections import Counter
from typing import NamedTuple

import pyarrow as pa

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.staging.rows.changes import Changes

ANOTHER_NAMESPACE = "the record is of another namespace"


class WireRows(NamedTuple):
    """One array for each of the table's top columns. `emitted_at` is in milliseconds, or text. `version` is None where
    no row says one, or nobody asks. Rows left out are counted."""

    arrays: tuple[pa.Array, ...]
    emitted_at: pa.Array
    source_changes: pa.Array | None
    changes: Changes
    rejected: Counter[str]
    ignored: Counter[str]
    foreign: Counter[StreamId]
    version: pa.Array | None = None
