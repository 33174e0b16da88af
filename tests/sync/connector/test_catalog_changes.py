"""The differences between two catalogs of a connector."""

from collections.abc import Mapping
from typing import Any

import pytest

from dagster_airbyte_proto.model import Catalog, FieldPath, ReadMode, Stream, StreamId
from dagster_airbyte_proto.sync.connector.catalog_changes import catalog_changes, in_former_order


def stream(name: str, columns: Mapping[str, Any], *, key: tuple[FieldPath, ...] = (), cursor: FieldPath = ()) -> Stream:
    return Stream(StreamId.of(name), {"type": "object", "properties": columns}, primary_key=key, cursor=cursor)


TEXT = {"type": ["null", "string"]}


def test_streams_that_come_and_go_are_reported() -> None:
    old = Catalog((stream("carts", {}), stream("users", {"id": TEXT})))
    new = Catalog((stream("users", {"id": TEXT}), stream("refunds", {"id": TEXT, "at": TEXT})))
    assert catalog_changes(old, new) == ["carts: the stream is gone", "refunds: new stream (2 columns)"]


def test_changes_of_columns_keys_and_cursors_are_reported() -> None:
    old = stream("users", {"id": {"type": "integer"}, "age": TEXT, "at": TEXT}, key=(("id",),), cursor=("at",))
    new = stream(
        "users",
        {"id": {"type": "string"}, "at": {**TEXT, "format": "date-time"}, "tags": {"type": "array", "items": TEXT}},
        key=(("id",), ("address", "city")),
    )
    assert catalog_changes(Catalog((old,)), Catalog((new,))) == [
        "users: column id was integer, is string",
        "users: column age is gone",
        "users: column at was string, is string (date-time)",
        "users: column tags is new (array of string)",
        "users: primary key was id, is id, address.city",
        "users: cursor was at, is none",
    ]


def test_fields_of_objects_are_named_by_their_paths_and_unions_by_their_parts() -> None:
    old = stream("users", {"address": {"type": "object", "properties": {"city": TEXT}}, "v": {"type": "number"}})
    new = stream(
        "users",
        {"address": {"type": "object", "properties": {"zip": TEXT}}, "v": {"oneOf": [{"type": "number"}, TEXT]}},
    )
    assert catalog_changes(Catalog((old,)), Catalog((new,))) == [
        "users: column address.city is gone",
        "users: column v was number, is number or string",
        "users: column address.zip is new (string)",
    ]


def test_a_mode_that_is_not_offered_any_more_is_reported() -> None:
    full = stream("users", {})
    both = Stream(full.id, full.json_schema, read_modes=(ReadMode.FULL_REFRESH, ReadMode.INCREMENTAL))
    assert catalog_changes(Catalog((both,)), Catalog((full,))) == ["users: incremental reads are gone"]
    assert catalog_changes(Catalog((full,)), Catalog((both,))) == ["users: incremental reads are new"]


def test_what_does_not_matter_to_a_table_is_no_change() -> None:
    old = stream("users", {"id": {"type": "string", "title": "Id"}, "n": TEXT}, key=(("id",), ("n",)))
    new = stream("users", {"n": {"type": ["string", "null"]}, "id": {"type": "string"}}, key=(("n",), ("id",)))
    assert catalog_changes(Catalog((old,)), Catalog((new,))) == []


@pytest.mark.parametrize("schema", [{}, {"properties": None}, {"properties": {"a": True, "b": {"items": [1]}}}])
def test_odd_schemas_are_compared_too(schema: dict[str, Any]) -> None:
    odd = Catalog((Stream(StreamId.of("users"), schema),))
    assert catalog_changes(odd, odd) == []


def test_a_stream_that_comes_later_stands_behind_one_with_a_like_name() -> None:
    def catalog(*names: str) -> Catalog:
        return Catalog(tuple(stream(name, {}) for name in names))

    def names(*found: str, former: Catalog = Catalog(())) -> list[str]:  # noqa: B008 - it is frozen
        return [each.id.name for each in in_former_order(catalog(*found), former).streams]

    assert names("users", "order items", "carts", "order_items") == ["users", "order_items", "order items", "carts"]
    assert names("USERS", "Users", "new", "a_b", "a b", former=catalog("Users", "gone", "a b")) == [
        "Users",
        "a b",
        "USERS",
        "new",
        "a_b",
    ]


def test_schemas_that_are_none_are_compared_all_the_same() -> None:
    odd = {"a": {"type": 5}, "b": {"type": ["null", None]}, "c": {"oneOf": 5, "anyOf": {"x": 1}}, "d": {"items": 7}}
    old, new = (Catalog((stream("users", columns),)) for columns in (odd, odd | {"a": TEXT}))
    assert catalog_changes(old, new) == ["users: column a was anything, is string"]
