"""A connector's bytes kept once, replayed into tables in each write mode, and compared."""

import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import Catalog, PlannedStream, WriteMode
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.events import CatalogEvent
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest, planned_streams
from dagster_airbyte_proto.sync.run import sync_connection
from tests.fidelity.report import HEAD, Report, compare
from tests.fidelity.sent import sent_records

_KEYED = {WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP, WriteMode.SOFT_DELETE}
ReadTable = Callable[[str], pa.Table]
"""All rows of a table, by the name that the sync's report has for it."""


def kept(connection_file: Path, recording: Path, home: Path) -> Path:
    """Runs the connector once; its bytes are in the folder `recording`."""
    words = [sys.executable, "-m", "dagster_airbyte_proto", "--home", str(home), "record"]
    subprocess.run([*words, str(connection_file), str(recording)], check=True)
    return recording


def check(
    connection: Connection, recording: Path, mode: WriteMode, engine: Engine, read_table: ReadTable
) -> dict[str, Report]:
    """A report for each stream of the connection, replayed in the mode. Streams without a key have no keyed mode."""
    catalog = _catalog(recording)
    replayed = _replayed(connection, catalog, recording, mode)
    report = sync_connection(engine, replayed)
    sent = sent_records(_newest(recording, "read").read_bytes())
    found = {}
    for planned in planned_streams(replayed, catalog, SyncRequest()):
        told = report.streams[str(planned.id)]
        table = read_table(told.table or "")
        found[str(planned.id)] = each = compare(planned, sent.get(planned.id, []), table)
        if told.error is not None or told.emitted != told.committed + told.rejected:
            each.wrong.append(f"the sync says {told.emitted} = {told.committed} + {told.rejected}, {told.error}")
        if told.ignored_fields.keys() != each.ignored.keys():
            each.wrong.append("the sync tells of other ignored fields")
    return found


def text(reports: Mapping[str, Iterable[Report]]) -> str:
    """All reports as Markdown, by mode."""
    return "\n\n".join("\n".join([f"## {mode}\n", HEAD, *map(str, each)]) for mode, each in reports.items())


def _replayed(connection: Connection, catalog: Catalog, recording: Path, mode: WriteMode) -> Connection:
    streams = {
        str(planned.id): _options(planned, mode) for planned in planned_streams(connection, catalog, SyncRequest())
    }
    document = {
        "name": f"fidelity_{mode.value}",
        "connector": {"protocol": "airbyte", "launch": {"kind": "replay", "recording": str(recording)}},
        "config": connection.written_config(),
        "streams": {name: options for name, options in streams.items() if options},
    }
    return Connection.model_validate(document)


def _options(planned: PlannedStream, mode: WriteMode) -> dict[str, Any] | None:
    if mode in _KEYED and not planned.primary_key:
        return None
    keys = {"primary_key": [list(path) for path in planned.primary_key]} if planned.primary_key else {}
    cursor = {"cursor": list(planned.cursor)} if planned.cursor else {}
    return {"read": "full_refresh", "write": mode.value, "types": msgspec.to_builtins(planned.types), **keys, **cursor}


def _catalog(recording: Path) -> Catalog:
    for line in _newest(recording, "discover").read_bytes().split(b"\n"):
        event = AirbyteSource().event(line) if line.strip() else None
        if isinstance(event, CatalogEvent):
            return event.catalog
    raise ValueError(f"{recording} holds no catalog")


def _newest(recording: Path, verb: str) -> Path:
    return max(recording.glob(f"{verb}-*.stdout.jsonl"), key=lambda path: int(path.name.split("-")[1].split(".")[0]))
