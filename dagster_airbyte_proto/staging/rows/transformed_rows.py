"""Applies a stream's transforms to a parsed batch. Each row keeps its metadata: its time, its changes, its deletion.

- Rows that the stream's filter left out are not transformed.
- A row of which a transform makes none has left the stream. Where rows have keys, the table loses older rows of its
  key, as for a row that the filter left out. A row that breaks a rule changes nothing in the table.
- Where deleted rows stay as marked ones, the mark lands also where a query leaves it out: it may be little more than
  its key, and its key would leave the table.
"""

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.errors import TransformError
from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.model import DEDUPLICATING, PlannedStream
from dagster_airbyte_proto.schema.columns import META, RAW_ID, Columns, null_array
from dagster_airbyte_proto.schema.shaping import merges_by_key
from dagster_airbyte_proto.staging.arrow.batch_rows import batch_rows
from dagster_airbyte_proto.staging.rows.metadata import RawIdGenerator
from dagster_airbyte_proto.staging.rows.schema_policy import concat_lists, recount
from dagster_airbyte_proto.staging.rows.segment_parser import ParsedBatch
from dagster_airbyte_proto.staging.values.changes import Changes
from dagster_airbyte_proto.transforms.landed_columns import transformed_shape
from dagster_airbyte_proto.transforms.transform import DROPPED, Positions, Rows, TransformChain, TransformedRows


class RowTransformer:
    """Transforms the batches of one stream, in order. `columns` are those behind the transforms.

    Raises ConfigError where a transform does not fit the stream.
    """

    def __init__(self, planned: PlannedStream, columns: Columns, chain: TransformChain) -> None:
        self._planned, self._columns, self.chain = planned, columns, chain
        self._given = columns.as_parsed
        self._passed_on = transformed_shape(chain, self._given, planned).passed_on
        self._raw_ids = RawIdGenerator(os.urandom(9))
        self._made = tuple(column for column in columns.all if column.name not in self._passed_on)

    @property
    def states(self) -> tuple[TransformState, ...]:
        """The states of the transforms after the batches so far, whole only after `finish`."""
        return self.chain.states

    def finish(self) -> None:
        """Ends the processes of the transforms. Raises TransformError; then no row since the last `finish` may land."""
        self.chain.finish()

    def discard(self) -> None:
        """Ends the processes of the transforms, whose rows do not land."""
        self.chain.discard()

    def transform(self, parsed: ParsedBatch) -> ParsedBatch:
        """Returns the batch as the transforms change it. Raises TransformError."""
        batch = parsed.batch
        is_keyed = self._planned.write in DEDUPLICATING
        taken = _unfiltered(parsed)
        found = self.chain.transform(self._rows(parsed, taken))
        origins = taken[found.origins]
        repeated = len(origins) - len(np.unique(origins))
        if repeated and merges_by_key(self._planned):
            where = "table" if self._planned.relay is None else "destination"
            raise TransformError(
                "transforming rows",
                f"it made {repeated:,} rows more of those of a batch, and the {where} has one row for each key",
                remedy="Use write: append or overwrite, or a transform that makes at most one row of each.",
            )
        ended = np.concatenate([origins, *(taken[each.positions] for each in found.rejections)])
        # Of several rows that came of one, some may land and others break a rule.
        ended_once = np.unique(ended)
        added = len(ended) - len(ended_once)
        lost = np.setdiff1d(np.arange(batch.num_rows), ended_once, assume_unique=True)
        is_mark = np.zeros(len(lost), bool)
        if self._planned.keeps_deleted and parsed.deletions is not None:
            is_mark = parsed.deletions.to_numpy(zero_copy_only=False)[lost]
        rejected = Counter({DROPPED: len(taken) - len(ended_once) - int(is_mark.sum())})
        for each in found.rejections:
            rejected[each.reason] += len(each.positions)
        arrays, changes = self._typed(found)
        landing = self._with_metadata(arrays, batch.take(pa.array(origins)), changes)
        deletions = None if parsed.deletions is None else parsed.deletions.take(pa.array(origins))
        transformed = parsed._replace(
            batch=self._with_own_ids(landing, origins) if repeated else landing,
            rejected=parsed.rejected + rejected,
            deletions=deletions,
            filtered_out=None,
            added=added,
        )
        if is_keyed and len(lost):
            order = np.concatenate([origins, lost])
            transformed = self._with_lost_keys(transformed, batch.take(pa.array(lost)), order, is_mark)
        return recount(transformed)

    def _rows(self, parsed: ParsedBatch, taken: Positions) -> Rows:
        given, is_deletion = parsed.batch.select([column.name for column in self._given.all]), parsed.deletions
        if len(taken) == given.num_rows:
            return Rows(given, is_deletion)
        which = pa.array(taken)
        return Rows(given.take(which), None if is_deletion is None else is_deletion.take(which))

    def _typed(self, found: TransformedRows) -> tuple[dict[str, pa.Array], Changes]:
        """Returns the columns in the types of the table, and the changes of values that do not fit them."""
        made = batch_rows(found.batch.select([column.name for column in self._made]), Columns(self._made))
        arrays = dict(zip((column.name for column in self._made), made.arrays, strict=True))
        for column in self._columns.all:
            if column.name in self._passed_on:
                arrays[column.name] = found.batch.column(column.name).cast(column.type.table_type)
        return arrays, made.changes

    def _with_metadata(
        self, arrays: Mapping[str, pa.Array], before: pa.RecordBatch, changes: Changes
    ) -> pa.RecordBatch:
        """Returns rows of the table: these columns, and the metadata of the rows that they come from."""
        metadata = {name: before.column(name) for name in self._columns.metadata.names}
        if changes:
            about = metadata[META]
            lists = concat_lists(about.field("changes"), changes.entry_lists(before.num_rows, self._columns.all))
            metadata[META] = pa.StructArray.from_arrays([about.field("sync_id"), lists], fields=list(about.type))
        columns = [*(arrays[column.name] for column in self._columns.all), *metadata.values()]
        return pa.RecordBatch.from_arrays(columns, schema=self._columns.schema)

    def _with_own_ids(self, rows: pa.RecordBatch, origins: Positions) -> pa.RecordBatch:
        """Gives each row but the first one of its origin another id."""
        is_first = np.concatenate([[True], np.diff(origins) > 0])
        ids = pc.if_else(pa.array(is_first), rows.column(RAW_ID), self._raw_ids.take(rows.num_rows))
        return rows.set_column(rows.schema.get_field_index(RAW_ID), rows.schema.field(RAW_ID), ids)

    def _with_lost_keys(
        self, landing: ParsedBatch, lost: pa.RecordBatch, order: Positions, is_mark: np.ndarray[tuple[int], Any]
    ) -> ParsedBatch:
        """Adds rows that are there for their keys alone, and those that land as marks. `order` has the positions of all
        rows."""
        arrays = {
            column.name: lost.column(self._passed_on[column.name])
            if column.name in self._passed_on
            else null_array(lost.num_rows, column.type.table_type)
            for column in self._columns.all
        }
        keys = self._with_metadata(arrays, lost, Changes())
        in_order = pa.array(np.argsort(order, kind="stable"))
        both = pa.concat_batches([landing.batch, keys]).take(in_order)
        is_lost = pa.array(np.concatenate([np.zeros(landing.batch.num_rows, bool), ~is_mark])).take(in_order)
        deletions = landing.deletions
        if deletions is not None:
            deletions = pa.concat_arrays([deletions, pa.array(is_mark)]).take(in_order)
        filtered_out = None if is_mark.all() else is_lost
        return landing._replace(batch=both, deletions=deletions, filtered_out=filtered_out)


def _unfiltered(parsed: ParsedBatch) -> Positions:
    """Returns the positions of the rows that the stream's filter takes."""
    if parsed.filtered_out is None:
        return np.arange(parsed.batch.num_rows)
    return np.flatnonzero(~parsed.filtered_out.to_numpy(zero_copy_only=False))
