"""The metadata of a pushed stream's events. Numbers stay numbers, so that Dagster can plot them."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster._core.definitions.metadata.metadata_set import NamespacedMetadataSet

from dagster_airbyte_proto.dagster_defs.tables.table_metadata import plotted
from dagster_airbyte_proto.sync.push_report import PushedField, PushedStreamReport, PushReport
from dagster_airbyte_proto.sync.report import SyncStatus


class PushMetadata(NamespacedMetadataSet):
    """The metadata of a stream in one push, in the order of the UI: how it ended, its rows, what it took.

    `planned` are the rows to send. Always `sent == acknowledged + rejected + unknown`; `unnamed` of the rejected rows
    the destination only counted. `resumed` rows of the plan were acknowledged by runs before. A number of planned rows
    that is not there could not be found out. `snapshot` is the one of the table whose rows were planned, as text: web
    browsers round 64-bit numbers.

    `version_before` is the number that `rollback_<connection>` and `state rollback` take to undo the push."""

    status: str | None = None
    error: str | None = None

    planned: int
    planned_added: int
    planned_changed: int | None = None
    planned_removed: int | None = None
    unchanged: int | None = None
    sent: int
    acknowledged: int
    rejected: int
    unnamed: int | None = None
    unknown: int
    resumed: int | None = None
    rejections: dg.JsonMetadataValue | None = None

    bytes: int | float
    metrics: dg.JsonMetadataValue | None = None

    pushed_from: str
    snapshot: str | None = None
    cursor: str | None = None
    delivered_table: str | None = None
    version_before: int | None = None
    connector: str
    seconds: float
    run: str

    @classmethod
    def namespace(cls) -> str:
        return "airbyte_proto"


def push_metadata(report: PushReport, pushed: PushedStreamReport, upstream: dg.AssetKey | None) -> dict[str, Any]:
    """The metadata of one stream. `upstream` is the asset of the table that its fields come from."""
    planned, is_complete = pushed.planned, pushed.status is SyncStatus.COMPLETE
    metadata = PushMetadata(
        status=None if is_complete else pushed.status.value,
        error=pushed.error or None,
        planned=planned.to_send,
        planned_added=planned.added,
        planned_changed=planned.changed,
        planned_removed=planned.removed,
        unchanged=planned.unchanged,
        sent=pushed.sent,
        acknowledged=pushed.acknowledged,
        rejected=pushed.rejected,
        unnamed=pushed.unnamed or None,
        unknown=pushed.unknown,
        resumed=pushed.resumed or None,
        rejections=dg.JsonMetadataValue(dict(pushed.rejections)) if pushed.rejections else None,
        bytes=plotted(pushed.bytes),
        metrics=dg.JsonMetadataValue(pushed.metrics) if pushed.metrics else None,
        pushed_from=pushed.origin,
        snapshot=pushed.snapshot,
        cursor=pushed.cursor,
        delivered_table=pushed.table,
        version_before=pushed.version_before,
        connector=report.connector,
        seconds=round(report.seconds, 3),
        run=report.run_id,
    )
    return {**metadata, **fields_metadata(pushed.fields, upstream)}


def fields_metadata(fields: Mapping[str, PushedField], upstream: dg.AssetKey | None) -> dict[str, Any]:
    """The fields that the destination gets, and the columns of `upstream` that they come from."""
    if not fields:
        return {}
    schema = dg.TableSchema([dg.TableColumn(name, field.type) for name, field in fields.items()])
    if upstream is None:
        return {"dagster/column_schema": schema}
    origins = {
        name: [dg.TableColumnDep(asset_key=upstream, column_name=column) for column in field.columns]
        for name, field in fields.items()
        if field.columns
    }
    return {"dagster/column_schema": schema, "dagster/column_lineage": dg.TableColumnLineage(origins)}
