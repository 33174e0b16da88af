"""The fields that a destination gets, with the columns of the table that each comes from."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.plan_query import PlannedField, PlanQuery
from dagster_airbyte_proto.schema.columns import column_type
from dagster_airbyte_proto.sync.push_report import PushedField
from dagster_airbyte_proto.tables.planner import PushPlanner

# In Spark's SQL both quotes are those of text; a name is bare or in backticks. A name after a dot is a field of a
# column, one before a parenthesis a function.
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_NAME = re.compile(r"(?<![\w.`])(?:`((?:[^`]|``)+)`|([A-Za-z_]\w*))(?!\s*\(|\w)")


def field_origins(planner: PushPlanner, query: PlanQuery, fields: pa.Schema) -> Mapping[str, PushedField]:
    """Returns the fields, in order. Of an expression the origins are the columns that it names; a constant has none.

    The rows are delivered by then. So it raises nothing for a table that is gone, or that has a column which no
    destination could get: of its expressions the origins are not known.
    """
    known: Sequence[str] = ()
    if any(field.sql is not None for field in query.fields):
        every_column = query._replace(fields=(), keys=(), cursor=None, after=None, has_sync_columns=True)
        with suppress(ConfigError, TableError):
            known = planner.fields(every_column).names
    mapped = {field.name: _columns(field, known) for field in query.fields}
    return {field.name: PushedField(column_type(field.type), mapped.get(field.name, (field.name,))) for field in fields}


def cursor_field(query: PlanQuery, fields: pa.Schema, passed_on: Mapping[str, str] | None = None) -> str | None:
    """Returns the field that has the values of the cursor; None if the destination gets none.

    `passed_on` are the fields that transforms pass on, with their names before.
    """
    # Spark takes a name in upper or lower case.
    columns = {each.name: each.column for each in query.fields} or {name: name for name in fields.names}
    if passed_on is not None:
        columns = {name: columns.get(source, source) for name, source in passed_on.items()}
    wanted = (query.cursor or "").casefold()
    return next((name for name in fields.names if wanted and (columns.get(name) or "").casefold() == wanted), None)


def _columns(field: PlannedField, known: Sequence[str]) -> tuple[str, ...]:
    if field.sql is not None:
        names = {
            (quoted.replace("``", "`") if quoted else bare).casefold()
            for quoted, bare in _NAME.findall(_TEXT.sub("''", field.sql))
        }
        return tuple(name for name in known if name.casefold() in names)
    return () if field.column is None else (field.column.partition(".")[0],)
