"""Runs a schedule of pushes, and holds the destination against the table after each step. Then all has to come right.

- No row is sent that the store knows as acknowledged. In `append` and `insert` none is sent twice, but by the word of a
  person.
- A push that says COMPLETE has skipped no row of its plan. In the modes by key the destination then holds what the
  table had when the plan was made, and the delivered table the same keys; in `overwrite` it shows that. It never shows
  a part.
- In every report `sent == acknowledged + rejected + unknown`, and the unknown rows are said.
- Where the store or the delivered table was set back, a push may refuse. It never says COMPLETE where a row is missing.
- In the end a person does what the errors say; then the push is complete, the next one sends nothing, and no file of a
  plan is left.
"""

import re
from collections import Counter
from collections.abc import Mapping

from dagster_airbyte_proto.errors import InternalError, StateConflict
from dagster_airbyte_proto.loads.push import Delivery
from dagster_airbyte_proto.sync.push.push_context import PushRequest
from dagster_airbyte_proto.sync.push_report import PushedStreamReport
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.testing.faults import CallFault
from tests.simulation.pushes.push_schedule import PushAction, PushSchedule, PushStep
from tests.simulation.pushes.push_world import PushRun, PushWorld
from tests.simulation.pushes.scripted_destination import Sent
from tests.simulation.simulation import SimulationResult, Violation, run_steps
from tests.simulation.world import Place

_LOAD = re.compile(r"loads resolve (\S+) --as")
_ALL_AGAIN = re.compile(r"push \S+ --full")
_TRIES = 10
_BUG = "This is a bug"


def run_push_schedule(schedule: PushSchedule, place: Place) -> SimulationResult:
    """Runs the schedule in a new world."""
    return run_steps(_Pushes(PushWorld(place, schedule.kind)), schedule.steps)


class _Pushes:
    def __init__(self, world: PushWorld) -> None:
        self.world = world
        self.what = ""
        self.runs: Counter[str] = Counter()

    @property
    def fired(self) -> list[tuple[str, CallFault]]:
        return self.world.fired

    def carry_out(self, step: PushStep) -> None:
        world = self.world
        world.remember()
        match step.action:
            case PushAction.PUSH:
                self._push(step)
            case PushAction.STORE_BACK:
                world.set_store_back(step.ago)
            case PushAction.TABLE_BACK:
                world.set_table_back(step.ago)
            case PushAction.DROP:
                world.drop_table()
            case PushAction.CLOCK:
                world.move_clock(step.minutes)

    def come_right(self) -> None:
        """Does what the errors say until a push is complete, then once more: that sends nothing."""
        world = self.world
        world.wait_for_lease()
        world.change(added=1, changed=0, removed=0)
        heard = []
        request = PushRequest()
        for _ in range(_TRIES):
            result = self._run(None, request)
            if result.report is not None and result.report.status is SyncStatus.COMPLETE:
                break
            heard.append(str(result.error) if result.report is None else f"{result.report.status}: {_error(result)}")
            request = self._do_what_it_says(result)
        else:
            raise Violation("it does not come right:\n  " + "\n  ".join(heard))
        # That one may have gone on with what an earlier one had planned.
        for _ in range(2):
            last = self._run(None, PushRequest())
        if last.report is None or last.report.status is not SyncStatus.COMPLETE:
            raise Violation(f"the push after a complete one is not: {last.error or _error(last)}")
        if world.kind.changes != "all" and last.report.streams["contacts"].sent:
            raise Violation(f"after a complete push {last.report.streams['contacts'].sent} rows are sent again")
        if world.plan_files():
            raise Violation(f"files of plans are left: {world.plan_files()}")

    def _push(self, step: PushStep) -> None:
        self.world.wait_for_lease()
        self.world.change(step.added, step.changed, step.removed)
        request = PushRequest(is_full=step.full)
        delivery = self.world.delivery()
        if delivery is not None and delivery.undecided:
            request = self._word()
        self._run(step, request)

    def _word(self) -> PushRequest:
        """The word of a person on the unknown rows."""
        if self.world.kind.word == "retry":
            return PushRequest(retries_unknown=True)
        return PushRequest(unknown_landed=self.world.landed())

    def _run(self, step: PushStep | None, request: PushRequest) -> PushRun:
        world = self.world
        before, planned, paused = len(world.content.written), world.delivery(), world.times_paused
        result = world.push(step, request)
        report, error = result
        self.runs["died" if result.died else report.status if report else type(error).__name__] += 1
        if isinstance(error, InternalError) or _BUG in _error(result):
            raise Violation(f"an internal error: {error or _error(result)}")
        if world.violations:
            raise Violation(world.violations[0])
        if report is not None and paused == world.times_paused:  # Else others have sent rows too.
            self._check_report(report.streams["contacts"], world.content.written[before:], planned)
        self._check_shown()
        return result

    def _check_report(self, report: PushedStreamReport, written: list[Sent], planned: Delivery | None) -> None:
        world = self.world
        if report.sent != report.acknowledged + report.rejected + report.unknown:
            raise Violation(
                f"{report.sent} sent, {report.acknowledged} acknowledged, {report.rejected} rejected,"
                f" {report.unknown} unknown"
            )
        if report.sent < len({*written}):
            raise Violation(f"{len({*written})} rows arrived, and {report.sent} were sent, by the report")
        delivery = world.delivery()
        if delivery is not None and delivery.undecided and report.status is not SyncStatus.UNKNOWN:
            raise Violation(f"{delivery.undecided} rows are unknown, and the push is {report.status}")
        if report.status is not SyncStatus.COMPLETE:
            if not report.error:
                raise Violation(f"the push is {report.status}, and nothing says why")
            self._check_unknown(report, written)
            return
        # It has gone on with the rows as they were planned, or has planned those that there are now.
        people = None
        if planned is not None and not planned.is_complete and delivery is not None:
            is_same = planned.plan.plan_id == delivery.plan.plan_id
            people = world.memory.people.get(planned.plan.plan_id) if is_same else None
        self._check_complete(world.people if people is None else people)

    def _check_unknown(self, report: PushedStreamReport, written: list[Sent]) -> None:
        """All rows that arrived, and are not acknowledged, count as unknown."""
        delivery = self.world.delivery()
        rows = self.world.memory.plans.get(delivery.plan.plan_id, []) if delivery else []
        known = {*rows[: delivery.acknowledged]} if delivery else set()
        arrived = {*written} & {*rows} - known
        if len(arrived) > report.unknown:
            raise Violation(f"{len(arrived)} rows arrived and are not acknowledged, and {report.unknown} are unknown")

    def _check_complete(self, people: Mapping[int, int]) -> None:
        world, mode, written = self.world, self.world.kind.mode, self.world.content.written
        rows = {row for each in people.items() if (row := Sent(*each)).is_sendable}
        if mode == "overwrite":
            if Counter(world.content.shown) != Counter(rows):
                raise Violation(f"complete, and {world.content.shown} are shown of {people}")
            return
        if mode == "insert":
            lacking: object = {row.id for row in rows} - {row.id for row in written}
        elif mode == "append":
            lacking = rows - {*written}
        else:
            held = world.content.held()
            lacking = {row.id: (held.get(row.id), row.version) for row in rows if held.get(row.id) != row.version}
            extra = held.keys() - people.keys() - world.memory.forgotten
            if mode == "mirror" and extra:
                raise Violation(f"complete, and keys are still there that are gone from the table: {extra}")
        if lacking:
            raise Violation(f"complete, and the destination lacks {lacking}")
        if world.kind.changes in ("diff", "snapshots"):
            self._check_delivered(people)

    def _check_delivered(self, people: Mapping[int, int]) -> None:
        world, delivered = self.world, self.world.delivered()
        if lacking := people.keys() - delivered.keys():
            raise Violation(f"complete, and the delivered table lacks {lacking}")
        if world.kind.mode == "mirror" and (extra := delivered.keys() - people.keys()):
            raise Violation(f"complete, and the delivered table has {extra}, which are gone")
        sent = {key for key, status in delivered.items() if status == "delivered"}
        if wrong := sent - {row.id for row in world.content.written}:
            raise Violation(f"the delivered table has {wrong}, which were never sent")
        world.memory.forgotten -= delivered.keys()

    def _check_shown(self) -> None:
        """Whatever happens, the rows that are shown are those that the table had at one time."""
        shown = self.world.content.shown
        if self.world.kind.mode == "overwrite" and (
            len(shown) != len({*shown}) or frozenset(shown) not in self.world.past_rows
        ):
            raise Violation(f"a part of the rows is shown, or some are twice: {shown}")

    def _do_what_it_says(self, result: PushRun) -> PushRequest:
        """The next push, once a person has done what the error says."""
        world, text = self.world, str(result.error or _error(result))
        if isinstance(result.error, StateConflict):
            world.wait_for_lease()
        elif named := _LOAD.search(text):
            self.runs["resolved"] += 1
            world.resolve(named[1])
        elif "--full --retry-unknown" in text:
            self.runs["decided"] += 1
            return self._word()._replace(is_full=True)
        elif _ALL_AGAIN.search(text):
            self.runs["sent all again"] += 1
            return PushRequest(is_full=True)
        elif "state reset" in text:
            self.runs["reset"] += 1
            world.reset()
        elif "--unknown-landed" in text:
            self.runs["decided"] += 1
            return self._word()
        return PushRequest()


def _error(result: PushRun) -> str:
    return (result.report.streams["contacts"].error or "") if result.report is not None else ""
