"""The data files of an Iceberg table whose rows are all there: no delete takes one, and no other file changes one."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.loads.push import PlanFile, TableSnapshot
from dagster_airbyte_proto.tables.iceberg.handle import open_table
from dagster_airbyte_proto.tables.iceberg.positions.planned_files import PARQUET, PlannedTask
from dagster_airbyte_proto.tables.planner import WholeFiles
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_items

_MOST_FILES = 2_000
"""Each costs a call to the JVM, and its footer is read. Spark plans many small files better."""


def whole_files(session: SparkSession, snapshot: TableSnapshot) -> WholeFiles | None:
    """Returns the files of an Iceberg table at a snapshot, None if there are too many or one is not read as it is."""
    table, log = open_table(session, snapshot.table)
    if log.table_uuid != snapshot.table_id:
        return None
    fields = log.columns["fields"]
    if any("initial-default" in field for field in fields):
        return None
    jvm: Any = session._jvm
    to_json = jvm.org.apache.iceberg.ScanTaskParser.toJson
    files: list[PlanFile] = []
    with closing(table.newScan().useSnapshot(int(snapshot.snapshot_id)).planFiles()) as planned:
        for task in java_items(planned):
            found = PlannedTask.from_json(to_json(task))
            file = found.data_file
            if found.delete_files or file.file_format != PARQUET or len(files) == _MOST_FILES:
                return None
            files.append(PlanFile(file.file_path, file.record_count))
    ids = {str(field["name"]): (int(field["id"]), *_nested_ids(field["type"])) for field in fields}
    return WholeFiles(sorted(files, key=lambda file: file.path), ids)


def _nested_ids(kind: Any) -> Iterator[int]:
    """Yields the ids of the fields within a type, in their order."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        yield int(field["id"])
        yield from _nested_ids(field["type"])
    for part in ("element", "key", "value"):
        if part in kind:
            yield int(kind[f"{part}-id"])
            yield from _nested_ids(kind[part])
