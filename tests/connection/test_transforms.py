"""The transforms of a connection file: which of them are taken, and what they become."""

from typing import Any

import pytest
from pydantic import ValidationError

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import EnrichmentSpec, QuerySpec, RowRule, RuleKind, RuleSpec, StreamId

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


@pytest.mark.parametrize(
    ("transform", "found"),
    [
        ({}, "one of them"),
        ({"sql": "SELECT 1", "validate": [{"assert_not_null": "id"}]}, "one of them"),
        ({"sql": "SELECT 1", "on_error": "skip"}, "fails its stream"),
        ({"sql": "SELECT 1", "columns": {"a": "string"}}, "columns: only for a transform with a `connector`"),
        ({"validate": [{}]}, "has no rule"),
        ({"validate": [{"assert_range": {"a": {}}}]}, "give min, max, or both"),
        (_GEO, "name the columns that the connector fills"),
        ({**_GEO, "columns": {"a": "text"}}, "Input should be 'string', 'bigint'"),
        ({"connector": _SOURCE, "columns": {"a": "string"}}, "only enrichments of syncmaven"),
    ],
)
def test_a_transform_that_makes_no_sense_is_refused(transform: Any, found: str) -> None:
    with pytest.raises(ValidationError, match=found):
        _connection(transform)
