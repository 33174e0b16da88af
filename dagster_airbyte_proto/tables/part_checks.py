"""The rules that every table format applies to a part before it commits it.

- A part on a branch must come directly after the load that its position names.
- A part that counts on the rows of a load before it is refused by a table that others have set back behind that load.
- An equality delete removes rows of older loads only. Where there are none it is left out of the commit.
- A high-water mark is stored only if it covers all rows of the table or branch.
- A table's partitioning and slice column never change. A part that was staged for another layout is refused.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto.errors import InternalError, TableError
from dagster_airbyte_proto.loads.column_ids import arrow_schema, names_by_id
from dagster_airbyte_proto.loads.load import FileContent, HighWaterMark, StagedFile, StagedRows
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.loads.table import SLICE_COLUMN, Freshness
from dagster_airbyte_proto.model import DEDUPLICATING, REPLACING
from dagster_airbyte_proto.schema.evolution import IcebergSchema
from dagster_airbyte_proto.schema.names import case_folded
from dagster_airbyte_proto.tables.abilities import Abilities


def continues_branch(part: StagedRows) -> bool:
    """True if the part follows other loads on its branch. It may upsert their rows."""
    return part.branch_position is not None and part.branch_position.after is not None


def check_branch(doing: str, part: StagedRows, last_load_id: str | None) -> None:
    """Raises TableError if the branch does not end with the load that the part must follow.

    Raises InternalError for a part that cannot go to a branch.
    """
    if part.branch_position is None:
        return
    if part.write not in REPLACING or part.slice is not None:
        raise InternalError(
            doing, "only a part that replaces a whole table can go to a branch", stream=str(part.stream)
        )
    if part.branch_position.after is not None and part.branch_position.after != last_load_id:
        found = f"ends with load {last_load_id}" if last_load_id else "no longer exists"
        raise TableError(
            doing,
            f"branch {part.branch_position.branch} {found}, and this load follows load {part.branch_position.after}",
            remedy="Sync again: the next run starts the generation from scratch.",
            stream=str(part.stream),
        )


def effective_files(part: StagedRows, *, holds_rows: bool) -> tuple[StagedFile, ...]:
    """Returns the files of a part that have an effect in a table which `holds_rows` or does not.

    An equality delete removes only rows of older loads. There are none in a table without rows, nor in one that the
    part replaces, unless the part follows other loads of its generation on a branch.
    Raises InternalError for delete files in a mode that does not have them.
    """
    if part.write not in DEDUPLICATING and any(file.content is not FileContent.ROWS for file in part.files):
        raise InternalError(
            "committing a load",
            f"the part has delete files, and write mode {part.write} has none",
            stream=str(part.stream),
        )
    reaches_older_rows = holds_rows if part.write not in REPLACING else continues_branch(part)
    return tuple(file for file in part.files if file.content is not FileContent.EQUALITY_DELETES or reaches_older_rows)


def high_water_mark_after(part: StagedRows, freshness: Freshness) -> HighWaterMark | None:
    """Returns the high-water mark to store with a part that is committed on top of rows with this `freshness`.

    None if others changed the rows since the part was staged: the mark would not cover their rows.
    """
    replaces_all = part.write in REPLACING and part.slice is None and not continues_branch(part)
    is_unchanged = part.high_water_mark is not None and part.high_water_mark.version == freshness.version
    return part.high_water_mark if replaces_all or is_unchanged else None


def check_mode(doing: str, abilities: Abilities, part: StagedRows) -> None:
    """Raises TableError if the format does not support the part's write mode or merge mode."""
    if part.write not in abilities.modes:
        found = f"write mode {part.write} is not supported by tables of the format {abilities.format}"
        raise TableError(doing, found, stream=str(part.stream))
    if part.merge not in abilities.merges:
        found = f"merge: {part.merge} is not supported by tables of the format {abilities.format}"
        raise TableError(doing, found, stream=str(part.stream))


def check_staged_files(files: Sequence[StagedFile], storage: Storage, columns: IcebergSchema) -> None:
    """Raises TableError for a file that Spark would not read as it was staged, to write its rows into the table.

    It has other rows: it was cut off, or is another one. Or a column was renamed since: Spark finds those of a file by
    their names, and would write nulls.
    """
    doing, now = "committing a load", names_by_id(arrow_schema(columns))
    for file in files:
        filesystem, path = storage.at(file.path)
        try:
            with filesystem.open_input_file(path) as opened, pq.ParquetFile(opened) as parquet:
                rows, names = parquet.metadata.num_rows, names_by_id(parquet.schema_arrow)
        except pa.ArrowInvalid as error:
            raise TableError(doing, f"{file.path}: {str(error).partition(chr(10))[0]}") from error
        if rows != file.rows:
            raise TableError(doing, f"{file.path} holds {rows} rows where {file.rows} were staged")
        for number, name in names.items():
            if case_folded(new := now.get(number, name)) != case_folded(name):
                found = f"column {name} was renamed to {new} after its rows were staged"
                raise TableError(doing, found, remedy="Sync again: the rows are staged again, under the new name.")


def check_slice_column(doing: str, actual: str | None, expected: str | None, *, stream: str | None = None) -> None:
    """Raises TableError if a table's slice column is not the expected one."""
    if actual == expected:
        return
    if actual is None:
        found = "the rows belong to one partition, and the table was created without partitions"
    elif expected is None:
        found = f"the table is partitioned by {actual}, and the rows belong to none of its partitions"
    else:
        found = f"the table is partitioned by {actual}, not by {expected}"
    remedy = "Give them another table, or drop this one: the next run creates it again."
    raise TableError(doing, found, remedy=remedy, stream=stream)


def check_table_id(doing: str, actual: str, part: StagedRows) -> None:
    """Raises TableError if the table is not the one for which the part was staged. Older loads do not say."""
    if part.table_id and actual and part.table_id != actual:
        raise TableError(
            doing,
            "another table has its name now: it was dropped and made again after the rows were staged",
            remedy="Sync again.",
            stream=str(part.stream),
        )


def check_follows(doing: str, part: StagedRows, *, is_shown: bool) -> None:
    """Raises TableError if the table does not show the load that a part follows."""
    if part.follows and not is_shown:
        raise TableError(
            doing,
            f"the table was set back: it no longer has load {part.follows}, and the rows that it had would be missing",
            remedy="Run again: the error then says how everything is read, or sent, again.",
            stream=str(part.stream),
        )


def check_slice(doing: str, slice_column: str | None, part: StagedRows) -> None:
    """Raises TableError if the part has a slice and the table has none, or the other way round."""
    expected = None if part.slice is None else slice_column or SLICE_COLUMN
    check_slice_column(doing, slice_column, expected, stream=str(part.stream))


def check_partitioning(
    doing: str, actual: Sequence[str], expected: Sequence[str], *, stream: str | None = None
) -> None:
    """Raises TableError if a table's partition fields, as a user writes them, are not the expected ones."""
    if [each.casefold() for each in actual] == [each.casefold() for each in expected]:
        return
    has, needs = (f"by {', '.join(each)}" if each else "by nothing" for each in (actual, expected))
    raise TableError(
        doing,
        f"the table is partitioned {has}, and the stream {needs}",
        remedy=(f"Set partition_by: [{', '.join(actual)}], or drop" if actual else "Leave out partition_by, or drop")
        + " the table: the next run creates it again.",
        stream=stream,
    )
