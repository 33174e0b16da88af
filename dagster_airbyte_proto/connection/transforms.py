"""The transforms of a connection file: each changes the rows of some streams, or of all, on their way."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from dagster_airbyte_proto.connection.launch import Connector, DockerLaunch, Text
from dagster_airbyte_proto.connection.push import OnError, RateOptions
from dagster_airbyte_proto.connection.sizes import Seconds
from dagster_airbyte_proto.connection.validation import AlternativeForm, JsonObject, RelativePath, StrictModel
from dagster_airbyte_proto.model import (
    ComponentSpec,
    EnrichmentCalls,
    EnrichmentSpec,
    QuerySpec,
    RowRule,
    RuleKind,
    RuleSpec,
    TransformSpec,
)


def _one_or_more(columns: Any) -> Any:
    return (columns,) if isinstance(columns, str) else columns


_Columns = Annotated[
    tuple[Text, ...], Field(min_length=1), BeforeValidator(_one_or_more), AlternativeForm({"type": "string"})
]
_Bound = int | float | str


class RangeOptions(StrictModel):
    """The bounds of a column's values, both inclusive: numbers, or dates and times as text."""

    min: _Bound | None = None
    max: _Bound | None = None

    @model_validator(mode="after")
    def _has_a_bound(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("give min, max, or both")
        return self


class RuleOptions(StrictModel):
    """Rules for rows. `assert_not_null` and `assert_unique` take a column or a list, the others columns with a pattern
    or bounds each."""

    assert_not_null: _Columns = ()
    assert_unique: _Columns = ()
    assert_regex: Mapping[Text, Text] = {}
    assert_range: Mapping[Text, RangeOptions] = {}

    @property
    def rules(self) -> tuple[RowRule, ...]:
        return (
            *(RowRule(RuleKind.NOT_NULL, column) for column in self.assert_not_null),
            *(RowRule(RuleKind.UNIQUE, column) for column in self.assert_unique),
            *(RowRule(RuleKind.REGEX, column, pattern) for column, pattern in self.assert_regex.items()),
            *(
                RowRule(RuleKind.RANGE, column, minimum=bounds.min, maximum=bounds.max)
                for column, bounds in self.assert_range.items()
            ),
        )

    @model_validator(mode="after")
    def _has_a_rule(self) -> Self:
        if not self.rules:
            raise ValueError("has no rule: give assert_not_null, assert_unique, assert_regex or assert_range")
        return self


ColumnType = Literal["string", "bigint", "double", "boolean", "date", "timestamp"]
_OF_CONNECTORS = (
    "config", "config_file", "options", "columns", "key", "one_at_a_time", "checkpoint_rows", "rate", "cache",
    "sandbox",
)  # fmt: skip


_OF_ENRICHMENTS = ("options", "key", "one_at_a_time", "checkpoint_rows", "rate", "cache")


class CacheOptions(StrictModel):
    """A cache: what came of a row is used again within `ttl`, such as `30 days`, for rows that are the same in the
    columns of `by`. Without it: in all columns."""

    ttl: Seconds
    by: _Columns | None = None


class TransformOptions(StrictModel):
    """One transform: a query (`sql`), rules (`validate`), or a `connector`. It applies to the `streams` that it names,
    or to all.

    `on_error` is for rules and connectors: what happens to a row that breaks a rule, or whose values do not fit.
    The others are for a connector, a component or an enrichment of Syncmaven: its config, and the `columns` that it
    fills, with their types. Those of an enrichment alone: its `options`, and the `key` by which what it sends back
    finds its row; or it gets one row at a time, and answers each once. A process gets at most `checkpoint_rows`, all
    together get no more than the `rate`, and with a `cache` no row is sent twice within a time.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    sql: Text | None = None
    rules: Annotated[tuple[RuleOptions, ...] | None, Field(alias="validate", min_length=1)] = None
    connector: Connector | None = None
    config: JsonObject | None = None
    config_file: RelativePath | None = None
    options: JsonObject | None = None
    columns: Annotated[dict[Text, ColumnType] | None, Field(min_length=1)] = None
    key: _Columns | None = None
    one_at_a_time: bool = False
    checkpoint_rows: Annotated[int, Field(gt=0, strict=True)] | None = None
    rate: RateOptions | None = None
    cache: CacheOptions | None = None
    sandbox: bool = False
    on_error: OnError | None = None
    streams: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None

    def spec(self, number: int) -> TransformSpec:
        """Returns the transform as a value. `number` is its place among the transforms of its connection."""
        on_error = self.on_error or "reject"
        if self.sql is not None:
            return QuerySpec(self.sql)
        if self.rules is not None:
            return RuleSpec(tuple(rule for each in self.rules for rule in each.rules), on_error)
        columns = tuple((self.columns or {}).items())
        if self.connector is not None and self.connector.protocol == "rapidbyte":
            return ComponentSpec(number, columns, on_error)
        options = json.dumps(self.options or {}, sort_keys=True)
        return EnrichmentSpec(number, columns, self.key or (), options, on_error, self._calls)

    @property
    def _calls(self) -> EnrichmentCalls:
        return EnrichmentCalls(
            rows=self.checkpoint_rows,
            rows_per_second=self.rate.rows_per_second if self.rate else None,
            is_one_at_a_time=self.one_at_a_time,
            cached_seconds=self.cache.ttl if self.cache else None,
            cached_by=(self.cache.by or ()) if self.cache else (),
        )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(kind is not None for kind in (self.sql, self.rules, self.connector)) != 1:
            raise ValueError("give `sql`, a query, `validate`, a list of rules, or a `connector`: one of them")
        if self.on_error is not None and self.sql is not None:
            raise ValueError(
                "on_error is for `validate` and `connector`; a query that fails for a row fails its stream"
            )
        return self

    @model_validator(mode="after")
    def _fits_a_connector(self) -> Self:
        if self.connector is None:
            if stray := [name for name in _OF_CONNECTORS if getattr(self, name)]:
                raise ValueError(f"{', '.join(stray)}: only for a transform with a `connector`")
            return self
        protocol = self.connector.protocol
        if protocol not in ("syncmaven", "rapidbyte"):
            raise ValueError(f"connector: of {protocol}; only enrichments of syncmaven and components transform rows")
        stray = [name for name in _OF_ENRICHMENTS if getattr(self, name)] if protocol == "rapidbyte" else []
        if stray:
            raise ValueError(f"{', '.join(stray)}: only for enrichments of syncmaven; a component has its config")
        if not self.columns:
            raise ValueError(
                "columns: is missing; name the columns that the connector fills or changes, with their types, as in"
                f" `columns: {{email: string}}`: {', '.join(get_args(ColumnType)[:-1])} or {get_args(ColumnType)[-1]}"
            )
        if self.one_at_a_time and self.key:
            raise ValueError("give key or one_at_a_time, not both: each says how replies find their rows")
        if self.config is not None and self.config_file is not None:
            raise ValueError("give config or config_file, not both")
        if self.sandbox and isinstance(self.connector.launch, DockerLaunch):
            raise ValueError("sandbox is for programs of this machine; an image is confined without it")
        return self


Transforms = tuple[TransformOptions, ...]
