"""Has the state store keep the rejected records of a load, from its files, before these go and before a state moves."""

from collections import deque
from collections.abc import Callable, Mapping

from dagster_airbyte_proto.checkpoints.deliveries import MOST_KEPT_REJECTIONS, DeliveryStore
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.load import FileContent, Load, StagedRows
from dagster_airbyte_proto.loads.push import SealedPlan
from dagster_airbyte_proto.model import PushMode
from dagster_airbyte_proto.schema.columns import RecordForm
from dagster_airbyte_proto.sync.push.content.refused_rows import stored_rejections
from dagster_airbyte_proto.sync.relay.rejected_content import rejected_content
from dagster_airbyte_proto.sync.relay.relay_plan import plan_of_part


class RejectionKeeping:
    """Keeps the rejected records of one leased connection. `warn` gets what could not be kept."""

    def __init__(self, store: DeliveryStore, lease: Lease, warn: Callable[[str], object]) -> None:
        self._store, self._lease, self._warn = store, lease, warn

    def keep_all(self, load: Load) -> None:
        """Keeps what the destination rejected so far of each delivery of a load, and what the source rejected."""
        deliveries = self._store.deliveries(load.connection)
        for part in load.parts:
            delivery = deliveries.get(part.stream)
            if delivery is not None and delivery.plan.plan_id == load.load_id:
                self.keep(part, delivery.plan)

    def keep(self, part: StagedRows, plan: SealedPlan) -> Mapping[str, int]:
        """Keeps the records that the destination rejected so far, and those that the source rejected. Returns the
        reasons of the former, with the numbers of their rows: the others have been counted as they came."""
        reasons = self._store.rejection_reasons(plan)
        of_source = [file for file in part.files if file.content is FileContent.REJECTED_RECORDS]
        count = sum(reasons.values()) + sum(file.rows for file in of_source)
        if plan.resends or (not count and plan.mode is not PushMode.OVERWRITE):
            return reasons
        rejected = deque(stored_rejections(self._store, plan) if reasons else (), MOST_KEPT_REJECTIONS)
        try:
            rows = plan_of_part(plan.plan_id, part, _no_form) if rejected else None
            content = rejected_content(rows, list(rejected), of_source)
        except StagingError as error:
            # An earlier run has removed them once they were kept; or somebody else has. By key it may have kept none:
            # a later record of the load took the place of each.
            if plan.mode is not PushMode.UPSERT and not self._store.keeps_rejections(plan):
                self._warn(
                    f"{part.stream}: the {count:,} rejected records of load {plan.plan_id} are kept nowhere: {error}"
                )
            return reasons
        self._store.keep_rejections(self._lease, plan, content.contents)
        if content.newest < count:
            self._warn(f"{part.stream}: of {count:,} rejected records the last {content.newest:,} are kept")
        return reasons


def _no_form() -> RecordForm:
    raise StagingError("reading the staged rows of a relay", "there are none")
