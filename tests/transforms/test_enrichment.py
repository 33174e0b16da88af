"""Rows that an enrichment fills: how replies find their rows, and what does not fit."""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import ConfigError, TransformError
from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.model import EnrichmentCalls, EnrichmentSpec
from dagster_airbyte_proto.transforms.enrichment import ROW_NUMBER, Enrichment, Replies, RowCache
from dagster_airbyte_proto.transforms.transform import DROPPED, Rows, RowShape

_COST = Decimal("0.12345678901234567890")
_BATCH = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "cost": [_COST] * 3, "city": ["old"] * 3})
_CITY = (("city", "string"),)


class _Answers:
    """An enricher that answers each row by a function, in the reverse order, and keeps the number of rows so far."""

    name = "answers"

    def __init__(self, answer: Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]) -> None:
        self._answer = answer
        self.rounds: list[list[int]] = []
        self.cache: RowCache | None = None

    def enrich(self, batch: pa.RecordBatch, kept: Mapping[str, str]) -> Replies:
        rows = batch.to_pylist()
        self.rounds.append([row["id"] for row in rows])
        replies = [reply for row in reversed(rows) for reply in self._answer(row)]
        tally = {"rows": str(int(kept.get("rows", "0")) + len(rows))}
        return Replies([json.dumps(reply, default=str).encode() for reply in replies], {}, tally)


def _cities(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [{**row, "cost": 0, "city": f"{row['id']}.{number}"} for number in range(row["id"] - 1)]


def _enriched(spec: EnrichmentSpec, enricher: _Answers, rows: Rows = Rows(_BATCH)) -> Any:  # noqa: B008
    enrichment = Enrichment(spec, enricher)
    shape = enrichment.shape(RowShape.of_input(rows.batch.schema))
    found = enrichment.transform(rows)
    assert found.batch.schema.names == shape.schema.names
    return found


def test_each_row_gets_its_replies_and_keeps_its_own_values() -> None:
    found = _enriched(EnrichmentSpec(0, _CITY), _Answers(_cities))
    assert found.batch.to_pylist() == [
        {"id": number, "cost": _COST, "city": city} for number, city in ((2, "2.0"), (3, "3.0"), (3, "3.1"))
    ]
    assert found.origins.tolist() == [1, 2, 2]


@pytest.mark.parametrize(
    ("key", "reply"),
    [((), {ROW_NUMBER: True}), (("id",), {"id": [1]}), (("id",), {"id": {}}), (("id",), {"id": True})],
)
def test_a_reply_with_no_number_and_no_key_belongs_to_no_row(key: tuple[str, ...], reply: Mapping[str, Any]) -> None:
    with pytest.raises(TransformError, match="belongs to no row"):
        _enriched(EnrichmentSpec(0, _CITY, key), _Answers(lambda _: [reply]))


@pytest.mark.parametrize(("key", "field"), [(("id",), "id"), ((), ROW_NUMBER)])
def test_a_whole_number_that_comes_back_as_a_float_finds_its_row(key: tuple[str, ...], field: str) -> None:
    answers = _Answers(lambda row: [{field: float(row[field]), "city": "x"}])
    assert _enriched(EnrichmentSpec(0, _CITY, key), answers).batch.num_rows == _BATCH.num_rows


def test_without_the_number_replies_find_their_rows_by_a_key() -> None:
    strict = _Answers(lambda row: [{"id": row["id"], "city": str(row["id"])}] if ROW_NUMBER not in row else [])
    batch = pa.RecordBatch.from_pydict({"id": [1, 2, 1, 1]})
    found = _enriched(EnrichmentSpec(0, _CITY, ("id",)), strict, Rows(batch))
    assert [row["city"] for row in found.batch.to_pylist()] == ["1", "2", "1", "1"]
    assert strict.rounds == [[1, 2], [1], [1]]


def test_keys_that_javascript_cannot_tell_apart_go_to_different_processes() -> None:
    first, second, other = 2**53, 2**53 + 1, 2**53 + 2
    batch = pa.RecordBatch.from_pydict({"id": [first, second, other]})
    exact = _Answers(lambda row: [{"id": row["id"], "city": str(row["id"])}])
    found = _enriched(EnrichmentSpec(0, _CITY, ("id",)), exact, Rows(batch))
    assert [row["city"] for row in found.batch.to_pylist()] == [str(first), str(second), str(other)]
    assert exact.rounds == [[first, other], [second]]
    rounding = _Answers(lambda row: [{"id": int(float(row["id"])), "city": str(row["id"])}])
    with pytest.raises(TransformError, match="belongs to no row"):
        _enriched(EnrichmentSpec(0, _CITY, ("id",)), rounding, Rows(batch))


def test_a_reply_of_no_row_fails() -> None:
    for spec, remedy in ((EnrichmentSpec(0, _CITY), ROW_NUMBER), (EnrichmentSpec(0, _CITY, ("id",)), "send back id")):
        with pytest.raises(TransformError, match=f"belongs to no row that was sent\n.*{remedy}"):
            _enriched(spec, _Answers(lambda _: [{"city": "x"}]))


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        ("string", {"a": [1]}, '{"a":[1]}'),
        ("bigint", 5.0, 5),
        ("bigint", 5.5, None),
        ("bigint", "5", None),
        ("bigint", 2**63, None),
        ("double", 5, 5.0),
        ("double", True, None),
        ("boolean", 1, None),
        ("date", "2026-02-30", None),
        ("date", "2026-02-28", datetime.date(2026, 2, 28)),
        ("timestamp", "2026-02-28T01:02:03", datetime.datetime(2026, 2, 28, 1, 2, 3, tzinfo=datetime.UTC)),
        ("timestamp", 7, None),
    ],
)
def test_a_row_whose_value_does_not_fit_its_column_is_rejected(kind: str, value: Any, made: Any) -> None:
    found = _enriched(EnrichmentSpec(0, (("x", kind),)), _Answers(lambda row: [{**row, "x": value}]))
    assert found.batch.column("x").to_pylist() == ([made] * 3 if made is not None else [])
    expected = [] if made is not None else [(f"its x does not fit {kind}", [0, 1, 2])]
    assert [(each.reason, each.positions.tolist()) for each in found.rejections] == expected
    failing = msgspec.structs.replace(EnrichmentSpec(0, (("x", kind),)), on_error="fail")
    if made is None:
        with pytest.raises(TransformError, match="3 rows of a batch have faults"):
            _enriched(failing, _Answers(lambda row: [{**row, "x": value}]))
        skipping = msgspec.structs.replace(failing, on_error="skip")
        [dropped] = _enriched(skipping, _Answers(lambda row: [{**row, "x": value}])).rejections
        assert (dropped.reason, dropped.positions.tolist()) == (DROPPED, [0, 1, 2])


def test_a_row_that_deletes_its_key_is_not_sent() -> None:
    answers = _Answers(lambda row: [{**row, "city": "new"}])
    found = _enriched(EnrichmentSpec(0, _CITY), answers, Rows(_BATCH, pa.array([False, True, False])))
    assert answers.rounds == [[1, 3]]
    assert found.batch.column("city").to_pylist() == ["new", None, "new"]


@pytest.mark.parametrize(("key", "found"), [("z", "is no column"), ("city", "is no column"), ("cost", "whole numbers")])
def test_a_key_that_cannot_match_is_refused(key: str, found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        Enrichment(EnrichmentSpec(0, _CITY, (key,)), None).shape(RowShape.of_input(_BATCH.schema))


class _Memory:
    """A cache in memory."""

    def __init__(self, *by: str) -> None:
        self._by, self.kept = by, dict[bytes, bytes]()

    def digests(self, batch: pa.RecordBatch) -> Sequence[bytes]:
        return [repr(row).encode() for row in batch.select(self._by).to_pylist()]

    def rows(self, digests: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return {digest: self.kept[digest] for digest in digests if digest in self.kept}

    def keep(self, rows: Mapping[bytes, bytes]) -> None:
        self.kept |= rows


def test_rows_that_are_the_same_are_sent_once() -> None:
    answers = _Answers(lambda row: [{**row, "city": f"{row['id']}"}] * (row["id"] - 1))
    answers.cache = cache = _Memory("id")
    batch = pa.RecordBatch.from_pydict({"id": [3, 1, 2, 3], "n": [1, 2, 3, 4]})
    made = [(3, 1, "3"), (3, 1, "3"), (2, 3, "2"), (3, 4, "3"), (3, 4, "3")]
    for _ in range(2):
        found = _enriched(EnrichmentSpec(0, _CITY), answers, Rows(batch))
        assert [tuple(row.values()) for row in found.batch.to_pylist()] == made
    assert answers.rounds == [[3, 1, 2]]
    assert cache.kept == {b"{'id': 3}": b'[["3"],["3"]]', b"{'id': 1}": b"[]", b"{'id': 2}": b'[["2"]]'}


def test_only_what_fits_is_cached_and_not_before_its_process_has_ended() -> None:
    def answer(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        if row["id"] == 3:
            raise TransformError("enriching", "it died")
        return [{**row, "city": row["id"], "n": "x" if row["id"] == 2 else 1}]

    answers = _Answers(answer)
    answers.cache = cache = _Memory("id")
    spec = EnrichmentSpec(0, (("n", "bigint"),), calls=EnrichmentCalls(rows=2))
    with pytest.raises(TransformError, match="it died"):
        _enriched(spec, answers)
    assert answers.rounds == [[1, 2], [3]]
    assert cache.kept == {b"{'id': 1}": b"[[1]]"}


def test_replies_to_one_row_at_a_time_come_in_its_order() -> None:
    bare = _Answers(lambda row: [{"city": row["id"]}] if ROW_NUMBER not in row else [])
    calls = EnrichmentCalls(is_one_at_a_time=True)
    found = _enriched(EnrichmentSpec(0, _CITY, calls=calls), bare, Rows(_BATCH.take(pa.array([2, 1, 0]))))
    assert [row["city"] for row in found.batch.to_pylist()] == ["1", "2", "3"]  # the fake answers in reverse
    several = _Answers(lambda row: [{"city": row["id"]}] * (row["id"] - 1))
    alone = EnrichmentSpec(0, _CITY, calls=EnrichmentCalls(rows=1, is_one_at_a_time=True))
    found = _enriched(alone, several)
    assert [row["city"] for row in found.batch.to_pylist()] == ["2", "3", "3"]
    assert several.rounds == [[1], [2], [3]]


def test_a_cache_by_a_column_that_is_not_there_is_refused() -> None:
    spec = EnrichmentSpec(0, _CITY, calls=EnrichmentCalls(cached_seconds=1, cached_by=("ip",)))
    with pytest.raises(ConfigError, match="its cache is by ip"):
        Enrichment(spec, None).shape(RowShape.of_input(_BATCH.schema))


def test_what_it_keeps_goes_from_process_to_process() -> None:
    before = [TransformState("other", "", {"rows": "7"}), TransformState("answers", "", {"rows": "4"})]
    spec = EnrichmentSpec(0, _CITY, calls=EnrichmentCalls(rows=2))
    enrichment = Enrichment(spec, _Answers(lambda row: [{**row, "city": "x"}]), before)
    assert enrichment.state == before[1]
    enrichment.transform(Rows(_BATCH))
    assert enrichment.state == TransformState("answers", "", {"rows": "7"})


@pytest.mark.parametrize(
    ("columns", "reply"),
    [(_CITY, {"city": "of no row"}), ((("n", "bigint"),), {"id": 1, ROW_NUMBER: 0, "n": "does not fit"})],
)
def test_of_a_batch_that_fails_it_keeps_nothing(columns: tuple[tuple[str, str], ...], reply: Mapping[str, Any]) -> None:
    before = TransformState("answers", "", {"rows": "4"})
    enrichment = Enrichment(EnrichmentSpec(0, columns, on_error="fail"), _Answers(lambda _: [reply]), [before])
    with pytest.raises(TransformError):
        enrichment.transform(Rows(_BATCH))
    assert enrichment.state == before
