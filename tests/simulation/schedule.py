"""A schedule: what happens to one connection, step by step. It is made from a seed, and shrunk when it fails."""

import random
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import msgspec

from dagster_airbyte_proto.testing.faults import CallFault

_STORE_CALLS = (
    ("acquire", 1), ("announced_loads", 1), ("begin_run", 1), ("states", 1), ("landed_tables", 1), ("note_folders", 1),
    ("announce", 1), ("announce", 2), ("promote", 1), ("promote", 2), ("promote", 3), ("end_run", 1), ("release", 1),
    ("unfinished_folders", 1), ("forget_folders", 1), ("load", 1), ("open_generations", 1),
    ("forget_generation", 1), ("save_stream_profiles", 1),
)  # fmt: skip
_TABLE_CALLS = (("prepare", 1), ("commit", 1), ("commit", 2), ("commit", 3), ("find_load", 1), ("witness", 1))
_STORAGE_CALLS = (
    ("create_dir", 1), ("open_output_stream", 1), ("open_output_stream", 2), ("get_file_info", 1), ("delete_file", 1),
    ("delete_dir", 1),
)  # fmt: skip
_LAUNCHER_CALLS = (("launch", 1), ("launch", 2), ("launch", 3), ("read", 1), ("read", 2), ("read", 3), ("wait", 1))
# Behind the answers to other verbs stand longer deadlines.
_HANGING_CALLS = (("read read", 1), ("read read", 2), ("wait read", 1))
_POINTS = (
    ("run.leased", 1), ("load.staged", 1), ("load.staged", 2), ("load.announced", 1), ("load.announced", 2),
    ("table.committing", 1), ("table.committing", 2), ("table.committed", 1), ("load.committed", 1),
    ("load.committed", 2), ("run.delivered", 1), ("load.promoted", 1), ("recover.begun", 1), ("recover.swept", 1),
)  # fmt: skip
HANGING = frozenset(where for where, _ in _HANGING_CALLS)


class Fault(msgspec.Struct, frozen=True):
    """A fault at the `number`-th call of a method, or at a point."""

    where: str
    number: int
    kind: CallFault

    def __str__(self) -> str:
        return f"{self.kind} {self.where} {self.number}"


class Action(StrEnum):
    """One step.

    - SYNC: `records` more at the source, then a sync with `faults`. It may `refresh`; the source may break.
    - MODE: the write mode of the first stream changes, unless it upserts: rows of before would stay twice.
    - STORE_BACK, TABLE_BACK: the store, or the first stream's table, is as it was `ago` steps before.
    - DROP: the first stream's table is dropped.
    - MAINTAIN: somebody compacts the tables, and expires all their snapshots but the last.
    - OLDER: announced loads and the store's memory of tables are as the previous release wrote them.
    - CLOCK: the clock moves by `minutes`.
    """

    SYNC = "sync"
    MODE = "mode"
    STORE_BACK = "store back"
    TABLE_BACK = "table back"
    DROP = "drop"
    MAINTAIN = "maintain"
    OLDER = "older"
    CLOCK = "clock"


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    action: Action
    records: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = ()
    refresh: bool = False
    breaks_after: int | None = None
    ago: int = 1
    minutes: int = 0
    write: str = ""

    @property
    def clock(self) -> timedelta:
        return timedelta(minutes=self.minutes)


class Schedule(msgspec.Struct, frozen=True):
    """`writes` is the write mode of each stream; `state` how the source's states are. Up to `parallel` processes read
    the streams."""

    writes: tuple[str, ...]
    state: str
    steps: tuple[Step, ...]
    parallel: int = 1

    def smaller(self) -> Iterator["Schedule"]:
        """The schedules that have a little less than this one."""
        replace = msgspec.structs.replace
        for steps in smaller_steps(self.steps, _less):
            yield replace(self, steps=steps)
        if len(self.writes) > 1:
            steps = tuple(replace(step, records=step.records[:1]) for step in self.steps)
            yield replace(self, writes=self.writes[:1], steps=steps)


_AnyStep = TypeVar("_AnyStep")


def smaller_steps(
    steps: tuple[_AnyStep, ...], less: Callable[[_AnyStep], Iterable[_AnyStep]]
) -> Iterator[tuple[_AnyStep, ...]]:
    """The steps without one of them, for each, and then those with a little `less` in one."""
    for number in range(len(steps)):
        yield steps[:number] + steps[number + 1 :]
    for number, step in enumerate(steps):
        for smaller in less(step):
            yield (*steps[:number], smaller, *steps[number + 1 :])


def _less(step: Step) -> Iterator[Step]:
    replace = msgspec.structs.replace
    for number in range(len(step.faults)):
        yield replace(step, faults=step.faults[:number] + step.faults[number + 1 :])
    if step.refresh:
        yield replace(step, refresh=False)
    if step.breaks_after is not None:
        yield replace(step, breaks_after=None)
    for number, records in enumerate(step.records):
        if records:
            yield replace(step, records=(*step.records[:number], records - 1, *step.records[number + 1 :]))


class _Weighted(NamedTuple):
    action: Action
    weight: int


_ACTIONS = (
    _Weighted(Action.SYNC, 10),
    _Weighted(Action.OLDER, 1),
    _Weighted(Action.STORE_BACK, 2),
    _Weighted(Action.TABLE_BACK, 1),
    _Weighted(Action.DROP, 1),
    _Weighted(Action.MAINTAIN, 2),
    _Weighted(Action.CLOCK, 1),
    _Weighted(Action.MODE, 1),
)


_SET_BACK = frozenset((Action.STORE_BACK, Action.TABLE_BACK, Action.DROP, Action.MODE))
"""What the previous release did not notice. A store that it wrote remembers no tables, until the next load lands."""


def schedule_of(seed: int) -> Schedule:
    """The schedule of a seed: always the same."""
    choose = random.Random(seed)
    writes = tuple(
        choose.choices(("append", "append_dedup", "overwrite"), (4, 2, 1))[0] for _ in range(choose.choice((1, 1, 2)))
    )
    state = choose.choice(("stream", "stream", "global", "legacy"))
    steps = [_sync(choose, len(writes))]
    for _ in range(choose.randint(0, 2)):
        [kind] = choose.choices([each.action for each in _ACTIONS], [each.weight for each in _ACTIONS])
        before = {step.action for step in steps}
        if not (kind in _SET_BACK and Action.OLDER in before) and not (kind is Action.OLDER and before & _SET_BACK):
            steps.append(_step(choose, kind, len(writes)))
    return Schedule(writes, state, tuple(steps))


def divided_schedule_of(seed: int) -> Schedule:
    """The same events where two processes read the streams: there are two, with states that an earlier sync left."""
    schedule = schedule_of(seed)
    missing = len(STREAM_NAMES) - len(schedule.writes)
    replace = msgspec.structs.replace
    steps = (
        replace(step, records=(*step.records, *(seed % 5,) * missing)) if step.records else step
        for step in schedule.steps
    )
    first = Step(Action.SYNC, records=(2, 3))
    writes = (*schedule.writes, *("append",) * missing)
    return replace(schedule, writes=writes, state="stream", steps=(first, *steps), parallel=2)


def _step(choose: random.Random, kind: Action, streams: int) -> Step:
    match kind:
        case Action.SYNC:
            return _sync(choose, streams)
        case Action.STORE_BACK | Action.TABLE_BACK:
            return Step(kind, ago=choose.randint(1, 3))
        case Action.CLOCK:
            return Step(kind, minutes=choose.choice((-60, -1, 1, 60)))
        case Action.MODE:
            return Step(kind, write=choose.choice(("append", "overwrite")))
    return Step(kind)


def _sync(choose: random.Random, streams: int) -> Step:
    return Step(
        Action.SYNC,
        records=tuple(choose.randint(0, 5) for _ in range(streams)),
        faults=tuple(_fault(choose, streams) for _ in range(choose.choice((0, 1, 1, 1, 2)))),
        refresh=choose.random() < 0.1,
        breaks_after=choose.randint(1, 5) if choose.random() < 0.15 else None,
    )


def _fault(choose: random.Random, streams: int) -> Fault:
    kind = choose.choice(tuple(CallFault))
    if choose.random() < 0.2:
        where, number = choose.choice(_POINTS)
        # A point has no effect that an error could come before or after.
        return Fault(
            where, number, kind if kind in (CallFault.DEATH_AFTER, CallFault.PAUSED) else CallFault.DEATH_BEFORE
        )
    calls: tuple[tuple[str, int], ...]
    [calls] = choose.choices((_TABLE_CALLS, _STORE_CALLS, _STORAGE_CALLS, _LAUNCHER_CALLS), (3, 3, 1, 1))
    if kind is CallFault.HUNG and calls is _LAUNCHER_CALLS:
        calls = _HANGING_CALLS
    where, number = choose.choice(calls)
    of_table = f" shop.{choose.choice(STREAM_NAMES[:streams])}" if calls is _TABLE_CALLS else ""
    return Fault(where + of_table, number, kind)


STREAM_NAMES = ("users", "orders")


def described(schedule: msgspec.Struct) -> object:
    """A schedule for people: each fault in words."""
    return _in_words(msgspec.to_builtins(schedule))


def _in_words(value: Any) -> Any:
    if isinstance(value, dict):
        is_fault = value.keys() == {*Fault.__struct_fields__}
        return str(Fault(**value)) if is_fault else {key: _in_words(each) for key, each in value.items()}
    return [_in_words(each) for each in value] if isinstance(value, list | tuple) else value
