"""The event of a complete stream, with what its checks found and what each of its partitions brought."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import dagster as dg

from dagster_airbyte_proto.dagster_defs import events
from dagster_airbyte_proto.dagster_defs.backfill import Backfill
from dagster_airbyte_proto.dagster_defs.checks import Evidence, check_results
from dagster_airbyte_proto.dagster_defs.definition import ConnectionDefinition
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.sync.delivery import Delivered
from dagster_airbyte_proto.sync.report import StreamReport

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark import QueryResult


@runtime_checkable
class AnswersQueries(Protocol):
    """An IO manager whose tables can be asked."""

    def query(self, sql: str) -> "QueryResult": ...

    def sql_name(self, table: TableName) -> str: ...


class Telling:
    """Asked by the step's thread, once for each stream that is delivered."""

    def __init__(self, context: dg.AssetExecutionContext, definition: ConnectionDefinition, backfill: Backfill) -> None:
        self._context = context
        self._definition = definition
        self._backfill = backfill
        found = getattr(context.resources, definition.io_manager_key)
        self._tables = found if isinstance(found, AnswersQueries) else None

    def event(self, key: dg.AssetKey, delivered: Delivered, seconds: float) -> dg.MaterializeResult[Delivered]:
        """To be yielded next. `seconds` are the sync's."""
        checked = self._checked(key, delivered)
        if not self._backfill.is_partitioned:
            return events.materialization(key, delivered, checked, seconds=seconds)
        self._tell_partitions(key, delivered.stream)
        return events.partitions_materialization(key, delivered, checked, seconds=seconds)

    def _tell_partitions(self, key: dg.AssetKey, stream: StreamId) -> None:
        for partition, told in self._backfill.told(stream).items():
            metadata = events.of_partition(told.report, told.rows)
            self._context.add_asset_metadata(metadata, asset_key=key, partition_key=partition)

    def _checked(self, key: dg.AssetKey, delivered: Delivered) -> list[dg.AssetCheckResult]:
        """Those that ask a table need an IO manager that answers queries."""
        checks, told = self._definition.checks, self._told(delivered)
        if checks is None or delivered.planned is None:
            return []
        table = self._tables.sql_name(delivered.table) if self._tables else told.table
        query = self._tables.query if self._tables else None
        policy = self._definition.connection.destination.schema_policy
        evidence = Evidence(delivered.planned, told, table, policy, told.miscounts, query)
        return check_results(key, evidence, checks, self._context.selected_asset_check_keys)

    def _told(self, delivered: Delivered) -> StreamReport:
        partitioned = self._backfill.is_partitioned
        return self._backfill.combined(delivered.stream) if partitioned else delivered.report
