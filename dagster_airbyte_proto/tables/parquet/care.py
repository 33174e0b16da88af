"""The care of plain Parquet tables, and of others with the same log."""

from collections.abc import Collection, Sequence
from datetime import datetime

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.column_ids import arrow_schema
from dagster_airbyte_proto.loads.load import FileContent, StagedFile
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.care import (
    SMALL_SHARE,
    CompactionResult,
    ProtectedFiles,
    SnapshotChange,
    TableFacts,
    TableHistory,
)
from dagster_airbyte_proto.tables.parquet.logged_tables import LoggedTables

_TARGET_BYTES = 128 << 20


class ParquetCare:
    """The care of tables with such a log: they can be inspected only. They keep every log entry and every file."""

    def __init__(self, tables: LoggedTables, format_name: str) -> None:
        self._tables = tables
        self._format = format_name

    def names(self) -> Sequence[TableName]:
        return self._tables.names()

    def facts(self, name: TableName) -> TableFacts:
        view = self._tables.snapshot(name)
        files = [file for _, entry in view.live for file in entry.files]
        rows = [file for file in files if file.content is FileContent.ROWS]
        schema = arrow_schema(view.columns)
        return TableFacts(
            table=str(name),
            format=self._format,
            rows=self._tables.row_count(name),
            files=len(rows),
            small_files=sum(file.size_bytes < SMALL_SHARE * _TARGET_BYTES for file in rows),
            delete_files=len(files) - len(rows),
            size_bytes=sum(file.size_bytes for file in files),
            snapshots=len(view.loads),
            last_load=next(reversed(view.loads), None),
            last_load_at=None,
            partitioned_by=view.slice_column,
            slices=len({entry.slice for _, entry in view.live if entry.slice is not None}),
            columns=tuple((field.name, str(field.type)) for field in schema),
        )

    def history(self, name: TableName) -> TableHistory:
        changes = tuple(
            SnapshotChange(str(number), None, entry.write.value, *_row_counts(entry.files), load_id=entry.load_id)
            for number, entry in self._tables.snapshot(name).loads.values()
        )
        return TableHistory(changes, (), changes[-1].snapshot_id if changes else None)

    def compact(self, name: TableName, *, keeps_deletes: bool = False) -> CompactionResult:  # noqa: ARG002 - as TableCare has it
        raise self._unsupported(f"compacting table {name}")

    def expire(self, name: TableName, snapshot_ids: Collection[str]) -> int:
        raise self._unsupported(f"expiring {len(snapshot_ids)} snapshots of table {name}")

    def remove_orphans(self, name: TableName, *, before: datetime, protected: ProtectedFiles) -> tuple[str, ...]:
        raise self._unsupported(f"removing files of table {name} older than {before}, except {len(protected.paths)}")

    def _unsupported(self, doing: str) -> ConfigError:
        return ConfigError(
            doing,
            f"tables of the format {self._format} have no snapshots, and are read as they are",
            remedy="Set catalog: {format: iceberg, or delta} in the settings for tables with snapshots and compaction.",
        )


def _row_counts(files: Sequence[StagedFile]) -> tuple[int, int, int]:
    added = sum(file.rows for file in files if file.content is FileContent.ROWS)
    return added, 0, sum(file.rows for file in files) - added
