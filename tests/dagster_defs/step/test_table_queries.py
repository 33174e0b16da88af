"""Queries of a step that is terminated while they run."""

import subprocess
import sys
import threading
import time
from typing import NoReturn

import pytest

from dagster_airbyte_proto.dagster_defs.step.table_queries import TableQueries
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import TableName


class SlowTables:
    def query(self, sql: str) -> NoReturn:  # noqa: ARG002 - answers nothing
        threading.Event().wait()
        raise AssertionError

    def sql_name(self, table: TableName) -> str:
        return str(table)


def leave_a_query() -> None:
    queries = TableQueries(SlowTables())
    queries.ends_at = time.monotonic() + 0.05
    with pytest.raises(TableError, match="the step was terminated before it answered"):
        queries.query("select 1")


def test_a_terminated_step_waits_for_no_answer_nor_does_its_process() -> None:
    script = f"from {__name__} import leave_a_query; leave_a_query()"
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)


class FailingTables(SlowTables):
    def __init__(self, error: Exception) -> None:
        self._error = error

    def query(self, sql: str) -> NoReturn:  # noqa: ARG002 - fails whatever it is
        raise self._error


@pytest.mark.parametrize("error", [TableError("querying a table", "it is gone"), TimeoutError("the session")])
def test_the_error_of_a_query_is_that_of_its_table(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        TableQueries(FailingTables(error)).query("select 1")
    assert raised.value is error
