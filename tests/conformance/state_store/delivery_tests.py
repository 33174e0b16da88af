"""Conformance tests of a StateStore: the deliveries of pushes."""

import pytest

from dagster_airbyte_proto.checkpoints.deliveries import AcknowledgedRows, DeliveryStore
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.loads.push import RejectedRow
from tests.conformance.state_store.fixtures import StoreFixtures
from tests.conformance.state_store.kept_value_tests import plan_of


class DeliveryTests(StoreFixtures):
    @pytest.fixture
    def deliverer(self, store: DeliveryStore, lease: Lease) -> DeliveryStore:
        store.seal_plan(lease, plan_of())
        return store

    @pytest.mark.nightly
    def test_any_number_of_rows_is_rejected_at_once_and_once(self, deliverer: DeliveryStore, lease: Lease) -> None:
        rejected = [RejectedRow(number, "dropped") for number in range(66_000)]
        for again in (rejected, rejected[:9]):
            deliverer.acknowledge_rows(lease, plan_of(), AcknowledgedRows(100_000, again))
        assert deliverer.rejected_rows(plan_of()) == rejected

    def test_a_reason_may_have_any_character(self, deliverer: DeliveryStore, lease: Lease) -> None:
        deliverer.acknowledge_rows(lease, plan_of(), AcknowledgedRows(1, [RejectedRow(0, "bad \0 value")]))
        assert deliverer.rejected_rows(plan_of()) == [RejectedRow(0, "bad \ufffd value")]
