"""The transforms of a connection file: each changes the rows of some streams, or of all, on their way."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from dagster_airbyte_proto.connection.launch import Connector, DockerLaunch, Text
from dagster_airbyte_proto.connection.push import OnError
from dagster_airbyte_proto.connection.validation import AlternativeForm, JsonObject, RelativePath, StrictModel
from dagster_airbyte_proto.model import EnrichmentSpec, QuerySpec, RowRule, RuleKind, RuleSpec, TransformSpec


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
_OF_CONNECTORS = ("config", "config_file", "options", "columns", "key", "sandbox")


class TransformOptions(StrictModel):
    """One transform: a query (`sql`), rules (`validate`), or a `connector`. It applies to the `streams` that it names,
    or to all.

    `on_error` is for rules and connectors: what happens to a row that breaks a rule, or whose values do not fit.
    The others are for a connector, an enrichment of Syncmaven: its config, its `options`, the `columns` that it fills,
    with their types, and the `key` by which what it sends back finds its row.
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
        options = json.dumps(self.options or {}, sort_keys=True)
        return EnrichmentSpec(number, tuple((self.columns or {}).items()), self.key or (), options, on_error)

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
        if self.connector.protocol != "syncmaven":
            raise ValueError(f"connector: of {self.connector.protocol}; only enrichments of syncmaven transform rows")
        if not self.columns:
            raise ValueError("columns: is missing; name the columns that the connector fills, such as {city: string}")
        if self.config is not None and self.config_file is not None:
            raise ValueError("give config or config_file, not both")
        if self.sandbox and isinstance(self.connector.launch, DockerLaunch):
            raise ValueError("sandbox is for programs of this machine; an image is confined without it")
        return self


Transforms = tuple[TransformOptions, ...]
