"""The transforms of a connection file: which of them are taken, and what they become."""

from typing import Any

import pytest
from pydantic import ValidationError

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import (
    EnrichmentCalls,
    EnrichmentSpec,
    QuerySpec,
    RowRule,
    RuleKind,
    RuleSpec,
    StreamId,
)
from dagster_airbyte_proto.transforms.transform_choice import described_connectors, described_transforms

_SOURCE = {"protocol": "airbyte", "launch": {"kind": "local", "command": ["source"]}}
_GEO = {"connector": {"protocol": "syncmaven", "launch": {"kind": "local", "command": ["geo"]}}}


def _connection(*transforms: Any, **more: Any) -> Connection:
    return Connection.model_validate({"name": "shop", "connector": _SOURCE, "transforms": list(transforms), **more})


def test_each_stream_has_the_transforms_that_name_it_or_none() -> None:
    rules = [{"assert_not_null": "id", "assert_range": {"age": {"min": 1}}}, {"assert_regex": {"mail": "@"}}]
    connection = _connection(
        {"sql": "SELECT * FROM input", "streams": ["users"]},
        {"validate": rules, "on_error": "skip"},
        {**_GEO, "config": {"key": "k"}, "options": {"b": 1, "a": 2}, "columns": {"city": "string"}, "key": "id"},
    )
    own = RuleSpec(
        (
            RowRule(RuleKind.NOT_NULL, "id"),
            RowRule(RuleKind.RANGE, "age", minimum=1),
            RowRule(RuleKind.REGEX, "mail", "@"),
        ),
        "skip",
    )
    geo = EnrichmentSpec(2, (("city", "string"),), ("id",), '{"a": 2, "b": 1}')
    assert connection.transforms_of(StreamId.of("orders")) == (own, geo)
    assert connection.transforms_of(StreamId.of("users", "public")) == (QuerySpec("SELECT * FROM input"), own, geo)
    [(number, enrichment)] = connection.enrichments.items()
    assert (number, enrichment.config, enrichment.transforms) == (2, {"key": "k"}, ())


def test_of_a_component_its_config_decides_about_rows_and_of_an_enrichment_it_does_not() -> None:
    def described(transform: Any) -> str:
        connection = _connection({"columns": {"city": "string"}, **transform})
        return described_connectors(connection, connection.transforms_of(StreamId.of("users")))

    mask = {"connector": {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "v1/mask.wasm"}}}
    moved = {"connector": {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "v2/mask.wasm"}}}
    assert described({**mask, "config": {"a": 1, "b": 2}}) == described({**moved, "config": {"b": 2, "a": 1}})
    assert described({**mask, "config": {"a": 1}}) != described({**mask, "config": {"a": 2}})
    assert described(_GEO) == described({**_GEO, "config": {"key": "another"}})
    assert described(_GEO) != described(mask)
    assert described_connectors(_connection({"sql": "SELECT * FROM input"}), [QuerySpec("SELECT * FROM input")]) == ""


@pytest.mark.parametrize(
    ("ttl", "seconds"), [("30 days", 2_592_000), ("1 hour", 3600), ("1.5h", 5400), ("2 min", 120), ("7s", 7), (9, 9)]
)
def test_a_connector_is_called_as_the_user_says(ttl: Any, seconds: float) -> None:
    cache, rate = {"ttl": ttl, "by": "ip"}, {"rows_per_second": 5}
    more = {"cache": cache, "rate": rate, "checkpoint_rows": 100, "one_at_a_time": True}
    [spec] = _connection({**_GEO, "columns": {"a": "string"}, **more}).transforms_of(StreamId.of("users"))
    assert isinstance(spec, EnrichmentSpec)
    assert spec.calls == EnrichmentCalls(100, 5, is_one_at_a_time=True, cached_seconds=seconds, cached_by=("ip",))
    assert described_transforms([spec]) == described_transforms([EnrichmentSpec(4, (("a", "string"),))])
    assert "calls" not in described_transforms([spec])[0]  # Else older plans would be taken for those of other rows.


@pytest.mark.parametrize(
    ("transform", "found"),
    [
        ({}, "one of them"),
        ({"sql": "SELECT 1", "validate": [{"assert_not_null": "id"}]}, "one of them"),
        ({"sql": "SELECT 1", "on_error": "skip"}, "fails its stream"),
        ({"sql": "SELECT 1", "columns": {"a": "string"}}, "columns: only for a transform with a `connector`"),
        ({"validate": [{}]}, "has no rule"),
        ({"validate": [{"assert_range": {"a": {}}}]}, "give min, max, or both"),
        (
            _GEO,
            "name the columns that the connector fills or changes, with their types, as in `columns: {email: string}`",
        ),
        ({**_GEO, "columns": {"a": "string"}, "key": "id", "one_at_a_time": True}, "not both"),
        ({**_GEO, "columns": {"a": "string"}, "cache": {"ttl": "soon"}}, 'a duration such as "30 days"'),
        ({"sql": "SELECT 1", "rate": {"rows_per_second": 1}}, "rate: only for a transform with a `connector`"),
        ({**_GEO, "columns": {"a": "text"}}, "Input should be 'string', 'bigint'"),
        ({"connector": _SOURCE, "columns": {"a": "string"}}, "only enrichments of syncmaven"),
    ],
)
def test_a_transform_that_makes_no_sense_is_refused(transform: Any, found: str) -> None:
    with pytest.raises(ValidationError, match=found):
        _connection(transform)
