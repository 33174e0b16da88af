"""The enrichments among a connection's transforms: each batch of rows gets a process of its own.

A row may have no reply, and nothing marks the end of its replies but the end of the process. So rows are sent with the
end of the input behind them, and are matched only once all replies are there.

What came of rows is cached in the state store by a digest of the row. The connector's version, its options and the
columns that it fills are the name of the cache: others ask it anew. Its config is no part of it, for keys rotate.
"""

import hashlib
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
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
from dagster_airbyte_proto.sync.enrichment.transform_state import component_name, shared_before
from dagster_airbyte_proto.sync.lease import LeaseRenewal
from dagster_airbyte_proto.sync.push.push_context import Destination
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.transforms.component import BatchTransformer
from dagster_airbyte_proto.transforms.enrichment import Enricher, Replies, RowCache
from dagster_airbyte_proto.transforms.transform_choice import Enrichers

_MAX_BYTES = 256 << 20
_REPLY_BYTES = 400
"""The memory of a reply beside its text, about: its members, its values, and its row."""
_DIGEST_BYTES = 16
_ENDS_WITH_PROCESS = (
    "the enrichment keeps values by the state server: they end with each of its processes, and the next one starts"
    " without them. What came of rows is kept by `cache`."
)


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
        if not isinstance(spec, EnrichmentSpec):
            others = [each.name for each in enrichers.values() if isinstance(each, ComponentTransformer)]
            name = component_name(connector, others)
            enrichers[number] = ComponentTransformer(
                connector, name, shared_before(engine.store, connection.name, name), cancel
            )
            continue
        cache = None
        if spec.calls.cached_seconds is not None:
            owner = CachedRows(connection.name, _cache_name(connector, spec), spec.calls.cached_seconds)
            cache = StoredRowCache(engine.store, renewal, owner, spec.calls.cached_by)
        enrichers[number] = ConnectorEnricher(connector, spec, cache, cancel)
    return enrichers


class ConnectorEnricher:
    """Sends rows to a process of an enrichment. Its replies to one batch have at most `max_bytes`."""

    def __init__(
        self,
        connector: Destination,
        spec: EnrichmentSpec,
        cache: RowCache | None = None,
        cancel: threading.Event | None = None,
        *,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        self._connector, self._max_bytes = connector, max_bytes
        self._options = msgspec.json.decode(spec.options)
        calls = spec.calls
        pace = Pace(calls.rows_per_second) if calls.rows_per_second else None
        self._exchange = Exchange(pace, calls.is_one_at_a_time and calls.rows != 1, cancel)
        self.cache, self._has_noted = cache, False

    def enrich(self, batch: pa.RecordBatch) -> Replies:
        faults = unsendable_rows(batch)
        if faults:
            batch = batch.take(pa.array(np.setdiff1d(np.arange(batch.num_rows), list(faults))))
        if not batch.num_rows:
            return Replies((), faults)
        try:
            with enrichment_process(self._connector, self._options, self._exchange) as process:
                rows = self._bounded(process.replies([batch]))
        except ConnectorError as error:
            found = f"the connector failed: {error.found}"
            raise TransformError(ENRICHING, found, remedy=error.remedy, retryable=True) from error
        if process.has_kept_values and not self._has_noted:
            self._has_noted = True
            self._connector.log.write("WARN", _ENDS_WITH_PROCESS)
        return Replies(rows, faults)

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
