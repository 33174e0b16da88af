"""Rows for tables that are partitioned, staged as a sync would."""

import datetime
from collections.abc import Sequence
from typing import Any

import msgspec

from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableSpec
from dagster_airbyte_proto.model import PlannedStream, Shaping, WriteMode
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.stage import Stage
from dagster_airbyte_proto.tables.writer import TableWriter
from tests.staging.conftest import SHAPE, plan, records

_PROPERTIES = {
    "id": {"type": "integer"},
    "at": {"type": "string", "format": "date-time"},
    "on": {"type": "string", "format": "date"},
    "country": {"type": ["null", "string"]},
    "n": {"type": "integer"},
    "big": {"type": "number", "airbyte_type": "big_integer"},
}
_MOMENT = datetime.datetime(1969, 12, 28, 22, 30, tzinfo=datetime.UTC)


def parted(name: str, partition_by: Sequence[str], write: WriteMode = WriteMode.APPEND_DEDUP) -> PlannedStream:
    planned = plan(_PROPERTIES, name=name, write=write, key=[("id",)], cursor=("n",))
    return msgspec.structs.replace(planned, shaping=Shaping(partition_by=tuple(partition_by)))


def row(number: int, version: int = 0) -> dict[str, Any]:
    at = _MOMENT + datetime.timedelta(hours=7 * number + 24 * version)
    return {
        "id": number * 1_000_000_007 - 5,
        "at": None if number == 3 else at.isoformat(),
        "on": at.date().isoformat(),
        "country": [None, "", "a/b=c", "Österreich", "__HIVE_DEFAULT_PARTITION__"][(number + version) % 5],
        "n": number - 6 + 100 * version,
        "big": -(10**20) + number,
    }


def land(tables: TableWriter, planned: PlannedStream, load_id: str, rows: Sequence[dict[str, Any]]) -> StagedRows:
    """Stages the rows and commits them, twice."""
    columns = table_columns(planned)
    spec = TableSpec(planned.table, columns.schema, columns.keys, partitioning=columns.partitioning)
    target = tables.prepare(spec)
    stage = Stage([StreamInput(planned, columns, target)], RunInput(SHAPE, load_id, sync_id=1))
    for line in records(rows, stream=planned.id.name).splitlines():
        stage.add_line(planned.id, line)
    stage.mark(planned.id)
    part = stage.cut(planned.id)
    assert part is not None
    for _ in range(2):
        tables.commit(load_id, part)
    return part
