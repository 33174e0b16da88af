"""OpenTelemetry's SDK, which can be set up once for each process: in memory, and for Prometheus."""

from typing import Any, NamedTuple

import pytest
from opentelemetry import metrics, trace
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class BreakingProcessor(SpanProcessor):
    """Raises at each span, while it is broken."""

    is_broken = False

    def on_start(self, *_: Any, **__: Any) -> None:
        if self.is_broken:
            raise RuntimeError("the exporter is broken")

    def on_end(self, *_: Any) -> None:
        if self.is_broken:
            raise RuntimeError("the exporter is broken")


class Sdk(NamedTuple):
    """The exporters of this process."""

    spans: InMemorySpanExporter
    metrics: InMemoryMetricReader
    breaking: BreakingProcessor


@pytest.fixture(scope="session")
def sdk() -> Sdk:
    made = Sdk(InMemorySpanExporter(), InMemoryMetricReader(), BreakingProcessor())
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made.spans))
    provider.add_span_processor(made.breaking)
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([made.metrics, PrometheusMetricReader()]))
    return made
