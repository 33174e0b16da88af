"""Runs a schedule of relays, and holds the destination against the source after each step. Then all has to come right.

- No row is sent that a state covers, or that the store knows as acknowledged in a load that goes on. In `append` none
  is sent twice, but by the word of a person.
- A state covers only rows that the destination has proved, and has, but for those that it rejected.
- A stream that is COMPLETE has skipped no row of its source. By key the destination then has the newest row of each; in
  `overwrite` it shows all rows, and never a part of them.
- In every report `emitted == committed + rejected + unknown`, no more rows are committed than are proved, and unknown
  rows are said. What goes wrong at one stream takes no other down that has a state and a key of its own.
- Where the store was set back, rows that were sent since may come again. Nothing is skipped then, either.
- In the end a person does what the errors say; then the relay is complete, the next one sends nothing, and no staged
  file is left. A store that was set back knows nothing of the folders of runs since.
"""

import re
from collections import Counter
from collections.abc import Mapping

from dagster_airbyte_proto.errors import InternalError, StateConflict
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import StreamReport, SyncReport, SyncStatus
from dagster_airbyte_proto.testing.faults import CallFault
from tests.simulation.pushes.scripted_destination import Sent
from tests.simulation.relays.peculiar_destination import Behaviour
from tests.simulation.relays.relay_schedule import RelayAction, RelaySchedule, RelayStep
from tests.simulation.relays.relay_world import RelayWorld, rows_before
from tests.simulation.simulation import SimulationResult, Violation, run_steps
from tests.simulation.world import Place, RunResult

_LOAD = re.compile(r"loads resolve (\S+) --as")
_TRIES = 10
_BUG = "This is a bug"


def run_relay_schedule(schedule: RelaySchedule, place: Place) -> SimulationResult:
    """Runs the schedule in a new world."""
    return run_steps(_Relays(RelayWorld(place, schedule.kind)), schedule.steps)


class _Relays:
    def __init__(self, world: RelayWorld) -> None:
        self.world = world
        self.what = ""
        self.runs: Counter[str] = Counter()
        self._retried: set[str] = set()
        self._was_set_back = False

    @property
    def fired(self) -> list[tuple[str, CallFault]]:
        return self.world.fired

    def carry_out(self, step: RelayStep) -> None:
        world = self.world
        world.remember()
        match step.action:
            case RelayAction.SYNC:
                self._sync(step)
            case RelayAction.STORE_BACK:
                world.set_store_back(step.ago)
                self._was_set_back = True
            case RelayAction.CLOCK:
                world.move_clock(step.minutes)

    def come_right(self) -> None:
        """Does what the errors say until a relay is complete, then once more: that sends nothing."""
        world = self.world
        world.wait_for_lease()
        world.source.breaks_after = None
        world.offer([1] * len(world.streams))
        heard = []
        request = SyncRequest()
        for _ in range(_TRIES):
            result = self._run(None, request)
            if result.report is not None and result.report.status is SyncStatus.COMPLETE:
                break
            heard.append(_error(result))
            request = self._do_what_it_says(result)
        else:
            raise Violation("it does not come right:\n  " + "\n  ".join(heard))
        last = self._run(None, SyncRequest())
        if last.report is None or last.report.status is not SyncStatus.COMPLETE:
            raise Violation(f"the relay after a complete one is not: {_error(last)}")
        for name, stream in last.report.streams.items():
            if stream.emitted and world.writes[name] != "overwrite":
                raise Violation(f"{name} is read again after a complete relay: {stream.emitted}")
        if (files := world.staged_files()) and not self._was_set_back:
            raise Violation(f"staged files are left: {files}")

    def _sync(self, step: RelayStep) -> None:
        world = self.world
        world.wait_for_lease()
        world.offer(step.records)
        world.source.breaks_after = step.breaks_after
        request = SyncRequest()
        for load_id in world.undecided_loads():
            request = self._word(load_id)
        if step.refresh:
            request = request._replace(only=world.streams, refresh=True)
        self._run(step, request)

    def _word(self, load_id: str, *, is_tried: bool = False) -> SyncRequest:
        """The word of a person on a load of which rows are unknown: its end, or the request for the next sync."""
        world = self.world
        self.runs["decided"] += 1
        if world.kind.word == "look" or is_tried:
            self._look_at(load_id, is_tried=is_tried)
        return SyncRequest(retries_unknown=load_id in world.announced())

    def _look_at(self, load_id: str, *, is_tried: bool) -> None:
        """Ends a load of which all rows are there, or none. One that cannot be sent again ends as lost in any case."""
        world = self.world
        rows = [(world.contents[stream], row) for stream, found in world.rows_of_load(load_id).items() for row in found]
        there = [row in content.visible or row in content.rejected for content, row in rows]
        if rows and all(there):
            world.resolve(load_id, as_landed=True)
        elif is_tried or not any(there):
            world.resolve(load_id, as_landed=False)

    def _run(self, step: RelayStep | None, request: SyncRequest) -> RunResult:
        world = self.world
        before, paused = world.positions(), world.times_paused
        records, fired = dict(world.source.records), len(world.fired)
        result = world.sync(step, request)
        report, error = result
        self.runs["died" if result.died else report.status if report else type(error).__name__] += 1
        if isinstance(error, InternalError) or _BUG in _error(result):
            raise Violation(f"an internal error: {_error(result)}")
        if world.violations:
            raise Violation(world.violations[0])
        if report is not None:
            self._check_report(report, records)
            if paused == world.times_paused and not request.refresh:  # Else others have sent rows too.
                self._check_counts(report, before)
            if len(world.fired) == fired and step is not None and step.breaks_after is None:
                self._check_others(report, step)
        for stream in world.streams:
            self._check_stream(stream)
        return result

    def _check_report(self, report: SyncReport, records: Mapping[str, int]) -> None:
        world = self.world
        for name, stream in report.streams.items():
            if stream.emitted != stream.committed + stream.rejected + stream.unknown:
                raise Violation(
                    f"{name} has {stream.emitted} emitted, {stream.committed} committed, {stream.rejected} rejected,"
                    f" {stream.unknown} unknown"
                )
            if stream.status is SyncStatus.COMPLETE:
                self._check_complete(name, records[name])
            elif not (stream.error or report.error):
                raise Violation(f"{name} is {stream.status}, and nothing says why")
        if world.unknown() and report.status is not SyncStatus.UNKNOWN:
            raise Violation(f"{world.unknown()} are unknown, and the sync is {report.status}")

    def _check_complete(self, stream: str, records: int) -> None:
        """Nothing is missing of the records that the source had when the sync began."""
        content = self.world.contents[stream]
        lacking = {*rows_before(records)} - {*content.visible} - content.rejected
        if self.world.writes[stream] == "append_dedup":
            held = content.held()
            newest = self.world.expected(stream, records)
            lacking = {Sent(key, version) for key, version in newest.items() if held.get(key, -1) < version}
        if lacking:
            raise Violation(f"{stream} is complete, and the destination lacks {sorted(lacking)}")

    def _check_counts(self, report: SyncReport, before: Mapping[str, int]) -> None:
        """Holds the counts against what the destination has proved and rejected, where no earlier load came into it."""
        world = self.world
        for name, stream in report.streams.items():
            if report.recovered_loads or world.writes[name] == "overwrite":
                continue
            content, start = world.contents[name], before.get(name, 0)
            new = {row for row in rows_before(start + stream.emitted) if row.version >= start}
            if stream.committed > len(new & content.proved):
                raise Violation(f"{name} has {stream.committed} committed, and {new & content.proved} are proved")
            rejected = len(new & content.rejected)
            if stream.status is SyncStatus.COMPLETE and stream.rejected != rejected:
                raise Violation(f"{name} has {stream.rejected} rejected, and {rejected} were")

    def _check_others(self, report: SyncReport, step: RelayStep) -> None:
        """Without a fault, a stream at which the destination behaves badly takes no other one down."""
        world = self.world
        if world.kind.state != "stream" or "append" in world.writes.values() or step.behaviour.breaks.hangs_after:
            return  # With timeouts as short as where something hangs, a slow machine is no bad destination.
        for number, stream in enumerate(world.streams):
            is_well = number != step.odd or step.behaviour == Behaviour()
            if is_well and report.streams[stream].status is not SyncStatus.COMPLETE:
                raise Violation(f"nothing is wrong with {stream}, and it is {_said_of(report.streams[stream])}")

    def _check_stream(self, stream: str) -> None:
        """Holds the destination against the source and the stored state, however the run ended."""
        world, content = self.world, self.world.contents[stream]
        covered = {*rows_before(world.positions().get(stream, 0))}
        if unproved := covered - content.proved:
            raise Violation(f"{stream} has a state that covers {sorted(unproved)}, which are not proved")
        write = world.writes[stream]
        if write == "append_dedup":
            held, newest = content.held(), world.expected(stream, len(covered))
            lacking = {Sent(key, version) for key, version in newest.items() if held.get(key, -1) < version}
        else:
            lacking = covered - {*content.visible} - content.rejected
        if lacking:
            raise Violation(f"{stream} has a state that covers {sorted(lacking)}, which the destination lacks")
        doubled = {row for row, times in Counter(content.visible).items() if times > 1}
        if write == "append" and (twice := doubled - world.memories[stream].may_be_twice):
            raise Violation(f"{stream} has rows twice: {sorted(twice)}")
        if write == "overwrite":
            left_out = content.rejected | content.dropped
            past = ({*rows_before(number)} for number in world.past_records[stream])
            shown = {*content.visible}
            if doubled or not any(shown <= rows and rows - shown <= left_out for rows in past):
                raise Violation(f"a part of {stream} is shown, or some are twice: {sorted(content.visible)}")

    def _do_what_it_says(self, result: RunResult) -> SyncRequest:
        """The next sync, once a person has done what the error says."""
        world, text = self.world, _error(result)
        if isinstance(result.error, StateConflict):
            world.wait_for_lease()
        elif (named := _LOAD.search(text)) and "--retry-unknown" in text:
            is_tried = named[1] in self._retried
            self._retried.add(named[1])
            return self._word(named[1], is_tried=is_tried)
        elif named:
            self.runs["resolved"] += 1
            self._look_at(named[1], is_tried=True)
        elif "--refresh" in text:
            self.runs["refreshed"] += 1
            return SyncRequest(only=world.streams, refresh=True)
        return SyncRequest()


def _said_of(stream: StreamReport) -> str:
    return f"{stream.status}: {stream.error}"


def _error(result: RunResult) -> str:
    report, error = result
    if report is None:
        return str(error)
    errors = {each.error for each in report.streams.values() if each.error}
    return "; ".join([f"{report.status}: {report.error}", *sorted(errors)])
