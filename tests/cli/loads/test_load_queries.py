"""The queries of `loads show`, by which a person looks whether the rows of a load are in its table."""

import json
from typing import Any
from uuid import uuid4

import pytest

from tests.cli.conftest import USERS, Place


def test_tables_that_no_query_reads_have_none(place: Place) -> None:
    place.json("sync", place.connect(USERS))
    [load] = place.json("loads", "list", "shop")["loads"]
    assert place.json("loads", "show", load["load_id"])["queries"] == {}
    assert "airbyte-proto query" not in place.run("loads", "show", load["load_id"]).out


@pytest.mark.everyday("iceberg", "delta")
@pytest.mark.spark
@pytest.mark.parametrize(
    ("table_format", "namespace"),
    # The session catalog, which Delta uses, takes no name with a dash.
    [("iceberg", "{}"), ("delta", "{}"), ("delta", "online-shop {}")],
    ids=["iceberg", "delta", "delta-by-folder"],
)
def test_each_query_tells_of_its_load(pier: Place, table_format: str, namespace: str) -> None:
    if table_format == "delta":
        (pier.folder / "airbyte-proto.yaml").write_text(json.dumps({"catalog": {"format": "delta"}}))
    written: dict[str, Any] = {
        "streams": {"users": {"write": "append"}},
        "destination": {"namespace": namespace.format(uuid4().hex)},
    }
    for records in (25, 32):
        pier.json("sync", pier.connect({"streams": {"users": {"records": records}}}, **written))
    second, first = (each["load_id"] for each in pier.json("loads", "list", "shop")["loads"])

    for load, rows in ((first, 25), (second, 7)):
        log, files, syncs = (each["sql"] for each in pier.json("loads", "show", load)["queries"]["users"])
        found = pier.json("query", log)["rows"]
        if table_format == "delta":
            found = [row for row in found if load in json.dumps(row)]
        assert len(found) == 1
        assert pier.json("query", files)["rows"] == [[rows]]
        assert [[row[0], row[3]] for row in pier.json("query", syncs)["rows"]] == [[2, 7], [1, 25]]
    shown = pier.run("loads", "show", second).out
    assert "`airbyte-proto query`" in shown and f"users: {log}" in shown
