"""Runs a schedule, and holds the tables against the source after each step. Then everything has to come right.

- A run that says COMPLETE has every record of the source in its table once, whatever was before.
- Whatever happens to runs alone, no record is twice in a table, and none that a state covers is missing.
- Where the store or a table was set back, a run may refuse. It never says COMPLETE over a wrong table.
- In every report `emitted == committed + rejected + unknown`; an unknown outcome names its load, which is announced.
- In the end, a person does what the errors say, and all streams are complete.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from dagster_airbyte_proto.errors import InternalError, ProtoError, StateConflict
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from dagster_airbyte_proto.testing.faults import CallFault
from tests.simulation.schedule import Action, Schedule, Step
from tests.simulation.world import Place, RunResult, World

_LOAD = re.compile(r"loads resolve (\S+) --as")
_NAMED_LOAD = re.compile(r"\b[Ll]oad \d{8}T\d{6}-[0-9a-f]{10}-[0-9a-f]+\b")
_TRIES = 8


class Violation(Exception):
    """A promise that was broken."""


class SimulationResult(NamedTuple):
    """What was broken, empty if nothing was. `fired` are the faults that happened; `runs` counts syncs by outcome."""

    violation: str
    fired: list[tuple[str, CallFault]]
    runs: Counter[str]


class Simulation(Protocol):
    """What carries out the steps of a schedule, and raises Violation. `what` it does now; `runs` counts by outcome."""

    what: str
    runs: Counter[str]

    @property
    def fired(self) -> list[tuple[str, CallFault]]: ...

    def carry_out(self, step: Any, /) -> None: ...

    def come_right(self) -> None: ...


def run_schedule(schedule: Schedule, place: Place) -> SimulationResult:
    """Runs the schedule in a new world."""
    world = World(place, schedule.writes, schedule.state, parallel=schedule.parallel)
    return run_steps(_Simulation(world), schedule.steps)


def run_steps(simulation: Simulation, steps: Sequence[Any]) -> SimulationResult:
    """Carries out the steps, then has everything come right."""
    violation = ""
    try:
        for number, step in enumerate(steps):
            simulation.what = f"step {number} ({step.action})"
            simulation.carry_out(step)
        simulation.what = "the end"
        simulation.come_right()
    except (Violation, ProtoError) as found:
        violation = f"{simulation.what}: {type(found).__name__}: {found}"
    return SimulationResult(violation, simulation.fired, simulation.runs)


class _Simulation:
    def __init__(self, world: World) -> None:
        self.world = world
        self.what = ""
        self.runs: Counter[str] = Counter()
        self._set_back = False

    @property
    def fired(self) -> list[tuple[str, CallFault]]:
        return self.world.fired

    def carry_out(self, step: Step) -> None:
        world = self.world
        world.remember()
        match step.action:
            case Action.SYNC:
                self._sync(step)
            case Action.MODE:
                if world.writes[world.streams[0]] != "append_dedup":
                    world.writes[world.streams[0]] = step.write
            case Action.STORE_BACK:
                world.set_store_back(step.ago)
                self._set_back = True
            case Action.TABLE_BACK:
                world.set_table_back(step.ago)
                self._set_back = True
            case Action.DROP:
                world.drop_table()
                self._set_back = True
            case Action.MAINTAIN:
                world.maintain_tables()
            case Action.OLDER:
                world.forget_new_fields()
            case Action.CLOCK:
                world.now += step.clock

    def come_right(self) -> None:
        """Does what the errors say until a run is complete, then once more: that brings nothing."""
        world = self.world
        world.content.breaks_after = None
        for stream in world.streams:
            world.content.records[stream] += 1
        heard = []
        for _ in range(_TRIES):
            result = world.sync()
            self._check(result)
            if result.report is not None and result.report.status is SyncStatus.COMPLETE:
                break
            heard.append(str(result.error) if result.report is None else _errors(result.report))
            self._do_what_it_says(result)
        else:
            raise Violation("it does not come right:\n  " + "\n  ".join(heard))
        self._check_complete(world.sync(), brings_nothing=True)

    def _sync(self, step: Step) -> None:
        world = self.world
        for stream, more in zip(world.streams, step.records, strict=True):
            world.content.records[stream] += more
        world.content.breaks_after = step.breaks_after
        self._check(world.sync(step.faults, refresh=world.streams if step.refresh else None))

    def _check(self, result: RunResult) -> None:
        report, error = result
        self.runs["died" if result.died else report.status if report else type(error).__name__] += 1
        if isinstance(error, InternalError):
            raise Violation(f"an internal error: {error}") from error
        if report is not None:
            self._check_report(report)
        if not self._set_back:
            self._check_rows()

    def _check_report(self, report: SyncReport) -> None:
        for name, stream in report.streams.items():
            if stream.emitted != stream.committed + stream.rejected + stream.unknown:
                raise Violation(
                    f"{name} has {stream.emitted} emitted, {stream.committed} committed, {stream.unknown} unknown"
                )
            # A sync that brings a stream no rows does not look at its table.
            is_judged = stream.status is SyncStatus.COMPLETE and (stream.emitted or not self._set_back)
            if stream.status is SyncStatus.UNKNOWN and not _NAMED_LOAD.search(stream.error or ""):
                raise Violation(f"{name} is unknown, and no load is named: {stream.error}")
            if is_judged and self.world.rows(name) != self.world.expected(name):
                raise Violation(
                    f"{name} is complete with {self.world.rows(name)}, the source has {self.world.expected(name)}"
                )
        if report.status is SyncStatus.UNKNOWN and not report.error:
            raise Violation("unknown, and nothing says why")
        if report.status is SyncStatus.COMPLETE and all(each.emitted for each in report.streams.values()):
            self._set_back = False

    def _check_rows(self) -> None:
        """Holds the rows against the source, whatever state the run left."""
        positions = self.world.positions()
        for stream, write in self.world.writes.items():
            rows = self.world.rows(stream)
            if doubled := [row for row, times in Counter(rows).items() if times > 1]:
                raise Violation(f"{stream} has rows twice: {doubled}")
            everything = self.world.expected(stream)
            if write != "append_dedup" and not set(rows) <= set(everything):
                raise Violation(f"{stream} has rows that the source never had: {rows}")
            if write == "append" and not set(self.world.expected(stream, positions.get(stream, 0))) <= set(rows):
                raise Violation(f"{stream} is at {positions.get(stream)} and has only {rows}")
            if write == "append_dedup" and dict(rows) != dict(everything):
                self._check_upserted(stream, dict(rows), positions.get(stream, 0))

    def _check_upserted(self, stream: str, rows: dict[int, int], position: int) -> None:
        covered = dict(self.world.expected(stream, position))
        behind = {key for key, version in covered.items() if rows.get(key, -1) < version}
        if behind:
            raise Violation(f"{stream} is at {position}, and the keys {behind} are older: {rows}")

    def _check_complete(self, result: RunResult, *, brings_nothing: bool) -> None:
        self._check(result)
        report = result.report
        if report is None or report.status is not SyncStatus.COMPLETE:
            raise Violation(f"the sync after a complete one is not: {result.error or (report and _errors(report))}")
        for name, stream in report.streams.items():
            if brings_nothing and stream.emitted and self.world.writes[name] != "overwrite":
                raise Violation(f"{name} is read again after a complete sync: {stream.emitted}")

    def _do_what_it_says(self, result: RunResult) -> None:
        world, (report, error) = self.world, result
        if isinstance(error, StateConflict):
            world.wait_for_lease()
        elif named := _LOAD.search(str(error or (report and report.error))):
            self.runs["resolved"] += 1
            world.resolve(named[1])
        elif report is not None:
            errors = [each.error or "" for each in report.streams.values()]
            if any("--refresh   (all" in error for error in errors):
                refused = list(report.streams)
            else:
                refused = [name for name, each in report.streams.items() if "--refresh" in (each.error or "")]
            if refused:
                self.runs["refreshed"] += 1
                self._check(world.sync(refresh=refused))


def _errors(report: SyncReport) -> str:
    return f"{report.status}: {report.error} {[each.error for each in report.streams.values()]}"
