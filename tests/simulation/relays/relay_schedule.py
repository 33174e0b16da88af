"""A schedule of relays: what happens to one source and its destination, step by step. A seed makes it, and a failure
shrinks it."""

import random
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from dagster_airbyte_proto.testing.faults import CallFault
from tests.simulation.pushes.scripted_destination import Manner, Misbehaviour
from tests.simulation.relays.peculiar_destination import COUNTING, Behaviour, Oddity
from tests.simulation.schedule import STREAM_NAMES, Fault, smaller_steps

_STORE_CALLS = (
    ("acquire", 1), ("announced_loads", 1), ("announced_loads", 2), ("announced_loads", 3), ("begin_run", 1),
    ("states", 1), ("states", 2), ("unfinished_folders", 1), ("forget_folders", 1), ("note_folders", 1),
    ("announce", 1), ("announce", 2), ("announce", 3), ("deliveries", 1), ("deliveries", 2), ("deliveries", 3),
    ("deliveries", 4), ("deliveries", 5), ("seal_plan", 1), ("seal_plan", 2), ("begin_delivery", 1),
    ("begin_delivery", 2), ("announce_rows", 1), ("announce_rows", 2), ("announce_rows", 3), ("acknowledge_rows", 1),
    ("acknowledge_rows", 2), ("acknowledge_rows", 3), ("rejection_reasons", 1), ("rejection_reasons", 2),
    ("promote", 1), ("promote", 2), ("promote", 3), ("load", 1), ("end_run", 1), ("release", 1),
    ("save_stream_profiles", 1),
)  # fmt: skip
_STORAGE_CALLS = (
    ("create_dir", 1), ("open_output_stream", 1), ("open_output_stream", 2), ("get_file_info", 1), ("delete_file", 1),
    ("prepare", 1), ("prepare", 2), ("find_load", 1),
)  # fmt: skip
_LAUNCHER_CALLS = (
    ("launch", 1), ("launch", 2), ("launch", 3), ("launch", 4), ("write write", 1), ("write write", 2),
    ("write write", 3), ("write write", 5), ("read write", 1), ("read write", 2), ("read write", 3),
    ("close_input write", 1), ("close_input write", 2), ("wait write", 1), ("wait write", 2), ("stop write", 1),
    ("read read", 1), ("read read", 2), ("wait read", 1),
)  # fmt: skip
_HANGING_CALLS = (
    ("write write", 1), ("write write", 3), ("read write", 2), ("wait write", 1), ("read read", 1), ("read read", 2),
    ("wait read", 1),
)  # fmt: skip
"""The calls that have a timeout. Where another one hangs, it answers after others have worked."""
_WRITING = ("write write", "close_input write")
_POINTS = (
    ("run.leased", 1), ("run.begun", 1), ("run.folders_noted", 1), ("stage.file_closed", 1), ("load.staged", 1),
    ("load.staged", 2), ("load.announced", 1), ("load.announced", 2), ("push.sealed", 1), ("push.sealed", 2),
    ("push.announced", 1), ("push.announced", 2), ("push.announced", 3), ("push.sent", 1), ("push.sent", 2),
    ("push.acknowledged", 1), ("push.noted", 1), ("push.noted", 2), ("push.noted", 3), ("load.committed", 1),
    ("load.committed", 2), ("run.delivered", 1), ("load.promoted", 1), ("load.promoted", 2), ("run.ended", 1),
    ("recover.begun", 1), ("recover.swept", 1),
)  # fmt: skip
HANGING = frozenset(where for where, _ in _HANGING_CALLS)


class RelayAction(StrEnum):
    """One step.

    - SYNC: `records` more at the source, then a sync with `faults`. It may `refresh`; the source may break; at the
      stream of the number `odd` the destination has a `behaviour`.
    - STORE_BACK: the store is as it was `ago` steps before.
    - CLOCK: the clock moves by `minutes`.
    """

    SYNC = "sync"
    STORE_BACK = "store back"
    CLOCK = "clock"


class RelayStep(msgspec.Struct, frozen=True, omit_defaults=True):
    action: RelayAction
    records: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = ()
    refresh: bool = False
    breaks_after: int | None = None
    odd: int = 0
    behaviour: Behaviour = Behaviour()
    ago: int = 1
    minutes: int = 0


class RelayKind(msgspec.Struct, frozen=True):
    """The kind of a relay: the write mode of each stream, the states of the source and the manner of the destination.

    A load has the records up to one state, or with `whole_loads` all of a sync. `word` is what a person does about
    unknown rows: `retry`, or `look` whether they are there.
    """

    writes: tuple[str, ...]
    state: str
    manner: Manner
    checkpoint_rows: int | None
    whole_loads: bool
    word: str


class RelaySchedule(msgspec.Struct, frozen=True):
    kind: RelayKind
    steps: tuple[RelayStep, ...]

    def smaller(self) -> Iterator["RelaySchedule"]:
        """The schedules that have a little less than this one."""
        replace = msgspec.structs.replace
        for steps in smaller_steps(self.steps, _less):
            yield replace(self, steps=steps)
        kind = self.kind
        if len(kind.writes) > 1 and all(step.odd == 0 for step in self.steps):
            steps = tuple(replace(step, records=step.records[:1]) for step in self.steps)
            yield replace(self, kind=replace(kind, writes=kind.writes[:1]), steps=steps)
        if kind.checkpoint_rows is not None:
            yield replace(self, kind=replace(kind, checkpoint_rows=None))
        for manner in (kind.manner._replace(holds_back=False), kind.manner._replace(outlives=False)):
            if manner != kind.manner:
                yield replace(self, kind=replace(kind, manner=manner))


def _less(step: RelayStep) -> Iterator[RelayStep]:
    replace = msgspec.structs.replace
    for number in range(len(step.faults)):
        yield replace(step, faults=step.faults[:number] + step.faults[number + 1 :])
    if step.behaviour != Behaviour():
        yield replace(step, behaviour=Behaviour())
    if step.refresh:
        yield replace(step, refresh=False)
    if step.breaks_after is not None:
        yield replace(step, breaks_after=None)
    for number, records in enumerate(step.records):
        if records:
            yield replace(step, records=(*step.records[:number], records - 1, *step.records[number + 1 :]))


def relay_schedule_of(seed: int) -> RelaySchedule:
    """The schedule of a seed: always the same."""
    choose = random.Random(seed)
    kind = _kind(choose)
    steps = [_sync(choose, kind)]
    for _ in range(choose.randint(0, 3)):
        [action] = choose.choices((RelayAction.SYNC, RelayAction.STORE_BACK, RelayAction.CLOCK), (10, 2, 1))
        match action:
            case RelayAction.SYNC:
                steps.append(_sync(choose, kind))
            case RelayAction.STORE_BACK:
                steps.append(RelayStep(action, ago=choose.randint(1, 3)))
            case RelayAction.CLOCK:
                steps.append(RelayStep(action, minutes=choose.choice((-60, -1, 1, 60))))
    return RelaySchedule(kind, tuple(steps))


def _kind(choose: random.Random) -> RelayKind:
    writes = tuple(
        choose.choices(("append", "append_dedup", "overwrite"), (4, 4, 1))[0] for _ in range(choose.choice((1, 2, 2)))
    )
    echo = choose.choice(("each", "each", "end", "exit", "bare"))
    manner = Manner(
        choose.choice(("airbyte", "singer")), echo, holds_back=choose.random() < 0.4, outlives=choose.random() < 0.5
    )
    return RelayKind(
        writes,
        choose.choice(("stream", "stream", "global", "legacy")),
        manner,
        checkpoint_rows=choose.choice((None, None, 4)),
        whole_loads=choose.random() < 0.6,
        word=choose.choice(("retry", "look")),
    )


def _sync(choose: random.Random, kind: RelayKind) -> RelayStep:
    return RelayStep(
        RelayAction.SYNC,
        records=tuple(choose.randint(0, 8) for _ in kind.writes),
        faults=tuple(_fault(choose) for _ in range(choose.choice((0, 1, 1, 1, 2)))),
        refresh=choose.random() < 0.1,
        breaks_after=choose.randint(1, 8) if choose.random() < 0.1 else None,
        odd=choose.randrange(len(kind.writes)),
        behaviour=_behaviour(choose, kind.manner) if choose.random() < 0.4 else Behaviour(),
    )


def _behaviour(choose: random.Random, manner: Manner) -> Behaviour:
    if choose.random() < 0.5:
        rows = choose.randint(1, 8)
        breaks = choose.choice(
            (Misbehaviour(dies_after=rows), Misbehaviour(hangs_after=rows), Misbehaviour(is_busy=True))
        )
        return Behaviour(breaks=breaks, is_bad=choose.random() < 0.4)
    can_count = manner.protocol == "airbyte" and manner.echo in ("each", "bare")
    return Behaviour(choose.choice([each for each in Oddity if each and (can_count or each not in COUNTING)]))


def _fault(choose: random.Random) -> Fault:
    kind = choose.choice(tuple(CallFault))
    if choose.random() < 0.25:
        where, number = choose.choice(_POINTS)
        # A point has no effect that an error could come before or after.
        has_kind = kind in (CallFault.DEATH_AFTER, CallFault.PAUSED)
        return Fault(where, number, kind if has_kind else CallFault.DEATH_BEFORE)
    calls: tuple[tuple[str, int], ...]
    [calls] = choose.choices((_STORE_CALLS, _STORAGE_CALLS, _LAUNCHER_CALLS), (5, 1, 3))
    if kind is CallFault.HUNG and calls is _LAUNCHER_CALLS:
        calls = _HANGING_CALLS
    where, number = choose.choice(calls)
    if kind is CallFault.PAUSED and where in _WRITING:
        # A destination knows no fence: what is on its way into the pipe then, and what a process holds, arrives late.
        kind = CallFault.DEATH_BEFORE
    return Fault(where, number, kind)


def streams_of(kind: RelayKind) -> tuple[str, ...]:
    """The names of the streams."""
    return STREAM_NAMES[: len(kind.writes)]
