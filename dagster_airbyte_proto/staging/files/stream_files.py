"""Creates the staged files of one stream in its table's staging folder."""

import os

import pyarrow as pa

from dagster_airbyte_proto.errors import InternalError
from dagster_airbyte_proto.loads.column_ids import POSITION_DELETES
from dagster_airbyte_proto.loads.load import FileContent, StagedFile
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import DEDUPLICATING, PlannedStream
from dagster_airbyte_proto.schema.columns import Columns
from dagster_airbyte_proto.staging.files.parquet_file import ROW_GROUP_BYTES, OpenFile, RowGroups, field_named
from dagster_airbyte_proto.staging.files.staging_folder import (
    StagingFolder,
    create_folder,
    file_name,
    remove_file,
    run_staging_folder,
)
from dagster_airbyte_proto.staging.rows.schema_policy import apply_schema_policy
from dagster_airbyte_proto.staging.rows.segment_parser import ParsedBatch

_NARROW_COLUMNS = 160
# 3.5 times 8 MiB is 28 MiB. glibc requests blocks of 32 MiB and more from the system each time anew, which costs as
# much as a larger segment saves.
_MAX_WIDTH_FACTOR = 3.5


def width_factor(columns: Columns) -> float:
    """Returns the factor by which segments and row groups of a wide stream are larger than those of a narrow one."""
    # Work per column costs 15 µs for each segment and 40 µs for each row group, whatever their size.
    return min(max(1.0, len(columns.parsed_columns) / _NARROW_COLUMNS), _MAX_WIDTH_FACTOR)


class StreamFiles:
    """Creates the staged files of one stream, and their folder with the first of them. Until then no target is needed.

    `written_ratio` is the number of bytes that a byte of records takes once it is written: in the files, and in the
    keys that are kept in memory to find duplicates. It is 1 until the first file is measured.
    """

    def __init__(
        self,
        planned: PlannedStream,
        columns: Columns,
        target: TableTarget | None,
        run_id: str,
    ) -> None:
        self._folder: StagingFolder | None = None
        self.change_columns(planned, columns, target)
        self.resolves_keys = planned.write in DEDUPLICATING
        self.written_ratio = 1.0
        self.has_written_ratio = False
        self._run_id = run_id
        self._name_suffix = os.urandom(4).hex()
        self._files = 0

    def change_columns(self, planned: PlannedStream, columns: Columns, target: TableTarget | None) -> None:
        """Gives the next files other columns, and the target for these; None until it is known."""
        self.planned = planned
        self.columns = columns
        self.target = target
        self._target_folder: StagingFolder | None = None

    def fit_to_table(self, parsed: ParsedBatch) -> ParsedBatch:
        """Returns the batch without the values or rows that the table does not take."""
        target = self.known_target()
        if not target.fit.excluded:
            return parsed
        policy = self.planned.schema_policy
        return apply_schema_policy(parsed, target.fit.excluded, policy, self.columns, target.schema)

    def new_file(self) -> OpenFile:
        """Opens a file of rows."""
        row_group_bytes = int(ROW_GROUP_BYTES * width_factor(self.columns))
        row_groups = RowGroups(row_group_bytes, self.columns.ordering.sorted)
        return self._new("rows", self.known_target().schema, row_groups=row_groups)

    def new_position_deletes(self) -> OpenFile:
        """Opens a file of position deletes."""
        return self._new("positions", POSITION_DELETES, FileContent.POSITION_DELETES)

    def new_equality_deletes(self) -> OpenFile:
        """Opens a file of equality deletes, with the key columns of the table."""
        schema = self.known_target().schema
        keys = pa.schema([field_named(schema, key) for key in self.columns.keys])
        return self._new("keys", keys, FileContent.EQUALITY_DELETES)

    def new_rejections(self, schema: pa.Schema) -> OpenFile:
        """Opens a file of the records that the source rejected."""
        return self._new("rejected", schema, FileContent.REJECTED_RECORDS)

    def remove_staged(self, file: StagedFile) -> None:
        """Deletes a closed file."""
        folder = self._folder
        if folder is None:
            raise InternalError("deleting a staged file", "no file was staged", stream=str(self.planned.id))
        remove_file(folder, folder.path + file.path.removeprefix(folder.uri))

    def _new(
        self,
        kind: str,
        schema: pa.Schema,
        content: FileContent = FileContent.ROWS,
        row_groups: RowGroups = RowGroups(),  # noqa: B008  # a tuple, and frozen
    ) -> OpenFile:
        self._files += 1
        name = file_name(kind, str(self.planned.id), self._name_suffix, self._files)
        return OpenFile(self._create_folder(), name, schema, content, row_groups)

    def _create_folder(self) -> StagingFolder:
        """Returns the target's staging folder, which is created the first time."""
        if self._target_folder is None:
            target = self.known_target()
            folder = StagingFolder.at(run_staging_folder(target, self._run_id), target.storage)
            create_folder(folder)
            self._folder = self._target_folder = folder
        return self._target_folder

    def known_target(self) -> TableTarget:
        """Returns the target. Raises InternalError if it is not known yet."""
        if self.target is None:
            raise InternalError("staging rows", "its stage was given no table target", stream=str(self.planned.id))
        return self.target
