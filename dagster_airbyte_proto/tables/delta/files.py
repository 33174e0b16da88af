"""What the log of a Delta table is told of a part's files, which are added by reference: where each belongs, what
readers may pass it over by, and which of its rows do not count.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.loads.storage import LOCAL, without_file_scheme
from dagster_airbyte_proto.tables.deleted_rows import deleted_rows
from dagster_airbyte_proto.tables.delta.deletion_vectors import deletion_vector
from dagster_airbyte_proto.tables.delta.log import Metadata, added_file, partition_text
from dagster_airbyte_proto.tables.delta.stats import Footer, read_footer


def is_by_reference(metadata: Metadata, files: Sequence[StagedFile]) -> bool:
    """Whether all that is to be done is in the files, and in vectors of their deleted rows."""
    contents = {file.content for file in files}
    return FileContent.EQUALITY_DELETES not in contents and (
        metadata.takes_deletes or FileContent.POSITION_DELETES not in contents
    )


def counted(file: StagedFile) -> int:
    """What a file adds to the rows of its part. No position is deleted twice."""
    return file.rows if file.content is FileContent.ROWS else -file.rows


class Placed(NamedTuple):
    """A file of rows, the partition that it belongs to, and what its footer says."""

    file: StagedFile
    partition: Mapping[str, str | None]
    footer: Footer


def placed(metadata: Metadata, part: StagedRows, files: Sequence[StagedFile]) -> list[Placed]:
    """The files of rows. Raises TableError for what is not as it was staged, or what the table cannot hold."""
    names = metadata.physical_names
    of_values = {name: physical for name, physical in names.items() if name not in metadata.partition_columns}
    rows = [file for file in files if file.content is FileContent.ROWS]
    return [Placed(file, _partition(metadata, part, file), read_footer(file, of_values)) for file in rows]


def added(places: Sequence[Placed], files: Sequence[StagedFile], location: str) -> Iterator[str]:
    """Their `add` actions, in the table at a location. A file without a row that counts has none."""
    deleted = deleted_rows(files, LOCAL)
    for file, partition, footer in places:
        gone = deleted.get(file.path)
        if gone is not None and len(gone) == file.rows:
            continue
        path = without_file_scheme(file.path).removeprefix(f"{location}/")
        deletes = None if gone is None else deletion_vector(gone, location, LOCAL)
        yield added_file(path, size_bytes=footer.size_bytes, stats=footer.stats, partition=partition, deletes=deletes)


def _partition(metadata: Metadata, part: StagedRows, file: StagedFile) -> dict[str, str | None]:
    """Where a file belongs, in the log's words."""
    names = metadata.physical_names
    if metadata.slice_column is not None:
        return {names[metadata.slice_column]: part.slice}
    kinds = {str(field["name"]): field["type"] for field in metadata.columns["fields"]}
    values = dict(zip(metadata.partitioning, file.partition or (), strict=True))
    try:
        return {names[column]: partition_text(value, str(kinds[column])) for column, value in values.items()}
    except ValueError as error:
        raise TableError(
            f"committing rows to table {part.table}",
            f"{error} is a value of a column that it is partitioned by ({', '.join(metadata.partitioning)}), and "
            "readers of Delta tables take that for NULL",
            remedy="Partition the table by another column, or by none, and have it made anew; or set catalog: {format: "
            "iceberg} in the settings.",
            stream=str(part.stream),
        ) from error
