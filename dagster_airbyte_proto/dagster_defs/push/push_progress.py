"""The progress of a push in Dagster's run log, as the state store has it: a position counts once it is acknowledged."""

import time
from collections.abc import Collection
from contextlib import suppress

import dagster as dg
from dagster._core.events import EngineEventData

from dagster_airbyte_proto.dagster_defs.engines import ConnectorSettings, opened_store
from dagster_airbyte_proto.dagster_defs.step.run_progress import step_key, writing_to_dagster
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.loads.push import Delivery


class PushProgress:
    """Writes one engine event for each interval in which rows were acknowledged. Belongs to the step's own thread."""

    def __init__(
        self, context: dg.AssetExecutionContext, connector: ConnectorSettings, connection: str, streams: Collection[str]
    ) -> None:
        self._context, self._connector, self._connection = context, connector, connection
        self._streams = frozenset(streams)
        self._reported_at, self._reported = time.monotonic(), self._acknowledged(self._deliveries())

    def report(self, interval_seconds: float) -> None:
        now = time.monotonic()
        seconds = now - self._reported_at
        if seconds < interval_seconds:
            return
        deliveries = self._deliveries()
        acknowledged = self._acknowledged(deliveries)
        fresh = {plan: rows - self._reported.get(plan, 0) for plan, rows in acknowledged.items()}
        self._reported_at, self._reported = now, acknowledged
        moving = {name: each for name, each in deliveries.items() if fresh[each.plan.plan_id] > 0}
        if not moving:
            return
        parts = (f"{name}: {each.acknowledged:,} of {each.plan.rows:,} rows" for name, each in moving.items())
        rate = sum(fresh[each.plan.plan_id] for each in moving.values()) / seconds
        with writing_to_dagster():
            self._context.instance.report_engine_event(
                f"{', '.join(parts)} acknowledged, {rate:,.0f} a second",
                self._context.run,
                EngineEventData(metadata={"airbyte_proto/rows_per_second": dg.FloatMetadataValue(rate)}),
                step_key=step_key(self._context),
            )

    def _deliveries(self) -> dict[str, Delivery]:
        """The deliveries of the streams. Empty if the store does not answer: that is no reason to fail the step."""
        found: dict[str, Delivery] = {}
        with suppress(ProtoError), opened_store(self._connector) as store:
            deliveries = store.deliveries(self._connection)
            found = {str(stream): each for stream, each in deliveries.items() if str(stream) in self._streams}
        return found

    @staticmethod
    def _acknowledged(deliveries: dict[str, Delivery]) -> dict[str, int]:
        return {each.plan.plan_id: each.acknowledged for each in deliveries.values()}
