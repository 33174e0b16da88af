"""Relays with a component in the place of a fake, at one end or at both."""

from pathlib import Path
from typing import Any

from tests.support.wasm import guests
from tests.sync.push.rapidbyte.component_table import written_batches
from tests.sync.relay.relayed_shop import RelayedShop, Row

RAPIDBYTE = "rapidbyte"


def relayed_shop(folder: Path, *, protocol: str, target: str, **more: Any) -> RelayedShop:
    """The relay between these two ends."""
    kind = ComponentRelay if RAPIDBYTE in (protocol, target) else RelayedShop
    return kind(folder, protocol=protocol, target=target, **more)


class ComponentRelay(RelayedShop):
    """The relay with a component wherever `protocol` or `target` is rapidbyte. Its source has `users` and `orders`."""

    def __init__(self, folder: Path, *, protocol: str = RAPIDBYTE, target: str = RAPIDBYTE, **more: Any) -> None:
        super().__init__(folder, protocol=protocol, target=target, **more)
        self._files = folder / "granted"
        if target == RAPIDBYTE:
            self._files.mkdir()
            self.connector_of_destination = {
                "launch": _component(folder / "destination.wasm", guests.destination(self._files))
            }
            self.to = {"commit_rows": "5"}
        if protocol == RAPIDBYTE:
            self.connector_options = {"launch": _component(folder / "source.wasm", guests.counting())}

    def offer(self, scenario: Row) -> None:
        if self.protocol == RAPIDBYTE:
            self.config = {**self.config, **{name: each["records"] for name, each in scenario["streams"].items()}}
        super().offer(scenario)

    def received(self, stream: str) -> list[Row]:
        if self.target != RAPIDBYTE:
            return super().received(stream)
        rows = [row for run in written_batches(self._files) for batch in run for row in batch.to_pylist()]
        return [row for row in rows if row["name"].partition(" ")[0] == stream]


def _component(path: Path, content: bytes) -> Row:
    path.write_bytes(content)
    return {"kind": "wasm", "path": str(path)}
