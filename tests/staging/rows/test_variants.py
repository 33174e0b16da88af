"""Objects that land as VARIANT, with both parsers; the bytes are those that Spark's own encoders make."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.column_ids import arrow_schema, columns_of
from dagster_airbyte_proto.model import ObjectsAs, PlannedStream, Shaping, TypeChoices, WriteMode
from dagster_airbyte_proto.schema.columns import VARIANT
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.files.parquet_file import OpenFile
from dagster_airbyte_proto.staging.files.staging_folder import StagingFolder
from dagster_airbyte_proto.staging.rows.changes import Changes, ValueLocations
from dagster_airbyte_proto.staging.rows.variants import LARGEST_BYTES, encode_variants
from tests.staging.conftest import parse, plan, record

_WHOLE = {"type": "integer"}
_OBJECT = {"type": "object", "properties": {"n": _WHOLE}}
_TYPECAST = "DESTINATION_TYPECAST_ERROR"
_SIZE = "DESTINATION_FIELD_SIZE_LIMITATION"
_INSIDE = pa.struct([("thing", VARIANT), ("n", pa.int64())])
_Encoded = dict[str, bytes] | None


def _encoded(*texts: str | None) -> tuple[list[_Encoded], Changes]:
    changes = Changes()
    array = encode_variants(pa.array(texts, pa.string()), ValueLocations(("place",)), changes)
    array.validate(full=True)
    return array.to_pylist(), changes


def _by_spark(text: str) -> _Encoded:
    value = VariantVal.parseJson(text)
    return {"metadata": value.metadata, "value": value.value}


def _json(value: _Encoded) -> Any:
    assert value is not None
    return VariantVal(value["value"], value["metadata"]).toPython()


TEXTS = (
    *("{}", "[]", "true", "false", '{"a": null}', '{"b":1,"a":{"c":[1,2,{"a":null}]}}', "[[[]]]"),
    *(str(number) for bits in (7, 15, 31, 63) for at in (1 << bits,) for number in (at - 1, at, -at, -at - 1)),
    *("0", "-0", "0.0", "-0.0", "0.00", "1.50", "-1.5", "1e5", "1E-400", "1.5e300", "123456789.1", "0.000000001"),
    *("9" * 38, "9" * 39, "-" + "9" * 38, "0." + "9" * 38, "0." + "9" * 39, "9" * 300, "0.0000000001"),
    *('""', '"Zoë 🎉"', '"\\u0000\\"\\\\"', json.dumps("x" * 63), json.dumps("x" * 64), json.dumps("ë" * 32)),
    json.dumps({f"k{number}": number for number in range(300)}),
    json.dumps(list(range(300))),
    json.dumps({"k" * 40_000: "v" * 70_000, "l": 1}),
    json.dumps(["x" * 100] * 300),
    json.dumps({f"k{number}": {f"m{number}": "x" * 300} for number in range(300)}),
    "[" * 200 + "]" * 200,
)


def test_the_bytes_are_those_of_spark() -> None:
    found, changes = _encoded(*TEXTS, None)
    assert not changes
    assert found == [*map(_by_spark, TEXTS), None]


# In Python Spark has names in another order than in Java, where some lie beyond the first plane.
_NAMES = st.text("abcé\uffff", max_size=3)
_NUMBERS = st.integers(-(1 << 130), 1 << 130) | st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    st.booleans() | _NUMBERS | st.text(max_size=70),
    lambda inside: st.lists(inside | st.none()) | st.dictionaries(_NAMES, inside | st.none()),
    max_leaves=20,
)


@settings(max_examples=50)
@given(_VALUES)
def test_any_value_is_what_spark_makes_of_it(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert _encoded(text)[0] == [_by_spark(text)]


def test_files_tell_other_readers_where_variants_are(tmp_path: Path) -> None:
    texts = ['{"n":1.50,"b":["x",{"c":null}]}', None, "7"]
    values = [None if text is None else json.loads(text) for text in texts]
    thing = encode_variants(pa.array(texts, pa.string()), ValueLocations(("thing",)), Changes())
    wanted = pa.schema([("id", pa.int64()), ("thing", VARIANT), ("things", pa.list_(VARIANT)), ("inside", _INSIDE)])
    file = OpenFile(StagingFolder.at(str(tmp_path)), "rows.parquet", arrow_schema(columns_of(wanted)))
    for _ in range(3):
        lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), thing)
        file.write(pa.table({"id": range(3), "thing": thing, "things": lists}))
        file.write_waiting()
    path = file.close().path
    assert pq.read_table(path).num_rows == 9
    kinds = "typeof(thing), typeof(things), typeof(inside)"
    rows = duckdb.execute(f"select {kinds}, thing::json, things::json from '{path}'").fetchall()
    assert {row[:3] for row in rows} == {("VARIANT", "VARIANT[]", "STRUCT(thing VARIANT, n BIGINT)")}
    assert [row[3] and json.loads(row[3]) for row in rows] == values * 3
    assert [json.loads(row[4]) for row in rows] == [[value] for value in values] * 3


def test_the_last_of_equal_names_counts_as_everywhere() -> None:
    [found], _ = _encoded('{"a":1,"b":2,"a":3}')
    assert _json(found) == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a":"\\ud800"}', _TYPECAST),
        ('{"a":1e999}', _SIZE),
        ("-" + "9" * 400, _SIZE),
        ('{"a":' * 5000 + "1" + "}" * 5000, _SIZE),
        (json.dumps({"a": "x" * LARGEST_BYTES}), _SIZE),
    ],
    ids=["half a surrogate pair", "no double", "a long integer", "too deep", "too large"],
)
def test_what_no_variant_holds_is_null_and_said(text: str, reason: str) -> None:
    found, changes = _encoded('{"a":1}', text, None, "[]")
    assert [each is None for each in found] == [False, True, True, False]
    noted = [[entry["reason"] for entry in each] for each in changes.entry_lists(4).to_pylist()]
    assert noted == [[], [reason], [], []]


def _plan(properties: dict[str, Any], *, shaping: Shaping | None = None, **more: Any) -> PlannedStream:
    types = TypeChoices(objects=ObjectsAs.VARIANT)
    return msgspec.structs.replace(plan(properties, **more), types=types, shaping=shaping)


def _rows(planned: PlannedStream, *lines: bytes) -> Sequence[dict[str, Any]]:
    """The result of the lines, which must be the same for both parsers."""
    fast, slow = parse(planned, *lines), parse(planned, *lines, b"no JSON\n")
    assert (fast.rejected.total(), slow.rejected.total()) == (0, 1)
    rows, others = (each.batch.drop_columns(["_airbyte_raw_id"]).to_pylist() for each in (fast, slow))
    assert rows == others
    return list(rows)


def test_objects_are_variants_whatever_they_declare_and_in_lists_too() -> None:
    open_object = {"type": "object", "patternProperties": {"^x": _WHOLE}, "additionalProperties": True}
    properties = {
        "place": _OBJECT,
        "any": {"type": "object"},
        "open": open_object,
        "union": {"oneOf": [_OBJECT, _WHOLE]},
        "places": {"type": "array", "items": _OBJECT},
    }
    planned = _plan(properties)
    kinds = {column.name: column.type.kind.value for column in table_columns(planned).all}
    assert kinds == {"place": "variant", "any": "variant", "open": "variant", "union": "json", "places": "variant"}
    first = '{"place":{"n":"x","b":1.50},"any":[1],"open":"text","union":{"n":1},"places":[{"n":1},null,5]}'
    [row, empty, odd] = _rows(planned, *map(record, (first, "{}", '{"any":NaN,"places":[{},{"n":"\\ud800"}]}')))
    assert row["place"] == _by_spark('{"n":"x","b":1.50}')
    assert (_json(row["any"]), _json(row["open"]), row["union"]) == ([1], "text", '{"n":1}')
    assert [each and _json(each) for each in row["places"]] == [{"n": 1}, None, 5]
    assert row["_airbyte_meta"]["changes"] == empty["_airbyte_meta"]["changes"] == []
    assert {empty[name] for name in properties} == {None}
    assert (odd["any"], [each and _json(each) for each in odd["places"]]) == (None, [{}, None])
    noted = {entry["field"]: entry["reason"] for entry in odd["_airbyte_meta"]["changes"]}
    assert noted == {"any": _TYPECAST, "places.1": _TYPECAST}


def test_keys_and_members_are_chosen_and_objects_are_hashed_as_if_they_were_text() -> None:
    place = {"type": "object", "properties": {"n": _WHOLE, "b": _WHOLE}}
    properties = {"place": place, "secret": _OBJECT}
    shaping = Shaping(exclude=(("place", "b"),), hashed=(("secret",),))
    planned = _plan(properties, shaping=shaping, write=WriteMode.APPEND_DEDUP, key=[("place", "n")])
    [row] = _rows(planned, record('{"place":{"n":7,"b":2,"c":3},"secret":{"n":1}}'))
    assert (_json(row["place"]), row["_airbyte_key_place_n"], len(row["secret"])) == ({"n": 7, "c": 3}, 7, 64)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"write": WriteMode.APPEND_DEDUP, "key": [("place",)]}, "place is an object, which cannot be a key"),
        ({"write": WriteMode.APPEND_DEDUP, "key": [("id",)], "cursor": ("place", "n")}, "lands as a VARIANT"),
        ({"shaping": Shaping(sort_by=("place",))}, "place has no order"),
        ({"shaping": Shaping(partition_by=("place",))}, "place is none"),
        ({"shaping": Shaping(filter="place = 'x'")}, "can only be tested with `is null`"),
    ],
)
def test_nothing_is_compared_by_a_variant(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        table_columns(_plan({"id": _WHOLE, "place": _OBJECT}, **options))
    assert table_columns(_plan({"id": _WHOLE, "place": _OBJECT}, cursor=("place", "n")))
