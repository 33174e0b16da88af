"""The attempts to deliver one sealed plan: a process for each part of it, again after errors that may pass."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from dagster_airbyte_proto.errors import ConnectorError, InternalError, ProtoError, StateConflict
from dagster_airbyte_proto.loads.push import Delivery, SealedPlan
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.model import IDEMPOTENT, PushMode
from dagster_airbyte_proto.protocols.destination import PushedStream
from dagster_airbyte_proto.staging.faults import stream_fault
from dagster_airbyte_proto.sync.push.delivery import ProcessDelivery, RowRange
from dagster_airbyte_proto.sync.push.push_context import DeliveryContext
from dagster_airbyte_proto.sync.push.row_rules import RowRules
from dagster_airbyte_proto.transforms.transform import DROPPED

_WAIT_SECONDS = (2.0, 6.0)
MAX_ATTEMPTS = len(_WAIT_SECONDS) + 1
_GENERATIONS_OF_A_PLAN = 100


class PlanPart(NamedTuple):
    """The rows of a plan that one process gets, the stream as it is described to it, and how rows become lines."""

    rows: RowRange
    stream: PushedStream
    rules: RowRules


class DeliveryAttempts:
    """The attempts to deliver one plan, and what they came to.

    `sent_bytes` are those of all records that were sent, some of them again.

    `parts` gives the parts from a position on. It is called once for each attempt. `unproved_reasons` are those of the
    rows that the last process refused, and that its destination did not prove.
    """

    def __init__(
        self,
        context: DeliveryContext,
        plan: SealedPlan,
        parts: Callable[[int], Iterable[PlanPart]],
        storage: Storage,
    ) -> None:
        self._context, self._plan, self._parts, self._storage = context, plan, parts, storage
        self.sent = self.unnamed = self.sent_bytes = 0
        self.unproved_reasons: Counter[str] = Counter()
        self.error: ProtoError | None = None
        self._may_fare_better = False

    def run(self) -> None:
        """Delivers the plan from where it stands. `error` is that of the last attempt, None where all is delivered."""
        for attempt in range(MAX_ATTEMPTS):
            self._context.meter.attempted(self._plan.stream, is_again=attempt > 0)
            self.error, self._may_fare_better = None, False
            try:
                begun = self._context.store.deliveries(self._plan.connection, self._plan.stream)
                start = first_position(begun[self._plan.stream])
                if start == 0:
                    self.unnamed = 0  # All rows go again, and are counted again.
                for part in self._parts(start):
                    self._deliver(part)
            except StateConflict:
                raise
            except Exception as error:  # noqa: BLE001 - the rows are accounted for, whatever became of them
                self.error = error if isinstance(error, ProtoError) else self._fault(error)
            if not self._may_retry(attempt):
                # As one that ran out of memory, or that lost its database: Singer has no message for an error.
                # A later run may fare better. At once it would most likely meet the same.
                if self._may_fare_better and type(self.error) is ConnectorError:
                    self.error.retryable = True
                return

    def _fault(self, error: Exception) -> InternalError:
        """The error of a delivery on which our own code failed."""
        is_safe = self._plan.mode in IDEMPOTENT
        effect = "are sent by the next push" if is_safe else "may be there: the next push asks what to do"
        text = f"rows that were not acknowledged {effect}"
        return stream_fault(str(self._plan.stream), error, "pushing its rows", text)

    def _deliver(self, part: PlanPart) -> None:
        process = ProcessDelivery(self._context, self._plan, part.stream, part.rules, self._storage)
        reasons = self._context.store.rejection_reasons(self._plan, end=part.rows.start)
        named = sum(rows for reason, rows in reasons.items() if reason != DROPPED)
        has_failed = True
        try:
            process.run(part.rows, rejected_before=named + self.unnamed)
            has_failed = False
        finally:
            self.sent = max(self.sent, process.sent)
            self.sent_bytes += process.encoder.encoded_bytes
            self.unnamed += process.unnamed_for_good if has_failed else process.unnamed
            self.unproved_reasons = process.refused.reasons
            self._may_fare_better = process.may_fare_better

    def _may_retry(self, attempt: int) -> bool:
        """True if it is to be tried again now: after a transient error, where a row that is sent twice does no harm."""
        error = self.error
        if not isinstance(error, ConnectorError) or not error.retryable or self._plan.mode not in IDEMPOTENT:
            return False
        pauses = error.pauses_seconds or _WAIT_SECONDS
        return attempt < min(len(pauses), MAX_ATTEMPTS - 1) and not self._context.options.cancel.wait(pauses[attempt])


def first_position(delivery: Delivery) -> int:
    """The position to go on from. A replacement starts over: the destination may drop what a broken one left."""
    return 0 if delivery.plan.mode is PushMode.OVERWRITE and not delivery.is_complete else delivery.acknowledged


def first_generation(before: Delivery | None) -> int:
    """The first generation of a plan that takes the place of another one.

    A destination keeps the rows of all generations from the one on that it is to show. So no number may come again,
    also where the state store was set back: they go by the clock, as the versions of Singer's taps do. Where the clock
    was set back, they go by those of the plan before, and by its version.
    """
    if before is None:
        return _now()
    return max(_now(), before.plan.first_generation + _GENERATIONS_OF_A_PLAN, before.plan.version + 1)


def generations(first: int, attempts: int) -> Iterator[int]:
    """The generations of the attempts from now on, after so many of the same plan: a destination keeps what a broken
    attempt of the same generation has left."""
    number = first + attempts - 1
    while True:
        number = max(number + 1, _now())
        yield number


def _now() -> int:
    return time.time_ns() // 1_000_000


def row_ranges(plan: SealedPlan, start: int, max_rows: int | None) -> Iterator[RowRange]:
    """The ranges for one process each. Removals get one of their own: all before them has to be proved. Those that go
    by a version are not divided: it is activated once."""
    step = max_rows or max(1, plan.rows)
    whole = plan.rows if plan.activates else step
    for end, rows in ((plan.rows_to_write, step), (plan.rows, whole)):
        while start < end:
            yield RowRange(start, min(start + rows, end))
            start = min(start + rows, end)
    if plan.rows == 0 and plan.mode is PushMode.OVERWRITE:
        yield RowRange(0, 0)
