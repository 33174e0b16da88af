"""What a sync tells when it is over. The JSON's names are fixed: other people's programs read them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from dagster_airbyte_proto.schema.evolution import Change


class SyncStatus(StrEnum):
    COMPLETE = "complete"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StreamReport(msgspec.Struct, frozen=True, kw_only=True):
    """One stream's part. Always `emitted == committed + rejected`; `rejections` says why, by reason. `filtered` of the
    rejected were left out by the stream's own filter. `retryable`: what failed may succeed with nothing changed.
    `schema_changes` are those that no sync before has told of.

    `deleted`: the rows that a replacement took out; else the keys that the source said were deleted, and that each load
    took out or, in `soft_delete`, marked. Whether the table had them is not looked at.
    """

    status: SyncStatus
    table: str
    emitted: int = 0
    committed: int = 0
    rejected: int = 0
    changed: int = 0
    deleted: int = 0
    bytes: int = 0
    state: Any = None
    state_before: Any = None
    load_ids: tuple[str, ...] = ()
    generation: int = 0
    error: str | None = None
    retryable: bool = False
    filtered: int = 0
    rejections: Mapping[str, int] = {}
    ignored_fields: Mapping[str, int] = {}
    miscounts: tuple[str, ...] = ()
    table_rows: int | None = None
    snapshot_id: str | None = None
    schema_changes: tuple[Change, ...] = ()


class LineCounts(msgspec.Struct):
    record: int = 0
    state: int = 0
    log: int = 0
    trace: int = 0
    other: int = 0


class ConnectorReport(msgspec.Struct, frozen=True):
    exit_code: int | None = None
    seconds: float = 0.0
    signal: int | None = None
    errors: tuple[str, ...] = ()
    version: str = ""


class Seconds(msgspec.Struct):
    total: float = 0.0
    waiting_for_connector: float = 0.0
    staging: float = 0.0
    committing: float = 0.0


class SyncReport(msgspec.Struct, frozen=True, kw_only=True):
    """`compacted` are the tables that had grown slow to read, by name."""

    connection: str
    status: SyncStatus
    run_id: str
    recovered_loads: int
    streams: Mapping[str, StreamReport]
    loads: int
    lines: LineCounts
    connector: ConnectorReport
    seconds: Seconds
    error: str | None = None
    warnings: tuple[str, ...] = ()
    partition: str = ""
    compacted: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.to_builtins(self)
        value["seconds"] = {name: round(seconds, 3) for name, seconds in value["seconds"].items()}
        value["connector"]["seconds"] = round(value["connector"]["seconds"], 3)
        return value


def overall(statuses: list[SyncStatus], *, cancelled: bool, connector_failed: bool) -> SyncStatus:
    """The sync's status from its streams': complete only when nothing at all went wrong."""
    if cancelled:
        return SyncStatus.CANCELLED
    good = sum(status is SyncStatus.COMPLETE for status in statuses)
    if good == len(statuses) and not connector_failed:
        return SyncStatus.COMPLETE
    return SyncStatus.PARTIAL if good else SyncStatus.FAILED
