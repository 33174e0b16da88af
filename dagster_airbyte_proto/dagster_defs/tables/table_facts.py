"""What a stream's table itself is asked after a sync, by option: a query each, told with the stream's event."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, NamedTuple

import dagster as dg

from dagster_airbyte_proto.dagster_defs.definitions.column_schema import (
    DescribedColumn,
    column_lineage,
    described_schema,
    table_schema,
)
from dagster_airbyte_proto.dagster_defs.tables.checks import Query
from dagster_airbyte_proto.model import PlannedStream
from dagster_airbyte_proto.schema.columns import META, Column, Kind
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.tables.sql_names import quoted

_MOST_COLUMNS = 100
_LONGEST_VALUE = 100
# Dagster's web server leaves out whole numbers beyond it, and plots the same number with a point.
_LARGEST_PLOTTED = 2**31 - 1
_NUMBERS = frozenset((Kind.INTEGER, Kind.BIG_INTEGER, Kind.NUMBER, Kind.DECIMAL))
_TIMES = frozenset((Kind.TIMESTAMP, Kind.LOCAL_TIMESTAMP))
_RANGED = _NUMBERS | _TIMES | {Kind.DATE}
# What would be more than itself in Markdown; a value must not bring an image that each reader's browser fetches.
_MARKUP = re.compile(r"([\\`*_\[\]<>|~&$])")


class Asked(NamedTuple):
    """What a step wants to know. Of what it does not ask for, nothing is queried."""

    column_metadata: bool = False
    insights: bool = False
    sample_rows: int = 0


class LandedTable(NamedTuple):
    """A table after a sync. `name` is its name in SQL, `sync_id` that of the rows that came.
    `lacking` are columns of the stream that it does not have."""

    name: str
    planned: PlannedStream
    sync_id: int
    query: Query
    lacking: frozenset[str] = frozenset()


def column_metadata(table: LandedTable, source: dg.AssetKey | None) -> dict[str, Any]:
    """The columns as the table has them, and where they come from if `source` is the asset that the stream reads."""
    # What comes after the columns, of partitions for one, has no type.
    rows = takewhile(lambda row: row[1], table.query(f"describe table {table.name}").rows)
    found = [DescribedColumn(name, kind, comment or "") for name, kind, comment in rows]
    columns, planned = table_columns(table.planned), table.planned
    schema = described_schema(
        found, table_schema(columns, write=planned.write, is_partitioned=planned.slice is not None)
    )
    lineage = {} if source is None else {"dagster/column_lineage": column_lineage(columns, source)}
    return {"dagster/column_schema": schema, **lineage}


def insights(table: LandedTable) -> dict[str, Any]:
    """The rows of the whole table; of each of the stream's columns the nulls, of numbers and times the range."""
    columns, left = _columns(table)[:_MOST_COLUMNS], len(_columns(table)[_MOST_COLUMNS:])
    # Counts, least and greatest alone: these Iceberg answers from what it knows of its files, where it can.
    wanted = [expression for column in columns for expression in _expressions(column)]
    [[rows, *found]] = table.query(f"select {', '.join(['count(*)', *wanted])} from {table.name}").rows  # noqa: S608 - quoted
    told: dict[str, Any] = {"dagster/row_count": rows, "airbyte_proto/columns_left_out": left or None}
    answers = iter(found)
    for column in columns:
        label = f"airbyte_proto/column/{column.name}"
        told[f"{label}/nulls"] = rows - next(answers)
        if _is_ranged(column):
            told |= {f"{label}/{bound}": _bound(column, next(answers)) for bound in ("smallest", "largest")}
    return {label: value for label, value in told.items() if value is not None}


def sample(table: LandedTable, rows: int) -> dict[str, Any]:
    """Some of the rows that the sync brought, as a Markdown table. Nothing where there are none."""
    columns = [column.name for column in _columns(table)]
    shown, left = columns[:_MOST_COLUMNS], len(columns[_MOST_COLUMNS:])
    found = table.query(sample_query(table, shown, rows)).rows if shown else []
    if not found:
        return {}
    rest = f"\n\nand {left} more columns" if left else ""
    return {"airbyte_proto/sample": dg.MetadataValue.md(_markdown([shown, *found]) + rest)}


def sample_query(table: LandedTable, columns: Sequence[str], rows: int) -> str:
    """The filter reaches the files, and the reading ends with the limit."""
    names = ", ".join(map(quoted, columns))
    return f"select {names} from {table.name} where {META}.sync_id = {table.sync_id} limit {rows}"  # noqa: S608 - quoted


def _columns(table: LandedTable) -> Sequence[Column]:
    return [column for column in table_columns(table.planned).all if column.name not in table.lacking]


def _is_ranged(column: Column) -> bool:
    return column.type.kind in _RANGED and not column.type.depth


def _expressions(column: Column) -> Iterator[str]:
    name = quoted(column.name)
    yield f"count({name})"
    if _is_ranged(column):
        yield from (f"min({name})", f"max({name})")


def _bound(column: Column, value: Any) -> Any:
    """None where the column is empty. A query answers in what JSON knows: the rest comes as text."""
    if value is None or column.type.kind is Kind.DATE:
        return value
    if column.type.kind in _TIMES:
        time = datetime.fromisoformat(value)
        return dg.MetadataValue.timestamp(time if time.tzinfo else time.replace(tzinfo=UTC))
    return value if isinstance(value, int) and abs(value) <= _LARGEST_PLOTTED else float(value)


def _markdown(lines: Sequence[Sequence[Any]]) -> str:
    head, *body = ["| " + " | ".join(map(_cell, line)) + " |" for line in lines]
    return "\n".join([head, "|" + " --- |" * len(lines[0]), *body])


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    text = text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
