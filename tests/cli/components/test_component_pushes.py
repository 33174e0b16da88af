"""Pushes of Iceberg tables to a component, from the command line: the values that arrive are the table's."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import Place
from tests.support.wasm import guests
from tests.sync.push.rapidbyte.component_table import written_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = {
    "id": "BIGINT",
    "small": "INT",
    "ratio": "FLOAT",
    "share": "DECIMAL(20, 4)",
    "name": "STRING",
    "raw": "BINARY",
    "day": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "is_new": "BOOLEAN",
    "tags": "ARRAY<STRING>",
    "place": "STRUCT<city: STRING, zip: INT>",
}
_VALUES = (
    "1, 2, 0.25f, 12345678901234.5678, 'ä', X'FF00', DATE '2026-11-01', TIMESTAMP '2026-11-01 02:03:04.567891',"
    " TIMESTAMP_NTZ '1969-12-31 23:59:59.9', true, array('x', null), named_struct('city', 'Ulm', 'zip', 89073)"
)


@pytest.mark.spark
def test_values_that_a_component_gets_are_those_of_the_table(spark: "SparkSession", pier: Place) -> None:
    table = f"{pier.catalog}.made.people"
    columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    assert pier.run("query", "SELECT 1").code == 0  # The session knows the catalog from then on.
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {pier.catalog}.made")
    spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg")
    nulls = ", ".join(["NULL"] * (len(_COLUMNS) - 1))
    spark.sql(f"INSERT INTO {table} VALUES ({_VALUES}), (2, {nulls})")
    granted = pier.folder / "granted"
    granted.mkdir()
    (pier.folder / "destination.wasm").write_bytes(guests.destination(granted))
    connector = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "destination.wasm"}}
    push = {"people": {"from": table, "key": ["id"], "mode": "upsert"}}
    file = pier.connect({}, "crm", connector=connector, config={"commit_rows": "1"}, push=push)

    assert pier.json("check", file)["message"] == "it looked"
    report = pier.json("push", file)
    people = report["streams"]["people"]
    assert (report["status"], people["sent"], people["acknowledged"]) == ("complete", 2, 2), people["error"]
    first, second = _rows(pier)
    expected = spark.table(table).where("id = 1").collect()[0].asDict()
    assert {**first, "at": first["at"].astimezone().replace(tzinfo=None)} == {
        **expected,
        "tags": '["x",null]',
        "place": '{"city":"Ulm","zip":89073}',
    }
    assert second == {**dict.fromkeys(_COLUMNS), "id": 2}
    spark.sql(f"UPDATE {table} SET name = 'new' WHERE id = 2")
    assert pier.json("push", file)["streams"]["people"]["sent"] == 1
    assert _rows(pier)[2]["name"] == "new"


def _rows(place: Place) -> list[dict[str, Any]]:
    """The rows in the order of runs, and by id within one."""
    runs = [[row for batch in run for row in batch.to_pylist()] for run in written_batches(place.folder / "granted")]
    return [row for run in runs for row in sorted(run, key=lambda each: int(each["id"]))]
