"""What Dagster is told of a stream: numbers as numbers, so that it can plot them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.metadata.metadata_set import NamespacedMetadataSet

from dagster_airbyte_proto.schema.shape import text
from dagster_airbyte_proto.sync.delivery import Delivered
from dagster_airbyte_proto.sync.report import StreamReport

# A state that many streams share grows with them, and each event would carry all of it.
_LONGEST_STATE = 4000
_LISTED_LOADS = 20


class StreamMetadata(NamespacedMetadataSet):
    """A stream's part in one sync. `snapshot_id` is text: a web browser rounds numbers of 64 bits."""

    emitted: int
    committed: int
    rejected: int
    changed: int
    deleted: int
    bytes: int
    generation: int
    loads: int
    filtered: int | None = None
    seconds: float | None = None
    snapshot_id: str | None = None
    load_ids: str | None = None
    connector: str | None = None
    status: str | None = None
    error: str | None = None
    state_before: dg.JsonMetadataValue | dg.TextMetadataValue | None = None
    state_after: dg.JsonMetadataValue | dg.TextMetadataValue | None = None
    rejections: dg.JsonMetadataValue | None = None
    ignored_fields: dg.JsonMetadataValue | None = None
    schema_changes: dg.JsonMetadataValue | None = None

    @classmethod
    def namespace(cls) -> str:
        return "airbyte_proto"


def materialization(
    key: dg.AssetKey, delivered: Delivered, checked: Sequence[dg.AssetCheckResult], *, seconds: float
) -> dg.MaterializeResult[Delivered]:
    """The event of a complete stream, with what its IO manager is to find in the table. `seconds` are the sync's."""
    told = StreamMetadata(
        **_numbers(delivered.report),
        **_texts(delivered.report),
        seconds=round(seconds, 3),
        connector=delivered.connector or None,
    )
    return dg.MaterializeResult(
        asset_key=key,
        value=delivered,
        metadata={**told, **_of_table(delivered)},
        check_results=checked,
    )


def partitions_materialization(
    key: dg.AssetKey, delivered: Delivered, checked: Sequence[dg.AssetCheckResult], *, seconds: float
) -> dg.MaterializeResult[Delivered]:
    """What the events of all of a run's partitions have in common; what each brought is in `of_partition`."""
    told: dict[str, Any] = {"airbyte_proto/seconds": round(seconds, 3), **_of_table(delivered)}
    if delivered.connector:
        told["airbyte_proto/connector"] = delivered.connector
    return dg.MaterializeResult(asset_key=key, value=delivered, metadata=told, check_results=checked)


def of_partition(report: StreamReport, rows: int | None) -> dict[str, Any]:
    """What a stream brought in one partition, whose slice of the table has so many `rows` now."""
    told = StreamMetadata(**_numbers(report), **_texts(report))
    return {**told, **({} if rows is None else {"dagster/partition_row_count": rows})}


def unasked(key: dg.AssetKey, delivered: Delivered) -> dg.AssetMaterialization:
    """A complete stream that was not selected, and was synced with those that share its state."""
    told = StreamMetadata(**_numbers(delivered.report), **_texts(delivered.report))
    return dg.AssetMaterialization(key, metadata={**told, **_of_table(delivered)})


def observation(key: dg.AssetKey, report: StreamReport, partition: str | None = None) -> dg.AssetObservation:
    """A stream that is not complete. Never a materialization: Dagster would not run it again from failure."""
    told = StreamMetadata(**_numbers(report), **_texts(report), status=report.status.value, error=report.error or None)
    return dg.AssetObservation(asset_key=key, description=report.error, metadata=dict(told), partition=partition)


def _of_table(delivered: Delivered) -> dict[str, Any]:
    """Where the table is, and what it said when its last rows came in. The IO manager, which looks once more, wins."""
    report, uri = delivered.report, uri_of(delivered.location)
    rows = {} if report.table_rows is None else {"dagster/row_count": report.table_rows}
    return {"dagster/table_name": report.table, **rows, **({"dagster/uri": uri} if uri else {})}


def uri_of(location: str) -> str:
    """Where a table's files are. Empty for nowhere."""
    return Path(location).as_uri() if location.startswith("/") else location


def _numbers(report: StreamReport) -> dict[str, Any]:
    return {
        "emitted": report.emitted,
        "committed": report.committed,
        "rejected": report.rejected,
        "filtered": report.filtered or None,
        "changed": report.changed,
        "deleted": report.deleted,
        "bytes": report.bytes,
        "generation": report.generation,
        "loads": len(report.load_ids),
    }


def _texts(report: StreamReport) -> dict[str, Any]:
    return {
        "snapshot_id": report.snapshot_id,
        "load_ids": _listed(report.load_ids),
        "state_before": _state(report.state_before),
        "state_after": _state(report.state),
        "rejections": _counts(report.rejections),
        "ignored_fields": _counts(report.ignored_fields),
        "schema_changes": _changes(report),
    }


def _changes(report: StreamReport) -> dg.JsonMetadataValue | None:
    changes = [text(change) for change in report.schema_changes]
    return dg.JsonMetadataValue(changes) if changes else None


def _listed(load_ids: tuple[str, ...]) -> str | None:
    """The newest ones: the loads log of the state store has them all."""
    before = [f"({len(load_ids) - _LISTED_LOADS} more before)"] if len(load_ids) > _LISTED_LOADS else []
    return " ".join([*before, *load_ids[-_LISTED_LOADS:]]) or None


def _state(value: Any) -> dg.JsonMetadataValue | dg.TextMetadataValue | None:
    if value is None:
        return None
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _LONGEST_STATE and isinstance(value, dict | list):
        return dg.JsonMetadataValue(value)
    return dg.TextMetadataValue(text if len(text) <= _LONGEST_STATE else f"{text[:_LONGEST_STATE]}…")


def _counts(counts: Mapping[str, int]) -> dg.JsonMetadataValue | None:
    return dg.JsonMetadataValue(dict(counts)) if counts else None
