"""The `add` actions for a part's staged files: each with its partition, its statistics and its deleted rows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows, TableTotals
from dagster_airbyte_proto.loads.storage import LOCAL, without_file_scheme
from dagster_airbyte_proto.tables.deleted_rows import deleted_rows
from dagster_airbyte_proto.tables.delta.actions import TableMetadata, add_action, partition_value_text
from dagster_airbyte_proto.tables.delta.files.deletion_vectors import deletion_vector
from dagster_airbyte_proto.tables.delta.files.stats import Footer, read_footer


def can_add_by_reference(metadata: TableMetadata, files: Sequence[StagedFile]) -> bool:
    """Returns whether the files can be added as they are, with deletion vectors for their own deleted rows.

    Not with equality deletes: these reach rows of other files, and Delta has nothing like them.
    """
    contents = {file.content for file in files}
    return FileContent.EQUALITY_DELETES not in contents and (
        metadata.has_deletion_vectors or FileContent.POSITION_DELETES not in contents
    )


def net_rows(file: StagedFile) -> int:
    """Returns what a file adds to the number of rows; a file of position deletes subtracts.

    No position is deleted twice.
    """
    return file.rows if file.content is FileContent.ROWS else -file.rows


class FileToAdd(NamedTuple):
    """A staged file of rows, with its partition values and what its footer says."""

    file: StagedFile
    partition: Mapping[str, str | None]
    footer: Footer


def files_to_add(metadata: TableMetadata, part: StagedRows, files: Sequence[StagedFile]) -> list[FileToAdd]:
    """Returns the files of rows.

    Raises TableError for a file that is not as it was staged, or that the table cannot hold.
    """
    names = metadata.physical_names
    value_columns = {name: physical for name, physical in names.items() if name not in metadata.partition_columns}
    rows = [file for file in files if file.content is FileContent.ROWS]
    return [FileToAdd(file, _partition_values(metadata, part, file), read_footer(file, value_columns)) for file in rows]


def add_actions_of(places: Sequence[FileToAdd], files: Sequence[StagedFile], location: str) -> Iterator[str]:
    """Yields the `add` actions in the table at a location. A file whose rows are all deleted gets none."""
    deleted = deleted_rows(files, LOCAL)
    for file, partition, footer in places:
        deleted_positions = deleted.get(file.path)
        if deleted_positions is not None and len(deleted_positions) == file.rows:
            continue
        path = without_file_scheme(file.path).removeprefix(f"{location}/")
        deletes = None if deleted_positions is None else deletion_vector(deleted_positions, location, LOCAL)
        yield add_action(path, size_bytes=footer.size_bytes, stats=footer.stats, partition=partition, deletes=deletes)


def _partition_values(metadata: TableMetadata, part: StagedRows, file: StagedFile) -> dict[str, str | None]:
    """Returns the partition values of a file, by the physical names of the columns."""
    names = metadata.physical_names
    if metadata.slice_column is not None:
        return {names[metadata.slice_column]: part.slice}
    kinds = {str(field["name"]): field["type"] for field in metadata.columns["fields"]}
    values = dict(zip(metadata.partitioning, file.partition or (), strict=True))
    try:
        return {names[column]: partition_value_text(value, str(kinds[column])) for column, value in values.items()}
    except ValueError as error:
        raise TableError(
            f"committing rows to table {part.table}",
            f"{error} is a value of a column that it is partitioned by ({', '.join(metadata.partitioning)}), and "
            "readers of Delta tables take that for NULL",
            remedy="Partition the table by another column, or by none, and recreate it; or set catalog: {format: "
            "iceberg} in the settings.",
            stream=str(part.stream),
        ) from error


def totals_after(before: TableTotals | None, part: StagedRows) -> TableTotals | None:
    """Returns the totals of a table once a part is added by reference."""
    if before is None:
        return None
    rows = [file for file in part.files if file.content is FileContent.ROWS]
    return TableTotals(before.data_files + len(rows), 0, before.size_bytes + sum(file.size_bytes for file in rows))
