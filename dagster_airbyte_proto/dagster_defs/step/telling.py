"""The event of a complete stream, with what its checks found, its table was asked and each of its partitions brought.

Queries run in a thread of their own: an interrupt must find the step's thread waiting, not amid an answer of the JVM's,
which the next call would take for its own.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import dagster as dg

from dagster_airbyte_proto.dagster_defs.definitions.column_schema import source_asset
from dagster_airbyte_proto.dagster_defs.definitions.definition import ConnectionDefinition
from dagster_airbyte_proto.dagster_defs.step import events
from dagster_airbyte_proto.dagster_defs.step.backfill import Backfill
from dagster_airbyte_proto.dagster_defs.tables import table_facts
from dagster_airbyte_proto.dagster_defs.tables.checks import Evidence, check_results
from dagster_airbyte_proto.dagster_defs.tables.table_facts import Asked, LandedTable
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.delivery import Delivered
from dagster_airbyte_proto.sync.report import StreamReport

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark.session import QueryResult


@runtime_checkable
class AnswersQueries(Protocol):
    """An IO manager whose tables can be asked."""

    def query(self, sql: str) -> "QueryResult": ...

    def sql_name(self, table: TableName) -> str: ...


class Telling:
    """Asked by the step's thread, once for each stream that is delivered. Raises ConfigError where an IO manager cannot
    answer what is `asked`."""

    def __init__(
        self, context: dg.AssetExecutionContext, definition: ConnectionDefinition, backfill: Backfill, asked: Asked
    ) -> None:
        self._context = context
        self._definition = definition
        self._backfill = backfill
        self._asked = asked
        found = getattr(context.resources, definition.io_manager_key)
        self._tables = found if isinstance(found, AnswersQueries) else None
        self._querying = ThreadPoolExecutor(1, thread_name_prefix="query")
        if any(asked) and self._tables is None:
            raise ConfigError(
                f"asking the tables of connection {definition.connection.name}",
                f"the IO manager {definition.io_manager_key!r} is {type(found).__name__}, which answers no queries",
                remedy="Ask for no column metadata, insights and sample, or use a SparkTableIOManager.",
            )

    def event(
        self, key: dg.AssetKey, delivered: Delivered, seconds: float, *, in_haste: bool = False
    ) -> dg.MaterializeResult[Delivered]:
        """To be yielded next. `seconds` are the sync's. In haste the table is asked for nothing but its checks."""
        checked = self._checked(key, delivered)
        told, sample = ({}, {}) if in_haste else (self._facts(key, delivered), self._sample(delivered))
        if self._backfill.is_partitioned:
            self._tell_partitions(key, delivered, sample)
            event = events.partitions_materialization(key, delivered, checked, seconds=seconds)
        else:
            event = events.materialization(key, delivered, checked, seconds=seconds)
            told |= sample
        return event._replace(metadata={**(event.metadata or {}), **told})

    def _tell_partitions(self, key: dg.AssetKey, delivered: Delivered, sample: Mapping[str, Any]) -> None:
        """The sample is of the last one alone, whose sync it was that ended."""
        for partition, told in self._backfill.told(delivered.stream).items():
            is_last = delivered.planned is not None and partition == delivered.planned.slice
            metadata = {**events.of_partition(told.report, told.rows), **(sample if is_last else {})}
            self._context.add_asset_metadata(metadata, asset_key=key, partition_key=partition)

    def _facts(self, key: dg.AssetKey, delivered: Delivered) -> dict[str, Any]:
        table = self._landed(delivered)
        told: dict[str, Any] = {}
        if table and self._asked.column_metadata:
            source = source_asset(self._context.assets_def.metadata_by_key[key])
            told |= self._answer(table, partial(table_facts.column_metadata, source=source))
        if table and self._asked.insights:
            told |= self._answer(table, table_facts.insights)
        return told

    def _sample(self, delivered: Delivered) -> dict[str, Any]:
        table, rows = self._landed(delivered), self._asked.sample_rows
        if table is None or not rows or not delivered.report.committed:
            return {}
        return self._answer(table, partial(table_facts.sample, rows=rows))

    def _answer(self, table: LandedTable, ask: Callable[[LandedTable], dict[str, Any]]) -> dict[str, Any]:
        """The rows are in: that one cannot look at them now is no reason to fail."""
        try:
            return ask(table)
        except ProtoError as error:
            self._context.log.warning(f"{table.name} could not be asked, and its event says less: {error}")
            return {}

    def _landed(self, delivered: Delivered) -> LandedTable | None:
        if self._tables is None or delivered.planned is None:
            return None
        return LandedTable(
            self._tables.sql_name(delivered.table),
            delivered.planned,
            delivered.sync_id,
            self._query,
            delivered.lacking,
        )

    def _query(self, sql: str) -> "QueryResult":
        assert self._tables is not None
        return self._querying.submit(self._tables.query, sql).result()

    def _checked(self, key: dg.AssetKey, delivered: Delivered) -> list[dg.AssetCheckResult]:
        """Those that ask a table need an IO manager that answers queries."""
        checks, told = self._definition.checks, self._told(delivered)
        if checks is None or delivered.planned is None:
            return []
        table = self._tables.sql_name(delivered.table) if self._tables else told.table
        query = self._query if self._tables else None
        policy = delivered.planned.policy
        evidence = Evidence(delivered.planned, told, table, policy, told.miscounts, query)
        return check_results(key, evidence, checks, self._context.selected_asset_check_keys)

    def _told(self, delivered: Delivered) -> StreamReport:
        partitioned = self._backfill.is_partitioned
        return self._backfill.combined(delivered.stream) if partitioned else delivered.report
