"""Type choices of a connection and of its streams, from the file to the types in the tables."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import yaml

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.conftest import OpenShop
from tests.sync.shop import Shop

_PLACE = {"type": "object", "properties": {"city": {"type": "string"}, "floor": {"type": "integer"}}}
_PROPERTIES = {"place": _PLACE, "price": {"type": "number"}}
_VALUES = {"place": {"city": "Bern", "floor": "x", "zip": 3000}, "price": 0.30000000000000004}


def _sell(place: Shop, **types: Any) -> None:
    """`orders` has the connection's choices, `users` its own over them."""
    values: dict[str, Any] = {"records": 1, "values": _VALUES, "properties": _PROPERTIES}
    place.modes = {"users": {"types": types}, "orders": {}}
    place.offer({"streams": {"users": values, "orders": values}})
    written = yaml.safe_load(place.connection_file.read_text())
    written["types"] = {"objects": "struct"}
    place.connection_file.write_text(yaml.safe_dump(written))


def test_a_streams_choices_override_those_of_its_connection(shop: OpenShop) -> None:
    place = shop()
    _sell(place, objects="json", integers="decimal", numbers="decimal")
    report = place.sync()
    [order] = place.tables.rows(TableName("shop", "orders")).to_pylist()
    assert (order["place"], order["price"]) == ({"city": "Bern", "floor": None}, 0.30000000000000004)
    [entry] = order["_airbyte_meta"]["changes"]
    assert (entry["field"], entry["change"]) == ("place.floor", "NULLED")
    users = place.tables.rows(TableName("shop", "users"))
    [user] = users.to_pylist()
    assert (json.loads(user["place"]), user["price"]) == (_VALUES["place"], Decimal("0.300000000"))
    assert (users.schema.field("id").type, user["id"]) == (pa.decimal128(38, 0), Decimal(0))
    [entry] = user["_airbyte_meta"]["changes"]
    assert (entry["field"], entry["change"]) == ("price", "TRUNCATED")
    assert {name: dict(told.ignored_fields) for name, told in report.streams.items()} == {
        "users": {},
        "orders": {"place.zip": 1},
    }


def test_a_struct_that_has_grown_keeps_its_old_rows(shop: OpenShop) -> None:
    place = shop()
    place.modes = {"*": {"read": "incremental", "write": "append", "types": {"objects": "struct"}}}
    values = {"place": {"city": "Bern", "floor": 2}}
    for records, properties in ((1, {"city": _PLACE["properties"]["city"]}), (2, _PLACE["properties"])):  # type: ignore[index]  # of the dict above
        schema = {"place": {"type": "object", "properties": properties}}
        place.sync_of({"streams": {"users": {"records": records, "values": values, "properties": schema}}})
    rows = place.tables.rows(TableName("shop", "users")).select(["id", "place"]).to_pylist()
    assert sorted(rows, key=lambda row: int(row["id"])) == [
        {"id": 0, "place": {"city": "Bern", "floor": None}},
        {"id": 1, "place": {"city": "Bern", "floor": 2}},
    ]


def test_a_member_keeps_its_name_when_one_that_differs_in_case_comes_before_it(shop: OpenShop) -> None:
    place = shop()
    place.modes = {"*": {"read": "incremental", "write": "append", "types": {"objects": "struct"}}}
    for records, names in ((1, ["mail"]), (2, ["MAIL", "mail"]), (3, ["MAIL"])):
        schema = {"o": {"type": "object", "properties": {name: {"type": "string"} for name in names}}}
        values = {"o": {name: name for name in names}}
        place.sync_of({"streams": {"users": {"records": records, "values": values, "properties": schema}}})
    rows = sorted(place.tables.rows(TableName("shop", "users")).to_pylist(), key=lambda row: int(row["id"]))
    assert [list(row["o"].values()) for row in rows] == [["mail", None], ["mail", "MAIL"], [None, "MAIL"]]


@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_a_schema_may_have_integers_of_any_size(protocol: str, shop: OpenShop) -> None:
    """It goes into the cache, into the catalog that the connector gets, and into digests."""
    place = shop()
    place.protocol = protocol
    size = {"size": {"type": "integer", "maximum": 10**30, "enum": [7, 2**64, -(2**63) - 1]}}
    users = {"values": {"size": 7}, "properties": size, "declared": size}
    for records in (2, 3):
        report = place.sync_of({"streams": {"users": {**users, "records": records}}})
        assert report.status is SyncStatus.COMPLETE
    assert place.column("users", "size") == [7, 7, 7]


@pytest.mark.parametrize(
    ("types", "told"),
    [
        ({"objects": "structs"}, 'did you mean "struct"'),
        ({"objects": "variant"}, "must be one of json, struct"),
        ({"numbers": "float"}, "must be one of double, decimal"),
        ({"integer": "decimal"}, 'did you mean "integers"'),
    ],
)
def test_a_choice_that_there_is_not_is_refused_with_the_way_out(
    types: dict[str, str], told: str, shop: OpenShop
) -> None:
    place = shop()
    _sell(place, **types)
    with pytest.raises(ConfigError) as caught:
        Connection.from_file(place.connection_file)
    assert "streams.users.types" in str(caught.value)
    assert told in str(caught.value)
