"""`push rejected` lists any number of rows in the memory of one stream's page."""

import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.deliveries import AcknowledgedRows, DeliveryStore, RejectedContent
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.cli.listed_rows import PAGE_ROWS, ListedRows
from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.loads.push import PlannedCounts, RejectedRow, SealedPlan
from dagster_airbyte_proto.model import PushMode, StreamId
from tests.sync.push.pushed_table import PushedTable
from tests.sync.relay.relayed_shop import RelayedShop

_STREAMS, _ROWS, _BYTES = 30, 300, 2000
_MOST_HELD = _STREAMS * _ROWS * _BYTES // 2


def _plan(connection: str, stream: str) -> SealedPlan:
    counts = PlannedCounts(_STREAMS * _ROWS)
    return SealedPlan(stream, connection, StreamId.of(stream), PushMode.UPSERT, "", (), (), counts, "")


def _keep_of_many_streams(store: DeliveryStore, lease: Lease) -> None:
    for number in range(_STREAMS):
        rows = [RejectedContent(RejectedRow(row, "no home"), f"{row}".zfill(_BYTES)) for row in range(_ROWS)]
        store.keep_rejections(lease, _plan("shop", f"stream_{number:02}"), rows)


def _reject_many_rows(store: DeliveryStore, lease: Lease) -> None:
    plan = _plan("crm", "contacts")
    store.seal_plan(lease, plan)
    for start in range(0, plan.rows, _ROWS):
        rows = [RejectedRow(row, f"{row}".zfill(_BYTES)) for row in range(start, start + _ROWS)]
        store.acknowledge_rows(lease, plan, AcknowledgedRows(start + _ROWS, rows))


def _relay(folder: Path) -> tuple[Path, Path, Path]:
    shop = RelayedShop(folder)
    shop.offer({"streams": {"users": {"records": 1}}})
    return shop.home, shop.home / "settings.yaml", shop.connection_file


def _push(folder: Path) -> tuple[Path, Path, Path]:
    table = PushedTable(folder)
    table.push["changes"] = "all"
    return table.home, table.settings_file, table.connection_file()


@pytest.mark.everyday("shop-_relay-_keep_of_many_streams-json", "crm-_push-_reject_many_rows-json")
@pytest.mark.parametrize("options", [["--json"], []], ids=["json", "text"])
@pytest.mark.parametrize(
    ("connection", "files_of", "fill"),
    [("shop", _relay, _keep_of_many_streams), ("crm", _push, _reject_many_rows)],
)
def test_a_list_of_any_length_needs_the_memory_of_a_page(
    quick_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    connection: str,
    files_of: Callable[[Path], tuple[Path, Path, Path]],
    fill: Callable[[DeliveryStore, Lease], None],
) -> None:
    home, settings, file = files_of(quick_folder)
    store = SqlStore(f"sqlite:///{home / 'state.db'}")
    lease = store.acquire(connection, run_id="a-run", holder="a test", seconds=60)
    fill(store, lease)
    store.release(lease)
    store.close()
    words = ["--home", str(home), "--settings", str(settings), "push", "rejected", str(file), *options]
    with monkeypatch.context() as patched, (quick_folder / "printed").open("w") as stdout:
        patched.setattr(sys, "stdout", stdout)
        assert main(words) == 0  # Modules are imported once.
        tracemalloc.start()
        assert main(words) == 0
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    printed = (quick_folder / "printed").read_text()
    assert len(printed) > 2 * _STREAMS * _ROWS * _BYTES
    assert held < _MOST_HELD, f"{held:,} bytes"
    if options:
        listed = json.loads(printed[: len(printed) // 2])["rejected"]
        assert sum(map(len, listed.values())) == _STREAMS * _ROWS


def test_rows_wait_in_a_file_and_not_in_memory(quick_folder: Path) -> None:
    held: set[int] = set()

    class Counted(dict[str, object]):
        def __init__(self, number: int) -> None:
            super().__init__(row=number, reason=None)
            self.number = number
            held.add(number)

        def __del__(self) -> None:
            held.discard(self.number)

    most = 0

    def rows() -> Iterator[Counted]:
        nonlocal most
        for number in range(3 * PAGE_ROWS):
            yield Counted(number)
            most = max(most, len(held))

    listed = ListedRows(quick_folder, ("reason", "row"), {"reason": None})
    listed.add("users", rows())
    assert most <= 2
    assert not list(quick_folder.iterdir())
    count, *pages = listed.as_parts("rejected", if_empty="")
    assert count == "users: 3,000 rows rejected"
    assert [(page.columns, len(page.rows)) for page in pages if not isinstance(page, str)] == [(["row"], 1000)] * 3
