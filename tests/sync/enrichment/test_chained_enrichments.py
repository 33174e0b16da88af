"""Enrichments behind each other: each gets the rows that the one before has made, with values and a cache of its own.

They are one program that fills one column: only their place in the chain, and their options, tell them apart.
"""

from pathlib import Path
from typing import Any

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.enrichment.kept_tally import numbering
from tests.sync.push.pushed_table import PushedTable, person


def _cached(folder: Path, name: str, **config: Any) -> dict[str, Any]:
    """One with a cache. Its cities begin with its name, and it notes the rows that it gets."""
    noting = numbering(tallies=False, notes=str(folder / name), **config)
    return {**noting, "options": {"prefix": f"{name} "}, "cache": {"ttl": "30 days", "by": "id"}}


def _noted(folder: Path, name: str) -> list[str]:
    """The rows that it has got since the last call."""
    notes = folder / name
    found = notes.read_text().splitlines() if notes.exists() else []
    notes.unlink(missing_ok=True)
    return found


def test_in_a_sync_one_that_fails_costs_no_call_of_the_one_before_it(shop: OpenShop, tmp_path: Path) -> None:
    place, first = shop(), _cached(tmp_path, "first")
    for records, fault in ((3, {"halts_at": 2}), (4, {})):
        place.more = {"transforms": [first, _cached(tmp_path, "second", notes_of="city", **fault)]}
        told = place.sync_of({"streams": {"users": {"records": records}}}).streams["users"]
        assert told.status is (SyncStatus.FAILED if fault else SyncStatus.COMPLETE), told.error
        assert _noted(tmp_path, "first") == (["0", "1", "2"] if fault else ["3"])
        assert _noted(tmp_path, "second") == [f"first city {number}" for number in range(records)]
    rows = place.tables.rows(TableName("shop", "users")).to_pylist()
    assert [(row["id"], row["city"]) for row in rows] == [(number, f"second city {number}") for number in range(4)]


def test_in_a_push_each_has_its_own_values_and_its_own_cache(quick_folder: Path) -> None:
    table = PushedTable(quick_folder)
    caches = [_cached(quick_folder, "first"), _cached(quick_folder, "second", notes_of="city")]
    table.options["transforms"] = [numbering(), numbering(), *caches]
    rows = {number: person(number) for number in (1, 2, 3)}
    for new in ({}, {1: person(1, "renamed"), 4: person(4)}):
        rows |= new
        table.fill(list(rows.values()))
        report = table.contacts()
        assert (report.status, report.acknowledged) == ("complete", len(new) or 3), report.error
        assert _noted(quick_folder, "first") == (["4"] if new else ["1", "2", "3"])
        assert _noted(quick_folder, "second") == [f"first city {number}" for number in ([4] if new else [1, 2, 3])]
        assert table.tallies() == ([5, 5] if new else [3, 3])
    received = {row["id"]: (row["name"], row["city"]) for row in table.received()}
    assert received == {number: (row["name"], f"second city {number}") for number, row in rows.items()}
