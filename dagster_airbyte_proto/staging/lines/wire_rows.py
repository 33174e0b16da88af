"""The result of both parsers of a segment: the records' fields as arrays of wire types, and counts of rows left out.

`ColumnarParser` and `parse_by_record` must give equal `WireRows` for the same segment; tests compare them.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.staging.lines.raw_members import Raw
from dagster_airbyte_proto.staging.values.changes import Changes

ANOTHER_NAMESPACE = "the record is of another namespace"


class WireRows(NamedTuple):
    """The rows of a segment: one array for each of the stream's parsed columns.

    `emitted_at` holds milliseconds or text, as the protocol has it. `version` is None where no row has one, or where
    the table has no `_sdc_` columns. Rows that were left out are counted in `rejected`, and those of another namespace
    in `foreign` too. Where an object became null because of something else in it, `key_texts` has the raw text of a key
    inside it: by column, and by row.
    """

    arrays: tuple[pa.Array, ...]
    emitted_at: pa.Array
    source_changes: pa.Array | None
    changes: Changes
    rejected: Counter[str]
    ignored: Counter[str]
    foreign: Counter[StreamId]
    version: pa.Array | None = None
    key_texts: Mapping[str, Mapping[int, Raw]] = {}
