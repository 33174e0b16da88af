"""Rules that every table format applies to the part of a load that it commits."""

from collections.abc import Sequence

from dagster_airbyte_proto.errors import InternalError, TableError
from dagster_airbyte_proto.loads.load import FileContent, Newest, StagedFile, StagedRows
from dagster_airbyte_proto.loads.table import DEDUPLICATING, REPLACING, SLICE_COLUMN, Standing
from dagster_airbyte_proto.model import Merge
from dagster_airbyte_proto.tables.formats import Abilities


def follows(part: StagedRows) -> bool:
    """Whether the part comes behind others on a branch, whose rows it may upsert."""
    return part.aside is not None and part.aside.after is not None


def refuse_aside(doing: str, part: StagedRows, newest: str | None) -> None:
    """Raises TableError where the branch does not end with the load that the part comes after, and InternalError for a
    part that cannot be put aside."""
    if part.aside is None:
        return
    if part.write not in REPLACING or part.slice is not None:
        raise InternalError(doing, "only what replaces a whole table is put aside", stream=str(part.stream))
    if part.aside.after is not None and part.aside.after != newest:
        found = f"ends with load {newest}" if newest else "is not there any more"
        raise TableError(
            doing,
            f"branch {part.aside.branch} {found}, and this one comes after load {part.aside.after}",
            remedy="Sync again: the generation is begun anew.",
            stream=str(part.stream),
        )


def landing(part: StagedRows, *, holds_rows: bool) -> tuple[StagedFile, ...]:
    """The files of a part that do something in a table. Raises InternalError for deletes in a mode that has none.

    An equality delete reaches only rows that were there before its load: none where the table `holds_rows` not, or is
    replaced, but by loads that come one after the other.
    """
    if part.write not in DEDUPLICATING and any(file.content is not FileContent.ROWS for file in part.files):
        raise InternalError("committing a load", f"{part.write} brings delete files", stream=str(part.stream))
    reaches_older_rows = holds_rows if part.write not in REPLACING else follows(part)
    return tuple(file for file in part.files if file.content is not FileContent.EQUALITY_DELETES or reaches_older_rows)


def newest_after(part: StagedRows, standing: Standing) -> Newest | None:
    """What a table, or a branch of it, may say of itself once a part is in that is committed onto rows as they are
    `standing`: nothing where others changed them since the part was made."""
    is_all_there_is = part.write in REPLACING and part.slice is None and not follows(part)
    is_as_it_was = part.newest is not None and part.newest.version == standing.version
    return part.newest if is_all_there_is or is_as_it_was else None


def refuse_mode(doing: str, abilities: Abilities, part: StagedRows) -> None:
    """Raises TableError for a part that is written in a way that the format has not."""
    if part.write not in abilities.modes:
        found = f"write mode {part.write} is not supported by tables of the format {abilities.format}"
        raise TableError(doing, found, stream=str(part.stream))
    if part.merge is Merge.COPY_ON_WRITE and not abilities.has_copy_on_write:
        found = f"merge: copy_on_write is not supported by tables of the format {abilities.format}"
        raise TableError(doing, found, stream=str(part.stream))


def refuse_slices(doing: str, made_by: str | None, wanted: str | None, *, stream: str | None = None) -> None:
    """Raises TableError where a table's slice column and the wanted one are not the same."""
    if made_by == wanted:
        return
    if made_by is None:
        found = "the rows are of one partition, and the table was made without partitions"
    elif wanted is None:
        found = f"the table is partitioned by {made_by}, and the rows are of no partition of it"
    else:
        found = f"the table is partitioned by {made_by}, not by {wanted}"
    remedy = "Give them another table, or drop this one to have it made anew."
    raise TableError(doing, found, remedy=remedy, stream=stream)


def refuse_part(doing: str, made_by: str | None, part: StagedRows) -> None:
    """Raises TableError for a part of a slice where the table has none, and for one of none where it has."""
    wanted = None if part.slice is None else made_by or SLICE_COLUMN
    refuse_slices(doing, made_by, wanted, stream=str(part.stream))


def refuse_partitioning(
    doing: str, made_by: Sequence[str], wanted: Sequence[str], *, stream: str | None = None
) -> None:
    """Raises TableError where a table's rows are not parted by what is wanted, as a user writes it."""
    if [each.casefold() for each in made_by] == [each.casefold() for each in wanted]:
        return
    made, want = (f"by {', '.join(each)}" if each else "by nothing" for each in (made_by, wanted))
    raise TableError(
        doing,
        f"the table is partitioned {made}, and the stream {want}",
        remedy=(f"Set partition_by: [{', '.join(made_by)}], or drop" if made_by else "Leave out partition_by, or drop")
        + " the table to have it made anew.",
        stream=stream,
    )
