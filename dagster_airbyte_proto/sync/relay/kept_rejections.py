"""Has the state store keep the rejected records of a load, from its files, before these go and before a state moves."""

from collections.abc import Callable, Sequence

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.load import FileContent, Load, StagedRows
from dagster_airbyte_proto.loads.push import RejectedRow, SealedPlan
from dagster_airbyte_proto.model import PushMode
from dagster_airbyte_proto.schema.columns import RecordForm
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

    def keep(self, part: StagedRows, plan: SealedPlan) -> Sequence[RejectedRow]:
        """Keeps the records that the destination rejected so far, and those that the source rejected. Returns the rows
        of the former: the others have been counted as they came."""
        rejected = self._store.rejected_rows(plan)
        of_source = [file for file in part.files if file.content is FileContent.REJECTED_RECORDS]
        count = len(rejected) + sum(file.rows for file in of_source)
        if plan.resends or (not count and plan.mode is not PushMode.OVERWRITE):
            return rejected
        try:
            rows = plan_of_part(plan.plan_id, part, _no_form) if rejected else None
            content = rejected_content(rows, rejected, of_source)
        except StagingError as error:
            # An earlier run has removed them once they were kept; or somebody else has. By key it may have kept none:
            # a later record of the load took the place of each.
            if plan.mode is not PushMode.UPSERT and not self._store.keeps_rejections(plan):
                self._warn(
                    f"{part.stream}: the {count:,} rejected records of load {plan.plan_id} are kept nowhere: {error}"
                )
            return rejected
        self._store.keep_rejections(self._lease, plan, content.contents)
        if content.newest < count:
            self._warn(f"{part.stream}: of {count:,} rejected records the last {content.newest:,} are kept")
        return rejected


def _no_form() -> RecordForm:
    raise StagingError("reading the staged rows of a relay", "there are none")
