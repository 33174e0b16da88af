"""The interface by which a sync or a push is traced and measured. A relay is a sync."""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

from dagster_airbyte_proto.loads.load import Load, StagedRows
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.push_report import PushedStreamReport, PushReport
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run_options import ProgressListener
from dagster_airbyte_proto.sync.telemetry.delivery_metrics import NO_DELIVERY_METER, DeliveryMeter


class RunIdentity(NamedTuple):
    """The run that is traced. `attempt` counts from 1; a later one is a retry."""

    connection: str
    run_id: str
    partition: str
    attempt: int


class RunTelemetry(Protocol):
    """Spans and metrics of one run. Nothing here raises: a sync does not fail because it cannot be measured."""

    @property
    def delivery_meter(self) -> DeliveryMeter:
        """Takes the measures of the run's deliveries. Get it within `sync` or `push`."""
        ...

    def sync(self, run: RunIdentity, /) -> AbstractContextManager[object]:
        """The span of the whole run."""
        ...

    def following(self, listener: ProgressListener) -> ProgressListener:
        """A listener that measures each stream and passes everything on."""
        ...

    def load(self, load: Load, /) -> AbstractContextManager[object]:
        """The span in which a load is announced and committed."""
        ...

    def commit(self, load: Load, part: StagedRows, /) -> AbstractContextManager[object]:
        """The span in which one table commits its part of a load."""
        ...

    def ended(self, report: SyncReport) -> None: ...

    def push(self, run: RunIdentity, /) -> AbstractContextManager[object]:
        """The span of a whole push."""
        ...

    def delivery(self, connection: str, stream: StreamId, /) -> AbstractContextManager[object]:
        """The span in which one stream is planned, delivered and folded. Call `delivered` within it."""
        ...

    def delivered(self, report: PushedStreamReport) -> None: ...

    def pushed(self, report: PushReport) -> None: ...


class NoTelemetry:
    """A RunTelemetry that does nothing."""

    delivery_meter: DeliveryMeter = NO_DELIVERY_METER

    def sync(self, *_: object) -> AbstractContextManager[object]:
        return nullcontext()

    def following(self, listener: ProgressListener) -> ProgressListener:
        return listener

    def load(self, *_: object) -> AbstractContextManager[object]:
        return nullcontext()

    def commit(self, *_: object) -> AbstractContextManager[object]:
        return nullcontext()

    def ended(self, report: SyncReport) -> None: ...

    def push(self, *_: object) -> AbstractContextManager[object]:
        return nullcontext()

    def delivery(self, *_: object) -> AbstractContextManager[object]:
        return nullcontext()

    def delivered(self, report: PushedStreamReport) -> None: ...

    def pushed(self, report: PushReport) -> None: ...


NO_TELEMETRY = NoTelemetry()
