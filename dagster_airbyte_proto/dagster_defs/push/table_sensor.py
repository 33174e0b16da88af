"""A sensor that pushes the rows of a table as soon as it has a new snapshot."""

import json
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import dagster as dg

from dagster_airbyte_proto.dagster_defs.definitions.asset_keys import check_lists
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import definition_of
from dagster_airbyte_proto.dagster_defs.failures import failing_the_tick
from dagster_airbyte_proto.errors import ConfigError, TableError

_MAX_NAMED_TABLES = 5


@runtime_checkable
class SnapshotIOManager(Protocol):
    """An IO manager that knows the newest snapshots of its tables."""

    def newest_snapshot(self, table: str) -> str | None: ...


def build_table_sensor(
    pushes: dg.AssetsDefinition,
    *,
    tables: Mapping[str, Sequence[str]] | None = None,
    name: str | None = None,
    minimum_interval_seconds: int = 60,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Builds a sensor that starts a run of the pushed streams whose table has a new snapshot.

    `pushes` are assets of `build_push_assets` or `@push_assets`. The sensor watches the tables that the streams read;
    `tables` names other ones by stream, above all for a stream that reads a query. Compactions do not count. To look
    costs no Spark, but for an Iceberg catalog of another type than `hadoop`. The cursor has the snapshots. Raises
    ConfigError where there is no table to watch, and for assets with partitions.
    """
    definition = definition_of(pushes, pushed=True)
    connection = definition.connection
    doing = f"building the table sensor of connection {connection.name}"
    if pushes.partitions_def is not None:
        remedy = "A snapshot does not tell which partition changed: use an automation condition."
        raise ConfigError(doing, "its assets have partitions", remedy=remedy)
    check_lists(doing, "tables", tables or {})
    watched: dict[str, list[dg.AssetKey]] = {}
    for key, stream in definition.streams.items():
        table = (connection.push or {})[str(stream)].table
        for each in (tables or {}).get(str(stream), [table] if table else []):
            watched.setdefault(each, []).append(key)
    unknown = sorted((tables or {}).keys() - {str(stream) for stream in definition.streams.values()})
    if unknown:
        raise ConfigError(doing, f"`tables` names {', '.join(unknown)}, and there are no such streams")
    if not watched:
        remedy = 'Name the tables that its queries read: tables={"buyers": ["lake.shop.users"]}.'
        raise ConfigError(doing, "its streams read queries alone", remedy=remedy)
    return dg.SensorDefinition(
        name=name or f"{connection.name}_tables",
        evaluation_fn=_Evaluation(watched, definition.io_manager_key),
        target=pushes,
        minimum_interval_seconds=minimum_interval_seconds,
        required_resource_keys={definition.io_manager_key},
        description=f"Pushes the streams of {connection.name} whose tables have a new snapshot.",
        default_status=default_status,
    )


class _Evaluation:
    """One tick: reads the newest snapshot of each table, and requests the streams of those that have a new one."""

    def __init__(self, watched: Mapping[str, Sequence[dg.AssetKey]], io_manager_key: str) -> None:
        self._watched, self._io_manager_key = watched, io_manager_key

    @failing_the_tick()
    def __call__(self, context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        known: dict[str, str] = json.loads(context.cursor or "{}")
        found = self._snapshots(context, known)
        changed = [table for table, snapshot in found.items() if snapshot != known.get(table)]
        if not changed:
            return dg.SkipReason("No table has a new snapshot.")
        more = f" and {len(changed) - _MAX_NAMED_TABLES} more" if len(changed) > _MAX_NAMED_TABLES else ""
        reason = f"new snapshot: {', '.join(changed[:_MAX_NAMED_TABLES])}{more}"
        context.log.info(reason)
        keys = dict.fromkeys(key for table in changed for key in self._watched[table])
        request = dg.RunRequest(asset_selection=list(keys), tags={"airbyte_proto/reason": reason})
        return dg.SensorResult(run_requests=[request], cursor=json.dumps(found))

    def _snapshots(self, context: dg.SensorEvaluationContext, known: Mapping[str, str]) -> dict[str, str]:
        """The snapshots now. A table that cannot be read, or is not there, keeps the one that is known of it."""
        io_manager = getattr(context.resources, self._io_manager_key)
        if not isinstance(io_manager, SnapshotIOManager):
            raise ConfigError(
                "looking for new snapshots",
                f"the IO manager {self._io_manager_key!r} is {type(io_manager).__name__}, which knows none",
                remedy=f"Give the definitions a SparkTableIOManager under {self._io_manager_key!r}.",
            )
        found = {}
        for table in self._watched:
            try:
                snapshot = io_manager.newest_snapshot(table) or known.get(table)
            except TableError as error:
                context.log.warning(str(error))
                snapshot = known.get(table)
            if snapshot is not None:
                found[table] = snapshot
        return found
