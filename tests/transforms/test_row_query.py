"""The transform `sql`: which rows and columns come out, from which rows they come, and which queries are refused."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import ConfigError, TransformError
from dagster_airbyte_proto.model import RowRule, RuleKind, RuleSpec
from dagster_airbyte_proto.transforms.row_query import RowQuery
from dagster_airbyte_proto.transforms.row_rules import RowValidation
from dagster_airbyte_proto.transforms.transform import Rows, RowShape, TransformChain

_BATCH = pa.RecordBatch.from_pydict(
    {
        "id": [1, 2, 3, 4],
        "Name": ["ann", "bob", None, "eve"],
        "active": [True, False, None, True],
        "at": pa.array([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)] * 4, pa.timestamp("us", "UTC")),
    }
)


def _applied(sql: str, batch: pa.RecordBatch = _BATCH) -> tuple[list[dict[str, Any]], list[int], dict[str, str]]:
    query = RowQuery(sql)
    shape = query.shape(RowShape.of_input(batch.schema))
    found = query.transform(Rows(batch))
    assert found.batch.schema.names == shape.schema.names
    return found.batch.to_pylist(), found.origins.tolist(), dict(shape.passed_on)


def test_rows_are_selected_and_computed() -> None:
    rows, origins, passed_on = _applied('SELECT id AS number, upper("Name") AS name FROM input WHERE active')
    assert rows == [{"number": 1, "name": "ANN"}, {"number": 4, "name": "EVE"}]
    assert (origins, passed_on) == ([0, 3], {"number": "id"})


def test_every_column_is_passed_on_by_a_star() -> None:
    rows, origins, passed_on = _applied("SELECT *, id * 2 AS twice FROM input")
    assert [row["twice"] for row in rows] == [2, 4, 6, 8]
    assert rows[0]["at"] == datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    assert (origins, passed_on) == ([0, 1, 2, 3], {name: name for name in _BATCH.schema.names})


@pytest.mark.parametrize(
    "sql",
    [
        "WITH some AS (SELECT id AS n, active FROM input) SELECT n AS id FROM some WHERE active",
        "SELECT i.id FROM (SELECT * FROM input WHERE id > 0) AS i WHERE i.active",
        "select input.id from input where active and id in (1, 2, 4)",
        "SELECT input.id FROM (SELECT id FROM input WHERE active) AS input",
    ],
)
def test_a_query_may_have_queries_within(sql: str) -> None:
    assert _applied(sql) == ([{"id": 1}, {"id": 4}], [0, 3], {"id": "id"})


def test_a_query_may_take_no_row_and_get_none() -> None:
    assert _applied("SELECT id FROM input WHERE id > 9")[:2] == ([], [])
    assert _applied("SELECT id, id + 1 AS next FROM input", _BATCH.slice(0, 0))[:2] == ([], [])


def test_transforms_follow_each_other() -> None:
    chain = TransformChain(
        [RowQuery("SELECT id, id % 2 AS odd FROM input"), RowQuery("SELECT * FROM input WHERE odd=0")]
    )
    assert chain.shape(RowShape.of_input(_BATCH.schema)).passed_on == {"id": "id"}
    assert chain.transform(Rows(_BATCH)).origins.tolist() == [1, 3]


def test_text_that_a_query_makes_is_text_to_rules_behind_it() -> None:
    """DataFusion makes views of text, of which Arrow's functions know little."""
    rules = (RowRule(RuleKind.REGEX, "code", "[23]"), RowRule(RuleKind.UNIQUE, "code"))
    query = RowQuery("SELECT CAST(id % 3 + 1 AS VARCHAR) AS code, [CAST(id AS VARCHAR)] AS codes FROM input")
    chain = TransformChain([query, RowValidation(RuleSpec(rules))])
    shape = chain.shape(RowShape.of_input(_BATCH.schema))
    assert shape.schema.types == [pa.string(), pa.list_(pa.string())]
    found = chain.transform(Rows(_BATCH))
    assert found.batch.to_pylist() == [{"code": "2", "codes": ["1"]}, {"code": "3", "codes": ["2"]}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) AS n FROM input",
        "SELECT DISTINCT id FROM input",
        "SELECT id FROM input ORDER BY id",
        "SELECT id FROM input LIMIT 1",
        "SELECT a.id FROM input a JOIN input b ON a.id = b.id",
        "SELECT id FROM input UNION ALL SELECT id FROM input",
        "SELECT id, row_number() OVER (ORDER BY id) AS n FROM input",
        "SELECT 1 AS id",
        "SELECT id FROM input WHERE id IN (SELECT max(id) FROM input)",
        "SELECT id, (SELECT max(id) FROM input) AS most FROM input",
    ],
)
def test_a_query_whose_result_depends_on_the_batch_is_refused(sql: str) -> None:
    with pytest.raises(ConfigError, match="it does more than select and filter the rows of input"):
        RowQuery(sql).shape(RowShape.of_input(_BATCH.schema))


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT nam FROM input", "nam"),
        ("SELECT id FROM other", "other"),
        ("SELEC id FROM input", r": Expected: an SQL statement, found: SELEC at Line: 1, Column: 1\n"),
        ("CREATE TABLE other AS SELECT * FROM input", "DDL"),
        ("SET datafusion.execution.batch_size = 1", "(?i)statement"),
    ],
)
def test_a_faulty_query_is_refused_with_its_fault(sql: str, found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        RowQuery(sql).shape(RowShape.of_input(_BATCH.schema))


def test_a_query_that_fails_for_a_row_says_so_without_its_values() -> None:
    query = RowQuery('SELECT CAST("Name" AS INT) AS n FROM input')
    query.shape(RowShape.of_input(_BATCH.schema))
    with pytest.raises(TransformError, match="DataFusion failed for a row of a batch") as failed:
        query.transform(Rows(_BATCH))
    assert "ann" not in str(failed.value)
