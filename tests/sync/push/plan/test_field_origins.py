"""The columns that each field of a destination comes from."""

import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import ConfigError, ProtoError, TableError
from dagster_airbyte_proto.loads.plan_query import PlannedField, PlannedRows, PlanQuery
from dagster_airbyte_proto.loads.push import TableSnapshot
from dagster_airbyte_proto.sync.push.plan.field_origins import cursor_field, field_origins
from dagster_airbyte_proto.sync.push_report import PushedField

_COLUMNS = pa.schema([("id", pa.int64()), ("First", pa.string()), ("last", pa.string()), ("a`b", pa.string())])
_ALL = PlanQuery("contacts", "shop.people", None, (), ("id",), "")


class _Planner:
    """Knows the columns of the table alone."""

    def fields(self, query: PlanQuery) -> pa.Schema:
        assert (query.fields, query.keys) == ((), ())
        return _COLUMNS

    def write(self, query: PlanQuery, folder: str) -> PlannedRows:
        raise NotImplementedError

    def writes_to(self, location: str) -> bool:
        raise NotImplementedError

    def snapshot(self, table: str) -> TableSnapshot | None:
        raise NotImplementedError

    def keep_snapshot(self, tag: str, snapshot: TableSnapshot) -> None:
        raise NotImplementedError


def test_without_a_mapping_each_field_is_a_column() -> None:
    found = field_origins(_Planner(), _ALL, _COLUMNS)
    assert list(found) == _COLUMNS.names
    assert found["id"] == PushedField("bigint", ("id",))


@pytest.mark.parametrize(
    ("field", "columns"),
    [
        (PlannedField("to", column="address.city"), ("address",)),
        (PlannedField("to", constant="shop"), ()),
        (PlannedField("to", sql="concat_ws(' ', first, `last`)"), ("First", "last")),
        (PlannedField("to", sql="upper('id is \\' last') || last (id)"), ("id",)),
        (PlannedField("to", sql="CASE WHEN `a``b` IS NULL THEN last.id END"), ("last", "a`b")),
        (PlannedField("to", sql="now()"), ()),
    ],
)
def test_a_field_has_the_columns_that_its_mapping_names(field: PlannedField, columns: tuple[str, ...]) -> None:
    mapped = pa.schema([("to", pa.string())])
    assert field_origins(_Planner(), _ALL._replace(fields=(field,)), mapped) == {"to": PushedField("string", columns)}


@pytest.mark.parametrize("error", [ConfigError, TableError])
def test_a_table_whose_columns_cannot_be_told_fails_no_push_that_is_delivered(error: type[ProtoError]) -> None:
    class Odd(_Planner):
        def fields(self, query: PlanQuery) -> pa.Schema:
            raise error("planning the rows", f"a column of {query.table} is an interval")

    query = _ALL._replace(fields=(PlannedField("id", column="id"), PlannedField("days", sql="extract(DAY FROM span)")))
    mapped = pa.schema([("id", pa.int64()), ("days", pa.int32())])
    assert field_origins(Odd(), query, mapped) == {"id": PushedField("bigint", ("id",)), "days": PushedField("int")}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ((), "First"),
        ((PlannedField("last", column="first"),), "last"),
        ((PlannedField("First", sql="upper(First)"), PlannedField("last", constant="FIRST")), None),
    ],
)
def test_the_cursor_is_the_field_of_its_column_whatever_its_case(
    fields: tuple[PlannedField, ...], found: str | None
) -> None:
    assert cursor_field(_ALL._replace(fields=fields, cursor="FIRST"), _COLUMNS) == found
    assert cursor_field(_ALL._replace(fields=fields), _COLUMNS) is None
