"""Arrow batches land like the records that they stand for."""

import datetime
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.model import ObjectsAs, PlannedStream, StreamId, TypeChoices, WriteMode
from dagster_airbyte_proto.protocols.rapidbyte.stream_context import SchemaEvolution, SourcePolicies
from dagster_airbyte_proto.schema.arrow_schema import json_schema_of
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.arrow.batch_policy import BatchPolicy
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.stage import Stage, StageLimits
from tests.staging.conftest import SHAPE, plan, record, rows_of, target_of

_UTC = datetime.UTC
_NOON = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456)


def planned_for(schema: pa.Schema, **options: Any) -> PlannedStream:
    planned = plan({}, **options)
    stream = msgspec.structs.replace(planned.stream, json_schema=json_schema_of(schema))
    return msgspec.structs.replace(planned, stream=stream)


def stage_of(planned: PlannedStream, folder: Path, limits: StageLimits = StageLimits()) -> Stage:  # noqa: B008  # a frozen tuple
    source = StreamInput(planned, table_columns(planned), target_of(planned, folder))
    return Stage([source], RunInput(SHAPE, "r1", sync_id=7), limits=limits)


def landed(planned: PlannedStream, folder: Path, *batches: pa.RecordBatch) -> StagedRows:
    stage = stage_of(planned, folder)
    for batch in batches:
        assert stage.add_batch(planned.id, batch) == batch.num_rows
    stage.mark(planned.id)
    part = stage.cut(planned.id)
    assert part is not None
    return part


def one_column(folder: Path, array: pa.Array, declared: pa.DataType | None = None) -> list[tuple[Any, list[Any]]]:
    """The values that land, each with its entries in the row's changes."""
    planned = planned_for(pa.schema([("v", declared or array.type)]))
    part = landed(planned, folder, pa.record_batch([array], ["v"]))
    return [
        (row["v"], [(each["field"], each["change"], each["reason"]) for each in row["_airbyte_meta"]["changes"]])
        for row in rows_of(part)
    ]


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (pa.array([1, None, -(2**31)], pa.int32()), [1, None, -(2**31)]),
        (pa.array([1, 2**64 - 1], pa.uint64()), [Decimal(1), Decimal(2**64 - 1)]),
        (pa.array([True, None, False]), [True, None, False]),
        (pa.array([0.5, None], pa.float32()), [0.5, None]),
        (pa.array(["a", None, "ü"], pa.large_string()), ["a", None, "ü"]),
        (pa.array(["a", "b", "a", None]).dictionary_encode(), ["a", "b", "a", None]),
        (pa.RunEndEncodedArray.from_arrays(pa.array([2, 3]), pa.array(["a", None])), ["a", "a", None]),
        (pa.RunEndEncodedArray.from_arrays(pa.array([1, 3]), pa.array([None, 7]))[1:], [7, 7]),
        (pa.array([b"\xff", None], pa.large_binary()), [b"\xff", None]),
        (pa.array([Decimal("1.25"), None], pa.decimal128(10, 2)), [Decimal("1.25"), None]),
        (pa.array([Decimal(10**30)], pa.decimal256(50, 0)), [Decimal(10**30)]),
        (pa.array([_NOON.date(), None], pa.date64()), [_NOON.date(), None]),
        (pa.array([_NOON.time(), None], pa.time64("us")), ["12:00:00.123456", None]),
        (pa.array([_NOON, None], pa.timestamp("us")), [_NOON, None]),
        (pa.array([_NOON], pa.timestamp("us", "Europe/Vienna")), [_NOON.replace(tzinfo=_UTC)]),
        (pa.array([0], pa.timestamp("s", "UTC")), [datetime.datetime.fromtimestamp(0, _UTC)]),
        (pa.array([[1, None], None, []], pa.list_(pa.int16())), [[1, None], None, []]),
        (pa.array([[0, 0], [1, 2], None, [3, 4]], pa.list_(pa.int16(), 2))[1:], [[1, 2], None, [3, 4]]),
        (pa.nulls(2), [None, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_values_of_every_type_land_as_they_are(array: pa.Array, values: Sequence[Any], tmp_path: Path) -> None:
    assert one_column(tmp_path, array) == [(value, []) for value in values]


def typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array as a connector sends it that says another type than its values have."""
    return pa.Array.from_buffers(kind, len(array), array.buffers())


_LATIN = pa.array([b"caf\xe9", b"ok", None])
_DIGITS = pa.array([Decimal("12345.67"), Decimal("1.25"), None], pa.decimal128(20, 2))
_PAST_38 = pa.array([10**38, 5 * 10**37], pa.decimal256(40, 0)).buffers()[1].to_pybytes()
_FAILING = SourcePolicies(SchemaEvolution("fail", "fail", "fail", "fail"))
_EPOCH = datetime.datetime(1970, 1, 1)
_MISFIT = ("v", "NULLED", "DESTINATION_TYPECAST_ERROR")
_TOO_LARGE = ("v", "NULLED", "DESTINATION_FIELD_SIZE_LIMITATION")
_CUT = ("v", "TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION")


@pytest.mark.parametrize(
    ("array", "declared", "landing"),
    [
        (pa.array([1.0, 1.5, None]), pa.int64(), [(1, []), (None, [_MISFIT]), (None, [])]),
        (pa.array([1, 2**63], pa.uint64()), pa.int64(), [(1, []), (None, [_TOO_LARGE])]),
        (pa.array([float("nan"), 1.0, None]), pa.float64(), [(None, [_MISFIT]), (1.0, []), (None, [])]),
        (pa.array(["x", None]), pa.bool_(), [(None, [_MISFIT]), (None, [])]),
        (pa.array([0, 10**18], pa.timestamp("s")), pa.timestamp("us"), [(_EPOCH, []), (None, [_TOO_LARGE])]),
        (pa.array([1001], pa.timestamp("ns")), pa.timestamp("us"), [(_EPOCH.replace(microsecond=1), [_CUT])]),
        (
            pa.array([Decimal("1.25"), Decimal("0.12345678901")], pa.decimal128(38, 11)),
            None,
            [(Decimal("1.25"), []), (Decimal("0.123456789"), [_CUT])],
        ),
        (
            pa.array([Decimal(10**35), Decimal("1.5")], pa.decimal256(76, 38)),
            pa.decimal128(38, 9),
            [(None, [_TOO_LARGE]), (Decimal("1.5"), [])],
        ),
        (pa.array([3_000_000], pa.date32()), pa.date32(), [(None, [_TOO_LARGE])]),
        (
            pa.array([0, 43_200_000, None, -1]).view(pa.date64()),
            pa.date32(),
            [(_EPOCH.date(), []), (None, [_MISFIT]), (None, []), (None, [_MISFIT])],
        ),
        (
            pa.array([[0, 1], [86_400_000]], pa.list_(pa.int64())).view(pa.list_(pa.date64())),
            pa.list_(pa.date64()),
            [([_EPOCH.date(), None], [("v.1", *_MISFIT[1:])]), ([datetime.date(1970, 1, 2)], [])],
        ),
        (
            pa.array([86_400_000, 1]).view(pa.date64()),
            pa.map_(pa.string(), pa.int64()),
            [('"1970-01-02"', []), (None, [_MISFIT])],
        ),
        (
            pa.array([86_399, 86_400, -1, None], pa.int32()).view(pa.time32("s")),
            pa.string(),
            [("23:59:59", []), (None, [_MISFIT]), (None, [_MISFIT]), (None, [])],
        ),
        *[
            (typed(_LATIN.cast(of), kind), declared, [(None, [_MISFIT]), (as_text, []), (None, [])])
            for of, kind, declared, as_text in [
                (pa.binary(), pa.string(), None, "ok"),
                (pa.large_binary(), pa.large_string(), None, "ok"),
                (pa.binary_view(), pa.string_view(), None, "ok"),
                (pa.binary(), pa.string(), pa.map_(pa.string(), pa.int64()), '"ok"'),
            ]
        ],
        (
            pa.ListArray.from_arrays([0, 1, 3], typed(_LATIN, pa.string())),
            None,
            [([None], [("v.0", *_MISFIT[1:])]), (["ok", None], [])],
        ),
        (
            pa.DictionaryArray.from_arrays([1, 0], typed(_LATIN, pa.string())),
            pa.string(),
            [("ok", []), (None, [_MISFIT])],
        ),
        (
            pa.ExtensionArray.from_storage(pa.json_(), pa.array(['"ok"', None])),
            pa.map_(pa.string(), pa.int64()),
            [('"ok"', []), (None, [])],
        ),
        (
            typed(_DIGITS, pa.decimal128(5, 2)),
            pa.decimal128(5, 2),
            [(Decimal("12345.67"), []), (Decimal("1.25"), []), (None, [])],
        ),
        (
            pa.Array.from_buffers(pa.decimal128(5, 0), 2, [None, pa.py_buffer(_PAST_38[:16] + _PAST_38[32:48])]),
            pa.decimal128(5, 0),
            [(None, [_TOO_LARGE]), (Decimal(5 * 10**37), [])],
        ),
        (
            pa.array([2**31 - 1, -(2**31), 5], pa.int32()).view(pa.decimal32(5, 2)),
            pa.decimal32(5, 2),
            [(None, [_TOO_LARGE]), (None, [_TOO_LARGE]), (Decimal("0.05"), [])],
        ),
        (pa.array([0, 86_400_000_000]).view(pa.time64("us")), None, [("00:00:00.000000", []), (None, [_MISFIT])]),
        (
            pa.array([0.12345678901234, 1e-12, 5e-324, 123456789012.345, 1e25, -0.1, 1e29, float("inf"), None]),
            pa.decimal128(38, 9),
            [
                (Decimal("0.123456789"), [_CUT]),
                (Decimal(0), [_CUT]),
                (Decimal(0), [_CUT]),
                (Decimal("123456789012.345"), []),
                (Decimal(10**25), []),
                (Decimal("-0.1"), []),
                (None, [_MISFIT]),
                (None, [_MISFIT]),
                (None, []),
            ],
        ),
        (pa.array([0.1, 2.5], pa.float32()), pa.decimal128(38, 9), [(Decimal("0.1"), []), (Decimal("2.5"), [])]),
        (
            pa.array([1e25, -3.0, 0.5, 1e38, float("nan")]),
            pa.decimal128(38, 0),
            [(Decimal(10**25), []), (Decimal(-3), []), (None, [_MISFIT]), (None, [_MISFIT]), (None, [_MISFIT])],
        ),
        (pa.array([0, None], pa.timestamp("us", "Europe/Vienna")), pa.timestamp("us"), [(None, [_MISFIT]), (None, [])]),
        (pa.array([0], pa.timestamp("us", "UTC")), pa.timestamp("us"), [(_EPOCH, [])]),
    ],
)
def test_a_value_that_does_not_fit_is_null_with_an_entry(
    array: pa.Array, declared: pa.DataType | None, landing: list[tuple[Any, Any]], tmp_path: Path
) -> None:
    assert one_column(tmp_path, array, declared) == landing


@pytest.mark.parametrize(
    "bad",
    [
        pa.array([2**63 - 1], pa.timestamp("us")),  # "infinity" of PostgreSQL
        pa.array([0], pa.timestamp("us", "Nowhere/Zone")),
        pa.array([1]).view(pa.date64()),
        pa.array([86_400], pa.int32()).view(pa.time32("s")),
        typed(pa.array([b"\xff"]), pa.string()),
    ],
)
def test_a_value_that_python_cannot_hold_is_null_in_json_alone(bad: pa.Array, tmp_path: Path) -> None:
    array = pa.StructArray.from_arrays([pa.concat_arrays([bad, pa.nulls(1, bad.type)])], ["at"])
    assert one_column(tmp_path, array) == [(None, [_MISFIT]), ('{"at":null}', [])]


def test_a_number_that_json_has_not_makes_its_value_null(tmp_path: Path) -> None:
    nan, null = {"a": [{"b": float("nan")}]}, {"a": [{"b": None}]}
    assert one_column(tmp_path, pa.array([nan, null])) == [(None, [_MISFIT]), ('{"a":[{"b":null}]}', [])]
    maps = pa.array([[("k", float("-inf"))], [("null", 1.0)]], pa.map_(pa.string(), pa.float64()))
    assert one_column(tmp_path, maps) == [(None, [_MISFIT]), ('{"null":1.0}', [])]


@pytest.mark.parametrize(
    ("array", "declared"),
    [
        (pa.array([1.5], pa.float16()), pa.int64()),
        (pa.array([Decimal("0.12345678901")], pa.decimal64(18, 11)), pa.decimal128(38, 9)),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), pa.string()),
    ],
)
def test_a_type_that_arrow_does_not_cast_lands_as_null(array: pa.Array, declared: pa.DataType, tmp_path: Path) -> None:
    assert one_column(tmp_path, array, declared) == [(None, [_MISFIT])]


def test_nanoseconds_are_cut_as_in_lines_and_stay_in_text(tmp_path: Path) -> None:
    before_1970 = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)
    [(value, entries)] = one_column(tmp_path, pa.array([-1], pa.timestamp("ns")))
    assert (value, [change for _, change, _ in entries]) == (before_1970, ["TRUNCATED"])
    assert one_column(tmp_path, pa.array([1], pa.time64("ns")), pa.string()) == [("00:00:00.000000001", [])]


def test_an_element_that_does_not_fit_is_named_by_its_place(tmp_path: Path) -> None:
    lists = pa.array([[0.5], [1.0, 2.5], None, [3.0]])[1:]
    landing = one_column(tmp_path, lists, pa.list_(pa.int64()))
    assert landing == [([1, None], [("v.1", *_MISFIT[1:])]), (None, []), ([3], [])]


def test_free_form_values_land_as_json_text(tmp_path: Path) -> None:
    struct = pa.array([{"a": 1, "b": [Decimal("1.50")], "c": None}, None])
    landing = one_column(tmp_path, struct)
    assert [json.loads(value) if value else None for value, _ in landing] == [{"a": 1, "b": [1.5], "c": None}, None]
    maps = pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64()))
    assert one_column(tmp_path, maps) == [('{"k":1}', []), (None, [])]
    at = pa.StructArray.from_arrays(
        [pa.array([1], pa.timestamp("ns", "UTC")), pa.array([1000], pa.timestamp("ns"))], ["z", "l"]
    )
    assert one_column(tmp_path, at) == [('{"z":"1970-01-01T00:00:00.000000001Z","l":"1970-01-01T00:00:00.000001"}', [])]
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1.0}', "{no", None]))
    assert one_column(tmp_path, texts) == [('{"a": 1.0}', []), (None, [_MISFIT]), (None, [])]


def test_structs_land_as_structs_where_the_user_chose_so(tmp_path: Path) -> None:
    schema = pa.schema([("o", pa.struct([("n", pa.int64()), ("at", pa.timestamp("ms", "UTC"))]))])
    planned = msgspec.structs.replace(planned_for(schema), types=TypeChoices(objects=ObjectsAs.STRUCT))
    objects = pa.array([{"n": 0.5, "more": 1}, {"n": 2.0, "more": 2}, None])
    rows = rows_of(landed(planned, tmp_path, pa.record_batch([objects], ["o"])))
    assert [row["o"] for row in rows] == [{"n": None, "at": None}, {"n": 2, "at": None}, None]
    assert [[each["field"] for each in row["_airbyte_meta"]["changes"]] for row in rows] == [["o.n"], [], []]


def _batch(first: int, rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(first, first + rows), pa.int64())], ["id"])


def test_a_cut_takes_the_batches_before_the_mark(tmp_path: Path) -> None:
    planned = planned_for(_batch(0, 0).schema)
    for limits in (StageLimits(), StageLimits(segment_bytes=100, held_bytes=200, file_bytes=1)):
        stage = stage_of(planned, tmp_path, limits)
        for first in range(0, 60, 10):
            stage.add_batch(planned.id, _batch(first, 10))
            if first == 30:
                stage.mark(planned.id)
        part = stage.cut(planned.id)
        assert part is not None
        assert [row["id"] for row in rows_of(part)] == list(range(40))
        assert (part.emitted, part.rows, stage.emitted(planned.id)) == (40, 40, 60)
        stage.mark(planned.id)
        rest = stage.cut(planned.id)
        assert rest is not None
        assert [row["id"] for row in rows_of(rest)] == list(range(40, 60))
        stage.close()


def test_fields_beside_the_schema_and_streams_beside_the_plan_are_counted(tmp_path: Path) -> None:
    planned = planned_for(_batch(0, 0).schema)
    part = landed(planned, tmp_path, pa.record_batch([pa.array([1, 2]), pa.array(["x", None])], ["id", "more"]))
    assert part.ignored_fields == {"more": 1}
    stage = stage_of(planned, tmp_path)
    stage.add_batch(StreamId.of("others"), _batch(0, 3))
    assert stage.unconfigured == {StreamId.of("others"): 3}


def test_the_newest_row_of_a_key_stays_and_a_row_without_a_key_is_rejected(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64())])
    planned = planned_for(schema, write=WriteMode.APPEND_DEDUP, key=[("id",)], cursor=("at",))
    part = landed(planned, tmp_path, pa.record_batch({"id": [1, 1, None], "at": [2, 1, 3]}, schema))
    assert [(row["id"], row["at"]) for row in rows_of(part)] == [(1, 2)]
    assert sum(part.rejected.values()) == 1


def test_typed_columns_equal_those_of_the_same_records_as_lines(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("i", pa.int64()),
            ("f", pa.float64()),
            ("d", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
            ("s", pa.string()),
        ]
    )
    planned = planned_for(schema)
    texts = {"i": 1, "f": 0.1, "d": "2024-02-29", "t": "2024-02-29T12:00:00.123456Z", "s": "ü"}
    stage = stage_of(planned, tmp_path / "lines")
    stage.add_line(planned.id, record(json.dumps(texts)))
    stage.mark(planned.id)
    lines = stage.cut(planned.id)
    assert lines is not None
    values = {**texts, "d": _NOON.date(), "t": _NOON.replace(tzinfo=_UTC)}
    batches = landed(planned, tmp_path / "batches", pa.RecordBatch.from_pylist([values], schema))
    [one], [other] = rows_of(lines), rows_of(batches)
    assert {name: one[name] for name in texts} == {name: other[name] for name in texts}


def _from_rapidbyte(folder: Path, data_type: str, declared: pa.Schema, array: pa.Array) -> list[tuple[Any, list[str]]]:
    """The values that land of a column that a catalog of Rapidbyte has with this type."""
    planned = planned_for(declared)
    policy = BatchPolicy("users", [{"name": "v", "data_type": data_type}], _FAILING)
    part = landed(planned, folder, policy.applied(pa.record_batch([array], ["v"])))
    return [(row["v"], [each["change"] for each in row["_airbyte_meta"]["changes"]]) for row in rows_of(part)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_text_of_json_and_of_decimals_is_what_the_catalog_calls_it(tmp_path: Path, kind: pa.DataType) -> None:
    texts = ['{"a": 1.0}', '"x"', "no json", None, "null"]
    found = _from_rapidbyte(
        tmp_path, "Json", pa.schema([("v", pa.map_(pa.string(), pa.string()))]), pa.array(texts, kind)
    )
    assert found == [('{"a": 1.0}', []), ('"x"', []), (None, ["NULLED"]), (None, []), (None, [])]
    texts = ["1.50", "-7", "1e2", "0.12345678901", "9" * 29, "9" * 30, "much", "", None]
    number = pa.schema([("v", pa.decimal128(38, 9))])
    assert _from_rapidbyte(tmp_path, "Decimal128", number, pa.array(texts, kind)) == [
        (Decimal("1.5"), []),
        (Decimal(-7), []),
        (Decimal(100), []),
        (Decimal("0.123456789"), ["TRUNCATED"]),
        (Decimal("9" * 29), []),
        *[(None, ["NULLED"])] * 3,
        (None, []),
    ]
    assert _from_rapidbyte(tmp_path, "Utf8", pa.schema([("v", pa.string())]), pa.array(["1.50"], kind)) == [
        ("1.50", [])
    ]


def test_a_large_batch_is_parsed_in_slices_and_lands_in_order(tmp_path: Path) -> None:
    rows = (1 << 17) + 5
    planned = planned_for(_batch(0, 0).schema)
    part = landed(planned, tmp_path, _batch(0, rows))
    assert (part.emitted, part.rows) == (rows, rows)
    assert [row["id"] for row in rows_of(part)] == list(range(rows))


def test_the_error_of_an_outdated_catalog_says_what_renews_it() -> None:
    policy = BatchPolicy("users", [{"name": "v", "data_type": "Int64"}], _FAILING)
    with pytest.raises(ConnectorError, match="discover C --save`; of a component `dg utils refresh-defs-state`"):
        policy.applied(pa.record_batch([pa.array(["x"])], ["v"]))
