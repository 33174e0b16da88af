"""Filters: what they mean, which SQLite is asked for, and how they are refused."""

import sqlite3
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.schema.columns import Column, ValueKind, ValueType
from dagster_airbyte_proto.schema.conditions import condition_fields, truth_values
from dagster_airbyte_proto.schema.filters import parsed_filter

_KINDS = {
    "id": ValueKind.INTEGER,
    "amount": ValueKind.NUMBER,
    "country": ValueKind.STRING,
    "is_paid": ValueKind.BOOLEAN,
    "day": ValueKind.DATE,
    "at": ValueKind.TIMESTAMP,
    "local": ValueKind.LOCAL_TIMESTAMP,
    "big": ValueKind.BIG_INTEGER,
    "thing": ValueKind.JSON,
    "odd name": ValueKind.STRING,
    "Über": ValueKind.INTEGER,
}
_FIELDS = {name: Column(name, (name,), ValueType(kind)) for name, kind in _KINDS.items()} | {
    "tags": Column("tags", ("tags",), ValueType(ValueKind.STRING, 1))
}


def _asked(text: str, **values: Any) -> bool | None:
    """What a filter answers for one row; what is not given is null."""
    condition = parsed_filter(text, _FIELDS, StreamId.of("orders"))
    columns = {
        name: pa.array([values.get(name.replace(" ", "_"))], column.type.table_type) for name, column in _FIELDS.items()
    }
    answer: bool | None = truth_values(condition, columns)[0].as_py()
    return answer


@pytest.mark.parametrize(
    ("text", "row", "expected"),
    [
        ("amount > 0", {"amount": 0.5}, True),
        ("amount>-1.5e3", {"amount": 0.0}, True),
        ("ID = 1".lower(), {"id": 1}, True),
        ("id == 1 AND Not id <> 1", {"id": 1}, True),
        ("country in ['DE', \"AT\"]", {"country": "AT"}, True),
        ("country not in ('DE')", {"country": "AT"}, True),
        ("country not in ['DE']", {}, None),
        ("country = 'it''s'", {"country": "it's"}, True),
        ("`odd name` = 'x' or `Über` = 2 and Über is not null", {"Über": 2}, True),
        ("is_paid = TRUE", {"is_paid": True}, True),
        ("day >= '2026-01-31'", {"day": 20484}, True),
        ("at < '2026-01-31'", {"at": 0}, True),
        ("at = '1970-01-01T01:00:00+01:00'", {"at": 0}, True),
        ("local = '1970-01-01 00:00:00'", {"local": 0}, True),
        ("big > 9223372036854775808", {"big": Decimal(2**63 + 1)}, True),
        ("thing is null and tags is not null", {"tags": ["a"]}, True),
        ("(id = 1 or id = 2) and amount is null", {"id": 2}, True),
        ("id = 1 or id = 2 and amount is null", {"id": 1, "amount": 1.0}, True),
    ],
)
def test_a_filter_asks_what_it_says(text: str, row: dict[str, Any], expected: bool | None) -> None:
    assert _asked(text, **row) is expected


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("contry = 'DE'", "at character 1 of \"contry = 'DE'\": there is no column 'contry'; did you mean 'country'?"),
        ("amount > ", "at character 9 of 'amount > ': column 'amount' is compared with a number, found the end"),
        ("amount > 'x'", "at character 10 .* column 'amount' is compared with a number, found 'x'"),
        ("id > 1.5", "at character 6 .* '1.5' is not a whole number, or more than the column holds"),
        ("id = 9223372036854775808", "is not a whole number, or more than the column holds"),
        ("day = '2026-02-30'", "at character 7 .*: '2026-02-30' is not a date such as '2026-01-31'"),
        ("is_paid > true", "at character 9 .*: column 'is_paid' is true or false, and neither is the greater"),
        ("thing = 'x'", "at character 7 .*: column 'thing' can only be tested with `is null`"),
        ("tags in ['x']", "at character 6 .*: column 'tags' can only be tested with `is null`"),
        ("id = null", "at character 6 .*: nothing is equal to null: write `is null` or `is not null`"),
        ("id = 1 id = 2", "at character 8 .*: expected `and`, `or` or the end, found 'id'"),
        (
            "id between 1 and 2",
            "at character 4 .*: expected a comparison, `in` or `is null` after 'id', found 'between'",
        ),
        ("(id = 1", "at character 8 .*: expected `\\)`, found the end"),
        ("id in [1, 2)", "at character 12 .*: expected `\\]`, found '\\)'"),
        ("id in []", "at character 8 .*: column 'id' is compared with a whole number, found '\\]'"),
        ("id = 1;", "at character 7 .*: ';' is not understood"),
        ("id = 1x", "at character 6 .*: '1' is not understood"),
        ("country = 'DE", "at character 11 .*: .* is not understood"),
        ("1 = id", "at character 1 .*: expected a column, found '1'"),
        ("amount > id", "at character 10 .*: column 'amount' is compared with a number, found 'id'"),
        ("", "at character 1 of '': expected a column, found the end"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_the_columns(text: str, found: str) -> None:
    with pytest.raises(ConfigError, match=found) as refused:
        _asked(text)
    assert refused.value.remedy.startswith("The columns: id, amount, country")
    assert refused.value.stream == "orders"


def test_only_the_fields_that_are_asked_for_need_to_be_read() -> None:
    condition = parsed_filter("not (id = 1 or amount > 2) and country is null", _FIELDS, StreamId.of("orders"))
    assert condition_fields(condition) == {"id", "amount", "country"}


_INTEGERS, _TEXTS = st.integers(-3, 3), st.sampled_from(["", "a", "b", "it's"])
_OPERATORS = st.sampled_from(["=", "==", "!=", "<>", "<", "<=", ">", ">="])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _tests(column: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = st.lists(values, min_size=1, max_size=3).map(", ".join)
    return (
        st.builds("{} {} {}".format, st.just(column), _OPERATORS, values)
        | st.builds("{} {} ({})".format, st.just(column), st.sampled_from(["in", "not in"]), lists)
        | st.sampled_from([f"{column} is null", f"{column} is not null"])
    )


_FILTERS = st.recursive(
    _tests("id", _INTEGERS.map(str)) | _tests("country", _TEXTS.map(_quoted)),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("{} {} {}".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("not ({})".format, inner)
    ),
    max_leaves=6,
)


@settings(max_examples=200)
@given(_FILTERS, st.lists(st.tuples(st.none() | _INTEGERS, st.none() | _TEXTS), min_size=1, max_size=6))
def test_a_filter_means_what_it_means_in_sql(text: str, rows: list[tuple[int | None, str | None]]) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("create table orders (id integer, country text)")
    database.executemany("insert into orders values (?, ?)", rows)
    expected = [answer for [answer] in database.execute(f"select {text} from orders order by rowid")]
    database.close()

    condition = parsed_filter(text, _FIELDS, StreamId.of("orders"))
    ids, countries = zip(*rows, strict=True)
    columns = {"id": pa.array(ids, pa.int64()), "country": pa.array(countries, pa.string())}
    assert truth_values(condition, columns).to_pylist() == [None if each is None else bool(each) for each in expected]
