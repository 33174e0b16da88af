"""The Dagster events of a stream, and their metadata. Numbers stay numbers, so that Dagster can plot them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG
from dagster._core.definitions.metadata.metadata_set import NamespacedMetadataSet

from dagster_airbyte_proto.dagster_defs.tables.table_metadata import plotted, table_uri
from dagster_airbyte_proto.schema.stream_profile import change_text
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.report import StreamReport

# A state that many streams share grows with them, and the event of each stream would carry all of it.
_MAX_STATE_CHARACTERS = 4000
_MAX_LISTED_LOADS = 20
# Of larger integers, JavaScript rounds the last digits.
_LARGEST_EXACT = 2**53 - 1


class StreamMetadata(NamespacedMetadataSet):
    """The metadata of a stream in one sync, in the order of the UI: how it ended, its rows, what it took, its table,
    its state. `snapshot_id` is text: web browsers round 64-bit numbers.

    `version_before` is the number that `rollback_<connection>` and `state rollback` take to undo the sync."""

    status: str | None = None
    error: str | None = None

    emitted: int
    committed: int
    rejected: int
    uncommitted: int | None = None
    unknown: int | None = None
    filtered: int | None = None
    dropped: int | None = None
    added: int | None = None
    rejections: dg.JsonMetadataValue | None = None
    changed: int
    nulled: dg.JsonMetadataValue | None = None
    ignored_fields: dg.JsonMetadataValue | None = None
    deleted: int

    bytes: int | float
    metrics: dg.JsonMetadataValue | None = None
    seconds: float | None = None
    connector: str | None = None

    loads: int
    load_ids: str | None = None
    snapshot_id: str | None = None
    generation: int
    schema_changes: dg.JsonMetadataValue | None = None

    version_before: int | None = None
    state_before: dg.JsonMetadataValue | dg.TextMetadataValue | None = None
    state_after: dg.JsonMetadataValue | dg.TextMetadataValue | None = None

    @classmethod
    def namespace(cls) -> str:
        return "airbyte_proto"


def materialization(
    key: dg.AssetKey, committed: CommittedStream, checked: Sequence[dg.AssetCheckResult], *, seconds: float
) -> dg.MaterializeResult[CommittedStream]:
    """Returns the event of a complete stream; its IO manager gets the CommittedStream to confirm. `seconds` is how long
    the sync has run."""
    metadata = StreamMetadata(
        **_numbers(committed.report),
        **_texts(committed.report),
        seconds=round(seconds, 3),
        connector=committed.connector or None,
    )
    return dg.MaterializeResult(
        asset_key=key,
        value=committed,
        metadata={**metadata, **_table_place(committed)},
        check_results=checked,
    )


def partitions_materialization(
    key: dg.AssetKey, committed: CommittedStream, checked: Sequence[dg.AssetCheckResult], *, seconds: float
) -> dg.MaterializeResult[CommittedStream]:
    """Returns the event for all partitions of a run, with the metadata they share; see `partition_metadata`."""
    metadata: dict[str, Any] = {"airbyte_proto/seconds": round(seconds, 3), **_table_place(committed)}
    if committed.connector:
        metadata["airbyte_proto/connector"] = committed.connector
    return dg.MaterializeResult(asset_key=key, value=committed, metadata=metadata, check_results=checked)


def partition_metadata(report: StreamReport, rows: int | None) -> dict[str, Any]:
    """Returns the metadata of a stream in one partition. `rows` is the size of that slice of the table now."""
    metadata = StreamMetadata(**_numbers(report), **_texts(report))
    return {**metadata, **({} if rows is None else {"dagster/partition_row_count": rows})}


def unselected_materialization(key: dg.AssetKey, committed: CommittedStream, run_id: str) -> dg.AssetMaterialization:
    """Returns the event of a complete stream that was not selected, but shares its state with one that was."""
    metadata = StreamMetadata(**_numbers(committed.report), **_texts(committed.report))
    tags = {DATA_VERSION_TAG: run_id}  # as that of a selected one: each sync is a new version
    return dg.AssetMaterialization(key, metadata={**metadata, **_table_place(committed)}, tags=tags)


def observation(key: dg.AssetKey, report: StreamReport, partition: str | None = None) -> dg.AssetObservation:
    """Returns the event of an incomplete stream. Not a materialization: with one, Dagster's re-execution from failure
    would skip the stream."""
    metadata = StreamMetadata(
        **_numbers(report), **_texts(report), status=report.status.value, error=report.error or None
    )
    return dg.AssetObservation(asset_key=key, description=report.error, metadata=dict(metadata), partition=partition)


def _table_place(committed: CommittedStream) -> dict[str, Any]:
    """The place of the table, and its size after the last commit; or the stream of the destination.

    The IO manager's values, read later, win.
    """
    if committed.is_relayed:
        return {"airbyte_proto/destination_stream": committed.report.table}
    report, uri = committed.report, table_uri(committed.location)
    rows = {} if report.table_rows is None else {"dagster/row_count": report.table_rows}
    return {"dagster/table_name": report.table, **rows, **({"dagster/uri": uri} if uri else {})}


def _numbers(report: StreamReport) -> dict[str, Any]:
    return {
        "emitted": report.emitted,
        "committed": report.committed,
        "rejected": report.rejected - report.uncommitted,
        "uncommitted": report.uncommitted or None,
        "filtered": report.filtered or None,
        "dropped": report.dropped or None,
        "added": report.added or None,
        "unknown": report.unknown or None,
        "changed": report.changed,
        "deleted": report.deleted,
        "bytes": plotted(report.bytes),
        "generation": report.generation,
        "loads": len(report.load_ids),
        "version_before": report.version_before,
    }


def _texts(report: StreamReport) -> dict[str, Any]:
    return {
        "snapshot_id": report.snapshot_id,
        "load_ids": _load_ids_text(report.load_ids),
        "state_before": _state(report.state_before),
        "state_after": _state(report.state),
        "rejections": _counts(report.rejections),
        "ignored_fields": _counts(report.ignored_fields),
        "nulled": _counts(report.nulled),
        "metrics": dg.JsonMetadataValue(report.metrics) if report.metrics else None,
        "schema_changes": _changes(report),
    }


def _changes(report: StreamReport) -> dg.JsonMetadataValue | None:
    changes = [change_text(change) for change in report.schema_changes]
    return dg.JsonMetadataValue(changes) if changes else None


def _load_ids_text(load_ids: tuple[str, ...]) -> str | None:
    """The newest load ids; the loads log of the state store has all of them."""
    before = [f"({len(load_ids) - _MAX_LISTED_LOADS} more before)"] if len(load_ids) > _MAX_LISTED_LOADS else []
    return " ".join([*before, *load_ids[-_MAX_LISTED_LOADS:]]) or None


def _state(value: Any) -> dg.JsonMetadataValue | dg.TextMetadataValue | None:
    if value is None:
        return None
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > _MAX_STATE_CHARACTERS:
        return dg.TextMetadataValue(f"{text[:_MAX_STATE_CHARACTERS]}…")
    is_readable = isinstance(value, dict | list) and not _is_rounded_by_browsers(text)
    return dg.JsonMetadataValue(value) if is_readable else dg.TextMetadataValue(text)


def _is_rounded_by_browsers(text: str) -> bool:
    """Returns whether a web browser would show another state than this: of an id, say, or of a time in nanoseconds."""
    numbers: list[int] = []
    json.loads(text, parse_int=lambda digits: numbers.append(abs(int(digits))))
    return max(numbers, default=0) > _LARGEST_EXACT


def _counts(counts: Mapping[str, int]) -> dg.JsonMetadataValue | None:
    return dg.JsonMetadataValue(dict(counts)) if counts else None
