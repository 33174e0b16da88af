"""`state copy`: a state store goes on in another database."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from dagster_airbyte_proto.checkpoints.sql.database import Database
from dagster_airbyte_proto.checkpoints.sql.schema import leases, metadata
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from tests.cli.conftest import USERS, Place
from tests.support.postgres import PostgresServer


def use_store(place: Place, url: str | None) -> None:
    """Writes the URL into the settings; None is the store of the home folder."""
    file = place.folder / "airbyte-proto.yaml"
    settings = json.loads(file.read_text())
    settings.pop("state_url", None)
    file.write_text(json.dumps(settings | ({"state_url": url} if url else {})))


def old_url(place: Place) -> str:
    return f"sqlite:///{place.folder / '.airbyte-proto' / 'state.db'}"


def offer(place: Place, records: int) -> str:
    return place.connect({"streams": {"users": {"records": records}}, "state_every": 5})


def content(url: str) -> dict[str, list[str]]:
    database = Database(url)
    try:
        with database.read() as tx:
            tables = [table for table in metadata.sorted_tables if table is not leases]
            return {table.name: sorted(map(repr, tx.execute(select(table)))) for table in tables}
    finally:
        database.close()


def check_goes_on(place: Place, url: str) -> None:
    """The next sync with the copy brings what is new alone; one with the old store is refused then."""
    before = content(old_url(place))
    copied = place.json("state", "copy", url)
    assert copied["connections"] == ["shop"]
    assert content(url) == before
    use_store(place, url)
    shop = offer(place, 30)
    assert place.json("sync", shop)["streams"]["users"]["committed"] == 5
    assert place.json("state", "history", "shop")["history"][0]["version"] > 1
    use_store(place, None)
    refused = place.run("sync", offer(place, 40), "--json")
    assert (refused.code, "which the state store does not know" in refused.out) == (1, True), refused


def test_a_store_goes_on_in_another_file(place: Place) -> None:
    place.json("sync", offer(place, 25))
    check_goes_on(place, f"sqlite:///{place.folder / 'moved.db'}")


@pytest.mark.postgres
def test_a_store_goes_on_in_postgresql(place: Place, postgres_server: PostgresServer) -> None:
    place.json("sync", offer(place, 25))
    check_goes_on(place, postgres_server.new_store())


def test_nothing_is_copied_while_a_run_is_at_work_or_over_another_store(place: Place, tmp_path: Path) -> None:
    place.json("sync", place.connect(USERS))
    target = f"sqlite:///{tmp_path / 'moved.db'}"
    store = SqlStore(old_url(place))
    lease = store.acquire("shop", run_id="r", holder="ann", seconds=60)
    assert "a run of shop is at work" in refusal(place, target)
    store.release(lease)
    store.close()
    assert place.json("state", "copy", target)["connections"] == ["shop"]
    assert "has connections already: shop" in refusal(place, target)
    assert "they are the same" in refusal(place, old_url(place))


def test_without_a_store_there_is_nothing_to_copy(place: Place, tmp_path: Path) -> None:
    assert "there is none here" in refusal(place, f"sqlite:///{tmp_path / 'moved.db'}")
    assert not (tmp_path / "moved.db").exists()


def refusal(place: Place, url: str) -> str:
    result: Any = place.run("state", "copy", url)
    assert result.code == 2, result
    return str(result.err)
