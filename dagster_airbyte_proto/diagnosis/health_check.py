"""A check looks at one part of the machine or the settings, and its findings say what works and what to do.

Each check runs in a thread of its own until its deadline: a network disk, a daemon or a JVM that does not answer is a
finding too, and must not stop the others.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import NamedTuple

from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.masking import Mask, without_logins

_BUG = "This is a bug of airbyte-proto: please report it with the output of `airbyte-proto version`."


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILS = "fails"


class Finding(NamedTuple):
    """A line of the diagnosis: the part, its verdict, what was found, and the one thing to do if it is not ok."""

    part: str
    verdict: Verdict
    found: str
    remedy: str = ""
    seconds: float = 0.0

    def masked(self, mask: Mask) -> "Finding":
        """The same without secrets, and without the user and password of a URL."""
        found, remedy = (without_logins(mask.text(text)) for text in (self.found, self.remedy))
        return self._replace(found=found, remedy=remedy)


class HealthCheck(NamedTuple):
    """`look` returns findings, or raises ProtoError for a part that fails. It may go on in its thread after `seconds`.

    `give_up` is called then, to end what still runs. `late` is the remedy for a part that does not answer in time.
    """

    part: str
    look: Callable[[], Sequence[Finding]]
    seconds: float = 20.0
    late: str = ""
    give_up: Callable[[], None] = lambda: None


def ok(part: str, found: str) -> Finding:
    return Finding(part, Verdict.OK, found)


def warning(part: str, found: str, remedy: str) -> Finding:
    return Finding(part, Verdict.WARNING, found, remedy)


def fails(part: str, found: str, remedy: str) -> Finding:
    return Finding(part, Verdict.FAILS, found, remedy)


def findings(checks: Sequence[HealthCheck], mask: Mask, on_check: Callable[[str], None]) -> Iterator[Finding]:
    """Runs the checks, one after another, and names the part of each to `on_check` before. No finding has a secret."""
    for check in checks:
        on_check(check.part)
        started_at = time.monotonic()
        found = _answer(check)
        seconds = round(time.monotonic() - started_at, 3)
        for each in found:
            yield each.masked(mask)._replace(seconds=seconds)


def _answer(check: HealthCheck) -> Sequence[Finding]:
    answer: Future[Sequence[Finding]] = Future()
    # A daemon thread and no pool: one that hangs must not keep the process from ending.
    threading.Thread(target=_look, args=(check, answer), name=f"check of {check.part}", daemon=True).start()
    try:
        return answer.result(check.seconds)
    except TimeoutError:
        check.give_up()
        return [fails(check.part, f"no answer within {check.seconds:.0f} s", check.late)]


def _look(check: HealthCheck, answer: "Future[Sequence[Finding]]") -> None:
    try:
        found = check.look()
    except ProtoError as error:
        found = [fails(check.part, error.found, error.remedy or _BUG)]
    except Exception as error:  # noqa: BLE001 - the edge of a thread: the finding has it
        found = [fails(check.part, f"{type(error).__name__}: {error}", _BUG)]
    answer.set_result(found)
