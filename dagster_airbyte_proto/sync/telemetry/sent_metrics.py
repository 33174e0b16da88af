"""The metrics that connectors send in a run, for its reports: by the sender, and of each by the stream.

A name is the word of a connector that nobody trusts: it is masked, cut, and only so many are kept. A sender is never a
part of a name, so those of one name by two senders stay two.
"""

import sys
import threading
from collections import defaultdict
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from dagster_airbyte_proto.loads.bounded_counts import bounded_name
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.events import MetricEvent
from dagster_airbyte_proto.transforms.transform_choice import Enrichers

OTHER_METRICS = "(other metrics)"
"""The entry that counts the metrics of all further names."""
MetricsBySender = Mapping[str, Mapping[str, float]]
_GREATEST = sys.float_info.max


class SentMetrics:
    """The metrics of one connector: of a counter the sum, of any other its last value. Threads may read several of its
    processes at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_streams: defaultdict[StreamId, dict[str, float]] = defaultdict(dict)
        self._of_run: dict[str, float] = {}

    def add(self, event: MetricEvent, stream: StreamId | None) -> None:
        """Adds a metric, of the run of a stream or of none."""
        with self._lock:
            for values in (self._of_run, *(() if stream is None else (self._of_streams[stream],))):
                _add(values, event)

    @property
    def of_run(self) -> Mapping[str, float]:
        """The metrics of all streams, and of none."""
        with self._lock:
            return dict(self._of_run)

    def of_stream(self, stream: StreamId) -> Mapping[str, float]:
        with self._lock:
            return dict(self._of_streams.get(stream, {}))


@runtime_checkable
class SupportsMetrics(Protocol):
    """A transform by a connector that sends metrics."""

    name: str

    @property
    def metrics(self) -> SentMetrics: ...


class RunSenders:
    """The connectors of one run that send metrics."""

    def __init__(
        self, enrichers: Enrichers, *, source: SentMetrics | None = None, destination: SentMetrics | None = None
    ) -> None:
        components = (each for each in enrichers.values() if isinstance(each, SupportsMetrics))
        transforms = {f"transform {each.name}": each.metrics for each in components}
        named = {"source": source, **transforms, "destination": destination}
        self._senders = {sender: each for sender, each in named.items() if each is not None}

    def of_stream(self, stream: StreamId) -> MetricsBySender:
        """The metrics of a stream by their senders: `source`, `transform NAME`, `destination`."""
        found = {sender: each.of_stream(stream) for sender, each in self._senders.items()}
        return {sender: metrics for sender, metrics in found.items() if metrics}


def _add(values: dict[str, float], event: MetricEvent) -> None:
    name = bounded_name(event.name, values, OTHER_METRICS)
    if name == OTHER_METRICS:
        values[name] = values.get(name, 0.0) + 1
        return
    found = values.get(name, 0.0) + event.value if event.is_total else event.value
    values[name] = max(-_GREATEST, min(_GREATEST, found))  # JSON has no word for infinity.
