"""Frames in Iceberg tables: Spark's writer puts properties into the snapshot that it makes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.formats import LOAD_ID
from dagster_airbyte_proto.tables.iceberg.log import Snapshot
from dagster_airbyte_proto.tables.writer import FrameLoad

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dagster_airbyte_proto.tables.iceberg.connect.tables import RemoteIcebergTables
    from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables


class IcebergFrames(NamedTuple):
    """The tables of a writer, with a JVM or without, as those that take frames."""

    tables: "IcebergTables | RemoteIcebergTables"

    def prepare(self, name: TableName, frame: "DataFrame", slice_column: str | None) -> TableTarget:
        return self.tables.prepare_for_frame(name, frame, slice_column)

    @contextmanager
    def writing(self, load: FrameLoad, target: TableTarget) -> Iterator[Mapping[str, str]]:  # noqa: ARG002 - of any
        labels = {f"airbyte-proto.{key}": value for key, value in load.labels.items()}
        yield {f"snapshot-property.{key}": value for key, value in {**labels, LOAD_ID: load.load_id}.items()}

    def landed(self, load_id: str, name: TableName) -> Snapshot | None:
        return self.tables.snapshot_of_load(load_id, name)
