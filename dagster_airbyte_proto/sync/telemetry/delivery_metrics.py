"""Measures the delivery of a stream to a destination, of a push or a relay, while it goes on.

Whoever delivers calls it several times a second. It looks at what is passed once a second, and at the end.
"""

import time
from collections.abc import Callable
from typing import Protocol

from dagster_airbyte_proto.model import StreamId

_INTERVAL_SECONDS = 1.0


class DeliveryMeter(Protocol):
    """Takes the measures of deliveries. Nothing here raises."""

    def attempted(self, stream: StreamId, *, is_again: bool) -> None:
        """Counts an attempt to deliver rows, if it is one after an error that may pass."""
        ...

    def sent(self, stream: StreamId, size_bytes: int) -> None:
        """Counts bytes of records that the destination was sent since the last call."""
        ...

    def unacknowledged(self, stream: StreamId, seconds: float) -> None:
        """Notes for how long rows that were sent have been waiting for an acknowledgement."""
        ...


class NoDeliveryMeter:
    """A DeliveryMeter that does nothing."""

    def attempted(self, stream: StreamId, *, is_again: bool) -> None: ...

    def sent(self, stream: StreamId, size_bytes: int) -> None: ...

    def unacknowledged(self, stream: StreamId, seconds: float) -> None: ...


NO_DELIVERY_METER = NoDeliveryMeter()


class DeliveryMetrics:
    """The measures of one process of a destination. Positions are rows of the plan."""

    def __init__(self, meter: DeliveryMeter, stream: StreamId, clock: Callable[[], float] = time.monotonic) -> None:
        self._meter, self._stream, self._clock = meter, stream, clock
        self._looked_at = clock()
        self._size_bytes = self._acknowledged = 0
        self._waiting_since: float | None = None

    def look(self, sent: int, acknowledged: int, size_bytes: int) -> None:
        """Passes on what has changed, if the last look is a second ago."""
        if self._clock() - self._looked_at >= _INTERVAL_SECONDS:
            self.end(sent, acknowledged, size_bytes)

    def end(self, sent: int, acknowledged: int, size_bytes: int) -> None:
        """Passes on what has changed. Rows that a process leaves unacknowledged are waiting still."""
        now = self._looked_at = self._clock()
        if sent <= acknowledged:
            self._waiting_since = None
        elif self._waiting_since is None or acknowledged > self._acknowledged:
            self._waiting_since = now
        self._meter.sent(self._stream, size_bytes - self._size_bytes)
        self._meter.unacknowledged(self._stream, 0.0 if self._waiting_since is None else now - self._waiting_since)
        self._size_bytes, self._acknowledged = size_bytes, acknowledged
