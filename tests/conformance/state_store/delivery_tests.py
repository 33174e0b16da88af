"""Conformance tests of a StateStore: the deliveries of pushes, and what destinations of relays rejected."""

import msgspec
import pytest

from dagster_airbyte_proto.checkpoints.deliveries import (
    LONGEST_KEPT_BYTES,
    MOST_KEPT_BYTES,
    MOST_KEPT_REJECTIONS,
    MOST_REASONS,
    OTHER_REASONS,
    AcknowledgedRows,
    DeliveryStore,
    RejectedContent,
)
from dagster_airbyte_proto.checkpoints.load_ending import Resolution
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.loads.load import Load
from dagster_airbyte_proto.loads.push import PlannedCounts, RejectedRow, SealedPlan
from dagster_airbyte_proto.model import PushMode, StreamId
from tests.conformance.state_store.fixtures import ORDERS, USERS, HandClock, StoreFixtures, load_of, stream_state
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

    def test_rejected_rows_are_read_page_by_page(self, deliverer: DeliveryStore, lease: Lease) -> None:
        rejected = [RejectedRow(number, "dropped") for number in (1, 4, 5, 9)]
        deliverer.acknowledge_rows(lease, plan_of(), AcknowledgedRows(10, rejected))
        pages = [deliverer.rejected_rows(plan_of(), start=start, limit=2) for start in (0, 5, 10)]
        assert pages == [rejected[:2], rejected[2:], []]

    def test_reasons_are_counted_within_a_range_and_the_rarer_ones_as_one(
        self, deliverer: DeliveryStore, lease: Lease
    ) -> None:
        rejected = [RejectedRow(row, "dropped") for row in (0, 1, 7)]
        deliverer.acknowledge_rows(lease, plan_of(), AcknowledgedRows(10, [*rejected, RejectedRow(2, "bad")]))
        assert deliverer.rejection_reasons(plan_of()) == {"dropped": 3, "bad": 1}
        assert deliverer.rejection_reasons(plan_of(), start=1, end=7) == {"dropped": 1, "bad": 1}
        assert deliverer.rejection_reasons(plan_of(), start=8) == {}
        many = [RejectedRow(row, f"no {row}") for row in range(10, 15 + MOST_REASONS)]
        deliverer.acknowledge_rows(lease, plan_of(), AcknowledgedRows(5000, many))
        found = deliverer.rejection_reasons(plan_of())
        assert (len(found), found["dropped"], found[OTHER_REASONS]) == (MOST_REASONS + 1, 3, 7)

    def test_a_plan_may_have_any_number_of_rows(self, deliverer: DeliveryStore, lease: Lease) -> None:
        rows, rejected = 5_000_000_000, [RejectedRow(4_999_999_999, "dropped")]
        deliverer.announce_rows(lease, plan_of(), rows)
        deliverer.acknowledge_rows(lease, plan_of(), AcknowledgedRows(rows, rejected))
        delivery = deliverer.deliveries("shop")[USERS]
        assert (delivery.announced, delivery.acknowledged) == (rows, rows)
        assert deliverer.rejected_rows(plan_of()) == rejected

    def test_a_reason_may_have_any_character(self, deliverer: DeliveryStore, lease: Lease) -> None:
        deliverer.acknowledge_rows(lease, plan_of(), AcknowledgedRows(1, [RejectedRow(0, "bad \0 value")]))
        assert deliverer.rejected_rows(plan_of()) == [RejectedRow(0, "bad \ufffd value")]

    def test_the_delivery_of_one_stream_is_read_alone(self, deliverer: DeliveryStore, lease: Lease) -> None:
        assert deliverer.deliveries("shop", ORDERS) == {}
        plan = msgspec.structs.replace(plan_of(), stream=ORDERS)
        deliverer.seal_plan(lease, plan)
        assert [each.plan for each in deliverer.deliveries("shop", ORDERS).values()] == [plan]
        assert deliverer.deliveries("shop").keys() == {USERS, ORDERS}


def _rejection(row: int, record: str | None = "{}", reason: str = "no home") -> RejectedContent:
    return RejectedContent(RejectedRow(row, reason), record)


def _load_plan(load_id: str, stream: StreamId = USERS, mode: PushMode = PushMode.UPSERT) -> SealedPlan:
    return msgspec.structs.replace(plan_of(), plan_id=load_id, stream=stream, mode=mode)


class RejectionTests(StoreFixtures):
    @pytest.fixture
    def relay(self, store: DeliveryStore) -> DeliveryStore:
        return store

    @staticmethod
    def kept(relay: DeliveryStore) -> list[tuple[StreamId, str, int]]:
        return [(each.stream, each.load_id, each.row.row) for each in relay.kept_rejections("shop")]

    def test_records_are_kept_once_however_often_their_load_is_gone_on_with(
        self, relay: DeliveryStore, lease: Lease, clock: HandClock
    ) -> None:
        began_at = clock.now
        relay.keep_rejections(lease, _load_plan("l1"), [_rejection(1), _rejection(2)])
        relay.keep_rejections(lease, _load_plan("l1", ORDERS), [_rejection(0, None, "bad \0 value")])
        for rows in ([3], [3, 5]):
            clock.advance(1)
            relay.keep_rejections(
                lease, _load_plan("l2"), [_rejection(row, f'{{"id": {row}, "x": "ü\\u0000"}}') for row in rows]
            )
        kept = relay.kept_rejections("shop")
        assert self.kept(relay) == [
            (USERS, "l1", 1), (USERS, "l1", 2), (USERS, "l2", 3), (USERS, "l2", 5), (ORDERS, "l1", 0),
        ]  # fmt: skip
        assert list(relay.kept_counts("shop").items()) == [(USERS, 4), (ORDERS, 1)]
        assert (kept[-1].row.reason, kept[-1].record, kept[-1].rejected_at) == ("bad \ufffd value", None, began_at)
        assert (kept[3].record, kept[3].rejected_at) == ('{"id": 5, "x": "ü\\u0000"}', clock.now)

    def test_a_replacement_takes_the_place_of_all_loads_before(self, relay: DeliveryStore, lease: Lease) -> None:
        for stream in (USERS, ORDERS):
            relay.keep_rejections(lease, _load_plan("l1", stream), [_rejection(1)])
        relay.keep_rejections(lease, _load_plan("l2", mode=PushMode.OVERWRITE), [_rejection(7)])
        assert self.kept(relay) == [(USERS, "l2", 7), (ORDERS, "l1", 1)]
        relay.keep_rejections(lease, _load_plan("l3", mode=PushMode.OVERWRITE), [])
        assert self.kept(relay) == [(ORDERS, "l1", 1)]

    def test_the_newest_records_of_a_stream_are_kept(self, relay: DeliveryStore, lease: Lease) -> None:
        relay.keep_rejections(lease, _load_plan("other", ORDERS), [_rejection(0)])
        relay.keep_rejections(lease, _load_plan("l1"), [_rejection(row) for row in range(8)])
        many = [_rejection(row) for row in range(MOST_KEPT_REJECTIONS - 3)]
        relay.keep_rejections(lease, _load_plan("l2"), many)
        kept = self.kept(relay)
        assert kept[:4] == [*((USERS, "l1", row) for row in (5, 6, 7)), (USERS, "l2", 0)]
        assert kept[-1] == (ORDERS, "other", 0)
        assert len(kept) == MOST_KEPT_REJECTIONS + 1

    def test_the_records_of_a_stream_have_so_many_bytes_at_most(self, relay: DeliveryStore, lease: Lease) -> None:
        fit = MOST_KEPT_BYTES // LONGEST_KEPT_BYTES
        for number in range(fit + 2):
            relay.keep_rejections(lease, _load_plan(f"l{number}"), [_rejection(0, "x" * LONGEST_KEPT_BYTES)])
        assert self.kept(relay) == [(USERS, f"l{number}", 0) for number in range(2, fit + 2)]

    def test_records_are_pruned_with_the_history(self, relay: DeliveryStore, lease: Lease, clock: HandClock) -> None:
        relay.keep_rejections(lease, _load_plan("old"), [_rejection(1)])
        clock.advance(2 * 86400.0)
        relay.keep_rejections(lease, _load_plan("new"), [_rejection(1)])
        relay.prune_history(lease, days=1)
        assert self.kept(relay) == [(USERS, "new", 1)]

    @pytest.mark.parametrize("as_landed", [True, False])
    def test_the_records_of_a_lost_load_come_again(self, relay: DeliveryStore, lease: Lease, as_landed: bool) -> None:
        load = load_of("one", stream_state(USERS, "u"))
        relay.announce(lease, load)
        for load_id in ("one", "another"):
            relay.keep_rejections(lease, _load_plan(load_id), [_rejection(1)])
        relay.resolve(lease, load, [], [], Resolution(as_landed, who="ann"))
        assert {load_id for _, load_id, _ in self.kept(relay)} == {"another", *(["one"] if as_landed else [])}

    @staticmethod
    def _sent_again(relay: DeliveryStore, lease: Lease) -> tuple[Load, SealedPlan]:
        """A load that sends three kept records again; a fourth stays out of it."""
        relay.keep_rejections(lease, _load_plan("l1"), [_rejection(row, f'{{"id": {row}}}') for row in (2, 4, 6)])
        relay.keep_rejections(lease, _load_plan("l2"), [_rejection(0), _rejection(1)._replace(sendable=False)])
        load = load_of("again")
        part = msgspec.structs.replace(load.parts[0], resends={"l1": (2, 6), "l2": (0,)})
        plan = msgspec.structs.replace(_load_plan("again"), resends=True, counts=PlannedCounts(added=3))
        return msgspec.structs.replace(load, parts=(part,)), plan

    def test_a_record_that_is_sent_again_leaves_with_its_acknowledgement(
        self, relay: DeliveryStore, lease: Lease, clock: HandClock
    ) -> None:
        load, plan = self._sent_again(relay, lease)
        kept_at = clock.now
        clock.advance(1)
        for _ in range(2):  # The outcome of the first call may have been unknown.
            relay.announce(lease, load)
        stay = [(USERS, "l1", 4), (USERS, "l2", 1)]
        assert self.kept(relay) == [*stay, *((USERS, "again", place) for place in range(3))]
        found = relay.kept_rejections("shop", USERS)
        assert [each.record for each in found[2:]] == ['{"id": 2}', '{"id": 6}', "{}"]
        assert {each.rejected_at for each in found} == {kept_at}
        assert [each.sendable for each in found] == [True, False, True, True, True]
        relay.seal_plan(lease, plan)
        for _ in range(2):
            relay.acknowledge_rows(lease, plan, AcknowledgedRows(2, [RejectedRow(1, "still no home")]))
        assert self.kept(relay) == [*stay, (USERS, "again", 1), (USERS, "again", 2)]
        again, unsent = relay.kept_rejections("shop", USERS)[2:]
        assert (again.row.reason, again.rejected_at) == ("still no home", clock.now)
        assert (unsent.row.reason, unsent.rejected_at) == ("no home", kept_at)
        relay.acknowledge_rows(lease, plan, AcknowledgedRows(3))
        assert self.kept(relay) == [*stay, (USERS, "again", 1)]
        relay.forget_rejections(lease, [again])
        assert self.kept(relay) == stay

    @pytest.mark.parametrize("as_landed", [True, False])
    def test_records_of_a_load_that_sends_them_again_end_as_a_person_says(
        self, relay: DeliveryStore, lease: Lease, as_landed: bool
    ) -> None:
        load, plan = self._sent_again(relay, lease)
        relay.announce(lease, load)
        relay.seal_plan(lease, plan)
        relay.announce_rows(lease, plan, 2)
        relay.acknowledge_rows(lease, plan, AcknowledgedRows(1, [RejectedRow(0, "still no home")]))
        relay.resolve(lease, load, (), (), Resolution(as_landed, "ann"))
        places = [row for _, load_id, row in self.kept(relay) if load_id == "again"]
        # Row 0 was rejected for sure, row 1 is where the person says, row 2 was never sent.
        assert places == ([0, 2] if as_landed else [0, 1, 2])
