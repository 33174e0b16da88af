"""The enrichments among a connection's transforms: each batch of rows gets a process of its own.

A row may have no reply, and nothing marks the end of its replies but the end of the process. So rows are sent with the
end of the input behind them, and are matched only once all replies are there.
"""

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import pyarrow as pa

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.encoding.sendable import unsendable_rows
from dagster_airbyte_proto.errors import ConnectorError, TransformError
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.enrichment.enrichment_process import ENRICHING, check_connector, enrichment_process
from dagster_airbyte_proto.sync.push.push_context import Destination
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.transforms.enrichment import Enricher, Replies


def enrichers_of_run(engine: Engine, connection: Connection, log: RunLog) -> Mapping[int, Enricher]:
    """Returns the connectors of the transforms. Raises ConfigError for one that is no enrichment, or is at fault."""
    connectors = {number: engine.destination(each, log) for number, each in connection.enrichments.items()}
    for each in connectors.values():
        check_connector(each, f"starting the transforms of connection {each.connection.name}")
    return {number: ConnectorEnricher(each) for number, each in connectors.items()}


_MAX_BYTES = 256 << 20


class ConnectorEnricher:
    """Sends rows to a process of an enrichment. Its replies to one batch have at most `max_bytes`."""

    def __init__(self, connector: Destination, *, max_bytes: int = _MAX_BYTES) -> None:
        self._connector, self._max_bytes = connector, max_bytes

    def enrich(self, batch: pa.RecordBatch, options: str) -> Replies:
        faults = unsendable_rows(batch)
        if faults:
            batch = batch.take(pa.array(np.setdiff1d(np.arange(batch.num_rows), list(faults))))
        if not batch.num_rows:
            return Replies((), faults)
        try:
            with enrichment_process(self._connector, msgspec.json.decode(options)) as process:
                return Replies(self._bounded(process.replies([batch])), faults)
        except ConnectorError as error:
            found = f"the connector failed: {error.found}"
            raise TransformError(ENRICHING, found, remedy=error.remedy, retryable=True) from error

    def _bounded(self, pieces: Iterable[list[bytes]]) -> list[bytes]:
        rows, size = list[bytes](), 0
        for piece in pieces:
            rows += piece
            size += sum(map(len, piece))
            if size > self._max_bytes:
                raise TransformError(
                    ENRICHING,
                    f"the connector's replies to one batch of rows have more than {self._max_bytes:,} bytes",
                    remedy="Let it send back less: the row's own columns are not needed.",
                )
        return rows
