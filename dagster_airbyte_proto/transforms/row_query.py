"""The transform `sql`: a query of DataFusion on the table `input`, which holds one batch.

A query selects from `input` and filters it: each row of its result comes from one row of `input`. One that groups,
joins, sorts or limits rows would have a result that depends on where batches are cut, so it is refused.

DataFusion does not say from which row of its input a row of a result comes. So the query is planned on `input`, and
its plan is built once more on a table with one column more, the position of the row, which every step passes on.
"""

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError, TransformError
from dagster_airbyte_proto.schema.arrow_schema import without_views
from dagster_airbyte_proto.transforms.transform import Rows, RowShape, TransformedRows

INPUT = "input"
_POSITION = "_airbyte_position"
_PROJECTION, _FILTER, _ALIAS = "Projection", "Filter", "SubqueryAlias"
_DOING = "planning the query of a transform"
_LONGEST_MESSAGE = 300
# The parser's own words stand in a value of Rust, as its debugger shows it.
_OF_THE_PARSER = re.compile(r'(DataFusion error: )?SQL error: \w+\("(?P<said>.*)"\)')


class _Step(NamedTuple):
    """A step of a plan: a filter with its condition, a projection with its expressions, or an alias with its name."""

    kind: str
    arguments: Sequence[Any]


class RowQuery:
    """Applies a query to the batches of one stream."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._steps: Sequence[_Step] | None = None

    def shape(self, given: RowShape) -> RowShape:
        library = _datafusion()
        options = library.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
        context = _context_of(library, [_no_rows(given.schema)])
        try:
            plan = context.sql_with_options(self._sql, options).logical_plan()
        except Exception as error:
            raise _refusal(_message(error)) from error
        self._steps = _steps_of(plan)
        with_position = _with_position(_no_rows(given.schema))
        frame = _context_of(library, [with_position]).table(INPUT)
        passed_on: Mapping[str, str] = {**given.passed_on, _POSITION: _POSITION}
        try:
            for step in self._steps:
                frame = _built(library, frame, step)
                if step.kind == _PROJECTION:
                    passed_on = _passed_on(passed_on, step, frame.schema().names)
            schema = _without_views(frame.schema())
        except Exception as error:
            raise _refusal(_message(error)) from error
        position = schema.get_field_index(_POSITION)
        return RowShape(
            schema.remove(position), {name: source for name, source in passed_on.items() if name != _POSITION}
        )

    def transform(self, rows: Rows) -> TransformedRows:
        library, batch = _datafusion(), rows.batch
        if self._steps is None:
            self.shape(RowShape.of_input(batch.schema))
        try:
            frame = _context_of(library, [_with_position(batch)]).table(INPUT)
            for step in self._steps or ():
                frame = _built(library, frame, step)
            found = _with_plain_text(pa.Table.from_batches(frame.collect(), frame.schema())).combine_chunks()
        except Exception as error:  # noqa: BLE001 - DataFusion raises plain exceptions for a query that fails
            # Not chained, and without DataFusion's message: it may quote a value of a row.
            raise TransformError(
                "applying the query of a transform",
                f"DataFusion failed for a row of a batch ({_kind_of(error)})",
                remedy="Make the query fit every row, for instance with try_cast, nullif or a WHERE.",
            ) from None
        origins = found.column(_POSITION).to_numpy()
        if (np.diff(origins) < 0).any():
            found = found.take(pa.array(np.argsort(origins, kind="stable")))
            origins = found.column(_POSITION).to_numpy()
        without_position = found.drop_columns([_POSITION])
        batches = without_position.combine_chunks().to_batches()
        return TransformedRows(batches[0] if batches else _no_rows(without_position.schema), origins)


def _datafusion() -> Any:
    try:
        return importlib.import_module("datafusion")
    except ImportError as error:
        raise ConfigError(
            "loading DataFusion, which runs the queries of transforms",
            "it is not installed",
            remedy="Install the extra: pip install 'dagster_airbyte_proto[transforms]'.",
        ) from error


def _context_of(library: Any, batches: Sequence[pa.RecordBatch]) -> Any:
    context = _new_context(library)
    context.register_record_batches(INPUT, [list(batches)])
    return context


def _new_context(library: Any) -> Any:
    # One partition: rows keep their order, and a small batch is not spread over threads.
    return library.SessionContext(library.SessionConfig().with_target_partitions(1))


def _with_position(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(_POSITION, pa.array(np.arange(batch.num_rows, dtype=np.int64)))


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _with_plain_text(rows: pa.Table) -> pa.Table:
    schema = _without_views(rows.schema)
    return rows if schema == rows.schema else rows.cast(schema)


def _without_views(schema: pa.Schema) -> pa.Schema:
    """Returns the columns as rules and other transforms know them: a cast to VARCHAR makes a view of text."""
    return pa.schema([field.with_type(without_views(field.type)) for field in schema])


def _steps_of(plan: Any) -> Sequence[_Step]:
    """Returns the steps of a plan from its table on. Raises ConfigError for one that does more than select rows."""
    if any(line.strip().startswith("Subquery:") for line in plan.display_indent().splitlines()):
        raise _too_much("a query within an expression")
    steps: list[_Step] = []
    while True:
        node = _variant(plan)
        kind = type(node).__name__
        if kind == "TableScan" and not plan.inputs():
            return steps[::-1]
        if kind == _PROJECTION:
            steps.append(_Step(kind, node.projections()))
        elif kind == _FILTER:
            steps.append(_Step(kind, [node.predicate()]))
        elif kind == _ALIAS:
            steps.append(_Step(kind, [node.alias()]))
        else:
            raise _too_much(kind)
        [plan] = plan.inputs()


def _variant(plan: Any) -> Any:
    try:
        return plan.to_variant()
    except Exception:  # noqa: BLE001 - a step that DataFusion does not show to Python is none of those we know
        return plan


def _built(library: Any, frame: Any, step: _Step) -> Any:
    """Returns the frame with one step more, which passes the position on."""
    if step.kind == _ALIAS:
        # A context of its own: the alias may be the name of the table.
        context = _new_context(library)
        context.register_view(step.arguments[0], frame)
        return context.table(step.arguments[0])
    expressions = [library.expr.Expr(each) for each in step.arguments]
    if step.kind == _FILTER:
        return frame.filter(*expressions)
    return frame.select(*expressions, library.col(_POSITION))


def _passed_on(before: Mapping[str, str], step: _Step, names: Sequence[str]) -> dict[str, str]:
    """Returns the columns of a projection that are columns of the stream, unchanged."""
    found = {_POSITION: _POSITION}
    for expression, name in zip(step.arguments, names, strict=False):
        plain = expression
        while plain.variant_name() == "Alias":
            plain = plain.to_variant().expr()
        if plain.variant_name() == "Column" and (column := plain.to_variant().name()) in before:
            found[name] = before[column]
    return found


def _refusal(found: str, remedy: str = "") -> ConfigError:
    return ConfigError(_DOING, found, remedy=remedy or f"The query selects from the table {INPUT}.")


def _too_much(step: str) -> ConfigError:
    return _refusal(
        f"it does more than select and filter the rows of {INPUT} ({step})",
        "Batches are cut anywhere. Group, join, sort or limit rows where they are whole: in a query on the table.",
    )


def _message(error: Exception) -> str:
    text = " ".join(str(error).split())
    if found := _OF_THE_PARSER.fullmatch(text):
        text = found["said"].replace('\\"', '"')
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def _kind_of(error: Exception) -> str:
    """The kind of DataFusion's error: its first words, which quote no value."""
    return str(error).split(":")[0][:60]
