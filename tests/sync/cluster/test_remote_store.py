"""The state store over the channel is a state store."""

from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from tests.conformance.state_store.fixtures import OpenStore
from tests.conformance.state_store.suite import StateStoreConformance
from tests.sync.cluster.conftest import Serving


class TestRemoteStore(StateStoreConformance):
    @pytest.fixture
    def open_store(self, serving: Serving, tmp_path: Path) -> OpenStore:
        return lambda clock: serving.stub(SqlStore(f"sqlite:///{tmp_path}/state.db", clock=clock), DeliveryStore)

    # Who counts as dead is decided on the driver, and not by the caller: test_channel.py tests that.
    test_the_lease_of_a_dead_holder_is_taken_over_before_it_expires = None  # type: ignore[assignment]  # takes it out
