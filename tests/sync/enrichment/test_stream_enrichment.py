"""The connectors among transforms: a process for each batch, and limits on what it sends."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.checkpoints.kept_values import CachedRows
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.errors import StateConflict, TransformCancelled, TransformError
from dagster_airbyte_proto.model import EnrichmentCalls, EnrichmentSpec
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.enrichment.stream_enrichment import ConnectorEnricher, EnricherOptions, StoredRowCache
from dagster_airbyte_proto.sync.lease import LeaseRenewal
from dagster_airbyte_proto.sync.run_log import RunLog, new_run_id
from dagster_airbyte_proto.sync.state_server.memory_values import LIMITS_OF_STATE
from dagster_airbyte_proto.transforms.enrichment import Replies, RowCache
from tests.sync.enrichment.test_row_enrichment import connection_of

SPEC = EnrichmentSpec(0, (("city", "string"),))


Opened = Callable[..., Destination]


@pytest.fixture
def said() -> list[str]:
    """The lines of the run's log."""
    return []


@pytest.fixture
def opened(tmp_path: Path, said: list[str]) -> Iterator[Opened]:
    settings = Settings.load(tmp_path, None)
    settings.make_home()
    with RunLog(tmp_path, new_run_id(), on_line=lambda _, text: said.append(text)) as log, Engine(settings) as engine:
        yield lambda seconds=60, **config: engine.destination(
            connection_of(config, timeouts={"result_seconds": seconds}), log
        )


def numbered(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(numbers), "text": ["x" * 1000] * len(numbers)})


def test_the_replies_to_one_batch_are_bounded(opened: Opened) -> None:
    connector = opened()
    batch = numbered(*range(1, 100, 3))
    assert len(ConnectorEnricher(connector, SPEC).enrich(batch, {}).rows) == 33
    with pytest.raises(TransformError, match="replies to one batch of rows have more than 10,000 bytes"):
        ConnectorEnricher(connector, SPEC, options=EnricherOptions(max_bytes=10_000)).enrich(batch, {})


def _cities(replies: Replies) -> list[str]:
    return [json.loads(row)["city"] for row in replies.rows]


def test_the_next_process_has_what_the_one_before_has_kept(opened: Opened, said: list[str]) -> None:
    enricher = ConnectorEnricher(opened(tallies=True), SPEC)
    first = enricher.enrich(numbered(1, 4), {})
    assert (_cities(first), first.kept['["rows"]'], first.kept['["city", "4"]']) == (["1", "2"], "2", '"city 4"')
    assert _cities(enricher.enrich(numbered(1, 4), first.kept)) == ["3", "4"]
    assert not any("state server" in line for line in said)


def test_beside_a_cache_it_keeps_nothing_and_the_log_says_so_once(opened: Opened, said: list[str]) -> None:
    options = EnricherOptions(cast("RowCache", object()))
    enricher = ConnectorEnricher(opened(tallies=True), SPEC, options=options)
    for _ in range(2):
        replies = enricher.enrich(numbered(1, 4), {'["rows"]': "7"})
        assert (_cities(replies), replies.kept) == (["1", "2"], {})
    assert sum("they end with each of its processes" in line for line in said) == 1


def test_one_that_keeps_too_much_fails_and_the_log_says_why(opened: Opened, said: list[str]) -> None:
    enricher = ConnectorEnricher(opened(), SPEC)
    full = {f'["{number}"]': "1" for number in range(LIMITS_OF_STATE.kept)}
    with pytest.raises(TransformError, match="the connector failed"):
        enricher.enrich(numbered(1), full)
    assert sum("a stream may keep 100,000 values and 16,777,216 bytes; what came of rows" in line for line in said) == 1


def test_a_run_that_is_over_serves_no_value(opened: Opened) -> None:
    def over() -> None:
        raise StateConflict("using the lease", "another run has it")

    with pytest.raises(TransformError, match="the connector failed"):
        ConnectorEnricher(opened(), SPEC, options=EnricherOptions(check=over)).enrich(numbered(1), {})


def test_a_row_that_cannot_be_sent_is_like_no_other(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/state.db")
    lease = store.acquire("geo", run_id="run-1", holder="me", seconds=60)
    with LeaseRenewal(store, lease, 60) as renewal:
        cache = StoredRowCache(store, renewal, CachedRows("geo", "cities", 60), ("id",))
        batch = pa.RecordBatch.from_pydict({"id": [1, 1, 1, 2], "x": [0.5, 1.5, float("inf"), 1.5]})
        first, second, odd, other = cache.digests(batch)
        assert (first, len({first, odd, other})) == (second, 3)
        cache.keep({first: b"[]"})
        assert cache.rows([first, odd, other]) == {first: b"[]"}
    store.close()


def test_one_row_at_a_time_gets_one_reply_each(opened: Opened) -> None:
    calls = EnrichmentCalls(is_one_at_a_time=True)
    spec = msgspec.structs.replace(SPEC, calls=calls)
    replies = ConnectorEnricher(opened(is_bare=True), spec).enrich(numbered(*range(1, 100, 3)), {}).rows
    assert replies == [b'{"city": "city %d"}' % number for number in range(1, 100, 3)]
    with pytest.raises(TransformError, match="it sent no reply to a row"):
        ConnectorEnricher(opened(1), spec).enrich(numbered(1, 3, 4), {})
    with pytest.raises(TransformError, match=r"several replies to one row|4 replies to 2 rows"):
        ConnectorEnricher(opened(replies=2), spec).enrich(numbered(1, 4), {})
    alone = msgspec.structs.replace(spec, calls=msgspec.structs.replace(calls, rows=1))
    assert len(ConnectorEnricher(opened(), alone).enrich(numbered(2), {}).rows) == 2


def test_rows_are_sent_at_a_rate(opened: Opened) -> None:
    spec = msgspec.structs.replace(SPEC, calls=EnrichmentCalls(rows_per_second=20))
    enricher, rows = ConnectorEnricher(opened(), spec), numbered(*range(1, 61, 3))
    began_at = time.monotonic()
    assert len(enricher.enrich(rows, {}).rows) == 20
    assert len(enricher.enrich(rows, {}).rows) == 20  # of one second, by another process
    assert time.monotonic() - began_at > 1.7


def test_a_run_that_is_cancelled_waits_no_longer(opened: Opened) -> None:
    spec = msgspec.structs.replace(SPEC, calls=EnrichmentCalls(rows_per_second=0.01))
    cancel = threading.Event()
    threading.Timer(0.5, cancel.set).start()
    with pytest.raises(TransformCancelled):
        ConnectorEnricher(opened(), spec, options=EnricherOptions(cancel=cancel)).enrich(numbered(1, 4), {})


def test_one_that_logs_for_ever_is_ended(opened: Opened) -> None:
    with pytest.raises(TransformError, match="it hangs"):
        ConnectorEnricher(opened(1, chatters=4), SPEC).enrich(numbered(1, 4), {})


def test_the_secrets_of_processes_that_ended_long_ago_cost_nothing(opened: Opened) -> None:
    connector = opened()
    connector.mask_more(["of the config"])
    for number in range(100):  # A mask is made anew for each process: its work must not grow with them.
        connector.mask_of_process(f"secret {number:03}")
    assert connector.mask.text("of the config, secret 000, secret 099") == "***, secret 000, ***"
