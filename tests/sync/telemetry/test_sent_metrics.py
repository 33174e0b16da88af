"""Metrics of connectors that nobody trusts: what is kept of them, and under which name."""

import sys

from dagster_airbyte_proto.loads.bounded_counts import MAX_NAMES
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.events import MetricEvent
from dagster_airbyte_proto.sync.telemetry.sent_metrics import OTHER_METRICS, RunSenders, SentMetrics

_USERS, _ORDERS = StreamId.of("users"), StreamId.of("orders")


def test_a_counter_adds_up_and_any_other_is_the_last_one() -> None:
    metrics = SentMetrics()
    for stream in (_USERS, _ORDERS, None):
        metrics.add(MetricEvent("pages", 2.0, is_total=True), stream)
        metrics.add(MetricEvent("lag", 3.0), stream)
    metrics.add(MetricEvent("lag", 1.0), _USERS)
    assert metrics.of_stream(_USERS) == {"pages": 2.0, "lag": 1.0}
    assert metrics.of_stream(_ORDERS) == {"pages": 2.0, "lag": 3.0}
    assert metrics.of_run == {"pages": 6.0, "lag": 1.0}
    assert metrics.of_stream(StreamId.of("others")) == {}


def test_names_are_bounded_and_none_is_dropped_unseen() -> None:
    metrics = SentMetrics()
    for number in range(3 * MAX_NAMES):
        metrics.add(MetricEvent(f"{number}" + "x" * 1000, 5.0), _USERS)
    metrics.add(MetricEvent("0" + "x" * 1000, 6.0), _USERS)
    metrics.add(MetricEvent(OTHER_METRICS, 1e9), _USERS)
    for found in (metrics.of_stream(_USERS), metrics.of_run):
        assert len(found) == MAX_NAMES + 1
        assert max(map(len, found)) == 201
        assert found["0" + "x" * 199 + "…"] == 6.0
        assert found[OTHER_METRICS] == 2 * MAX_NAMES + 1


def test_a_sum_stays_a_number_of_json() -> None:
    metrics = SentMetrics()
    for _ in range(3):
        metrics.add(MetricEvent("pages", sys.float_info.max, is_total=True), _USERS)
    assert metrics.of_stream(_USERS) == {"pages": sys.float_info.max}


def test_a_sender_without_metrics_is_left_out() -> None:
    source, destination = SentMetrics(), SentMetrics()
    destination.add(MetricEvent("rows", 1.0), _USERS)
    senders = RunSenders({}, source=source, destination=destination)
    assert senders.of_stream(_USERS) == {"destination": {"rows": 1.0}}
    assert senders.of_stream(_ORDERS) == {}
