"""`table show|history|compact|expire|rollback`, with folder tables and with Iceberg's."""

import shutil
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.tables.spark.session import query
from tests.cli.conftest import USERS, Place


def test_a_folder_table_is_shown_with_what_it_has(place: Place) -> None:
    shop = place.connect(USERS, streams={"users": {"write": "append"}})
    assert place.run("sync", shop).code == 0
    [by_name] = place.json("table", "show", "shop.users")["tables"]
    [by_connection] = place.json("table", "show", "shop")["tables"]
    [by_file] = place.json("table", "show", shop)["tables"]
    assert by_name == by_connection == by_file
    assert (by_name["table"], by_name["format"], by_name["rows"]) == ("shop.users", "folder", 25)
    assert {"name": "id", "type": "int64"} in by_name["columns"]
    shown = place.run("table", "show", "shop.users")
    assert "shop.users (folder): 25 rows in 1 file (1 small), 0 delete files" in shown.out


def test_a_plain_parquet_table_is_shown_with_its_history_and_the_rest_is_refused(place: Place) -> None:
    (place.folder / "airbyte-proto.yaml").write_text('{"catalog": {"format": "parquet"}}')
    shop = place.connect(USERS, streams={"users": {"write": "append"}})
    run = place.json("sync", shop)["run_id"]
    [facts] = place.json("table", "show", "shop")["tables"]
    assert (facts["table"], facts["format"], facts["rows"], facts["snapshots"]) == ("shop.users", "parquet", 25, 1)
    [[result]] = [each["history"] for each in place.json("table", "history", "shop.users")["tables"]]
    assert (result["operation"], result["added_rows"], result["run_id"], result["is_current"]) == (
        "append",
        25,
        run,
        True,
    )
    for words in (("compact", "shop"), ("expire", "shop")):
        refused = place.json("table", *words, code=2)["error"]
        assert "tables of the format parquet have no snapshots" in refused["message"]
        assert "format: iceberg, or delta" in refused["remedy"]


def test_a_parquet_table_has_one_name_which_is_its_path_where_no_catalog_takes_it(place: Place) -> None:
    (place.folder / "airbyte-proto.yaml").write_text('{"catalog": {"format": "parquet"}}')
    scenario = {**USERS, "streams": {"Bestellungen ü": {"records": 25}}}
    written: dict[str, Any] = {
        "streams": {"Bestellungen ü": {"write": "append"}},
        "destination": {"namespace": "online-shop"},
    }
    shop = place.connect(scenario, **written)
    reported = place.json("sync", shop)["streams"]["Bestellungen ü"]["table"]
    folder = place.folder / reported.removeprefix("parquet.`").removesuffix("`")
    assert pq.read_table(folder).num_rows == 25
    shutil.rmtree(folder.parent)
    place.connect({**USERS, "streams": {"Bestellungen ü": {"records": 30}}}, **written)
    refused = place.json("sync", shop, code=1)["streams"]["Bestellungen ü"]
    assert refused["table"] == reported and "there is no such table" in refused["error"]
    assert not folder.parent.exists()


def test_a_table_that_its_stream_has_left_may_be_gone(place: Place) -> None:
    shop = place.connect(USERS, streams={"users": {"write": "append"}})
    place.json("sync", shop)
    place.connect(USERS, streams={"users": {"write": "append", "rename": "people"}})
    place.json("sync", shop, "--refresh")
    warehouse = place.folder / ".airbyte-proto" / "warehouse" / "shop"
    shutil.rmtree(warehouse / "users")
    shown = place.run("table", "show", "shop")
    assert "shop.people (folder): 25 rows" in shown.out
    assert "note: there is no table shop.users any more: it was dropped or renamed" in shown.err
    shutil.rmtree(warehouse / "people")
    assert "there is no such table" in place.json("table", "history", "shop", code=1)["error"]["message"]


def test_the_history_of_a_folder_table_names_loads_and_runs(place: Place) -> None:
    shop = place.connect(USERS, streams={"users": {"write": "overwrite"}})
    runs = [place.json("sync", shop)["run_id"] for _ in range(2)]
    [result] = place.json("table", "history", "shop.users")["tables"]
    assert [(each["operation"], each["added_rows"], each["run_id"]) for each in result["history"]] == [
        ("overwrite", 25, run) for run in reversed(runs)
    ]
    assert [each["is_current"] for each in result["history"]] == [True, False]
    [result] = place.json("table", "history", "shop.users", "--limit", "1")["tables"]
    assert len(result["history"]) == 1
    assert runs[1] in place.run("table", "history", "shop").out


def test_changes_of_a_stream_are_shown_by_connection_and_by_table(place: Place) -> None:
    shop = place.connect(USERS)
    place.run("sync", shop)
    assert place.json("table", "changes", "shop") == {"changes": []}
    email = {"values": {"email": "a"}, "properties": {"email": {"type": "string"}}}
    place.connect({**USERS, "streams": {"users": {"records": 30, **email}}})
    synced = place.run("sync", shop)
    assert "users: column email is new (string)" in synced.out
    [result] = place.json("table", "changes", shop)["changes"]
    assert [result] == place.json("table", "changes", "shop.users")["changes"]
    assert {key: result[key] for key in ("stream", "table", "what", "column", "before", "after")} == {
        "stream": "users",
        "table": "shop.users",
        "what": "column_added",
        "column": "email",
        "before": "",
        "after": "string",
    }
    assert result["run_id"] in place.run("table", "changes", "shop").out
    refused = place.json("table", "changes", "shop.usrs", code=2)
    assert "Write NAMESPACE.TABLE" in refused["error"]["remedy"]


@pytest.mark.parametrize(
    "words", [("compact", "shop"), ("expire", "shop.users"), ("rollback", "shop.users", "--to", "2")]
)
def test_what_folder_tables_have_not_is_refused(place: Place, words: tuple[str, ...]) -> None:
    place.run("sync", place.connect(USERS))
    refused = place.json("table", *words, code=2)
    assert refused["error"]["kind"] == "ConfigError"
    assert "iceberg" in (refused["error"]["message"]).lower()


def test_an_unknown_table_is_reported_with_the_nearest_name(place: Place) -> None:
    place.run("sync", place.connect(USERS))
    refused = place.json("table", "show", "shop.usrs", code=2)
    assert refused["error"]["remedy"] == "Do you mean shop.users?"
    assert place.json("table", "show", "shpo", code=2)["error"]["remedy"] == "Do you mean shop?"
    assert "Write NAMESPACE.TABLE" in place.json("table", "history", "nothing.near", code=2)["error"]["remedy"]


def test_a_connection_without_tables_and_a_time_that_is_none_are_reported(place: Place) -> None:
    shop = place.connect(USERS)
    assert "Sync it first" in place.json("table", "show", shop, code=2)["error"]["remedy"]
    refused = place.run("table", "expire", "shop", "--keep", "soon")
    assert refused.code == 2
    assert "write 90s, 30m, 12h or 7d" in refused.err
    assert place.run("table", "show").code == 2


@pytest.mark.spark
def test_iceberg_tables_are_cared_for_by_command(spark: SparkSession, pier: Place) -> None:
    def sync(records: int) -> Any:
        scenario = {"streams": {"users": {"records": records}}, "state_every": 5}
        return pier.json("sync", pier.connect(scenario, streams={"users": {"write": "append"}}, load={"max_bytes": 1}))

    report = sync(30)
    [before] = pier.json("table", "show", "shop")["tables"]
    assert (before["table"], before["rows"], before["files"]) == ("shop.users", 30, 6)
    assert {"name": "id", "type": "bigint"} in before["columns"]

    done = pier.json("table", "compact", "shop.users")
    assert done == {
        "status": "complete",
        "tables": [
            {
                "table": "shop.users",
                "status": "complete",
                "rewritten_files": 6,
                "written_files": 1,
                "removed_delete_files": 0,
                "attempts": 1,
                "error": None,
            }
        ],
    }
    [result] = pier.json("table", "history", "shop.users")["tables"]
    assert [each["operation"] for each in result["history"]] == ["compact", *["append"] * 6]
    assert {each["run_id"] for each in result["history"]} == {None, report["run_id"]}

    expired = pier.json("table", "expire", "shop", "--keep", "0s")
    assert [(each["snapshots"], each["orphans"]) for each in expired["tables"]] == [(6, [])]
    [after] = pier.json("table", "show", "shop.users")["tables"]
    assert (after["rows"], after["files"], after["snapshots"]) == (30, 1, 1)

    assert sync(35)["streams"]["users"]["emitted"] == 5
    assert query(spark, f"select count(*), count(distinct id) from {pier.catalog}.shop.users").rows == [[35, 35]]
    [result] = pier.json("table", "history", "shop.users")["tables"]
    refused = pier.json("table", "rollback", "shop.users", "--to", result["history"][-1]["snapshot_id"], code=2)
    assert "airbyte-proto state rollback C" in refused["error"]["remedy"]
    assert "Do you mean shop.users?" in pier.json("table", "compact", "shop.user", code=2)["error"]["remedy"]

    spark.sql(f"drop table {pier.catalog}.shop.users")
    failed = pier.json("table", "compact", "shop", code=1)
    assert [each["status"] for each in failed["tables"]] == ["failed"]


@pytest.mark.spark
def test_state_and_tables_are_taken_back_together_by_command(spark: SparkSession, pier: Place) -> None:
    for records in (5, 9):
        shop = pier.connect({"streams": {"users": {"records": records}}})
        pier.json("sync", shop)
    done = pier.json("state", "rollback", "shop", "--to", "1", "--tables")
    assert [(each["why"], each["state"]) for each in done["changes"]] == [("rollback", {"next": 5})]
    assert [(each["table"], each["has_moved"]) for each in done["tables"]] == [("shop.users", True)]
    assert query(spark, f"select count(*) from {pier.catalog}.shop.users").rows == [[5]]
    assert pier.json("sync", shop)["streams"]["users"]["emitted"] == 4
    assert query(spark, f"select count(*), count(distinct id) from {pier.catalog}.shop.users").rows == [[9, 9]]
