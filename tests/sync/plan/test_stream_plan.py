"""The user's choices and the source's catalog become one plan, or an error that says what to do."""

from typing import Any

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, ReadMode, Stream, StreamId, TableName, WriteMode
from dagster_airbyte_proto.protocols.events import SchemaEvent
from dagster_airbyte_proto.sync.plan.stream_plan import KnownTable, SyncRequest, plan_streams, planned_streams
from dagster_airbyte_proto.sync.plan.stream_schemas import with_schema

BOTH = (ReadMode.FULL_REFRESH, ReadMode.INCREMENTAL)
USERS = Stream(StreamId.of("users"), {}, BOTH, primary_key=(("id",),), cursor=("at",), is_cursor_fixed=True)
EVENTS = Stream(StreamId.of("events"), {}, BOTH, cursor=("at",), is_cursor_fixed=True)
COUNTRIES = Stream(StreamId.of("countries"), {})
CATALOG = Catalog((USERS, EVENTS, COUNTRIES))


def connection(**written: Any) -> Connection:
    launch = {"kind": "local", "command": ["source"]}
    return Connection.model_validate(
        {"name": "shop", "connector": {"protocol": "airbyte", "launch": launch}, **written}
    )


def modes(
    streams: dict[str, Any] | list[str] | None,
    request: SyncRequest = SyncRequest(),  # noqa: B008 - a tuple
) -> dict[str, tuple[str, str]]:
    planned = planned_streams(connection(**({} if streams is None else {"streams": streams})), CATALOG, request)
    return {str(each.id): (str(each.read), str(each.write)) for each in planned}


def test_the_defaults_follow_the_catalog() -> None:
    assert modes(None) == {
        "users": ("incremental", "append_dedup"),
        "events": ("incremental", "append"),
        "countries": ("full_refresh", "overwrite"),
    }


def test_tables_are_called_in_snake_case_on_request_but_for_names_of_the_user() -> None:
    streams = [Stream(StreamId.of("publicUsers", "Main DB"), {}), Stream(StreamId.of("public-orders", "Main DB"), {})]
    destination = {"names": "snake", "namespace": "raw_${source_namespace}", "table_prefix": "T_"}
    written = connection(destination=destination, streams={"public-orders": {"rename": "My-Orders"}, "*": {}})
    planned = planned_streams(written, Catalog(tuple(streams)), SyncRequest())
    assert [each.table for each in planned] == [
        TableName("raw_main_db", "T_public_users"),
        TableName("raw_main_db", "T_My-Orders"),
    ]


def test_a_catalog_without_streams_and_one_of_very_many_are_told_as_they_are() -> None:
    with pytest.raises(ConfigError, match="the connector offers no stream"):
        planned_streams(connection(), Catalog(()), SyncRequest())
    many = Catalog(tuple(Stream(StreamId.of(f"s{number:03}"), {}) for number in range(500)))
    with pytest.raises(ConfigError, match=r"s019 and 480 more$"):
        planned_streams(connection(streams=["users"]), many, SyncRequest())


def test_only_what_is_named_is_synced_unless_a_star_speaks_for_the_others() -> None:
    assert set(modes(["events"])) == {"events"}
    assert modes({"users": {"read": "full_refresh"}, "*": {"write": "append"}}) == {
        "users": ("full_refresh", "overwrite"),
        "events": ("incremental", "append"),
        "countries": ("full_refresh", "append"),
    }


def test_a_table_that_is_replaced_is_read_whole() -> None:
    assert modes({"users": {"write": "overwrite"}}) == {"users": ("full_refresh", "overwrite")}
    with pytest.raises(ConfigError, match="would leave only the newest rows"):
        modes({"users": {"read": "incremental", "write": "overwrite"}})


def test_a_refresh_replaces_what_would_be_added_to() -> None:
    assert modes(None, SyncRequest(refresh=True)) == {
        "users": ("incremental", "overwrite_dedup"),
        "events": ("incremental", "overwrite"),
        "countries": ("full_refresh", "overwrite"),
    }


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        (["usrs"], "there is no stream 'usrs'\nDid you mean 'users'?"),
        ({"countries": {"read": "incremental"}}, "the source offers no incremental read"),
        ({"events": {"write": "append_dedup"}}, "needs a primary key, and the source names none\nAdd primary_key"),
        ({"events": {"write": "soft_delete"}}, "soft_delete needs a primary key"),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(streams: dict[str, Any] | list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        modes(streams)
    assert message in str(refused.value)


def test_deletions_are_kept_in_soft_delete_also_in_a_refresh() -> None:
    soft = connection(streams={"users": {"write": "soft_delete"}})
    for wanted, write in ((SyncRequest(), "append_dedup"), (SyncRequest(refresh=True), "overwrite_dedup")):
        [planned] = planned_streams(soft, CATALOG, wanted)
        assert (planned.read, planned.write, planned.keeps_deleted) == ("incremental", write, True)
    [planned] = planned_streams(connection(streams=["users"]), CATALOG, SyncRequest())
    assert not planned.keeps_deleted


def test_requested_streams_must_be_among_the_chosen() -> None:
    assert set(modes(None, SyncRequest(only=["events"]))) == {"events"}
    with pytest.raises(ConfigError, match="there is no stream 'users'"):
        modes(["events"], SyncRequest(only=["users"]))


def test_tables_are_named_by_namespace_prefix_and_stream() -> None:
    sales = Stream(StreamId.of("users", "sales"), {})
    catalog = Catalog((USERS, sales))
    destination = {"namespace": "raw_${source_namespace}", "table_prefix": "t_"}
    planned = planned_streams(connection(destination=destination), catalog, SyncRequest())
    assert [each.table for each in planned] == [TableName("raw_shop", "t_users"), TableName("raw_sales", "t_users")]


def test_two_streams_never_share_a_table() -> None:
    catalog = Catalog((USERS, Stream(StreamId.of("users", "sales"), {}), Stream(StreamId.of("Users"), {})))
    tables = [str(each.table).casefold() for each in planned_streams(connection(), catalog, SyncRequest())]
    assert len(set(tables)) == 3


@pytest.mark.parametrize(
    ("stream", "table"), [("a/b:c", "a_b_c"), ("select", "select"), ("..", "__"), ("Füße 1", "Füße 1"), ("1st", "1st")]
)
def test_a_table_has_a_name_that_a_folder_can_have(stream: str, table: str) -> None:
    [planned] = planned_streams(connection(), Catalog((Stream(StreamId.of(stream), {}),)), SyncRequest())
    assert planned.table == TableName("shop", table)


def test_a_name_that_is_too_long_is_cut_and_still_its_own() -> None:
    catalog = Catalog(tuple(Stream(StreamId.of("x" * 200 + end, "n" * 200), {}) for end in "ab"))
    written = connection(destination={"namespace": "${source_namespace}"})
    first, second = (planned.table for planned in planned_streams(written, catalog, SyncRequest()))
    assert first.namespace == second.namespace
    assert max(len(first.namespace), len(first.name), len(second.name)) <= 128
    assert first.name != second.name


def test_a_table_that_a_stream_has_had_stays_its_own() -> None:
    upper, lower = Stream(StreamId.of("Users"), {}), Stream(StreamId.of("users"), {})
    [first] = planned_streams(connection(), Catalog((lower,)), SyncRequest())
    assert first.preferred_table == first.table == TableName("shop", "users")
    known = {lower.id: KnownTable(first.table, first.table)}
    for catalog in (Catalog((upper, lower)), Catalog((upper,))):
        other, *same = planned_streams(connection(), catalog, SyncRequest(), known)
        assert other.table.name.startswith("Users_")
        assert [each.table for each in same] == [first.table for _ in same]
    # What the user calls a table goes before what it was called.
    [renamed] = planned_streams(
        connection(streams={"users": {"rename": "people"}}), Catalog((lower,)), SyncRequest(), known
    )
    assert renamed.table == TableName("shop", "people")


def test_a_streams_policy_goes_before_the_connections() -> None:
    written = connection(
        destination={"schema_policy": "freeze"}, streams={"users": {"schema_policy": "discard_row"}, "events": {}}
    )
    policies = {str(each.id): each.schema_policy.value for each in planned_streams(written, CATALOG, SyncRequest())}
    assert policies == {"users": "discard_row", "events": "freeze"}


@pytest.mark.parametrize(
    ("options", "key"), [({"primary_key": ["id"]}, [("id",)]), ({}, [("id",), ("shop",)])], ids=["user's", "source's"]
)
def test_a_sent_key_takes_the_place_of_the_catalogs_and_not_of_the_users(options: Any, key: Any) -> None:
    [planned] = planned_streams(connection(streams={"users": options}), CATALOG, SyncRequest())
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "shop": {"type": "integer"}}}
    sent = SchemaEvent(planned.id, schema, (("id",), ("shop",)))
    for _ in range(2):
        planned = with_schema(planned, sent)
        assert list(planned.primary_key) == key


def test_every_chosen_mode_is_what_the_plan_says() -> None:
    planned = planned_streams(
        connection(streams={"users": {"write": "append", "cursor": "at"}}), CATALOG, SyncRequest()
    )
    assert [(each.write, each.primary_key, each.cursor) for each in planned] == [
        (WriteMode.APPEND, (("id",),), ("at",))
    ]


def test_a_stream_that_cannot_be_planned_stands_there_with_its_table_and_its_fault() -> None:
    written = connection(streams={"events": {"write": "append_dedup"}, "countries": {"read": "incremental"}, "*": {}})
    chosen = plan_streams(written, CATALOG, SyncRequest())
    assert [each.id for each in chosen.planned] == [USERS.id, EVENTS.id, COUNTRIES.id]
    assert [(str(stream), fault.stream) for stream, fault in chosen.faults.items()] == [
        ("events", "events"),
        ("countries", "countries"),
    ]
    assert [each.id for each in chosen.sound] == [USERS.id]
    # One that may be read incrementally may share a state with others.
    assert [(each.table, each.read) for each in chosen.planned[1:]] == [
        (TableName("shop", "events"), ReadMode.INCREMENTAL),
        (TableName("shop", "countries"), ReadMode.FULL_REFRESH),
    ]
