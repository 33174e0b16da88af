"""An error is no refusal: loads of which nobody can tell whether they landed stay announced until somebody can."""

import shutil
from collections.abc import Mapping

import msgspec
import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.checkpoints.load_ending import Resolution
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.store import Lease, LoadStatus
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, ProtoError, StateConflict, TableError
from dagster_airbyte_proto.loads.load import CommittedRows, Load, StagedRows
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.commit.committer import Committer
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.maintenance.resolve import resolve_load
from dagster_airbyte_proto.sync.report import SyncReport, SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.tables.parquet.logged_tables import LoggedTables
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.sync.conftest import OpenShop
from tests.sync.shop import EVERYTHING, REFRESH, Shop
from tests.sync.test_sync import expect, two

Planned = Mapping[tuple[str, int | str], CallFault]


def sync(place: Shop, tables: Planned | None = None, store: Planned | None = None) -> SyncReport:
    """One sync whose calls to tables and store fail as planned."""
    engine = Engine(
        Settings.load(place.home, place.home / "settings.yaml"),
        tables=with_faults(place.tables, CallFaults(tables or {})),
        store=with_faults(place.store, CallFaults(store or {})),
    )
    with engine:
        report = sync_connection(engine, Connection.from_file(place.connection_file), EVERYTHING)
    for name, stream in report.streams.items():
        assert stream.emitted == stream.committed + stream.rejected + stream.unknown, (name, stream)
    return report


def resolve(place: Shop, *, as_landed: bool) -> LoadStatus:
    [load] = place.store.announced_loads("shop")
    with Engine(Settings.load(place.home, place.home / "settings.yaml")) as engine:
        return resolve_load(engine, load.load_id, Resolution(as_landed, "ann")).status


def left_announced(place: Shop, state: str = "stream") -> Shop:
    """A load of both streams that has landed, with an error after it."""
    place.offer({**two(10, 10), "state": state})
    report = sync(place, {("commit", "*"): CallFault.AFTER})
    assert report.status is SyncStatus.UNKNOWN
    return place


@pytest.mark.parametrize("fault", [CallFault.BEFORE, CallFault.AFTER])
@pytest.mark.parametrize("method", ["announce", "promote"])
def test_a_store_that_fails_around_its_effect_loses_and_doubles_nothing(
    method: str, fault: CallFault, shop: OpenShop
) -> None:
    place = shop(max_bytes=1 << 30)
    place.offer(two(10, 10))
    report = sync(place, store={(method, 1): fault})
    assert report.status is not SyncStatus.COMPLETE
    place.sync()
    expect(place, 10, 10)
    assert place.positions() == {"users": 10, "orders": 10}


def test_rows_of_a_commit_with_an_unknown_outcome_are_reported_so_and_land_once(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.offer(two(10, 5))
    report = sync(place, {("commit", 1): CallFault.AFTER})
    assert (report.status, report.streams["users"].status) == (SyncStatus.UNKNOWN, SyncStatus.UNKNOWN)
    assert [(each.unknown, each.committed, each.rejected) for each in report.streams.values()] == [
        (10, 0, 0),
        (5, 0, 0),
    ]
    assert "airbyte-proto recover shop" in (report.error or "")
    assert place.positions() == {}
    again = place.sync()
    assert (again.recovered_loads, again.status) == (1, SyncStatus.COMPLETE)
    expect(place, 10, 5)


def test_a_load_whose_table_cannot_be_read_in_recovery_stays_announced(shop: OpenShop) -> None:
    place = left_announced(shop(max_bytes=1 << 30))
    [load] = place.store.announced_loads("shop")
    with pytest.raises(CommitUnknown, match="it is unknown whether its rows are in table") as unknown:
        sync(place, {("find_load", 1): CallFault.BEFORE})
    for word in (load.load_id, "loads resolve", "--as landed", "--as lost"):
        assert word in str(unknown.value)
    assert len(place.store.announced_loads("shop")) == 1
    place.sync()
    expect(place, 10, 10)


@pytest.mark.parametrize("has_mount_point", [True, False])
def test_a_load_whose_warehouse_is_not_mounted_waits_for_it(has_mount_point: bool, shop: OpenShop) -> None:
    place = left_announced(shop(max_bytes=1 << 30))
    warehouse, away = place.home / "warehouse", place.home / "unmounted"
    warehouse.rename(away)
    if has_mount_point:
        warehouse.mkdir()
    for _ in range(2):
        with pytest.raises(ProtoError):
            place.sync()
        assert (len(place.store.announced_loads("shop")), place.positions()) == (1, {})
    shutil.rmtree(warehouse, ignore_errors=True)
    away.rename(warehouse)
    assert place.sync().recovered_loads == 1
    expect(place, 10, 10)


class _CountedTables(FolderTables):
    """Tables that say how far their logs go, as Iceberg's do."""

    def prepare(self, spec: TableSpec) -> TableTarget:
        return super().prepare(spec)._replace(log_position=self.snapshot(spec.name).number)

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        committed = super().commit(load_id, part)
        return msgspec.structs.replace(committed, log_position=self.snapshot(part.table).number)


def test_each_load_is_announced_with_the_place_behind_which_it_lands(shop: OpenShop) -> None:
    place = shop(max_bytes=1)
    place.offer(two(10, 10))
    tables = _CountedTables(place.home / "warehouse")
    with Engine(Settings.load(place.home, place.home / "settings.yaml"), tables=tables) as engine:
        sync_connection(engine, Connection.from_file(place.connection_file), EVERYTHING)
    loads = [logged.load for logged in place.store.loads("shop", limit=100)]
    assert len(loads) > 3
    for load in loads:
        for part in load.parts:
            assert part.log_position == tables.snapshot(part.table).loads[load.load_id].number - 1


def drop_table(place: Shop, name: str) -> None:
    shutil.rmtree(place.tables.folder(TableName("shop", name)))


@pytest.mark.parametrize("state", ["global", "stream"])
def test_a_load_of_a_dropped_table_is_resolved_as_landed(state: str, shop: OpenShop) -> None:
    place = left_announced(shop(max_bytes=1 << 30), state)
    drop_table(place, "users")
    with pytest.raises(CommitUnknown, match="there is no such table"):
        place.sync()
    assert resolve(place, as_landed=True) is LoadStatus.DONE
    assert place.sync().streams["users"].emitted == 0
    assert len(place.column("orders")) == 10


def test_a_load_of_a_dropped_table_is_resolved_as_lost_and_its_rows_come_again(shop: OpenShop) -> None:
    place = left_announced(shop(max_bytes=1 << 30))
    drop_table(place, "users")
    resolve(place, as_landed=False)
    assert place.positions() == {"orders": 10}
    place.sync()
    expect(place, 10, 10)


def test_a_state_that_covers_landed_rows_is_not_resolved_as_lost(shop: OpenShop) -> None:
    place = left_announced(shop(max_bytes=1 << 30), "global")
    drop_table(place, "users")
    with pytest.raises(ConfigError, match="the rows of orders have landed: they would be read again"):
        resolve(place, as_landed=False)
    assert len(place.store.announced_loads("shop")) == 1


def test_a_load_that_landed_nowhere_is_lost_as_a_whole_under_a_shared_state(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.offer({**two(10, 10), "state": "global"})
    sync(place, store={("announce", 1): CallFault.AFTER})
    drop_table(place, "users")
    assert resolve(place, as_landed=False) is LoadStatus.DROPPED
    assert (place.column("orders"), place.positions()) == ([], {})
    assert place.sync().status is SyncStatus.COMPLETE
    assert (place.column("users"), place.column("orders")) == (list(range(10)), list(range(10)))


def test_nobody_resolves_what_the_tables_tell(shop: OpenShop) -> None:
    place = left_announced(shop(max_bytes=1 << 30))
    with pytest.raises(ConfigError, match="can be read") as refused:
        resolve(place, as_landed=False)
    assert "airbyte-proto recover shop" in refused.value.remedy
    place.sync()
    expect(place, 10, 10)


def remove_staged_files(place: Shop, stream: str) -> None:
    for file in place.tables.folder(TableName("shop", stream), "data").rglob("*.parquet"):
        file.unlink()


def test_a_load_that_no_table_takes_is_over_also_under_a_shared_state(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.offer({**two(10, 10), "state": "global"})
    sync(place, {("commit", "*"): CallFault.AFTER}, {("announce", 1): CallFault.AFTER})
    for stream in ("users", "orders"):
        remove_staged_files(place, stream)
    place.sync()
    expect(place, 10, 10)


def test_a_load_that_one_table_never_takes_is_resolved_as_landed_under_a_shared_state(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.offer({**two(10, 10), "state": "global"})
    sync(place, {("commit shop.users", 1): CallFault.BEFORE})
    [load] = place.store.announced_loads("shop")
    remove_staged_files(place, "users")
    with pytest.raises(TableError, match="1 of their 2 tables refused") as refused:
        place.sync()
    for words in ("`airbyte-proto recover shop`", f"loads resolve {load.load_id} --as landed"):
        assert words in str(refused.value)
    with pytest.raises(ConfigError, match="the rows of orders have landed"):
        resolve(place, as_landed=False)
    assert resolve(place, as_landed=True) is LoadStatus.DONE
    assert place.sync(REFRESH).status is SyncStatus.COMPLETE
    expect(place, 10, 10)


def test_a_load_of_plain_parquet_that_landed_and_is_not_shown_is_not_lost(
    shop: OpenShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = shop(write="append", settings={"catalog": {"format": "parquet"}})
    place.sync_of({"streams": {"users": {"records": 3}}})
    [file] = (place.home / "warehouse").rglob("data/**/*.parquet")
    aside, commit = place.home / "aside.parquet", LoggedTables.commit

    def commit_and_lose_a_file(tables: LoggedTables, load_id: str, part: StagedRows) -> CommittedRows:
        committed = commit(tables, load_id, part)
        shutil.move(file, aside)
        return committed

    with monkeypatch.context() as patched:
        patched.setattr(LoggedTables, "commit", commit_and_lose_a_file)
        assert place.sync_of({"streams": {"users": {"records": 6}}}).status is SyncStatus.UNKNOWN
    with pytest.raises(ConfigError, match="as lost: it has landed"):
        resolve(place, as_landed=False)
    shutil.move(aside, file)
    again = place.sync_of({"streams": {"users": {"records": 6}}})
    assert (again.status, again.recovered_loads, again.streams["users"].emitted) == (SyncStatus.COMPLETE, 1, 0)
    [current] = (place.home / "warehouse").rglob("current")
    shown = [row["id"] for path in current.glob("*.parquet") for row in pq.read_table(path, columns=["id"]).to_pylist()]
    assert sorted(shown) == [*range(6)]


class _CutLink(SqlStore):
    """A store behind a link that is cut when it has announced a load. The call is made again once others have worked,
    as an executor does."""

    def __init__(self, place: Shop) -> None:
        super().__init__(f"sqlite:///{place.home / 'state.db'}")
        self._place = place
        self._is_cut = False

    def announce(self, lease: Lease, load: Load, *, partition: str = "") -> None:
        super().announce(lease, load, partition=partition)
        if self._is_cut:
            return
        self._is_cut = True
        taken = self.acquire("shop", run_id="next", holder="next", seconds=60, is_dead=lambda _holder: True)
        with Committer(self, lambda: self._place.tables, taken) as committer:
            assert len(committer.recover()) == 1
        self.release(taken)
        super().announce(lease, load, partition=partition)


def test_a_run_that_announces_a_load_again_leaves_its_files_to_the_run_that_took_over(shop: OpenShop) -> None:
    place = shop(max_bytes=1 << 30)
    place.offer(two(10, 10))
    store = _CutLink(place)
    with (
        Engine(Settings.load(place.home, place.home / "settings.yaml"), store=store, tables=place.tables) as engine,
        pytest.raises(StateConflict),
    ):
        sync_connection(engine, Connection.from_file(place.connection_file), EVERYTHING)
    store.close()
    expect(place, 10, 10)
    assert place.sync().status is SyncStatus.COMPLETE
    expect(place, 10, 10)


class _SilentTables(FolderTables):
    """Tables that do not answer once they have published a generation."""

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        committed = super().commit(load_id, part)
        if part.branch_position is not None and part.branch_position.publishes:
            raise CommitUnknown(f"committing load {load_id}", "nobody answers")
        return committed


def test_rows_on_a_branch_are_unknown_with_the_load_that_publishes_them(shop: OpenShop) -> None:
    place = shop(write="overwrite", read="full_refresh")
    place.offer({"streams": {"users": {"records": 23, "resumable": True}}, "state_every": 5})
    tables = _SilentTables(place.home / "warehouse")
    with Engine(Settings.load(place.home, place.home / "settings.yaml"), tables=tables) as engine:
        report = sync_connection(engine, Connection.from_file(place.connection_file), EVERYTHING)
    users = report.streams["users"]
    assert (users.status, users.unknown, dict(users.rejections)) == (SyncStatus.UNKNOWN, 23, {})
    assert len(users.load_ids) > 1
    again = place.sync()
    assert (again.status, again.recovered_loads) == (SyncStatus.COMPLETE, 1)
    assert place.column("users") == list(range(23))
