"""A schedule of pushes: what happens to one pushed table, step by step. A seed makes it, and a failure shrinks it."""

import random
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from dagster_airbyte_proto.testing.faults import CallFault
from tests.simulation.pushes.scripted_destination import Manner, Misbehaviour
from tests.simulation.schedule import Fault, smaller_steps

_STORE_CALLS = (
    ("acquire", 1), ("announced_loads", 1), ("note_protocol", 1), ("begin_run", 1), ("deliveries", 1),
    ("deliveries", 2), ("deliveries", 3), ("deliveries", 4), ("deliveries", 5), ("states", 1), ("states", 2),
    ("states", 3), ("landed_tables", 1), ("seal_plan", 1), ("begin_delivery", 1), ("begin_delivery", 2),
    ("announce_rows", 1), ("announce_rows", 2), ("announce_rows", 3), ("acknowledge_rows", 1), ("acknowledge_rows", 2),
    ("rejected_rows", 1), ("rejection_reasons", 1), ("rejection_reasons", 2), ("note_folders", 1), ("announce", 1),
    ("promote", 1), ("promote", 2), ("end_run", 1), ("release", 1),
)  # fmt: skip
_TABLE_CALLS = (
    ("prepare", 1), ("commit", 1), ("commit", 2), ("find_load", 1), ("witness", 1), ("planner", 1), ("fields plan", 1),
    ("snapshot plan", 1), ("write plan", 1),
)  # fmt: skip
_STORAGE_CALLS = (
    ("create_dir", 1), ("open_output_stream", 1), ("open_input_file", 1), ("open_input_file", 2),
    ("open_input_file", 3), ("open_input_file", 4), ("get_file_info", 1), ("get_file_info", 2), ("get_file_info", 3),
    ("get_file_info", 4), ("delete_file", 1), ("delete_file", 2), ("delete_dir", 1),
)  # fmt: skip
_LAUNCHER_CALLS = (
    ("launch", 1), ("launch", 2), ("write write", 1), ("write write", 2), ("write write", 3), ("write write", 5),
    ("read write", 1), ("read write", 2), ("read write", 3), ("close_input write", 1), ("wait write", 1),
    ("stop write", 1),
)  # fmt: skip
_HANGING_CALLS = (("write write", 1), ("write write", 3), ("read write", 2), ("wait write", 1))
"""The calls that have a timeout. Where another one hangs, it answers after others have worked."""
_WRITING = ("write write", "close_input write")
_POINTS = (
    ("run.leased", 1), ("run.begun", 1), ("push.sealed", 1), ("push.announced", 1), ("push.announced", 2),
    ("push.sent", 1), ("push.sent", 2), ("push.acknowledged", 1), ("push.noted", 1), ("push.noted", 2),
    ("push.folded", 1), ("load.staged", 1), ("load.announced", 1), ("table.committing", 1), ("table.committed", 1),
    ("load.promoted", 1), ("run.ended", 1), ("recover.begun", 1),
)  # fmt: skip
HANGING = frozenset(where for where, _ in _HANGING_CALLS)


class PushAction(StrEnum):
    """One step.

    - PUSH: rows are `added`, `changed` and `removed`, then a push with `faults`, at a destination that may misbehave.
      It may be `full`.
    - STORE_BACK, TABLE_BACK: the store, or the delivered table, is as it was `ago` steps before.
    - DROP: the delivered table is dropped.
    - CLOCK: the clock moves by `minutes`.
    """

    PUSH = "push"
    STORE_BACK = "store back"
    TABLE_BACK = "table back"
    DROP = "drop"
    CLOCK = "clock"


class PushStep(msgspec.Struct, frozen=True, omit_defaults=True):
    action: PushAction
    added: int = 0
    changed: int = 0
    removed: int = 0
    faults: tuple[Fault, ...] = ()
    misbehaves: Misbehaviour = Misbehaviour()
    full: bool = False
    ago: int = 1
    minutes: int = 0


class PushKind(msgspec.Struct, frozen=True):
    """The kind of a push. `word` is what a person says of unknown rows: `retry`, or how many of them have `landed`."""

    mode: str
    changes: str
    manner: Manner
    checkpoint_rows: int | None
    word: str


class PushSchedule(msgspec.Struct, frozen=True):
    kind: PushKind
    steps: tuple[PushStep, ...]

    def smaller(self) -> Iterator["PushSchedule"]:
        """The schedules that have a little less than this one."""
        replace = msgspec.structs.replace
        for steps in smaller_steps(self.steps, _less):
            yield replace(self, steps=steps)
        if self.kind.checkpoint_rows is not None:
            yield replace(self, kind=replace(self.kind, checkpoint_rows=None))
        for manner in (self.kind.manner._replace(holds_back=False), self.kind.manner._replace(outlives=False)):
            if manner != self.kind.manner:
                yield replace(self, kind=replace(self.kind, manner=manner))


def _less(step: PushStep) -> Iterator[PushStep]:
    replace = msgspec.structs.replace
    for number in range(len(step.faults)):
        yield replace(step, faults=step.faults[:number] + step.faults[number + 1 :])
    if step.misbehaves != Misbehaviour():
        yield replace(step, misbehaves=Misbehaviour())
    if step.full:
        yield replace(step, full=False)
    for name in ("added", "changed", "removed"):
        if rows := getattr(step, name):
            yield replace(step, **{name: rows - 1})


_WEIGHTS = {
    PushAction.PUSH: 10,
    PushAction.STORE_BACK: 2,
    PushAction.TABLE_BACK: 1,
    PushAction.DROP: 1,
    PushAction.CLOCK: 1,
}
_MODES = {"mirror": 4, "upsert": 2, "append": 3, "insert": 2, "update": 1, "overwrite": 2}


def push_schedule_of(seed: int) -> PushSchedule:
    """The schedule of a seed: always the same."""
    choose = random.Random(seed)
    kind = _kind(choose)
    steps = [_push(choose)]
    for _ in range(choose.randint(0, 3)):
        [action] = choose.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        match action:
            case PushAction.PUSH:
                steps.append(_push(choose))
            case PushAction.STORE_BACK | PushAction.TABLE_BACK:
                steps.append(PushStep(action, ago=choose.randint(1, 3)))
            case PushAction.CLOCK:
                steps.append(PushStep(action, minutes=choose.choice((-60, -1, 1, 60))))
            case _:
                steps.append(PushStep(action))
    return PushSchedule(kind, tuple(steps))


def _kind(choose: random.Random) -> PushKind:
    [mode] = choose.choices(list(_MODES), list(_MODES.values()))
    changes = {
        "mirror": ("diff", "diff", "snapshots"),
        "overwrite": ("all",),
        "insert": ("diff",),
        "update": ("diff", "cursor"),
    }.get(mode, ("diff", "diff", "snapshots", "cursor", "all"))
    protocol = "airbyte" if mode == "update" else choose.choice(("airbyte", "singer"))
    echo = choose.choice(("each", "each", "end", "exit", "bare"))
    manner = Manner(protocol, echo, holds_back=choose.random() < 0.4, outlives=choose.random() < 0.5)
    checkpoint = choose.choice((None, 5)) if mode != "overwrite" else None
    return PushKind(mode, choose.choice(changes), manner, checkpoint, choose.choice(("retry", "landed")))


def _push(choose: random.Random) -> PushStep:
    return PushStep(
        PushAction.PUSH,
        added=choose.randint(0, 7),
        changed=choose.randint(0, 3),
        removed=choose.randint(0, 2),
        faults=tuple(_fault(choose) for _ in range(choose.choice((0, 1, 1, 1, 2)))),
        misbehaves=_misbehaviour(choose) if choose.random() < 0.3 else Misbehaviour(),
        full=choose.random() < 0.05,
    )


def _misbehaviour(choose: random.Random) -> Misbehaviour:
    rows = choose.randint(1, 8)
    return choose.choice((Misbehaviour(dies_after=rows), Misbehaviour(hangs_after=rows), Misbehaviour(is_busy=True)))


def _fault(choose: random.Random) -> Fault:
    kind = choose.choice(tuple(CallFault))
    if choose.random() < 0.2:
        where, number = choose.choice(_POINTS)
        # A point has no effect that an error could come before or after.
        has_kind = kind in (CallFault.DEATH_AFTER, CallFault.PAUSED)
        return Fault(where, number, kind if has_kind else CallFault.DEATH_BEFORE)
    calls: tuple[tuple[str, int], ...]
    [calls] = choose.choices((_STORE_CALLS, _TABLE_CALLS, _STORAGE_CALLS, _LAUNCHER_CALLS), (4, 2, 2, 2))
    if kind is CallFault.HUNG and calls is _LAUNCHER_CALLS:
        calls = _HANGING_CALLS
    where, number = choose.choice(calls)
    if kind is CallFault.PAUSED and where in _WRITING:
        # A destination knows no fence: what is on its way into the pipe then, and what a process holds, arrives late.
        kind = CallFault.DEATH_BEFORE
    return Fault(where, number, kind)
