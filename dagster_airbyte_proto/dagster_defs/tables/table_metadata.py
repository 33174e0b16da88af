"""Optional metadata of a stream's event, from queries of its table after a sync: columns, insights, a sample."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg

from dagster_airbyte_proto.dagster_defs.definitions.checks import Query
from dagster_airbyte_proto.dagster_defs.definitions.column_schema import (
    DescribedColumn,
    column_lineage,
    described_schema,
    table_schema,
)
from dagster_airbyte_proto.model import PlannedStream
from dagster_airbyte_proto.schema.columns import META, Column, ValueKind
from dagster_airbyte_proto.tables.sql_names import quoted
from dagster_airbyte_proto.transforms.landed_columns import columns_in_tables

_MAX_COLUMNS = 100
_MAX_VALUE_CHARACTERS = 100
# Dagster's web server leaves larger integers out of plots, but plots the same value as a float.
_LARGEST_PLOTTED = 2**31 - 1
_NUMBERS = frozenset((ValueKind.INTEGER, ValueKind.BIG_INTEGER, ValueKind.NUMBER, ValueKind.DECIMAL))
_TIMES = frozenset((ValueKind.TIMESTAMP, ValueKind.LOCAL_TIMESTAMP))
_RANGED = _NUMBERS | _TIMES | {ValueKind.DATE}
# Characters with a meaning in Markdown. They are escaped, so that a value cannot embed an image that the browser of
# each reader would fetch.
_MARKUP = re.compile(r"([\\`*_\[\]<>|~&$])")


class RequestedMetadata(NamedTuple):
    """The metadata that a step requests. Only what is requested is queried."""

    column_metadata: bool = False
    insights: bool = False
    sample_rows: int = 0


class SyncedTable(NamedTuple):
    """A table after a sync. `name` is its name in SQL, `sync_id` the id of the sync in its rows, and `missing_columns`
    are columns of the stream that the table lacks."""

    name: str
    planned: PlannedStream
    sync_id: int
    query: Query
    missing_columns: frozenset[str] = frozenset()


def column_metadata(table: SyncedTable, source: dg.AssetKey | None) -> dict[str, Any]:
    """The columns of the table, and their lineage if `source` is the asset that the stream reads."""
    # Rows after the columns, for example about partitions, have no type.
    rows = takewhile(lambda row: row[1], table.query(f"describe table {table.name}").rows)
    found = [DescribedColumn(name, kind, comment or "") for name, kind, comment in rows]
    columns, planned = columns_in_tables(table.planned), table.planned
    schema = described_schema(
        found, table_schema(columns, write=planned.write, is_partitioned=planned.slice is not None)
    )
    lineage = {} if source is None else {"dagster/column_lineage": column_lineage(columns, source)}
    return {"dagster/column_schema": schema, **lineage}


def insights(table: SyncedTable) -> dict[str, Any]:
    """The number of rows of the whole table, the nulls of each column, and the range of each numeric or time column."""
    columns, left = _columns(table)[:_MAX_COLUMNS], len(_columns(table)[_MAX_COLUMNS:])
    # Only count, min and max: Iceberg can answer these from its file metadata without reading rows.
    expressions = [expression for column in columns for expression in _expressions(column)]
    [[rows, *found]] = table.query(f"select {', '.join(['count(*)', *expressions])} from {table.name}").rows  # noqa: S608 - quoted
    facts: dict[str, Any] = {"dagster/row_count": rows, "airbyte_proto/columns_left_out": left or None}
    answers = iter(found)
    for column in columns:
        label = f"airbyte_proto/column/{column.name}"
        facts[f"{label}/nulls"] = rows - next(answers)
        if _is_ranged(column):
            facts |= {f"{label}/{bound}": _bound(column, next(answers)) for bound in ("smallest", "largest")}
    return {label: value for label, value in facts.items() if value is not None}


def sample(table: SyncedTable, rows: int) -> dict[str, Any]:
    """Some of the rows that the sync brought, as a Markdown table; empty if it brought none."""
    columns = [column.name for column in _columns(table)]
    shown, left = columns[:_MAX_COLUMNS], len(columns[_MAX_COLUMNS:])
    found = table.query(sample_query(table, shown, rows)).rows if shown else []
    if not found:
        return {}
    rest = f"\n\nand {left} more columns" if left else ""
    return {"airbyte_proto/sample": dg.MetadataValue.md(_markdown([shown, *found]) + rest)}


def sample_query(table: SyncedTable, columns: Sequence[str], rows: int) -> str:
    """The filter on `sync_id` prunes files, and the limit ends the scan early."""
    names = ", ".join(map(quoted, columns))
    return f"select {names} from {table.name} where {META}.sync_id = {table.sync_id} limit {rows}"  # noqa: S608 - quoted


def _columns(table: SyncedTable) -> Sequence[Column]:
    return [column for column in columns_in_tables(table.planned).all if column.name not in table.missing_columns]


def _is_ranged(column: Column) -> bool:
    return column.type.kind in _RANGED and not column.type.depth


def _expressions(column: Column) -> Iterator[str]:
    name = quoted(column.name)
    yield f"count({name})"
    if _is_ranged(column):
        yield from (f"min({name})", f"max({name})")


def _bound(column: Column, value: Any) -> Any:
    """The value for Dagster; None if the column is empty. Query results hold JSON types, so times come as text."""
    if value is None or column.type.kind is ValueKind.DATE:
        return value
    if column.type.kind in _TIMES:
        try:
            time = datetime.fromisoformat(value)
        except ValueError:  # After the year 9999: Python has no such time.
            return value
        return dg.MetadataValue.timestamp(time if time.tzinfo else time.replace(tzinfo=UTC))
    number = plotted(value) if isinstance(value, int) else float(value)
    # Dagster's web server cannot send a number that is none, and shows the asset with an error then.
    return number if isfinite(number) else str(value)


def plotted(value: int) -> int | float:
    """Returns the number in the form in which Dagster plots it."""
    return value if abs(value) <= _LARGEST_PLOTTED else float(value)


def _markdown(lines: Sequence[Sequence[Any]]) -> str:
    head, *body = ["| " + " | ".join(map(_cell, line)) + " |" for line in lines]
    return "\n".join([head, "|" + " --- |" * len(lines[0]), *body])


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    text = text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}…"
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def table_uri(location: str) -> str:
    """Returns the URI of a table's files; empty if there are none."""
    return Path(location).as_uri() if location.startswith("/") else location
