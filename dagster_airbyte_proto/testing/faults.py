"""Makes calls of a state store or of tables fail: before their effect, or after it.

    tables = with_faults(tables, CallFaults({("commit", 2): CallFault.AFTER}))

An engine takes both (`Engine(settings, store=..., tables=...)`). After the effect a caller cannot know of it: what the
store or the table says later counts.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar, cast

from dagster_airbyte_proto.errors import CommitUnknown, ProtoError, StateUnavailable, TableError

_Inner = TypeVar("_Inner")


class CallFault(StrEnum):
    """When a call fails."""

    BEFORE = "before"
    AFTER = "after"


class CallFaults:
    """The calls that fail, by the name of the method and how many calls of it there were, this one included.

    `"*"` in the place of a number fails every call. `fired` lists the faults that have happened.
    """

    def __init__(self, planned: Mapping[tuple[str, int | str], CallFault]) -> None:
        self._planned = dict(planned)
        self._calls: Counter[str] = Counter()
        self._counting = threading.Lock()
        self.fired: list[tuple[str, CallFault]] = []

    def call(self, method: str, inner: Callable[[], Any]) -> Any:
        """Calls `inner`, and fails as planned."""
        with self._counting:
            self._calls[method] += 1
            fault = self._planned.get((method, self._calls[method]), self._planned.get((method, "*")))
            if fault is not None:
                self.fired.append((method, fault))
        result = None if fault is CallFault.BEFORE else inner()
        if fault is not None:
            raise _error(method, fault)
        return result


def with_faults(inner: _Inner, faults: CallFaults) -> _Inner:
    """Returns an object with the attributes of `inner`, whose calls may fail."""
    members: dict[str, Any] = {}
    for name in dir(inner):
        if name.startswith("_"):
            continue
        if callable(getattr(type(inner), name, None)):
            members[name] = _method(inner, name, faults)
        else:
            members[name] = _attribute(inner, name)
    # A class of its own: optional interfaces are recognized by the class's methods.
    return cast(_Inner, type(f"Faulty{type(inner).__name__}", (), members)())


def _attribute(inner: object, name: str) -> property:
    return property(lambda _self: getattr(inner, name))


def _method(inner: object, name: str, faults: CallFaults) -> Callable[..., Any]:
    def call(_self: object, *args: Any, **named: Any) -> Any:
        return faults.call(name, lambda: getattr(inner, name)(*args, **named))

    return call


_OF_TABLES = frozenset({"prepare", "find_load", "branches", "drop_branch", "freshness", "rows_with_keys"})


def _error(method: str, fault: CallFault) -> ProtoError:
    """The error that the interface has for it. A writer may call a commit refused only before its effect."""
    doing, found = f"calling {method}", f"a planned fault {fault} its effect"
    if method == "commit":
        return TableError(doing, found) if fault is CallFault.BEFORE else CommitUnknown(doing, found)
    return TableError(doing, found) if method in _OF_TABLES else StateUnavailable(doing, found)
