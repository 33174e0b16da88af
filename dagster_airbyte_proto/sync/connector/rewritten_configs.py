"""The configs that a connector sends back in the course of one request, taken at a bounded rate.

To take one costs a check, a new mask and a write to the store: some milliseconds, and the mask's part grows with each
secret. A connector that rotates its token sends a few a day. One that sends thousands must not keep the thread that
reads from noticing a hang or a cancellation, so from some number on only the newest of each interval is taken.
"""

from collections.abc import Callable

from dagster_airbyte_proto.protocols.events import ConfigEvent

_TAKEN_AT_ONCE = 20


class RewrittenConfigs:
    """Passes the first 20 configs to `take` at once. Of later ones, `take_newest` passes the newest."""

    def __init__(self, take: Callable[[ConfigEvent], None]) -> None:
        self._take = take
        self._left = _TAKEN_AT_ONCE
        self._newest: ConfigEvent | None = None

    def receive(self, event: ConfigEvent) -> None:
        self._newest = event
        if self._left:
            self._left -= 1
            self.take_newest()

    def take_newest(self) -> None:
        """Call it now and then, and at the end."""
        event, self._newest = self._newest, None
        if event is not None:
            self._take(event)
