"""What taps offer, and the catalog that they are handed back."""

import json
from typing import Any

import msgspec
import pytest

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.model import PlannedStream, ReadMode, Stream, StreamId, TableName, WriteMode
from dagster_airbyte_proto.protocols.conversation import ReadRequest
from dagster_airbyte_proto.protocols.singer.catalog import selected_catalog
from dagster_airbyte_proto.protocols.singer.source import SingerSource

_source = SingerSource()
_BOTH = (ReadMode.FULL_REFRESH, ReadMode.INCREMENTAL)


def _entry(name: str = "users", **more: Any) -> dict[str, Any]:
    """As singer-python and the SDK write it: metadata is a list of breadcrumbs."""
    root: dict[str, Any] = more.pop("root", {})
    properties: dict[str, Any] = more.pop("properties", {"id": {"type": "integer"}, "at": {"type": "string"}})
    inclusions: dict[str, dict[str, Any]] = more.pop("about", {})
    metadata = [{"breadcrumb": ["properties", each], "metadata": inclusions.get(each, {})} for each in properties]
    return {
        "tap_stream_id": name,
        "schema": {"type": "object", "properties": properties},
        "metadata": [*metadata, {"breadcrumb": [], "metadata": root}],
        **more,
    }


def _stream(entry: dict[str, Any]) -> Stream:
    return _source.catalog(json.dumps({"streams": [entry]}).encode()).streams[0]


def _planned(stream: Stream, read: ReadMode = ReadMode.INCREMENTAL, **more: Any) -> PlannedStream:
    planned = PlannedStream(stream, TableName("shop", stream.id.name), read, WriteMode.APPEND)
    return msgspec.structs.replace(planned, **more)


def _written(*planned: PlannedStream, offered: tuple[Stream, ...] = (), **more: Any) -> dict[str, Any]:
    request = ReadRequest({}, planned, (), 1, offered, more.get("fields", {}))
    written = json.loads(selected_catalog(request, marks_schemas=more.get("marks_schemas", False)))
    return {entry["tap_stream_id"]: entry for entry in written["streams"]}


def _about(entry: dict[str, Any], *breadcrumb: str) -> dict[str, Any]:
    return next(each["metadata"] for each in entry["metadata"] if each["breadcrumb"] == list(breadcrumb))


@pytest.mark.parametrize(
    ("entry", "modes", "cursor", "is_fixed"),
    [
        # An API's stream of the SDK, of singer-python, and one that has no key to go on from.
        (
            _entry(replication_method="INCREMENTAL", replication_key="at", root={"valid-replication-keys": ["at"]}),
            _BOTH,
            ("at",),
            True,
        ),
        (
            _entry(root={"forced-replication-method": "INCREMENTAL", "valid-replication-keys": ["at"]}),
            _BOTH,
            ("at",),
            True,
        ),
        (_entry(root={"forced-replication-method": "FULL_TABLE"}), (ReadMode.FULL_REFRESH,), (), False),
        # Tables of a database: whichever column the user names.
        (_entry(replication_method=""), _BOTH, (), False),
        (_entry(root={"valid-replication-keys": ["at", "id"]}), _BOTH, (), False),
        (_entry(root={"replication-method": "LOG_BASED", "replication-key": "at"}), _BOTH, (), True),
    ],
)
def test_how_a_stream_may_be_read(
    entry: dict[str, Any], modes: tuple[ReadMode, ...], cursor: tuple[str, ...], *, is_fixed: bool
) -> None:
    stream = _stream(entry)
    assert (stream.read_modes, stream.cursor, stream.is_cursor_fixed) == (modes, cursor, is_fixed)


@pytest.mark.parametrize(
    "entry",
    [
        _entry(key_properties=["id", "at"]),
        _entry(root={"table-key-properties": ["id", "at"]}),
        _entry(key_properties=[], root={"table-key-properties": [], "view-key-properties": ["id", "at"]}),
    ],
)
def test_the_key_wherever_it_is_told(entry: dict[str, Any]) -> None:
    assert _stream(entry).primary_key == (("id",), ("at",))


def test_what_is_unsupported_is_no_column_and_never_selected() -> None:
    stream = _stream(_entry(about={"at": {"inclusion": "unsupported"}}))
    assert (list(stream.json_schema["properties"]), stream.unsupported_fields) == (["id"], ("at",))
    assert _about(_written(_planned(stream))["users"], "properties", "at")["selected"] is False


def test_the_whole_catalog_goes_back_with_what_was_chosen() -> None:
    """A tap selects by default what it is not told of."""
    users, orders = _stream(_entry("users")), _stream(_entry("orders", root={"selected": True}, row_count=7))
    written = _written(_planned(users, cursor=("at",)), offered=(users, orders))
    assert _about(written["users"]) == {
        "selected": True,
        "replication-method": "INCREMENTAL",
        "replication-key": "at",
    }
    assert (written["users"]["replication_method"], written["users"]["replication_key"]) == ("INCREMENTAL", "at")
    assert _about(written["orders"])["selected"] is False
    assert written["orders"]["row_count"] == 7


def test_a_schema_goes_back_as_it_came() -> None:
    raw = b'{"tap_stream_id":"a","schema":{"properties":{"p":{"multipleOf":1.50e-9}}}}'
    [stream] = _source.catalog(b'{"streams":[' + raw + b"]}").streams
    request = ReadRequest({}, (_planned(stream),), (), 1)
    assert b'{"properties":{"p":{"multipleOf":1.50e-9}}}' in selected_catalog(request, marks_schemas=False)


@pytest.mark.parametrize(
    ("read", "root", "method"),
    [
        (ReadMode.FULL_REFRESH, {}, "FULL_TABLE"),
        (ReadMode.FULL_REFRESH, {"replication-method": "LOG_BASED"}, "FULL_TABLE"),
        (ReadMode.INCREMENTAL, {"replication-method": "FULL_TABLE"}, "INCREMENTAL"),
        (ReadMode.INCREMENTAL, {"replication-method": "LOG_BASED"}, "LOG_BASED"),
    ],
)
def test_the_method_is_what_was_chosen(read: ReadMode, root: dict[str, Any], method: str) -> None:
    stream = _stream(_entry(root=root))
    assert _about(_written(_planned(stream, read))["users"])["replication-method"] == method


def test_a_table_that_is_read_incrementally_without_a_key_follows_the_log() -> None:
    table = _stream(_entry(replication_method="", root={"schema-name": "public", "forced-replication-method": ""}))
    assert table.supports_log_replication
    assert _about(_written(_planned(table))["users"])["replication-method"] == "LOG_BASED"
    assert _about(_written(_planned(table, cursor=("at",)))["users"])["replication-method"] == "INCREMENTAL"
    of_an_api = [_entry(), _entry(root={"schema-name": "public", "valid-replication-keys": ["at"]})]
    assert not any(_stream(entry).supports_log_replication for entry in of_an_api)


def test_only_the_fields_that_are_read_are_selected() -> None:
    about = {
        "id": {"inclusion": "automatic"},
        "email": {"inclusion": "available"},
        "big": {"selected-by-default": False},
    }
    properties = {name: {"type": "string"} for name in ("id", "at", "email", "name", "big")}
    stream = _stream(_entry(properties=properties, about=about))

    def selected(cursor: str = "at", **more: Any) -> set[str]:
        entry = _written(_planned(stream, primary_key=(("id",),), cursor=(cursor,)), **more)["users"]
        return {name for name in properties if _about(entry, "properties", name)["selected"]}

    assert selected() == {"id", "at", "email", "name"}
    assert selected(fields={stream.id: frozenset({"name", "big"})}) == {"id", "at", "name", "big"}
    # A cursor that is not selected by default is named by whoever chose it.
    assert selected(cursor="big") == {"id", "at", "email", "name", "big"}


def test_old_taps_look_for_what_is_selected_in_the_schema() -> None:
    users, orders = _stream(_entry("users")), _stream(_entry("orders"))
    fields = {users.id: frozenset({"id"})}
    written = _written(_planned(users), offered=(users, orders), fields=fields, marks_schemas=True)
    assert written["users"]["schema"]["selected"] is True
    assert [rule["selected"] for rule in written["users"]["schema"]["properties"].values()] == [True, False]
    assert written["orders"]["schema"]["selected"] is False


def test_what_else_records_call_a_stream() -> None:
    users = _stream(_entry("public-users", stream="users"))
    people = _stream(_entry("people"))
    twins = [_stream(_entry(name, stream="twin")) for name in ("a-twin", "b-twin")]
    planned = tuple(map(_planned, (users, people, *twins)))
    config = {"stream_maps": {"people": {"__alias__": "persons"}, "a-twin": {"x": "1"}, "b-twin": None}}
    assert _source.stream_aliases(ReadRequest(config, planned, (), 1)) == {
        StreamId.of("users"): (users.id,),
        StreamId.of("persons"): (people.id,),
        StreamId.of("twin"): tuple(twin.id for twin in twins),
    }


def test_a_name_that_is_another_streams_own_is_no_other_name() -> None:
    users, other = _stream(_entry("users")), _stream(_entry("old-users", stream="users"))
    assert _source.stream_aliases(ReadRequest({}, (_planned(other),), (), 1, (users, other))) == {}


def test_a_catalog_comes_back_from_what_is_kept_of_it() -> None:
    catalog = _source.catalog(json.dumps({"streams": [_entry("a"), _entry("b", key_properties=["id"])]}).encode())
    assert _source.catalog(_source.catalog_message(catalog)) == catalog


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (b"[]", "it has no list of streams"),
        (b'{"streams":{}}', "it has no list of streams"),
        (b'{"streams":[{"schema":{}}]}', "stream number 1 has no tap_stream_id"),
        (b'{"streams":[7]}', "stream number 1 has no tap_stream_id"),
    ],
)
def test_what_is_no_catalog_is_refused(message: bytes, found: str) -> None:
    with pytest.raises(ProtocolViolation, match=found):
        _source.catalog(message)


def test_a_stream_whose_schema_is_no_object_is_there_without_one_and_goes_back_unselected() -> None:
    entries = [{**_entry("a"), "schema": [1]}, _entry("b")]
    catalog = _source.catalog(json.dumps({"streams": entries}).encode())
    assert [(each.id.name, bool(each.json_schema)) for each in catalog.streams] == [("a", False), ("b", True)]
    assert catalog.unreadable == (StreamId.of("a"),)
    for marks_schemas in (False, True):
        written = _written(_planned(catalog.streams[1]), offered=catalog.streams, marks_schemas=marks_schemas)
        assert [_about(written[name])["selected"] for name in ("a", "b")] == [False, True]


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, [7], [[]], {"a": 1}])
@pytest.mark.parametrize("place", ["schema", "metadata", "key_properties", "replication_key", "replication_method"])
def test_odd_members_hurt_nobody(place: str, odd: Any) -> None:
    try:
        stream = _stream({**_entry(), place: odd})
    except ProtocolViolation:
        return
    assert _written(_planned(stream))["users"]["tap_stream_id"] == "users"
