"""Shows the progress of a push on stderr, as the state store has it: a table on a terminal, a line every ten seconds
anywhere else. A row counts once it is acknowledged."""

import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from dagster_airbyte_proto.cli.output import plain
from dagster_airbyte_proto.cli.progress import log_line, write_line
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.model import StreamId

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
    from dagster_airbyte_proto.loads.push import Delivery
    from dagster_airbyte_proto.sync.stream_run import StreamRun

_LOOK_SECONDS = 0.5
_LINE_SECONDS = 10.0


class PushView:
    """The progress of the streams of one push, and what its connector says. `write` writes a line."""

    def __init__(
        self, connection: str, streams: Collection[str], write: Callable[[str], object], *, is_verbose: bool = False
    ) -> None:
        self._connection, self._write, self._is_verbose = connection, write, is_verbose
        self._began_at = self._reported_at = time.monotonic()
        self._before: Mapping[StreamId, Delivery] = {}
        self._found: dict[str, Delivery | None] = dict.fromkeys(streams)
        self._reported = 0
        self.has_begun = False

    def run_started(self, run_id: str, runs: Mapping[StreamId, "StreamRun"]) -> None:  # noqa: ARG002 - of syncs
        self.has_begun = True

    def progressed(self) -> None: ...

    def connector_logged(self, level: str, text: str) -> None:
        if line := log_line(level, text, is_verbose=self._is_verbose):
            self._write(f"{self._connection}: {line}")

    def began(self, deliveries: "Mapping[StreamId, Delivery]") -> None:
        """Takes these for what earlier pushes have left."""
        self._before = deliveries

    def looked(self, deliveries: "Mapping[StreamId, Delivery]") -> None:
        """Takes in what the store has now."""
        for stream, delivery in deliveries.items():
            if str(stream) in self._found and (delivery != self._before.get(stream) or not delivery.is_complete):
                self._found[str(stream)] = delivery

    def write_progress(self) -> None:
        """Writes the progress since the last line, if there is any."""
        now, acknowledged = time.monotonic(), self._acknowledged()
        if now - self._reported_at >= _LINE_SECONDS and acknowledged != self._reported:
            rate = (acknowledged - self._reported) / (now - self._reported_at)
            parts = (f"{name} {each.acknowledged:,} of {each.plan.rows:,}" for name, each in self._delivered())
            self._write(f"{self._connection}: {', '.join(parts)} rows acknowledged, {max(0.0, rate):,.0f} rows/s")
            self._reported_at, self._reported = now, acknowledged

    def drawn(self) -> "RenderableType":
        from rich import box
        from rich.table import Table

        seconds = time.monotonic() - self._began_at
        if not any(self._found.values()):
            return f"{self._connection}: planning, {seconds:.0f} s"
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column(self._connection, overflow="ellipsis")
        for name in ("to send", "sent", "acknowledged"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("phase", no_wrap=True)
        for name, each in self._found.items():
            if each is None:
                table.add_row(plain(name), "", "", "", "waiting")
                continue
            numbers = (each.plan.rows, max(each.announced, each.acknowledged), each.acknowledged)
            phase = "complete" if each.is_complete else "delivering"
            table.add_row(plain(name), *(f"{number:,}" for number in numbers), phase)
        table.add_section()
        table.add_row("all", "", "", f"{self._acknowledged():,}", f"{seconds:.0f} s")
        return table

    def _delivered(self) -> "Iterator[tuple[str, Delivery]]":
        return ((name, each) for name, each in self._found.items() if each is not None)

    def _acknowledged(self) -> int:
        return sum(each.acknowledged for _, each in self._delivered())


@contextmanager
def push_view(
    connection: str, streams: Collection[str], store: "DeliveryStore", *, is_verbose: bool = False
) -> Iterator[PushView]:
    """Opens the view that suits stderr, until the block ends."""
    if not sys.stderr.isatty():
        view = PushView(connection, streams, write_line, is_verbose=is_verbose)
        with _looking(view, store, connection, view.write_progress):
            yield view
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, emoji=False)
    view = PushView(connection, streams, lambda text: console.print(text, markup=False), is_verbose=is_verbose)
    drawing = Live(console=console, get_renderable=view.drawn, refresh_per_second=2, redirect_stdout=False)
    with drawing, _looking(view, store, connection, lambda: None):
        yield view


@contextmanager
def _looking(view: PushView, store: "DeliveryStore", connection: str, after: Callable[[], None]) -> Iterator[None]:
    """Looks at the store while the block runs, in a thread of its own."""
    has_ended = threading.Event()
    with suppress(ProtoError):  # A store that does not answer fails the push itself.
        view.began(store.deliveries(connection))

    def look() -> None:
        while not has_ended.wait(_LOOK_SECONDS):
            with suppress(ProtoError):
                view.looked(store.deliveries(connection))
                after()

    thread = threading.Thread(target=look, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join(_LINE_SECONDS)
