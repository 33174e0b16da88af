"""Conformance tests of a StateStore: the values that connectors keep."""

import itertools

import msgspec
import pytest

from dagster_airbyte_proto.checkpoints.deliveries import AcknowledgedRows, DeliveryStore
from dagster_airbyte_proto.checkpoints.kept_values import Asset, CachedRows, Key, ValueChanges
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.errors import ConfigError, StateConflict
from dagster_airbyte_proto.loads.push import PlannedCounts, SealedPlan
from dagster_airbyte_proto.model import PushMode
from tests.conformance.state_store.fixtures import (
    ORDERS,
    USERS,
    HandClock,
    StoreFixtures,
    load_of,
    shared_state,
    stream_state,
)

ASSET = Asset("shop", USERS)


def plan_of(number: int = 1) -> SealedPlan:
    counts = PlannedCounts(10, 0, 0, 0)
    return SealedPlan(f"plan-{number}", "shop", USERS, PushMode.UPSERT, "/plans", (), (), counts, "fingerprint")


class KeptValueTests(StoreFixtures):
    @pytest.fixture
    def keeper(self, store: DeliveryStore) -> DeliveryStore:
        return store

    def keep(
        self, keeper: DeliveryStore, lease: Lease, rows: int, values: dict[Key, bytes | None], *dropped: Key
    ) -> None:
        keeper.acknowledge_rows(lease, plan_of(), AcknowledgedRows(rows, (), ValueChanges(values, dropped)))

    def all_of(self, keeper: DeliveryStore, prefix: Key = ()) -> dict[Key, bytes]:
        return dict(keeper.kept_values(ASSET, prefix))

    def test_values_are_kept_with_their_rows(self, keeper: DeliveryStore, lease: Lease) -> None:
        keeper.seal_plan(lease, plan_of())
        self.keep(keeper, lease, 5, {("a", "b"): b"1", ("a",): b'{"x": [0]}', ("ab",): b"null"})
        assert keeper.kept_value(ASSET, ("a", "b")) == b"1"
        assert keeper.kept_value(ASSET, ("b",)) is None
        self.keep(keeper, lease, 6, {("a", "b"): b"2", ("a",): None, ("nobody",): None})
        assert self.all_of(keeper) == {("a", "b"): b"2", ("ab",): b"null"}
        assert keeper.deliveries("shop")[USERS].acknowledged == 6
        assert keeper.count_kept_values(ASSET)[0] == 2

    def test_values_that_belong_to_no_rows_are_kept_by_themselves(self, keeper: DeliveryStore, lease: Lease) -> None:
        whole = Asset("shop", None)
        for asset, value in ((whole, b"1"), (ASSET, b"2")):
            keeper.keep_values(lease, asset, ValueChanges({("a",): value}))
        keeper.keep_values(lease, whole, ValueChanges())
        version = keeper.history("shop", limit=1)[0].version
        assert [keeper.kept_value(asset, ("a",)) for asset in (whole, ASSET)] == [b"1", b"2"]
        # A stream's reset leaves those of the connection alone, a reset of the whole does not.
        keeper.change_state(lease, USERS, None, who="me")
        assert [keeper.kept_value(asset, ("a",)) for asset in (whole, ASSET)] == [b"1", None]
        keeper.change_state(lease, None, None, who="me")
        assert keeper.kept_value(whole, ("a",)) is None
        keeper.rollback(lease, version, who="me")
        assert [keeper.kept_value(asset, ("a",)) for asset in (whole, ASSET)] == [b"1", b"2"]

    def test_nothing_is_kept_of_rows_that_were_not_acknowledged(self, keeper: DeliveryStore, lease: Lease) -> None:
        keeper.seal_plan(lease, plan_of(2))
        with pytest.raises(StateConflict, match="another plan has taken its place"):
            self.keep(keeper, lease, 5, {("a",): b"1"})
        assert self.all_of(keeper) == {}

    def test_a_prefix_matches_whole_segments_in_the_order_of_keys(self, keeper: DeliveryStore, lease: Lease) -> None:
        keeper.seal_plan(lease, plan_of())
        names = ["", "a", "a,", 'a"', "ab", "é", "\U0001f600"]
        keys: list[Key] = [key for size in (1, 2) for key in itertools.product(names, repeat=size)]
        self.keep(keeper, lease, 5, dict.fromkeys(keys, b"1"))
        for prefix in keys:
            expected = {key for key in keys if key[: len(prefix)] == prefix}
            assert set(self.all_of(keeper, prefix)) == expected
            assert keeper.count_kept_values(ASSET, prefix)[0] == len(expected)
        assert set(self.all_of(keeper)) == set(keys)

    def test_many_values_are_read_in_pieces(self, keeper: DeliveryStore, lease: Lease) -> None:
        keeper.seal_plan(lease, plan_of())
        self.keep(keeper, lease, 5, {("n", f"{number:05}"): b"%d" % number for number in range(2500)})
        assert list(self.all_of(keeper, ("n",)).values()) == [b"%d" % number for number in range(2500)]
        assert keeper.count_kept_keys(ASSET, [("n", f"{number:05}") for number in range(1000, 4000)]) == 1500

    def test_all_values_under_a_prefix_end_before_new_ones_come(self, keeper: DeliveryStore, lease: Lease) -> None:
        keeper.seal_plan(lease, plan_of())
        self.keep(keeper, lease, 1, {("a",): b"1", ("a", "x"): b"1", ("ab",): b"1", ("b", "x"): b"1", ("c",): b"1"})
        self.keep(keeper, lease, 2, {("a", "x"): b"2", ("c",): None}, ("a",), ("b", "x"), ("nobody",))
        assert self.all_of(keeper) == {("a", "x"): b"2", ("ab",): b"1"}
        assert keeper.history("shop")[0].why == "dropped all values under 3 prefixes, kept 2 values"
        self.keep(keeper, lease, 3, {}, ("ab",))
        assert keeper.history("shop")[0].why == "dropped all values under 1 prefix"
        keeper.rollback(lease, 1, who="ann")
        assert len(self.all_of(keeper)) == 5

    def test_an_asset_sees_only_its_own(self, keeper: DeliveryStore, lease: Lease) -> None:
        keeper.seal_plan(lease, plan_of())
        self.keep(keeper, lease, 5, {("a",): b"1"})
        for other in (Asset("shop", ORDERS), Asset("shop", USERS, "eu"), Asset("other", USERS)):
            assert keeper.kept_value(other, ("a",)) is None
            assert list(keeper.kept_values(other)) == []

    def test_they_are_rolled_back_and_reset_like_the_state(self, keeper: DeliveryStore, lease: Lease) -> None:
        keeper.change_state(lease, USERS, stream_state(USERS, "{}"), who="ann")
        keeper.seal_plan(lease, plan_of())
        self.keep(keeper, lease, 1, {("a",): b"1", ("b",): b"1"})
        self.keep(keeper, lease, 2, {("a",): b"2", ("b",): None, ("c",): b"2"})
        assert [change.why for change in keeper.history("shop")] == ["kept 3 values", "kept 2 values", "set"]
        keeper.change_state(lease, USERS, None, who="ann")
        assert self.all_of(keeper) == {}
        keeper.rollback(lease, 2, who="ann")
        assert self.all_of(keeper) == {("a",): b"1", ("b",): b"1"}
        keeper.rollback(lease, 3, who="ann")
        assert self.all_of(keeper) == {("a",): b"2", ("c",): b"2"}
        keeper.rollback(lease, 1, who="ann")
        assert self.all_of(keeper) == {}
        assert [one.state for one in keeper.states("shop")] == [stream_state(USERS, "{}")]

    def test_a_reset_within_a_shared_state_is_that_of_its_stream_alone(
        self, keeper: DeliveryStore, lease: Lease
    ) -> None:
        self.promoted(keeper, lease, load_of("a", shared_state("all"), paths=("users.parquet",)))
        for stream in (USERS, ORDERS):
            keeper.keep_values(lease, Asset("shop", stream), ValueChanges({("a",): b"1"}))
        keeper.change_state(lease, ORDERS, None, who="ann", shared=shared_state("users"))
        assert keeper.kept_value(Asset("shop", ORDERS), ("a",)) is None
        assert (self.all_of(keeper), list(keeper.landed_tables("shop"))) == ({("a",): b"1"}, [USERS])
        change = keeper.change_state(lease, USERS, None, who="ann", shared=shared_state("nobody"))
        assert (change.stream, change.state, change.why) == (None, shared_state("nobody"), "reset")
        assert (self.all_of(keeper), keeper.landed_tables("shop")) == ({}, {})

    def test_a_rollback_of_values_alone_is_in_the_history(self, keeper: DeliveryStore, lease: Lease) -> None:
        keeper.seal_plan(lease, plan_of())
        self.keep(keeper, lease, 1, {("a",): b"1"})
        self.keep(keeper, lease, 2, {("a",): b"2"})
        keeper.rollback(lease, 1, who="ann")
        assert self.all_of(keeper) == {("a",): b"1"}
        newest = keeper.history("shop")[0]
        assert (newest.version, newest.why) == (3, "rollback of values")
        # Whoever went on in the plan would not send again the rows of which the values are gone.
        assert keeper.deliveries("shop") == {}

    def test_a_rollback_of_values_and_states_is_one_version(self, keeper: DeliveryStore, lease: Lease) -> None:
        keeper.change_state(lease, USERS, stream_state(USERS, "1"), who="ann")
        for stream in (USERS, ORDERS):
            keeper.keep_values(lease, Asset("shop", stream), ValueChanges({("a",): b"1"}))
        keeper.change_state(lease, USERS, stream_state(USERS, "2"), who="ann")
        changes = keeper.rollback(lease, 0, who="ann")
        assert [(each.version, each.stream, each.why) for each in changes] == [
            (5, USERS, "rollback"),
            (5, ORDERS, "rollback of values"),
        ]
        assert keeper.kept_sizes("shop") == []
        keeper.rollback(lease, 4, who="ann")
        assert {each.asset.stream for each in keeper.kept_sizes("shop")} == {ORDERS, USERS}

    @pytest.mark.parametrize("mode", [PushMode.UPSERT, PushMode.INSERT])
    def test_a_rollback_of_values_forgets_no_plan_whose_rows_may_not_be_sent_again(
        self, keeper: DeliveryStore, lease: Lease, mode: PushMode
    ) -> None:
        keeper.seal_plan(lease, msgspec.structs.replace(plan_of(), mode=mode))
        keeper.keep_values(lease, Asset("shop", None), ValueChanges({("a",): b"1"}))
        version = keeper.history("shop", limit=1)[0].version
        keeper.keep_values(lease, Asset("shop", None), ValueChanges({("a",): b"2"}))
        keeper.rollback(lease, version, who="ann")
        assert USERS in keeper.deliveries("shop")
        keeper.keep_values(lease, ASSET, ValueChanges({("a",): b"1"}))
        keeper.rollback(lease, version, who="ann")
        assert (USERS in keeper.deliveries("shop")) is (mode is PushMode.INSERT)

    def test_a_person_sets_and_drops_values(self, keeper: DeliveryStore, lease: Lease) -> None:
        keeper.change_state(lease, USERS, stream_state(USERS, "1"), who="ann")
        keeper.seal_plan(lease, plan_of())
        change = keeper.set_values(lease, ASSET, ValueChanges({("a",): b"1"}), who="ann")
        assert (change.version, change.stream, change.state) == (2, USERS, stream_state(USERS, "1"))
        assert (change.who, change.why) == ("ann", "set 1 value")
        assert keeper.history("shop", limit=1) == [change]
        assert keeper.deliveries("shop")  # The position of a push is as it was.
        assert keeper.set_values(lease, ASSET, ValueChanges(dropped=(("a",),)), who="ann").version == 3
        assert self.all_of(keeper) == {}
        keeper.announce(lease, load_of("a", stream_state(USERS, "2")))
        with pytest.raises(ConfigError, match="one of its loads is announced and not finished"):
            keeper.set_values(lease, ASSET, ValueChanges({("a",): b"1"}), who="ann")
        assert self.all_of(keeper) == {}

    def test_old_values_go_with_the_history(self, keeper: DeliveryStore, lease: Lease, clock: HandClock) -> None:
        keeper.seal_plan(lease, plan_of())
        for number in range(4):
            self.keep(keeper, lease, number, {("a",): b"%d" % number})
            clock.advance(86400)
        keeper.prune_history(lease, days=2.5)
        assert self.all_of(keeper) == {("a",): b"3"}
        keeper.rollback(lease, 2, who="ann")
        assert self.all_of(keeper) == {("a",): b"1"}


CITIES = CachedRows("shop", "cities", 60)


class EnrichedRowTests(StoreFixtures):
    @pytest.fixture
    def keeper(self, store: DeliveryStore) -> DeliveryStore:
        return store

    def test_enriched_rows_are_kept_for_their_time(self, keeper: DeliveryStore, lease: Lease, clock: HandClock) -> None:
        rows = {b"%05d" % number: b"[%d]" % number for number in range(2500)}
        keeper.keep_enriched_rows(lease, CITIES, rows)
        assert keeper.enriched_rows(CITIES, [*rows, b"nobody"]) == rows
        assert keeper.enriched_rows(CITIES._replace(enrichment="other"), list(rows)) == {}
        assert keeper.enriched_rows(CITIES._replace(connection="other"), list(rows)) == {}
        clock.advance(40)
        keeper.keep_enriched_rows(lease, CITIES, {b"00001": b"new"})
        assert keeper.enriched_rows(CITIES, [b"00000", b"00001"]) == {b"00000": b"[0]", b"00001": b"new"}
        assert keeper.enriched_rows(CITIES._replace(seconds=30), [b"00000", b"00001"]) == {b"00001": b"new"}
        clock.advance(40)
        assert keeper.enriched_rows(CITIES, [b"00000", b"00001"]) == {b"00001": b"new"}
        assert keeper.count_enriched_rows("shop") == 2500
        keeper.keep_enriched_rows(lease, CITIES, {b"2": b"2"})
        assert keeper.count_enriched_rows("shop") == 2

    def test_rows_of_an_enrichment_that_is_gone_go_with_the_history(
        self, keeper: DeliveryStore, lease: Lease, clock: HandClock
    ) -> None:
        keeper.keep_enriched_rows(lease, CITIES, {b"1": b"1"})
        clock.advance(61)
        keeper.prune_history(lease, days=30)
        assert keeper.count_enriched_rows("shop") == 0

    def test_a_run_that_lost_its_lease_keeps_no_enriched_rows(
        self, keeper: DeliveryStore, lease: Lease, clock: HandClock
    ) -> None:
        self.taken_over(keeper, clock, "run-2")
        with pytest.raises(StateConflict):
            keeper.keep_enriched_rows(lease, CITIES, {b"1": b"1"})
        assert keeper.enriched_rows(CITIES, [b"1"]) == {}

    def test_a_reset_of_the_whole_connection_drops_them(self, keeper: DeliveryStore, lease: Lease) -> None:
        keeper.keep_enriched_rows(lease, CITIES, {b"1": b"1"})
        keeper.change_state(lease, USERS, None, who="ann")
        assert keeper.count_enriched_rows("shop") == 1
        keeper.change_state(lease, None, None, who="ann")
        assert keeper.count_enriched_rows("shop") == 0
