"""Transforms of a push: the rows that are to be sent are transformed once, before their plan is sealed.

- Spark finds the rows to send first, so a push with few changes transforms few rows.
- The plan keeps every row, with the key and the hash that Spark found. So positions, counts and the delivered table are
  those of any push. A row that a transform leaves out has the reason in a column; it counts as rejected, is not sent,
  and is not looked at again until it changes.
- The sealed files have the transformed rows: a push that goes on after a crash sends the same ones, and asks no
  connector a second time.
"""

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from dagster_airbyte_proto.connection import PushOptions
from dagster_airbyte_proto.errors import ConfigError, TransformError
from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.loads.plan_query import LEFT_OUT, OWN_COLUMNS
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.model import StreamId, TransformSpec
from dagster_airbyte_proto.schema.columns import null_array
from dagster_airbyte_proto.staging.files.staging_folder import StagingFolder, raising_staging_error
from dagster_airbyte_proto.transforms.transform import DROPPED, Rows, RowShape, TransformChain, TransformedRows
from dagster_airbyte_proto.transforms.transform_choice import NO_ENRICHERS, Enrichers, transform_chain

_READ_ROWS, _READ_BYTES = 50_000, 8 << 20
_TRANSFORMED = "transformed-"


class PushTransforms(NamedTuple):
    """The transforms of one pushed stream. `given` are the fields before them, `keys` those of its key."""

    stream: StreamId
    specs: Sequence[TransformSpec]
    given: pa.Schema
    keys: Sequence[str]
    enrichers: Enrichers = NO_ENRICHERS

    def fields(self) -> tuple[pa.Schema, Mapping[str, str]]:
        """Returns the fields that the destination gets, and the fields that they are passed on from.

        Raises ConfigError for a transform that does not fit, and for one that does not pass on the key.
        """
        try:
            shape = transform_chain(self.specs).shape(self._shape)
        except ConfigError as error:
            raise ConfigError(error.doing, error.found, remedy=error.remedy, stream=str(self.stream)) from error
        for key in self.keys:
            if shape.passed_on.get(key) != key:
                raise ConfigError(
                    "planning the transforms of a push",
                    f"{key} is part of the key, and they do not pass it on",
                    remedy=f"Select {key} as it is.",
                    stream=str(self.stream),
                )
        fields = [
            self.given.field(source).with_name(field.name) if (source := shape.passed_on.get(field.name)) else field
            for field in shape.schema
        ]
        return pa.schema(fields), shape.passed_on

    def apply(self, folder: str, storage: Storage, states: Sequence[TransformState] = ()) -> tuple[TransformState, ...]:
        """Replaces the files of a plan that is not sealed yet by those of the transformed rows.

        Returns the states of the transforms after them; `states` are from before.
        """
        chain = transform_chain(self.specs, self.enrichers, states, self.stream)
        place = StagingFolder.at(folder, storage)
        passed_on = chain.shape(self._shape).passed_on
        with raising_staging_error("transform the rows of a push", folder):
            entries = place.filesystem.get_file_info(fs.FileSelector(place.path, allow_not_found=True))
        try:
            for name in sorted(each.base_name for each in entries if each.base_name.endswith(".parquet")):
                with raising_staging_error("transform the rows of a push", folder):
                    self._rewrite(chain, passed_on, place, name)
            chain.finish()
        finally:
            chain.discard()
        return chain.states

    @property
    def _shape(self) -> RowShape:
        return RowShape.of_input(pa.schema([(field.name, _storage_type(field.type)) for field in self.given]))

    def _rewrite(self, chain: TransformChain, passed_on: Mapping[str, str], place: StagingFolder, name: str) -> None:
        before, after = place.file(name)[0], place.file(f"{_TRANSFORMED}{name}")[0]
        writer: pq.ParquetWriter | None = None
        with (
            place.filesystem.open_input_file(before) as opened,
            pq.ParquetFile(opened) as parquet,
            place.filesystem.open_output_stream(after) as written,
        ):
            for batch in parquet.iter_batches(_rows_at_once(parquet)):
                made = self._transformed(chain, passed_on, batch)
                writer = writer or pq.ParquetWriter(written, made.schema)
                writer.write_batch(made)
            if writer is not None:
                writer.close()
        place.filesystem.delete_file(before)
        if writer is None:
            place.filesystem.delete_file(after)

    def _transformed(
        self, chain: TransformChain, passed_on: Mapping[str, str], batch: pa.RecordBatch
    ) -> pa.RecordBatch:
        payload = batch.select([name for name in batch.schema.names if name not in OWN_COLUMNS])
        found = chain.transform(Rows(payload))
        if self.keys and len(np.unique(found.origins)) < len(found.origins):
            raise TransformError(
                "transforming the rows of a push",
                "it made several rows of one, and the push has one row for each key",
                remedy="Use a transform that makes at most one row of each, or a push without a key.",
            )
        reasons = _left_out(found, batch.num_rows)
        if self.keys:  # Of one row a plan by key has one row: that which is sent, or one that is left out.
            sent = set(found.origins.tolist())
            reasons = {place: reason for place, reason in reasons if place not in sent}.items()
        left_out = np.array([place for place, _ in reasons], np.int64)
        kept = {name: found.batch.column(name) for name in found.batch.schema.names}
        lost = {
            name: payload.column(passed_on[name]).take(pa.array(left_out)).cast(array.type)
            if name in passed_on
            else null_array(len(left_out), array.type)
            for name, array in kept.items()
        }
        places = np.concatenate([found.origins, left_out])
        order = pa.array(np.argsort(places, kind="stable"))
        columns = {name: pa.concat_arrays([kept[name], lost[name]]).take(order) for name in kept}
        for name in batch.schema.names:
            if name in OWN_COLUMNS:
                columns[name] = batch.column(name).take(pa.array(places)).take(order)
        texts = [None] * len(found.origins) + [reason for _, reason in reasons]
        columns[LEFT_OUT] = pa.array(texts, pa.string()).take(order)
        return pa.RecordBatch.from_pydict(columns)


def transforms_of(
    stream: StreamId, options: PushOptions, specs: Sequence[TransformSpec], given: pa.Schema, enrichers: Enrichers
) -> PushTransforms | None:
    """Returns the transforms of a pushed stream; None without any."""
    return PushTransforms(stream, specs, given, options.key or (), enrichers) if specs else None


def _rows_at_once(parquet: pq.ParquetFile) -> int:
    """The rows of a file that are transformed at once, by their mean size."""
    about = parquet.metadata
    size_bytes = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
    return int(max(1, min(_READ_ROWS, _READ_BYTES * about.num_rows // max(1, size_bytes))))


def _left_out(found: TransformedRows, rows: int) -> Collection[tuple[int, str]]:
    """Returns the rows that are not sent, with the reasons: of several that came of one row, each that is rejected."""
    rejected = [(int(place), each.reason) for each in found.rejections for place in each.positions]
    ended = {*found.origins.tolist(), *(place for place, _ in rejected)}
    dropped = [(place, DROPPED) for place in range(rows) if place not in ended]
    return sorted(rejected + dropped, key=itemgetter(0))


def _storage_type(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
