"""Builds the event of a complete stream: its metadata, its check results, and the metadata of each partition."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import dagster as dg

from dagster_airbyte_proto.dagster_defs.definitions.checks import CheckInput, check_results
from dagster_airbyte_proto.dagster_defs.definitions.column_schema import source_asset
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import ConnectionDefinition
from dagster_airbyte_proto.dagster_defs.step import stream_metadata
from dagster_airbyte_proto.dagster_defs.step.backfill import Backfill
from dagster_airbyte_proto.dagster_defs.step.earlier_loads import EarlierLoads
from dagster_airbyte_proto.dagster_defs.step.table_queries import TableQueries
from dagster_airbyte_proto.dagster_defs.tables import table_metadata
from dagster_airbyte_proto.dagster_defs.tables.table_metadata import RequestedMetadata, SyncedTable
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.model import PlannedStream
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.report import StreamReport


class MaterializationBuilder:
    """Builds each event of one sync, in the step's thread. Raises ConfigError if metadata is `requested` and the IO
    manager answers no queries."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        definition: ConnectionDefinition,
        backfill: Backfill,
        requested: RequestedMetadata,
        earlier: EarlierLoads,
    ) -> None:
        self._context = context
        self._definition = definition
        self._backfill = backfill
        self._requested = requested
        self._earlier: EarlierLoads | None = earlier
        found = getattr(context.resources, definition.io_manager_key)
        self._queries = TableQueries.of(found)
        if any(requested) and self._queries is None:
            raise ConfigError(
                f"querying the tables of connection {definition.connection.name}",
                f"the IO manager {definition.io_manager_key!r} is {type(found).__name__}, which answers no queries",
                remedy="Request no column metadata, insights or sample, or use a SparkTableIOManager.",
            )

    def build(
        self, key: dg.AssetKey, committed: CommittedStream, seconds: float, *, ends_at: float | None = None
    ) -> dg.MaterializeResult[CommittedStream]:
        """Returns the event for the step to yield. `seconds` is how long the sync has run. Where the step was
        terminated, it `ends_at` a time (monotonic): only the checks query the table, until then."""
        if self._queries is not None:
            self._queries.ends_at = ends_at
        found_checks = self._check_results(key, committed)
        metadata, sample = ({}, {}) if ends_at else (self._table_metadata(key, committed), self._sample(committed))
        if self._backfill.is_partitioned:
            self._log_partitions(key, committed, sample)
            event = stream_metadata.partitions_materialization(key, committed, found_checks, seconds=seconds)
        else:
            event = stream_metadata.materialization(key, committed, found_checks, seconds=seconds)
            metadata |= sample
        # Dagster would take the code version for it, and no sync would put the assets downstream out of date.
        version = dg.DataVersion(self._context.run.run_id)
        return event._replace(metadata={**(event.metadata or {}), **metadata}, data_version=version)

    def _log_partitions(self, key: dg.AssetKey, committed: CommittedStream, sample: Mapping[str, Any]) -> None:
        """Adds metadata for each partition. The sample belongs to the last one: only its rows were just committed."""
        for partition, done in self._backfill.reports_by_partition(committed.stream).items():
            is_last = committed.planned is not None and partition == committed.planned.slice
            metadata = {**stream_metadata.partition_metadata(done.report, done.rows), **(sample if is_last else {})}
            self._context.add_asset_metadata(metadata, asset_key=key, partition_key=partition)

    def _table_metadata(self, key: dg.AssetKey, committed: CommittedStream) -> dict[str, Any]:
        table = self._synced_table(committed)
        facts: dict[str, Any] = {}
        if table and self._requested.column_metadata:
            source = source_asset(self._context.assets_def.metadata_by_key[key])
            facts |= self._metadata_or_nothing(table, partial(table_metadata.column_metadata, source=source))
        if table and self._requested.insights:
            facts |= self._metadata_or_nothing(table, table_metadata.insights)
        return facts

    def _sample(self, committed: CommittedStream) -> dict[str, Any]:
        table, rows = self._synced_table(committed), self._requested.sample_rows
        if table is None or not rows or not committed.report.committed:
            return {}
        return self._metadata_or_nothing(table, partial(table_metadata.sample, rows=rows))

    def _metadata_or_nothing(
        self, table: SyncedTable, query: Callable[[SyncedTable], dict[str, Any]]
    ) -> dict[str, Any]:
        """Empty if the table cannot be queried: its rows are committed, so that is no reason to fail the step."""
        try:
            return query(table)
        except ProtoError as error:
            self._context.log.warning(f"{table.name} could not be queried, so its event has less metadata: {error}")
            return {}

    def _synced_table(self, committed: CommittedStream) -> SyncedTable | None:
        if self._queries is None or committed.planned is None or committed.is_relayed:
            return None
        return SyncedTable(
            self._queries.tables.sql_name(committed.table),
            committed.planned,
            committed.sync_id,
            self._queries.query,
            committed.missing_columns,
        )

    def _check_results(self, key: dg.AssetKey, committed: CommittedStream) -> list[dg.AssetCheckResult]:
        """Without an IO manager that answers queries, the checks that need one fail and say so."""
        checks, report = self._definition.checks, self._report(committed)
        if checks is None or committed.planned is None:
            return []
        table = self._queries.tables.sql_name(committed.table) if self._queries else report.table
        query = self._queries.query if self._queries else None
        policy = committed.planned.schema_policy
        earlier = self._earlier_report(committed.planned, report)
        inputs = CheckInput(committed.planned, report, table, policy, report.miscounts, query, earlier)
        return check_results(key, inputs, checks, self._context.selected_asset_check_keys)

    def _earlier_report(self, planned: PlannedStream, own: StreamReport) -> StreamReport | None:
        """The counts of earlier syncs. If the store does not answer, none of the streams has them: its rows are in its
        table, so that is no reason to fail the step."""
        try:
            return self._earlier.report(planned, own) if self._earlier else None
        except ProtoError as error:
            self._earlier = None
            self._context.log.warning(f"The checks leave out what landed in syncs that did not complete: {error}")
            return None

    def _report(self, committed: CommittedStream) -> StreamReport:
        partitioned = self._backfill.is_partitioned
        return self._backfill.combined_report(committed.stream) if partitioned else committed.report
