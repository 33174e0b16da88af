"""Kills pushes and relays of one connection after the other at random moments.

After each death no row that the store knows as acknowledged is sent again, and at the end nothing is missing. With
modes that go by the key, the destination's content, the delivered table and the source's table are the same; what a
destination keeps by the state server is that of the rows that were acknowledged.
"""

import random
import shutil
import statistics
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.soak.delivery_commands import DeliveryCommands
from tests.soak.kill_methods import KillMethod, RunningSync, connector, destination, guardian, python, tree
from tests.soak.tally import Tally
from tests.support.wasm import guests
from tests.sync.crashes.sync_fork_server import SyncForkServer
from tests.sync.push.push_fork_server import PushForkServer
from tests.sync.push.pushed_table import is_removal, person
from tests.sync.push.swept_push import SweptPush
from tests.sync.relay.component_relay import relayed_shop

_ROUNDS = 4
_MAX_KILLS_IN_A_ROW = 4
_TIMEOUT_SECONDS = 120.0
_ENDED_CODES = (0, 1, 2)
_COMPONENTS = ("rapidbyte",) if guests.can_build() else ()


class Delivery(Protocol):
    """A connection that delivers rows, in runs that may be killed."""

    folder: Path
    points_file: Path
    kill_methods: tuple[KillMethod, ...]

    def grow(self, chance: random.Random) -> None:
        """Adds rows, and changes and removes some."""
        ...

    def start(self) -> int:
        """Begins a run, and returns its process id."""
        ...

    def end(self) -> int: ...

    def note_death(self) -> None:
        """Checks and notes what is acknowledged after a run has died."""
        ...

    def run_to_end(self) -> None:
        """Runs to the end, and asserts that all is delivered and nothing that was acknowledged came again."""
        ...


class KilledPush:
    """A push of a table, in a mode and to a destination that are drawn."""

    kill_methods = (python, tree, destination, guardian)

    def __init__(self, folder: Path, chance: random.Random, server: PushForkServer | DeliveryCommands) -> None:
        folder.mkdir()
        protocol = chance.choice(("airbyte", "singer", "syncmaven", *_COMPONENTS))
        modes = ["mirror", "upsert", "append", "insert", "overwrite", *(["update"] if protocol == "airbyte" else [])]
        modes = {"syncmaven": ["upsert"], "rapidbyte": ["upsert", "append", "insert"]}.get(protocol, modes)
        self.mode = chance.choice(modes)
        self.folder, self._server = folder, server
        self._swept = SweptPush.of_fake(folder, protocol, self.mode, chance.choice(("each", "end", "bare", "exit")))
        self.table = self._swept.table
        self.table.options.pop("checkpoint_rows", None)
        if self.mode != "overwrite" and chance.random() < 0.5:
            self.table.options["checkpoint_rows"] = 25
        self._batches = folder / "batches"
        if protocol == "singer" and chance.random() < 0.5:
            self.table.connector["batch_folder"] = str(self._batches)
        self.points_file = self.table.points_file
        self._turn = 0
        self._proved: set[tuple[int, bool]] = set()
        self._had = 0

    def grow(self, chance: random.Random) -> None:
        self._turn += 1
        people = dict(self._swept.people)
        for number in chance.sample(sorted(people), min(len(people), 15)):
            people[number] = person(number, f"{number} in turn {self._turn}")
        for number in range(20):
            key = 1000 * self._turn + number
            people[key] = person(key)
        if self.mode == "mirror":
            for number in chance.sample(sorted(people), 5):
                del people[number]
        self._swept.fill(people)

    def start(self) -> int:
        self._had, self._proved = len(self.table.received()), self._swept.proved()
        return self._server.start(self.table)

    def end(self) -> int:
        return self._server.end()

    def note_death(self) -> None:
        # A plan is gone on with only while the table stays as it was: what was proved before is not sent again.
        again = self._sent_since(self._had) & self._proved
        assert not again, f"acknowledged, and sent again: {sorted(again)[:5]}"

    def run_to_end(self) -> None:
        for _ in range(4):
            self.start()
            ended = self.end()
            self.note_death()
            if ended == 0:
                break
        assert ended == 0, f"it ended with {ended}"
        left = sorted(self._batches.iterdir()) if self._batches.exists() else []
        assert not left, f"batch files are left: {left[:3]}"
        self._swept.check(f"in turn {self._turn}")

    def _sent_since(self, place: int) -> set[tuple[int, bool]]:
        return {(row["id"], is_removal(row)) for row in self.table.received()[place:]}


class KilledRelay:
    """A relay between two fakes, or components in their place."""

    kill_methods = (python, tree, destination, connector, guardian)

    def __init__(self, folder: Path, chance: random.Random, server: SyncForkServer | DeliveryCommands) -> None:
        folder.mkdir()
        protocol = chance.choice(("airbyte", "singer", *_COMPONENTS))
        self.folder, self._server = folder, server
        self._scope = chance.choice(("stream", "global")) if protocol == "airbyte" else "stream"
        write = chance.choice(("append", "append_dedup"))
        target = chance.choice(("airbyte", "singer", *_COMPONENTS))
        self.shop = relayed_shop(folder, protocol=protocol, target=target, write=write)
        self.points_file = self.shop.points_file
        self._records = 0
        self._proved: set[int] = set()
        self._had = 0

    def grow(self, chance: random.Random) -> None:
        self._records += chance.randint(5, 40)
        self.shop.offer({"streams": {"users": {"records": self._records}}, "state": self._scope})

    def start(self) -> int:
        self._had, self._proved = len(self.shop.ids("users")), self.shop.acknowledged_ids()
        return self._server.start(self.shop)

    def end(self) -> int:
        return self._server.end()

    def note_death(self) -> None:
        done = self.shop.positions().get("users", 0)
        missing = set(range(done)) - set(self.shop.ids("users"))
        assert not missing, f"the state is ahead of the destination by {sorted(missing)[:5]}"
        self._check_repeats()

    def run_to_end(self) -> None:
        self._had, self._proved = len(self.shop.ids("users")), self.shop.acknowledged_ids()
        report = self.shop.sync(SyncRequest(retries_unknown=True))
        assert report.status is SyncStatus.COMPLETE, report
        assert set(self.shop.ids("users")) == set(range(self._records)), "the destination has other rows"
        assert self.shop.positions() == {"users": self._records}
        self._check_repeats()

    def _check_repeats(self) -> None:
        again = self._proved & set(self.shop.ids("users")[self._had :])
        assert not again, f"acknowledged, and sent again: {sorted(again)[:5]}"


class DeliverySoak:
    """Runs and kills deliveries, in one thread."""

    def __init__(
        self, root: Path, make: Callable[[Path, random.Random], Delivery], tally: Tally, chance: random.Random
    ) -> None:
        self._root, self._make, self._tally, self._chance = root, make, tally, chance
        self._lengths: deque[float] = deque([0.5], maxlen=9)
        self._steps = 1

    def run(self) -> None:
        number = 0
        while self._tally.goes_on:
            number += 1
            delivery = self._make(self._root / str(number), self._chance)
            try:
                self._run_one(delivery)
            except AssertionError as error:
                self._tally.fault(f"{error!r}; kept in {delivery.folder}", (0, 0))
                return
            shutil.rmtree(delivery.folder)

    def _run_one(self, delivery: Delivery) -> None:
        for _ in range(_ROUNDS):
            delivery.grow(self._chance)
            for _ in range(self._chance.randint(1, _MAX_KILLS_IN_A_ROW)):
                if self._tally.goes_on:
                    self._kill(delivery)
            began = time.monotonic()
            delivery.run_to_end()
            self._lengths.append(time.monotonic() - began)

    def _kill(self, delivery: Delivery) -> None:
        method = self._chance.choice(delivery.kill_methods)
        running = RunningSync(delivery.start())
        ended_first = self._wait_for_moment(running, delivery.points_file)
        if not ended_first:
            method(running, self._chance)
            assert running.ended_within(_TIMEOUT_SECONDS), f"it hung after its {method.__name__} was killed"
        ended = delivery.end()
        running.close()
        points = delivery.points_file.read_text().splitlines() if delivery.points_file.exists() else []
        self._steps = max(self._steps, len(points))
        self._tally.recovered(points)
        assert ended in _ENDED_CODES or ended < 0, f"a mistake of our own: it ended with {ended}"
        delivery.note_death()
        if ended_first:
            self._tally.came_late()
        else:
            self._tally.killed(method.__name__)

    def _wait_for_moment(self, running: RunningSync, points_file: Path) -> bool:
        """Waits until a random moment, by the clock or by the progress of the run. True if it ended before."""
        if self._chance.random() < 0.5:
            return running.ended_within(self._chance.uniform(0, statistics.median(self._lengths)))
        steps = self._chance.randint(1, self._steps)
        while not points_file.exists() or points_file.read_bytes().count(b"\n") < steps:
            if running.ended_within(0.005):
                return True
        return running.ended_within(self._chance.uniform(0, 0.02))
