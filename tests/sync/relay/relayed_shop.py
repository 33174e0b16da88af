"""A fake source whose records go to a fake destination, for tests of relays."""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from dagster_airbyte_proto.checkpoints.load_ending import Resolution
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.maintenance.resolve import resolve_load
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run_options import RunOptions
from tests.sync.push.pushed_table import Patience
from tests.sync.shop import EVERYTHING, Shop

Row = dict[str, Any]
_FAKES = {"syncmaven": "fake_syncmaven"}
_ECHOES: Row = {"end": {"echo": "end"}, "bare": {"form": "bare"}, "exit": {"echo": "never"}}


class RelayedShop(Shop):
    """`shop`, with a destination in the place of tables. `to` is the destination's config, `options` are the
    connection's."""

    def __init__(
        self, folder: Path, *, protocol: str = "airbyte", target: str = "airbyte", write: str = "append", **more: Any
    ) -> None:
        super().__init__(folder, write=write, **more)
        self.protocol = protocol
        self.out = folder / "out.jsonl"
        self.to: Row = {"path": str(self.out)}
        self.options: Row = {"batch": {"rows": 5}}
        self.target = target
        self.connector_of_destination: Row = {}

    def acknowledge_by(self, echo: str) -> None:
        """Has the fake destination prove its records by `each` state at once, the last one at its `end`, `bare` states,
        or its `exit` alone."""
        self.to |= _ECHOES.get(echo, {"echo": "each"})
        if echo == "exit":
            self.options["acknowledge"] = "exit"

    def offer(self, scenario: Row) -> None:
        fake = _FAKES.get(self.target, "fake_destination")
        launch = {"kind": "local", "command": [sys.executable, "-m", f"dagster_airbyte_proto.testing.{fake}"]}
        self.more = {
            **self.options,
            "to": {
                "connector": {"protocol": self.target, "launch": launch, **self.connector_of_destination},
                "config": self.to,
            },
        }
        super().offer(scenario)

    def sync(self, request: SyncRequest = EVERYTHING, options: RunOptions | None = None) -> SyncReport:
        """Before it tries the destination again it does not wait, unless there are `options`."""
        return super().sync(request, options or RunOptions(Patience()))

    def resolve(self, *, as_landed: bool) -> str:
        """Ends the announced load by the word of a person, and returns its status. It opens no tables: a relay runs
        where there is no Java to open them."""
        [load] = self.store.announced_loads("shop")
        with Engine(Settings.load(self.home, self.home / "settings.yaml")) as engine:
            status = resolve_load(engine, load.load_id, Resolution(as_landed, "a person")).status
            assert not engine.has_started_opening
            return status

    def received(self, stream: str) -> list[Row]:
        """The records of a stream that the destination has written, in their order."""
        return [line["row"] for line in self._lines() if line.get("stream") == stream]

    def plain_rows(self) -> list[Row]:
        """The rows that a destination has written which does not say of which stream they are."""
        return [line["row"] for line in self._lines() if "row" in line]

    def ids(self, stream: str) -> list[int]:
        return [row["id"] for row in self.received(stream)]

    def acknowledged_ids(self) -> set[int]:
        """The ids of users that the store knows as acknowledged: those of its state, and of the load under way."""
        done = self.positions().get("users", 0)
        announced = {load.load_id for load in self.store.announced_loads("shop")}
        for delivery in self.store.deliveries("shop").values():
            if delivery.plan.stream.name == "users" and delivery.plan.plan_id in announced:
                done += delivery.acknowledged
        return set(range(done))

    def shown_ids(self, stream: str) -> list[int]:
        """The ids of the generation that the destination shows, which replaces all by the next one that is complete."""
        shown: list[int] = []
        generations: defaultdict[int, list[int]] = defaultdict(list)
        for line in self._lines():
            if line.get("stream") == stream:
                generations[line["generation"]].append(line["row"]["id"])
            elif "message" in line and _ended_stream(line["message"]) == stream:
                shown = list(generations[line["generation"]])
        return shown

    def messages(self, kind: str) -> list[Row]:
        return [line["message"] for line in self._lines() if line.get("message", {}).get("type") == kind]

    def _lines(self) -> list[Row]:
        return [json.loads(line) for line in self.out.read_text().splitlines()] if self.out.exists() else []


def _ended_stream(message: Row) -> str | None:
    """The stream that a message ends, whose rows are then shown."""
    if message["type"] == "ACTIVATE_VERSION":
        return str(message["stream"])
    ended = message.get("trace", {}).get("stream_status", {})
    return str(ended["stream_descriptor"]["name"]) if ended.get("status") == "COMPLETE" else None
