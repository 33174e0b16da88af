"""The transform `validate`: which rows break a rule, and what happens to them."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import ConfigError, TransformError
from dagster_airbyte_proto.model import RowRule, RuleKind, RuleSpec
from dagster_airbyte_proto.transforms.row_rules import RowValidation
from dagster_airbyte_proto.transforms.transform import DROPPED, Rows, RowShape


def _batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def _left(rule: RowRule, *batches: pa.RecordBatch) -> list[list[int]]:
    """The positions of the rows of each batch that keep the rule."""
    validation = RowValidation(RuleSpec((rule,)))
    validation.shape(RowShape.of_input(batches[0].schema))
    return [validation.transform(Rows(batch)).origins.tolist() for batch in batches]


@pytest.mark.parametrize(
    ("values", "minimum", "maximum", "left"),
    [
        ([1, 5, None, 9], 2, 8, [1, 2]),
        ([1.5, 2.5], None, 2, [0]),
        ([1.5, float("nan"), None], 1, None, [0, 2]),
        ([2**53, 2**53 + 1, None], None, 2**53, [0, 2]),
        ([1, 2, 3], 1.5, 2.5, [1]),
        ([1, 2], None, 1e30, [0, 1]),
        ([1, 2], 1e30, None, []),
        ([Decimal("0.5"), Decimal(7)], 1, None, [1]),
        ([Decimal("0.10"), Decimal("0.11")], "0.105", None, [1]),
        ([Decimal("12345678901234567.1"), Decimal("12345678901234567.2")], None, "12345678901234567.1", [0]),
        ([datetime.date(2026, 1, 1), datetime.date(2027, 1, 1)], "2026-06-01", None, [1]),
        ([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None], None, "2025-01-01T00:00:00Z", [1]),
    ],
)
def test_bounds_are_exact_and_inclusive_and_nulls_are_within(
    values: list[Any], minimum: Any, maximum: Any, left: list[int]
) -> None:
    rule = RowRule(RuleKind.RANGE, "a", minimum=minimum, maximum=maximum)
    assert _left(rule, _batch(a=values)) == [left]


def test_a_pattern_may_stand_anywhere_in_a_text() -> None:
    rule = RowRule(RuleKind.REGEX, "a", ".+@.+")
    assert _left(rule, _batch(a=["ann@example.org", "ann", None, "@"])) == [[0, 2]]


def test_a_value_is_unique_among_all_batches_of_a_sync() -> None:
    rule = RowRule(RuleKind.UNIQUE, "a")
    batches = [_batch(a=["x", "y", "x", None]), _batch(a=["z", "y", None, "z"]), _batch(a=["x"])]
    assert _left(rule, *batches) == [[0, 1, 3], [0, 2], []]
    with pytest.raises(TransformError, match="more than 2 values of a"):
        RowValidation(RuleSpec((rule,)), max_unique_values=2).transform(Rows(_batch(a=[1, 2, 3])))


def test_a_row_is_counted_for_the_first_rule_that_it_breaks() -> None:
    rules = (RowRule(RuleKind.NOT_NULL, "a"), RowRule(RuleKind.UNIQUE, "b"))
    found = RowValidation(RuleSpec(rules)).transform(Rows(_batch(a=[None, 1, 2], b=["x", "x", "x"])))
    assert [(each.reason, each.positions.tolist()) for each in found.rejections] == [
        ("a is null", [0]),
        ("b is not unique", [2]),
    ]
    assert found.batch.to_pylist() == [{"a": 1, "b": "x"}]


def test_rows_that_break_a_rule_are_dropped_or_fail_their_stream() -> None:
    rules = (RowRule(RuleKind.NOT_NULL, "a"),)
    found = RowValidation(RuleSpec(rules, "skip")).transform(Rows(_batch(a=[None, 1])))
    assert found.origins.tolist() == [1]
    assert [(each.reason, each.positions.tolist()) for each in found.rejections] == [(DROPPED, [0])]
    with pytest.raises(TransformError, match="1 rows of a batch break a rule: a is null"):
        RowValidation(RuleSpec(rules, "fail")).transform(Rows(_batch(a=[None, 1])))


def test_a_row_that_deletes_its_key_keeps_every_rule() -> None:
    rules = (RowRule(RuleKind.NOT_NULL, "a"), RowRule(RuleKind.UNIQUE, "b"))
    rows = Rows(_batch(a=pa.nulls(3, pa.string()), b=[1, 1, 1]), pa.array([True, False, True]))
    assert np.array_equal(RowValidation(RuleSpec(rules)).transform(rows).origins, [0, 2])


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (RowRule(RuleKind.NOT_NULL, "z"), "there is no column z"),
        (RowRule(RuleKind.REGEX, "n", "a"), "only text has patterns"),
        (RowRule(RuleKind.REGEX, "t", "("), "no regular expression"),
        (RowRule(RuleKind.RANGE, "t", minimum=1), "its bounds do not fit t"),
        (RowRule(RuleKind.RANGE, "n", minimum="x"), "its bounds do not fit n"),
        (RowRule(RuleKind.UNIQUE, "l"), "only plain values can be compared"),
    ],
)
def test_a_rule_that_does_not_fit_its_column_is_refused(rule: RowRule, found: str) -> None:
    schema = pa.schema([("t", pa.string()), ("n", pa.int64()), ("l", pa.list_(pa.int64()))])
    with pytest.raises(ConfigError, match=found):
        RowValidation(RuleSpec((rule,))).shape(RowShape.of_input(schema))
