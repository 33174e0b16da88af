"""All conformance tests of a StateStore."""

from tests.conformance.state_store.delivery_tests import DeliveryTests, RejectionTests
from tests.conformance.state_store.generation_tests import GenerationTests
from tests.conformance.state_store.kept_value_tests import EnrichedRowTests, KeptValueTests
from tests.conformance.state_store.lease_tests import LeaseTests
from tests.conformance.state_store.load_tests import LoadTests
from tests.conformance.state_store.partition_tests import PartitionTests
from tests.conformance.state_store.retention_tests import RetentionTests
from tests.conformance.state_store.slot_tests import SlotTests
from tests.conformance.state_store.state_tests import StateTests
from tests.conformance.state_store.transform_state_tests import TransformStateTests


class StateStoreConformance(
    LeaseTests,
    SlotTests,
    LoadTests,
    StateTests,
    PartitionTests,
    RetentionTests,
    GenerationTests,
    DeliveryTests,
    RejectionTests,
    KeptValueTests,
    EnrichedRowTests,
    TransformStateTests,
):
    """The conformance tests of a StateStore. A subclass provides the fixture `open_store`, and inherits all tests."""
