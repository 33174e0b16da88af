"""The columns of a table when some are left out, renamed or hashed, and the errors for an impossible shaping."""

from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import (
    PlannedStream,
    PushMode,
    ReadMode,
    RelayTarget,
    Shaping,
    Stream,
    StreamId,
    TableName,
    WriteMode,
)
from dagster_airbyte_proto.schema.columns import METADATA, WHOLE_RECORD, Columns, RecordForm
from dagster_airbyte_proto.schema.json_schema import stream_columns, table_columns

_TEXT = {"type": "string"}
_PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "updated_at": {"type": "string", "format": "date-time"},
    "email": {"type": "string", "description": "where letters go"},
    "tags": {"type": "array", "items": _TEXT},
    "address": {"type": "object", "properties": {"city": _TEXT, "street": _TEXT}},
    "Email": _TEXT,
}


def _columns(
    write: WriteMode = WriteMode.APPEND, properties: Any = None, key: Any = (("id",),), **shaping: Any
) -> Columns:
    stream = Stream(StreamId.of("users"), {"properties": {**_PROPERTIES, **(properties or {})}})
    planned = PlannedStream(
        stream,
        TableName("shop", "users"),
        ReadMode.INCREMENTAL,
        write,
        key,
        ("updated_at",),
        shaping=Shaping(**shaping),
    )
    return table_columns(planned)


def _names(columns: Columns) -> list[str]:
    assert columns.schema.names[-len(METADATA) :] == METADATA.names
    return [column.name for column in columns.all]


def test_only_what_is_selected_is_in_the_table_and_read() -> None:
    columns = _columns(select=(("email",), ("id",)))
    assert (_names(columns), [column.name for column in columns.parsed_columns]) == (["id", "email"], ["id", "email"])
    assert columns.skipped_fields == {"updated_at", "tags", "address", "Email"}


def test_an_excluded_column_is_neither_in_the_table_nor_read() -> None:
    columns = _columns(exclude=(("email",), ("address",)))
    assert _names(columns)[:3] == ["id", "updated_at", "tags"]
    assert columns.skipped_fields == {"email", "address"}


def test_a_name_does_not_depend_on_what_else_is_selected() -> None:
    [marked] = [name for name in _names(_columns(exclude=(("tags",),))) if name.startswith("Email")]
    assert marked != "Email"
    assert _names(_columns(select=(("Email",),))) == [marked]


def test_a_renamed_column_keeps_the_sources_name_in_its_comment_and_its_path() -> None:
    columns = _columns(WriteMode.APPEND_DEDUP, renames=(("email", "mail"), ("id", "user_id")))
    mail = next(column for column in columns.all if column.name == "mail")
    assert (mail.path, mail.comment) == (("email",), 'where letters go; the source calls it "email"')
    assert columns.keys == ("user_id",)
    assert columns.schema.field("user_id").metadata == {b"comment": b'the source calls it "id"'}


def test_a_hashed_column_is_text_and_read_as_what_it_is() -> None:
    columns = _columns(WriteMode.APPEND_DEDUP, hashed=(("id",), ("tags",)))
    assert [columns.schema.field(name).type for name in ("id", "tags")] == [pa.string(), pa.list_(pa.string())]
    assert columns.parsed_columns[0].type.table_type == pa.int64()
    assert columns.all[0].comment == "hashed"


def test_a_field_that_only_a_filter_needs_is_read_and_not_in_the_table() -> None:
    columns = _columns(select=(("id",), ("tags",)), renames=(("tags", "email"),), filter="email is null and id > 1")
    assert _names(columns) == ["id", "email"]
    [*_, filtered] = columns.parsed_columns
    assert (filtered.path, filtered.name not in columns.schema.names) == (("email",), True)
    assert columns.skipped_fields == {"updated_at", "address", "Email"}


def test_a_key_that_lies_in_an_object_stays_what_it_was() -> None:
    columns = _columns(WriteMode.APPEND_DEDUP, key=(("address", "city"),), exclude=(("address", "street"), ("tags",)))
    assert columns.keys == ("_airbyte_key_address_city",)


@pytest.mark.parametrize(
    ("write", "shaping", "message"),
    [
        ("append", {"select": (("emial",),)}, "no field emial\nThe nearest field is email."),
        ("append", {"exclude": (("address", "cty"),)}, "no field address.cty\nThe nearest field is city."),
        ("append", {"renames": (("mail", "x"),)}, "no field mail\nThe nearest field is email."),
        ("append", {"hashed": (("mail",),)}, "no field mail"),
        ("append", {"exclude": tuple((name,) for name in (*_PROPERTIES, "_ab_cdc_deleted_at"))}, "no column is left"),
        (
            "append_dedup",
            {"select": (("email",), ("updated_at",))},
            "id is part of the primary key, and write: append_d",
        ),
        ("append_dedup", {"exclude": (("updated_at",),)}, "updated_at is the cursor"),
        ("append_dedup", {"exclude": (("_ab_cdc_deleted_at",),)}, "is the mark of deleted rows"),
        ("append", {"exclude": (("email",),), "hashed": (("email",),)}, "hash names email, which is left out"),
        ("append", {"select": (("id",),), "renames": (("email", "x"),)}, "rename_columns names email, which is left"),
        ("append", {"renames": (("email", "ID"),)}, "rename_columns calls email 'ID', as another column is named"),
        ("append", {"renames": (("email", "x"), ("tags", "X"))}, "as another column is named already"),
        ("append", {"renames": (("email", "_airbyte_meta"),)}, "as another column is named already"),
        ("append", {"renames": (("email", "_File"),)}, "rename_columns calls email '_File', which no column can be"),
        ("append", {"renames": (("email", "x\ny"),)}, "which no column can be called"),
        ("append_dedup", {"hashed": (("updated_at",),)}, "updated_at is the cursor, and a hash has no order"),
        ("append", {"hashed": (("address", "city"),)}, "address.city is inside an object"),
        ("append", {"select": (("email", "x"),)}, "no field email.x"),
    ],
)
def test_an_impossible_shaping_is_refused_with_a_remedy(write: str, shaping: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _columns(WriteMode(write), {"_ab_cdc_deleted_at": _TEXT}, **shaping)
    assert message in str(refused.value)
    assert refused.value.remedy
    assert refused.value.stream == "users"


def test_a_relay_has_no_table_whose_reserved_names_it_could_not_use() -> None:
    stream = Stream(StreamId.of("users"), {"properties": _PROPERTIES})
    planned = PlannedStream(
        stream,
        TableName("shop", "users"),
        ReadMode.FULL_REFRESH,
        WriteMode.APPEND,
        shaping=Shaping(select=(("id",), ("email",)), renames=(("email", "_deleted"),)),
        relay=RelayTarget(stream.id, PushMode.INSERT),
    )
    form = stream_columns(planned).record_form
    assert form is not None
    assert form.columns == ("id", "_deleted")


def _form(properties: dict[str, Any], shaping: Shaping) -> RecordForm:
    """The form of the records of a relay by the key `id`."""
    stream = Stream(StreamId.of("users"), {"properties": properties, "required": ["id"]}, primary_key=(("id",),))
    planned = PlannedStream(
        stream,
        TableName("shop", "users"),
        ReadMode.FULL_REFRESH,
        WriteMode.APPEND,
        primary_key=(("id",),),
        shaping=shaping,
        relay=RelayTarget(stream.id, PushMode.UPSERT, ("id",)),
    )
    form = stream_columns(planned).record_form
    assert form is not None
    return form


def test_the_schema_of_a_relay_allows_null_for_what_a_record_lacks() -> None:
    properties = {
        "id": {"type": "integer"},
        "name": {"type": "string", "maxLength": 9},
        "kind": {"type": ["string"], "enum": ["a", "b"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "one": {"oneOf": [{"type": "object"}, {"type": "null"}]},
        "open": {},
        "maybe": {"type": ["null", "number"]},
    }
    assert _form(properties, Shaping(renames=(("name", "called"),))).json_schema == {
        "properties": {
            "id": {"type": "integer"},
            "called": {"type": ["null", "string"], "maxLength": 9},
            "kind": {"type": ["null", "string"], "enum": ["a", "b", None]},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            "one": properties["one"],
            "open": {},
            "maybe": properties["maybe"],
        }
    }


def test_a_hashed_field_of_a_relay_is_text_of_any_length_and_a_hashed_list_is_a_list() -> None:
    text = {"type": ["null", "string"]}
    properties = {
        "id": {"type": "string", "format": "uuid"},
        "mail": {"type": "string", "format": "email"},
        "size": {"type": "string", "enum": ["S", "M"]},
        "points": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}},
    }
    hashed = tuple((name,) for name in properties)
    shown = _form(properties, Shaping(hashed=hashed, renames=(("mail", "email"),))).json_schema["properties"]
    lists = {"type": ["null", "array"], "items": text}
    assert shown == {
        "id": text,
        "email": text,
        "size": text,
        "points": {"type": ["null", "array"], "items": lists},
        "tags": lists,
    }


def test_records_without_declared_fields_are_sent_as_what_is_left_of_them() -> None:
    form = _form({}, Shaping(exclude=((WHOLE_RECORD, "mail"),)))
    assert (form.record_column, form.columns, form.target.keys) == (WHOLE_RECORD, (), ("id",))
    assert _form({}, Shaping(hashed=((WHOLE_RECORD,),))).columns == (WHOLE_RECORD,)


def test_a_nested_key_must_be_covered_whole() -> None:
    with pytest.raises(ConfigError, match=r"address\.city is part of the primary key"):
        _columns(WriteMode.APPEND_DEDUP, key=(("address", "city"),), exclude=(("address", "city"),))
    with pytest.raises(ConfigError, match="address holds a key"):
        _columns(WriteMode.APPEND_DEDUP, key=(("address", "city"),), hashed=(("address",),))
