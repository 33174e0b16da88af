"""The queries of a step: what its events and checks ask of tables.

Each runs in a thread of its own. An interrupt must find the step's thread waiting: if it struck while that thread reads
an answer of the JVM, the next call would read the rest of that answer as its own. A query that nobody waits for any
more goes on until its process ends, and does not keep it from ending.
"""

import time
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import TableName

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark.session import QueryResult


@runtime_checkable
class QueryableIOManager(Protocol):
    """An IO manager whose tables can be queried."""

    def query(self, sql: str) -> "QueryResult": ...

    def sql_name(self, table: TableName) -> str: ...


class TableQueries:
    """Queries tables for one step. After `ends_at` (monotonic) no query is waited for."""

    def __init__(self, tables: QueryableIOManager) -> None:
        self.tables = tables
        self.ends_at: float | None = None

    @classmethod
    def of(cls, io_manager: object) -> "TableQueries | None":
        """None for an IO manager whose tables cannot be queried."""
        return cls(io_manager) if isinstance(io_manager, QueryableIOManager) else None

    def query(self, sql: str) -> "QueryResult":
        """Raises TableError where there is no answer in time."""
        answer: Future[QueryResult] = Future()
        Thread(target=self._answer, args=(sql, answer), name="query", daemon=True).start()
        try:
            return answer.result(None if self.ends_at is None else max(0.0, self.ends_at - time.monotonic()))
        except TimeoutError:
            if answer.done():  # the query's own error
                raise
            raise TableError("querying a table", "the step was terminated before it answered") from None

    def _answer(self, sql: str, answer: "Future[QueryResult]") -> None:
        try:
            answer.set_result(self.tables.query(sql))
        except BaseException as error:
            answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
