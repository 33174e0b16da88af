"""Spans and metrics of syncs, taken up by the SDK's exporters in memory."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.model import PlannedStream, ReadMode, Stream, StreamId, TableName, WriteMode
from dagster_airbyte_proto.sync.push import attempts
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.run_options import NoProgressListener
from dagster_airbyte_proto.sync.stream_run import StreamRun
from dagster_airbyte_proto.sync.telemetry import delivery_metrics
from dagster_airbyte_proto.sync.telemetry.open_telemetry import OpenTelemetry
from dagster_airbyte_proto.sync.telemetry.run_telemetry import RunIdentity
from tests.support.wasm import guests
from tests.sync.conftest import OpenShop
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.push.rapidbyte.component_table import ComponentTable
from tests.sync.relay.relayed_shop import RelayedShop
from tests.sync.telemetry.conftest import Sdk

_POINT_ATTRIBUTES = ("airbyte_proto.connection", "airbyte_proto.stream", "airbyte_proto.status")


class _Point(NamedTuple):
    """One of the values of a metric. Other tests of this process measure other connections with like streams."""

    metric: str
    connection: str
    stream: str
    status: str


class Collected:
    """The spans and metrics of one test: metrics as differences, since the SDK adds them up for the process."""

    def __init__(self, spans: InMemorySpanExporter, reader: InMemoryMetricReader) -> None:
        self._exporter = spans
        self._reader = reader
        self._before = self._points()

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def metric(self, name: str) -> dict[str, float]:
        """The values of a metric by stream, or by status where it has no stream."""
        now, before = self._points(), self._before
        changes = {point: now[point] - before.get(point, 0) for point in now if point.metric == name}
        return {point.stream or point.status: change for point, change in changes.items() if change}

    def value(self, name: str, connection: str, stream: str) -> float:
        """The value of a gauge, which is no difference."""
        return self._points()[_Point(name, connection, stream, "")]

    def _points(self) -> dict[_Point, float]:
        return {
            _Point(metric.name, *(str(point.attributes.get(name, "")) for name in _POINT_ATTRIBUTES)): _value(point)
            for metric in _metrics_of(self._reader)
            for point in metric.data.data_points
        }


def _metrics_of(reader: InMemoryMetricReader) -> Iterator[Any]:
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            yield from scope.metrics


def _value(point: Any) -> float:
    return float(point.count if hasattr(point, "count") else point.value)


@pytest.fixture
def collected(sdk: Sdk) -> Iterator[Collected]:
    sdk.spans.clear()
    yield Collected(sdk.spans, sdk.metrics)
    sdk.breaking.is_broken = False


def two_streams() -> dict[str, Any]:
    return {"streams": {"users": {"records": 9}, "orders": {"records": 4}}, "state_every": 3}


def parent_of(span: ReadableSpan, spans: tuple[ReadableSpan, ...]) -> str | None:
    ids = {each.context.span_id: each.name for each in spans if each.context}
    return ids.get(span.parent.span_id) if span.parent else None


def test_each_load_is_below_its_sync_and_each_commit_below_its_load(shop: OpenShop, collected: Collected) -> None:
    place = shop()
    with trace.get_tracer("test").start_as_current_span("caller"):
        report = place.sync_of(two_streams())
    parents = {(span.name, parent_of(span, collected.spans)) for span in collected.spans}
    assert parents == {("caller", None), ("sync shop", "caller"), ("load", "sync shop"), ("commit", "load")}
    attributes = collected.span("sync shop").attributes or {}
    assert attributes["airbyte_proto.run.id"] == report.run_id
    assert attributes["airbyte_proto.status"] == "complete"
    commits = [span.attributes or {} for span in collected.spans if span.name == "commit"]
    rows = Counter[str]()
    for each in commits:
        rows[str(each["airbyte_proto.stream"])] += int(str(each["airbyte_proto.load.rows"]))
    assert rows == {"users": 9, "orders": 4}
    assert sum(span.name == "load" for span in collected.spans) == report.loads


def test_rows_bytes_and_seconds_are_those_of_the_report(shop: OpenShop, collected: Collected) -> None:
    report = shop().sync_of(two_streams())
    assert collected.metric("airbyte_proto.rows") == {name: each.committed for name, each in report.streams.items()}
    assert collected.metric("airbyte_proto.bytes") == {name: each.bytes for name, each in report.streams.items()}
    assert collected.metric("airbyte_proto.sync.duration") == {"complete": 1}
    assert collected.metric("airbyte_proto.completed").keys() == {"users", "orders"}
    assert collected.metric("airbyte_proto.commit.duration").keys() == {"users", "orders"}
    assert collected.metric("airbyte_proto.rejected") == {}
    assert {collected.value("airbyte_proto.unknown", "shop", name) for name in report.streams} == {0}
    assert collected.metric("airbyte_proto.nulled") == {}
    assert collected.metric("airbyte_proto.retries") == {}


def test_a_failed_sync_has_a_span_with_an_error_and_no_text_of_it(shop: OpenShop, collected: Collected) -> None:
    place = shop()
    failure = {"kind": "error", "after": 2, "message": "no access"}
    assert place.sync_of({**two_streams(), "failure": failure}).status is not SyncStatus.COMPLETE
    span = collected.span("sync shop")
    assert not span.status.is_ok
    assert span.events == ()
    assert "no access" not in span.to_json()
    assert "complete" not in collected.metric("airbyte_proto.sync.duration")


def test_a_sync_that_cannot_begin_is_counted_as_failed(shop: OpenShop, collected: Collected) -> None:
    place = shop()
    place.config = {"password": "${env:NOT_SET_ANYWHERE}"}
    with pytest.raises(ProtoError):
        place.sync_of(two_streams())
    assert (collected.span("sync shop").attributes or {})["error.type"] == "ConfigError"
    assert collected.metric("airbyte_proto.sync.duration") == {"failed": 1}


def test_a_broken_exporter_fails_no_sync(shop: OpenShop, collected: Collected, sdk: Sdk) -> None:
    sdk.breaking.is_broken = True
    place = shop()
    assert place.sync_of(two_streams()).status is SyncStatus.COMPLETE
    assert place.column("users") == list(range(9))
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_push_has_a_span_with_its_deliveries_below_and_counts_its_rows(
    quick_folder: Path, collected: Collected
) -> None:
    table = PushedTable(quick_folder)
    table.fill([*(person(number) for number in range(1, 8)), person(8, score=float("nan"))])
    table.run(only_plans=True)
    assert collected.spans == ()
    report = table.run()
    delivery = collected.span("deliver")
    assert parent_of(delivery, collected.spans) == "push crm"
    attributes, of_run = delivery.attributes or {}, collected.span("push crm").attributes or {}
    assert [attributes[f"airbyte_proto.push.{name}"] for name in ("sent", "acknowledged", "rejected")] == [8, 7, 1]
    assert attributes["airbyte_proto.status"] == of_run["airbyte_proto.status"] == "complete"
    assert of_run["airbyte_proto.run.id"] == report.run_id
    assert collected.metric("airbyte_proto.push.rows") == {"contacts": 7}
    sent_bytes = report.streams["contacts"].bytes
    assert collected.metric("airbyte_proto.push.bytes") == {"contacts": sent_bytes}
    assert sent_bytes > sum(len(json.dumps(row, separators=(",", ":"))) for row in table.received())
    assert collected.metric("airbyte_proto.rejected") == {"contacts": 1}
    assert collected.metric("airbyte_proto.push.duration") == {"complete": 1}
    assert collected.metric("airbyte_proto.completed").keys() == {"contacts"}


def test_rows_that_a_transform_drops_are_no_rejected_ones_of_a_push(quick_folder: Path, collected: Collected) -> None:
    table = PushedTable(quick_folder)
    table.options["transforms"] = [{"validate": [{"assert_range": {"id": {"min": 3}}}], "on_error": "skip"}]
    table.fill([*(person(number) for number in range(1, 8)), person(8, score=float("nan"))])
    report = table.run().streams["contacts"]
    assert (report.acknowledged, report.rejected, report.refused) == (5, 3, 1)
    assert collected.metric("airbyte_proto.rejected") == {"contacts": 1}


def test_rows_of_which_nobody_knows_and_values_that_do_not_fit_are_metrics(
    tmp_path: Path, shop: OpenShop, collected: Collected
) -> None:
    table = PushedTable(tmp_path, mode="append")
    table.fill([person(number) for number in range(10)])
    table.config |= {"dies_after": 9, "once": str(tmp_path / "once")}
    assert table.run().streams["contacts"].unknown == 5
    rows, properties = [{"id": 1, "age": "old"}], {"id": {"type": "integer"}, "age": {"type": "integer"}}
    shop().sync_of({"streams": {"users": {"rows": rows, "properties": properties}}})
    assert collected.value("airbyte_proto.unknown", "crm", "contacts") == 5
    assert collected.metric("airbyte_proto.nulled") == {"users": 1}


def test_what_a_component_measures_is_a_metric_with_its_sender(quick_folder: Path, shop: OpenShop, sdk: Sdk) -> None:
    place = shop()
    place.more["transforms"] = [
        {
            "connector": {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": str(guests.built("transform"))}},
            "config": {"script": 'metric {"name":"seen","value":7.5};tally'},
            "columns": {"name": "string"},
            "streams": ["orders"],
        }
    ]
    assert place.sync_of(two_streams()).status is SyncStatus.COMPLETE
    table = ComponentTable(quick_folder)
    table.config["metric"] = '{"name":"batches","value":{"type":"counter","value":3}}'
    table.fill([person(1)])
    assert table.run().status is SyncStatus.COMPLETE
    found = {
        tuple(dict(point.attributes or {}).items()): _value(point)
        for metric in _metrics_of(sdk.metrics)
        if metric.name == "airbyte_proto.connector.metric"
        for point in metric.data.data_points
    }
    expected = {
        ("shop", "orders", "transform tests/scripted", "seen"): 7.5,
        ("crm", "contacts", "destination", "batches"): 3.0,
    }
    names = [f"airbyte_proto.{name}" for name in ("connection", "stream", "sender", "metric")]
    for values, value in expected.items():
        assert found[tuple(zip(names, values, strict=True))] == value


def test_a_push_that_fails_has_a_span_with_an_error_and_no_text_of_it(quick_folder: Path, collected: Collected) -> None:
    table = PushedTable(quick_folder)
    table.config["fails"] = "config_error"
    table.fill([person(1)])
    assert table.run().status is SyncStatus.FAILED
    for span in (collected.span("deliver"), collected.span("push crm")):
        assert not span.status.is_ok and "it cannot go on" not in span.to_json()
    assert collected.metric("airbyte_proto.push.duration") == {"failed": 1}


def test_a_relay_is_traced_and_measured_as_a_sync(quick_folder: Path, collected: Collected) -> None:
    report = RelayedShop(quick_folder).sync_of(two_streams())
    assert {(span.name, parent_of(span, collected.spans)) for span in collected.spans} == {
        ("sync shop", None),
        ("load", "sync shop"),
        ("commit", "load"),
    }
    rows = {name: each.committed for name, each in report.streams.items()}
    assert rows == {"users": 9, "orders": 4} == collected.metric("airbyte_proto.rows")
    sent = collected.metric("airbyte_proto.push.bytes")
    assert sent.keys() == {"users", "orders"} and sent["users"] > sent["orders"] > 0
    assert collected.value("airbyte_proto.push.lag", "shop", "users") == 0


def test_a_delivery_is_measured_while_it_goes_on(
    quick_folder: Path, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_WAIT_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(delivery_metrics, "_INTERVAL_SECONDS", 0.0)
    table = PushedTable(quick_folder)
    table.fill([person(number) for number in range(8)])
    table.config |= {"fails": "transient_error", "once": str(quick_folder / "once"), "echo": "never"}
    report = table.contacts()
    assert (report.status, report.unknown, len(table.received())) == ("failed", 8, 16)
    assert collected.metric("airbyte_proto.push.retries") == {"contacts": 1}
    assert collected.metric("airbyte_proto.push.bytes") == {"contacts": report.bytes}
    assert collected.value("airbyte_proto.push.lag", "crm", "contacts") > 0
    table.config = {}
    assert table.contacts().acknowledged == 8
    assert collected.value("airbyte_proto.push.lag", "crm", "contacts") == 0


def test_a_retry_is_counted_for_each_stream(collected: Collected) -> None:
    users = Stream(StreamId(None, "users"), {})
    run = StreamRun(PlannedStream(users, TableName("shop", "users"), ReadMode.INCREMENTAL, WriteMode.APPEND))
    telemetry = OpenTelemetry()
    with telemetry.sync(RunIdentity("shop", "run", "", attempt=2)):
        telemetry.following(NoProgressListener()).run_started("run", {users.id: run})
    assert collected.metric("airbyte_proto.retries") == {"users": 1}


_WITHOUT_API = """
import sys
sys.modules["opentelemetry"] = None
from dagster_airbyte_proto.sync.telemetry.run_telemetry import NO_TELEMETRY
from dagster_airbyte_proto.sync.telemetry.telemetry_choice import installed_telemetry
import dagster_airbyte_proto.sync.run
assert installed_telemetry() is NO_TELEMETRY
listener = object()
assert NO_TELEMETRY.following(listener) is listener
print([name for name in sys.modules if name.startswith("opentelemetry.")])
"""


def test_nothing_is_imported_where_the_api_is_not_installed() -> None:
    command = [sys.executable, "-c", _WITHOUT_API]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("variable", ["OTEL_PYTHON_METER_PROVIDER", "OTEL_PYTHON_TRACER_PROVIDER"])
def test_a_provider_that_is_not_installed_ends_no_sync(variable: str) -> None:
    program = (
        "from dagster_airbyte_proto.sync.telemetry.run_telemetry import NO_TELEMETRY\n"
        "from dagster_airbyte_proto.sync.telemetry.telemetry_choice import installed_telemetry\n"
        "assert installed_telemetry() is NO_TELEMETRY"
    )
    environment = {**os.environ, variable: "nowhere"}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0 and "Failed to load configured provider" in ended.stderr, ended.stderr
