"""The enrichments among a connection's transforms: each batch of rows gets a process of its own.

A row may have no reply, and nothing marks the end of its replies but the end of the process. So rows are sent with the
end of the input behind them, and are matched only once all replies are there.

What came of rows is cached in the state store by a digest of the row. The connector's version, its options and the
columns that it fills are the name of the cache: others ask it anew. Its config is no part of it, for keys rotate.

What the connector keeps itself, by the state server, goes from process to process of one stream, and is saved with the
load of the rows: see `checkpoints/transform_states.py`. Beside a cache it ends with each process.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from dagster_airbyte_proto.checkpoints.kept_values import CachedRows, EnrichedRowStore
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.encoding.record_lines import record_objects
from dagster_airbyte_proto.encoding.sendable import unsendable_rows
from dagster_airbyte_proto.errors import ConnectorError, TransformError
from dagster_airbyte_proto.model import EnrichmentSpec
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.enrichment.component_process import check_component
from dagster_airbyte_proto.sync.enrichment.component_transformer import ComponentTransformer
from dagster_airbyte_proto.sync.enrichment.enrichment_process import (
    ENRICHING,
    Exchange,
    Pace,
    check_connector,
    enrichment_process,
)
from dagster_airbyte_proto.sync.enrichment.transform_state import component_name, enrichment_name, shared_before
from dagster_airbyte_proto.sync.lease import LeaseRenewal
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.state_server.memory_values import (
    LIMITS_OF_PROCESS,
    LIMITS_OF_STATE,
    MemoryValues,
    state_of_values,
    values_of_state,
)
from dagster_airbyte_proto.transforms.component import BatchTransformer
from dagster_airbyte_proto.transforms.enrichment import Enricher, Replies, RowCache
from dagster_airbyte_proto.transforms.transform_choice import Enrichers

_MAX_BYTES = 256 << 20
_REPLY_BYTES = 400
"""The memory of a reply beside its text, about: its members, its values, and its row."""
_DIGEST_BYTES = 16
_ENDS_WITH_PROCESS = (
    "the enrichment keeps values by the state server: beside a `cache` they end with each of its processes, and the"
    " next one starts without them, for rows from the cache reach none."
)
_REMEDY = "; what came of rows is kept by a `cache` of the transform, beside which a process has values of its own"


def check_enrichers(engine: Engine, connection: Connection, log: RunLog) -> Mapping[int, Destination]:
    """Returns the connectors of the transforms. Raises ConfigError for one that is no enrichment, or is at fault."""
    connectors = {number: engine.destination(each, log) for number, each in connection.enrichments.items()}
    for each in connectors.values():
        check = check_component if each.protocol.takes_batches else check_connector
        check(each, f"starting the transforms of connection {each.connection.name}")
    return connectors


def enrichers_of_run(
    engine: Engine, connection: Connection, log: RunLog, renewal: LeaseRenewal, cancel: threading.Event
) -> Enrichers:
    """Returns the enrichers of the transforms of a run. Raises ConfigError for a connector at fault."""
    enrichers: dict[int, Enricher | BatchTransformer] = {}
    for number, connector in check_enrichers(engine, connection, log).items():
        spec = connection.transforms[number].spec(number)
        others = [each.name for each in enrichers.values()]
        if not isinstance(spec, EnrichmentSpec):
            name = component_name(connector, others)
            enrichers[number] = ComponentTransformer(
                connector, name, shared_before(engine.store, connection.name, name), cancel
            )
            continue
        cache = None
        if spec.calls.cached_seconds is not None:
            owner = CachedRows(connection.name, _cache_name(connector, spec), spec.calls.cached_seconds)
            cache = StoredRowCache(engine.store, renewal, owner, spec.calls.cached_by)
        name = enrichment_name(connector, spec, others)
        enrichers[number] = ConnectorEnricher(connector, spec, name, EnricherOptions(cache, cancel, renewal.check))
    return enrichers


class EnricherOptions(NamedTuple):
    """The cache of an enrichment, and what ends its work: `cancel`, and a `check` that raises ProtoError once the run
    is over. Its replies to one batch have at most `max_bytes`."""

    cache: RowCache | None = None
    cancel: threading.Event | None = None
    check: Callable[[], None] = lambda: None
    max_bytes: int = _MAX_BYTES


class ConnectorEnricher:
    """Sends rows to a process of an enrichment. What it keeps is under this name."""

    def __init__(
        self,
        connector: Destination,
        spec: EnrichmentSpec,
        name: str = "",
        options: EnricherOptions = EnricherOptions(),  # noqa: B008  # a tuple, and frozen
    ) -> None:
        self.name, self.cache = name, options.cache
        self._connector, self._max_bytes = connector, options.max_bytes
        self._options = msgspec.json.decode(spec.options)
        calls = spec.calls
        pace = Pace(calls.rows_per_second) if calls.rows_per_second else None
        is_one_at_a_time = calls.is_one_at_a_time and calls.rows != 1
        self._exchange = Exchange(pace, is_one_at_a_time, options.cancel, options.check)
        self._has_noted = False

    def enrich(self, batch: pa.RecordBatch, kept: Mapping[str, str]) -> Replies:
        faults = unsendable_rows(batch)
        if faults:
            batch = batch.take(pa.array(np.setdiff1d(np.arange(batch.num_rows), list(faults))))
        if not batch.num_rows:
            return Replies((), faults, kept)
        values = MemoryValues({}, LIMITS_OF_PROCESS)
        if self.cache is None:
            values = MemoryValues(values_of_state(kept), LIMITS_OF_STATE, _REMEDY)
        try:
            with enrichment_process(self._connector, self._options, self._exchange, values) as process:
                rows = self._bounded(process.replies([batch]))
        except ConnectorError as error:
            found = f"the connector failed: {error.found}"
            raise TransformError(ENRICHING, found, remedy=error.remedy, retryable=True) from error
        finally:
            if values.refused:
                self._note(f"a value of the enrichment was refused: {values.refused}")
        if self.cache is None:
            return Replies(rows, faults, state_of_values(values.now()))
        if values.now():
            self._note(_ENDS_WITH_PROCESS)
        return Replies(rows, faults)

    def _note(self, text: str) -> None:
        """Warns of what the connector keeps, once in a run."""
        if not self._has_noted:
            self._has_noted = True
            self._connector.log.write("WARN", text)

    def _bounded(self, pieces: Iterable[list[bytes]]) -> list[bytes]:
        rows, size = list[bytes](), 0
        for piece in pieces:
            rows += piece
            size += sum(map(len, piece)) + len(piece) * _REPLY_BYTES
            if size > self._max_bytes:
                raise TransformError(
                    ENRICHING,
                    f"the connector's replies to one batch of rows have more than {self._max_bytes:,} bytes",
                    remedy="Give a process fewer rows, by checkpoint_rows beside the connector.",
                )
        return rows


class StoredRowCache(NamedTuple):
    """The cache of one enrichment, in the state store. Rows are the same if they are `by` these columns, or by all."""

    store: EnrichedRowStore
    renewal: LeaseRenewal
    owner: CachedRows
    by: Sequence[str] = ()

    def digests(self, batch: pa.RecordBatch) -> Sequence[bytes]:
        # A row that cannot be sent is like no other.
        digests = [os.urandom(_DIGEST_BYTES) for _ in range(batch.num_rows)]
        sendable = np.setdiff1d(np.arange(batch.num_rows), list(unsendable_rows(batch)))
        texts = record_objects(batch.select(list(self.by) or batch.schema.names).take(pa.array(sendable)))
        for place, text in zip(sendable, texts, strict=True):
            digests[place] = _digest(text.as_py().encode())
        return digests

    def rows(self, digests: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return self.store.enriched_rows(self.owner, digests)

    def keep(self, rows: Mapping[bytes, bytes]) -> None:
        reach("enrichment.ended")
        self.store.keep_enriched_rows(self.renewal.lease, self.owner, rows)
        reach("enrichment.kept")


def _cache_name(connector: Destination, spec: EnrichmentSpec) -> str:
    parts = (connector.identity, spec.options, spec.columns, spec.key, spec.calls.cached_by)
    return _digest(msgspec.json.encode(parts)).hex()


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()
