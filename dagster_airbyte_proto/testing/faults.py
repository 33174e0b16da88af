"""Makes calls of a state store, of tables, of storage or of a launcher fail: before their effect, or after it, or
together with their process.

    tables = with_faults(tables, CallFaults({("commit", 2): CallFault.AFTER}))

An engine takes store and tables (`Engine(settings, store=..., tables=...)`). The calls of the storage and the planner
of such tables fail too, those of the targets that they prepare, and those of the connectors that such a launcher
starts. After the effect a caller cannot know of it: what the store or the table says later counts.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, NoReturn, TypeVar, cast

from pyarrow import fs

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.errors import CommitUnknown, ConnectorError, StateUnavailable, TableError
from dagster_airbyte_proto.launchers.process import Launcher, RunningConnector
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.planner import PushPlanner, SupportsPlans, SupportsSession
from dagster_airbyte_proto.tables.tasks import SupportsTasks
from dagster_airbyte_proto.tables.writer import FrameTables, SupportsBranches, SupportsKeyLookup, TableWriter

_Inner = TypeVar("_Inner")


class CallFault(StrEnum):
    """A fault of a call.

    - BEFORE, AFTER: it raises the error of its interface, before its effect or after it.
    - DEATH_BEFORE, DEATH_AFTER: the process dies there. It raises `SimulatedDeath`, and so does every later call.
    - PAUSED: the process sleeps before the effect while others work, and goes on.
    - HUNG: it has its effect, but answers only after others have worked. A call with a timeout (`read`, `write` and
      `wait` of a connector) brings nothing in time, nor does a later one until the connector is stopped.
    """

    BEFORE = "before"
    AFTER = "after"
    DEATH_BEFORE = "death before"
    DEATH_AFTER = "death after"
    PAUSED = "paused"
    HUNG = "hung"


class SimulatedDeath(BaseException):
    """Ends a run as the death of its process does: nothing that the run does after it has an effect."""


class CallFaults:
    """The calls that fail, by the name of the method and how many calls of it there were, this one included.

    `"*"` in the place of a number fails every call. A method's name may be followed by a table's ("commit shop.users"):
    calls to several tables come in any order; that of a connector by the verb it was launched with ("read read"), and
    that of a planner by "plan" ("write plan").
    `calls` counts them. `fired` lists the faults that have happened. `meanwhile` is called while a call is paused, or
    hangs. `launched` are the connectors that were started: one that dies here stops none of them.
    """

    def __init__(
        self, planned: Mapping[tuple[str, int | str], CallFault], meanwhile: Callable[[], None] | None = None
    ) -> None:
        self._planned = dict(planned)
        self._meanwhile = meanwhile
        self.calls: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._is_dead = False
        self._hung: set[str] = set()
        self.fired: list[tuple[str, CallFault]] = []
        self.launched: list[RunningConnector] = []

    def call(self, method: str, inner: Callable[[], Any], of: object = None) -> Any:
        """Calls `inner`, and fails as planned. The call is `of` a table, or of a connector with this verb."""
        fault = self._next(method, of)
        if fault is CallFault.DEATH_BEFORE:
            self._die()
        if fault is CallFault.PAUSED and self._meanwhile is not None:
            self._meanwhile()
        has_timeout = method in _NOTHING_IN_TIME and of != _PLAN
        if fault is CallFault.HUNG and has_timeout:
            self._hung.add(method)
        if method == "stop":
            self._hung.clear()
        if has_timeout and method in self._hung:
            return _NOTHING_IN_TIME[method]
        result = None if fault is CallFault.BEFORE else inner()
        if method == "launch" and result is not None:
            self.launched.append(result)
        if fault is CallFault.HUNG and self._meanwhile is not None:
            self._meanwhile()
        if fault is CallFault.DEATH_AFTER:
            self._die()
        if fault in (CallFault.BEFORE, CallFault.AFTER):
            raise _error(method, fault, of)
        return result

    def reach(self, point: str) -> None:
        """Fails at a point of `points` as at a call that does nothing: arm it as the hook."""
        self.call(point, lambda: None)

    def _next(self, method: str, of: object) -> CallFault | None:
        with self._counting:
            if self._is_dead:
                raise SimulatedDeath
            names = [method] if of is None else [method, f"{method} {of}"]
            self.calls.update(names)
            keys = [(name, number) for name in names for number in (self.calls[name], "*")]
            fault = next((self._planned[key] for key in keys if key in self._planned), None)
            if fault is not None:
                self.fired.append((method, fault))
            return fault

    def _die(self) -> NoReturn:
        with self._counting:
            self._is_dead = True
        raise SimulatedDeath


def with_faults(inner: _Inner, faults: CallFaults, of: str = "") -> _Inner:
    """Returns an object with the attributes of `inner`, whose calls may fail. They are `of` a connector with this verb,
    or of a planner."""
    own = tuple(name for name in getattr(inner, "__dict__", ()) if not name.startswith("_"))
    kind: type = type(inner)
    return cast(_Inner, _faulty_class(kind, own)(inner, faults, of))


class _Faulty:
    def __init__(self, inner: object, faults: CallFaults, of: str) -> None:
        self._inner, self._faults, self._of = inner, faults, of


@cache
def _faulty_class(kind: type, attributes: tuple[str, ...]) -> type[_Faulty]:
    """The class of objects around those of a class, which have these attributes of their own. Each has its own one:
    optional interfaces are recognized by the class's methods."""
    members: dict[str, Any] = {}
    for name in (*dir(kind), *attributes):
        if not name.startswith("_"):
            members[name] = _method(name) if callable(getattr(kind, name, None)) else _attribute(name)
    return type(f"Faulty{kind.__name__}", (_Faulty,), members)


def _attribute(name: str) -> property:
    def value(self: _Faulty) -> Any:
        found = getattr(self._inner, name)
        return _FaultyStorage(found, self._faults) if isinstance(found, Storage) else found

    return property(value)


def _method(name: str) -> Callable[..., Any]:
    def call(self: _Faulty, *args: Any, **named: Any) -> Any:
        inner, faults = self._inner, self._faults
        of = next(filter(None, map(_table_of, args)), None) or self._of or None
        result = faults.call(name, lambda: getattr(inner, name)(*args, **named), of)
        if isinstance(result, TableTarget):
            return result._replace(storage=_FaultyStorage(result.storage, faults))
        if name == "planner":
            return with_faults(result, faults, _PLAN)
        if name != "launch":
            return result
        invocation = args[0] if args else named["invocation"]
        return with_faults(result, faults, str(invocation.verb))

    return call


class _FaultyStorage(Storage):
    """Storage whose file systems fail as planned."""

    def __init__(self, inner: Storage, faults: CallFaults) -> None:
        super().__init__()
        self._inner, self._faults = inner, faults

    def at(self, location: str) -> tuple[fs.FileSystem, str]:
        filesystem, path = self._inner.at(location)
        return with_faults(filesystem, self._faults), path


def _table_of(argument: object) -> TableName | None:
    match argument:
        case TableName():
            return argument
        case TableSpec():
            return argument.name
        case StagedRows():
            return argument.table
    return None


_PLAN = "plan"
_NOTHING_IN_TIME = {"read": None, "write": 0, "wait": None}


def _methods(*interfaces: type) -> frozenset[str]:
    """The names of the methods that a caller of these interfaces may call."""
    found = {name for each in interfaces for name in dir(each) if callable(getattr(each, name))}
    return frozenset(name for name in found if not name.startswith("_"))


_OF_TABLES = _methods(
    TableWriter, SupportsKeyLookup, SupportsBranches, SupportsPlans, SupportsTasks, SupportsSession, FrameTables
)
_OF_PLANNERS = _methods(PushPlanner)
_OF_STORAGE = _methods(fs.FileSystem)
_OF_LAUNCHERS = _methods(Launcher, RunningConnector)
_OF_STORES = _methods(DeliveryStore)


def _error(method: str, fault: CallFault, of: object) -> Exception:
    """The error that the interface has for it. A writer may call a commit refused only before its effect."""
    doing, found = f"calling {method}", f"a planned fault {fault} its effect"
    if method == "commit":
        return TableError(doing, found) if fault is CallFault.BEFORE else CommitUnknown(doing, found)
    # A planner writes rows, and so does a connector.
    if method in _OF_TABLES or (of == _PLAN and method in _OF_PLANNERS):
        return TableError(doing, found)
    if method in _OF_STORES:
        return StateUnavailable(doing, found)
    if method in _OF_LAUNCHERS:
        return ConnectorError(doing, found)
    if method in _OF_STORAGE:
        return OSError(f"{doing}: {found}")
    raise LookupError(f"no interface of the engine has a method {method}: plan faults of those that it calls")
