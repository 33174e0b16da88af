"""The status of all connections as an asset: what `airbyte-proto status` shows, once each materialization."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from dagster_airbyte_proto.dagster_defs.automation.next_runs import NextRun, next_runs
from dagster_airbyte_proto.dagster_defs.engines import opened_store
from dagster_airbyte_proto.dagster_defs.failures import failing_the_step
from dagster_airbyte_proto.diagnosis.connection_status import ConnectionStatus, connection_status

_CHECK = "all_complete"
_COLUMNS = ("connection", "last sync", "ended", "rows", "rejected", "lag (s)", "failing streams", "next run")
_GOOD = ("complete", "running")


def build_status_asset(
    name: str = "connection_status", *, group_name: str | None = None, connector_key: str = "connector"
) -> dg.AssetsDefinition:
    """Builds an asset whose metadata is the status of every connection in the state store: its last sync, rows, lag,
    rejects, failing streams and next run, and the sums over all, which Dagster plots over time.

    The next run is known for connections of the same code location, where a schedule or an `on_cron` condition is on.

    Its check `all_complete` warns while the last sync of a connection is not complete, or a load of a dead run may have
    landed. It opens no table, and takes a moment: put it on a schedule of some minutes.
    """

    @dg.asset(
        name=name,
        group_name=group_name,
        description="The status of every connection in the state store.",
        required_resource_keys={connector_key},
        check_specs=[
            dg.AssetCheckSpec(_CHECK, asset=name, description="The last sync of every connection is complete.")
        ],
    )
    def status(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster reads it
        now = datetime.now(UTC)
        with failing_the_step(), opened_store(getattr(context.resources, connector_key)) as store:
            found = [connection_status(store, connection) for connection in store.connections()]
        upcoming = next_runs(context, [each.connection for each in found], now)
        return dg.MaterializeResult(metadata=_metadata(found, upcoming, now), check_results=[_check(found)])

    return status


def _metadata(found: Sequence[ConnectionStatus], upcoming: Mapping[str, NextRun], now: datetime) -> Mapping[str, Any]:
    lags = [lag for each in found if (lag := each.lag_seconds(now)) is not None]
    return {
        "connections": dg.MetadataValue.md(_markdown(found, upcoming, now)) if found else "none",
        "not_complete": sum(each.status not in _GOOD for each in found),
        "failing_streams": sum(len(each.failing) for each in found),
        "rows": sum(each.rows for each in found),
        "rejected_rows": sum(each.rejected for each in found),
        "unfinished_loads": sum(each.unfinished_loads for each in found),
        "max_lag_seconds": max(lags, default=0.0),
    }


def _markdown(found: Sequence[ConnectionStatus], upcoming: Mapping[str, NextRun], now: datetime) -> str:
    rows = [[*_COLUMNS], ["---"] * len(_COLUMNS)]
    for each in found:
        lag = each.lag_seconds(now)
        rows.append(
            [
                each.connection,
                (each.status + (f" [{each.newest_partition}]" if each.newest_partition else "")).replace("|", "\\|"),
                each.ended_at.isoformat(sep=" ", timespec="seconds") if each.ended_at else "",
                str(each.rows),
                str(each.rejected),
                f"{lag:.0f}" if lag is not None else "",
                ", ".join(each.failing).replace("|", "\\|"),
                str(upcoming[each.connection]),
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _check(found: Sequence[ConnectionStatus]) -> dg.AssetCheckResult:
    bad = {each.connection: each.status for each in found if each.status not in _GOOD}
    bad |= {each.connection: "a load of a dead run" for each in found if each.unfinished_loads}
    return dg.AssetCheckResult(
        check_name=_CHECK, passed=not bad, severity=dg.AssetCheckSeverity.WARN, metadata={"connections": bad}
    )
