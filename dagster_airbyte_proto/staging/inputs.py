"""The streams that a stage gets rows of, and the run that reads them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.protocols.wire import RecordWire
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.staging.arrow.batch_policy import BatchPolicy
from dagster_airbyte_proto.transforms.transform_choice import NO_ENRICHERS, Enrichers


class StreamInput(NamedTuple):
    """A stream to stage.

    `target` may be None as long as it is not known. Private columns are hashed with `hash_key`. Its transforms go on
    from `transform_states`. Its batches are held against `batch_policy`.
    """

    planned: PlannedStream
    columns: Columns
    target: TableTarget | None = None
    hash_key: str = ""
    transform_states: tuple[TransformState, ...] = ()
    batch_policy: BatchPolicy | None = None


class RunInput(NamedTuple):
    """The run whose rows are staged, as far as it is the same for all streams.

    `run_id` names the folder of its files (`staging_id`), and `sync_id` is in the metadata of its rows. `other_names`
    are names that records may use for the planned streams. `enrichers` are the connectors of its transforms.
    """

    record_wire: RecordWire
    run_id: str
    sync_id: int
    other_names: Mapping[StreamId, tuple[StreamId, ...]] = MappingProxyType({})
    enrichers: Enrichers = NO_ENRICHERS
