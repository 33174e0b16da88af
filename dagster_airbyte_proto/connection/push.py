"""The push section of a connection file: which rows of which table go to a stream of a destination."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from dagster_airbyte_proto.connection.launch import AnyText, Text
from dagster_airbyte_proto.connection.sizes import Bytes
from dagster_airbyte_proto.connection.validation import AlternativeForm, StrictModel
from dagster_airbyte_proto.model import BY_KEY, ChangesBy, PushMode

_SHARE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) *%")


class RowLimit(NamedTuple):
    """A number of rows, or a share of all of them."""

    rows: int | None = None
    share: float | None = None

    def allows(self, rows: int, of_rows: int) -> bool:
        return rows <= (self.rows if self.rows is not None else (self.share or 0.0) * of_rows)

    def __str__(self) -> str:
        return f"{self.rows:,} rows" if self.rows is not None else f"{(self.share or 0.0) * 100:g} %"


def _row_limit(limit: Any) -> Any:
    if isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0:
        return RowLimit(rows=limit)
    match = _SHARE.fullmatch(limit.strip()) if isinstance(limit, str) else None
    if match is None or float(match["number"]) > 100:
        raise ValueError('must be a number of rows, or a share such as "10 %"')
    return RowLimit(share=float(match["number"]) / 100)


_Limit = Annotated[
    RowLimit,
    BeforeValidator(_row_limit),
    AlternativeForm({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "examples": ["10 %"]}]}),
]


class ConstantColumn(StrictModel):
    """A field that has the same value in each row."""

    value: str | bool | int | float | None


class ExpressionColumn(StrictModel):
    """A field that Spark computes."""

    sql: Text


def _mapped(fields: Any) -> Any:
    """Names each field of a mapping. A bare text is the column that the field comes from."""
    if not isinstance(fields, Mapping) or not fields:
        raise ValueError('must be a mapping of fields to columns, such as "email: email_address"')
    for name, column in fields.items():
        # Else each form of a column would be found at fault.
        if not isinstance(column, str) and not (isinstance(column, Mapping) and set(column) in ({"value"}, {"sql"})):
            raise ValueError(f"{name} must be a column, or {{value: …}}, or {{sql: …}}")
    return fields


MappedColumn = Text | ConstantColumn | ExpressionColumn
Mapped = Annotated[dict[Text, MappedColumn], BeforeValidator(_mapped)]


class PushOptions(StrictModel):
    """The push of one stream.

    `key` names the fields, as the destination gets them, that make a row the same row. `map` gives each field its
    column, a constant or an expression; without it the destination gets all columns of a query, and those of a table
    that no sync added. `options` are those of the destination's stream, where its protocol has such. `nulls` says
    whether a row has its nulls; by default it has, but for Syncmaven, where most types of rows allow none. `changes`
    says how it is found out which rows are new, and `removals` in which form a mirror removes those that are gone. A
    push of one partition sends the rows whose column `partition` has its key. `max_removed` is of the rows that the
    destination has, `max_rejected` of those that are sent.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    table: Annotated[Text | None, Field(alias="from")] = None
    sql: Text | None = None
    key: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    mode: PushMode = PushMode.UPSERT
    changes: ChangesBy | None = None
    cursor: Text | None = None
    partition: Text | None = None
    map: Mapped | None = None
    options: Annotated[dict[str, Any], Field(default_factory=dict)]
    nulls: Literal["send", "omit"] | None = None
    removals: Literal["deleted_at", "version"] = "deleted_at"
    max_removed: _Limit = RowLimit(share=0.1)
    max_rejected: _Limit = RowLimit(share=0.01)

    @property
    def changes_by(self) -> ChangesBy:
        """The way to find out which rows are new, by default after the mode."""
        if self.changes is not None:
            return self.changes
        if self.mode is PushMode.OVERWRITE:
            return ChangesBy.ALL
        return ChangesBy.CURSOR if self.cursor and not self.key else ChangesBy.DIFF

    @property
    def removes_by_version(self) -> bool:
        return self.removals == "version"

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.table is None) == (self.sql is None):
            raise ValueError("give `from`, a table, or `sql`, a query: one of them")
        return self

    @model_validator(mode="after")
    def _fit_for_mode(self) -> Self:
        if self.mode is PushMode.OVERWRITE and self.changes_by is not ChangesBy.ALL:
            raise ValueError(f"mode overwrite sends all rows: leave `changes` out (found {self.changes_by})")
        if self.changes_by is ChangesBy.CURSOR and not self.cursor:
            raise ValueError("changes: cursor needs a `cursor`: a column that only grows")
        if self.cursor and self.changes_by is not ChangesBy.CURSOR:
            raise ValueError("a `cursor` is for changes: cursor")
        if self.changes_by is ChangesBy.SNAPSHOTS and self.table is None:
            raise ValueError("changes: snapshots needs `from`, a table: a query has no snapshots")
        if self.mode is PushMode.MIRROR and self.changes_by not in BY_KEY:
            raise ValueError("mode mirror has to find removed rows: it needs changes: diff or snapshots")
        if self.removes_by_version and self.mode is not PushMode.MIRROR:
            raise ValueError(f"removals: version is for mode mirror: mode {self.mode} removes no rows that are gone")
        if not self.key and (self.changes_by in BY_KEY or self.mode not in (PushMode.APPEND, PushMode.OVERWRITE)):
            raise ValueError(f"mode {self.mode} with changes: {self.changes_by} needs a `key`")
        return self


class BatchOptions(StrictModel):
    """The size of a batch: after it a state is sent, up to which the destination acknowledges."""

    rows: Annotated[int, Field(gt=0, strict=True)] = 10_000
    bytes: Bytes = 8 * 1024 * 1024
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0


class RateOptions(StrictModel):
    """The rate at which rows are sent at most."""

    rows_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)]


OnError = Literal["skip", "fail", "reject"]
Acknowledge = Literal["state", "exit"]
DestinationCatalog = Literal["discover", "none"]
Pushes = Annotated[dict[AnyText, PushOptions], Field(min_length=1)]
