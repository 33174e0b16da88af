"""The connectors among transforms: a process for each batch, and limits on what it sends."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import TransformError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.enrichment.stream_enrichment import ConnectorEnricher
from dagster_airbyte_proto.sync.push.push_context import Destination
from dagster_airbyte_proto.sync.run_log import RunLog, new_run_id
from tests.sync.enrichment.test_row_enrichment import connection_of


@pytest.fixture
def connector(tmp_path: Path) -> Iterator[Destination]:
    settings = Settings.load(tmp_path, None)
    settings.make_home()
    with RunLog(tmp_path, new_run_id()) as log, Engine(settings) as engine:
        yield engine.destination(connection_of({}), log)


def numbered(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(numbers), "text": ["x" * 1000] * len(numbers)})


def test_the_replies_to_one_batch_are_bounded(connector: Destination) -> None:
    batch = numbered(*range(1, 100, 3))
    assert len(ConnectorEnricher(connector).enrich(batch, "{}").rows) == 33
    with pytest.raises(TransformError, match="replies to one batch of rows have more than 10,000 bytes"):
        ConnectorEnricher(connector, max_bytes=10_000).enrich(batch, "{}")
