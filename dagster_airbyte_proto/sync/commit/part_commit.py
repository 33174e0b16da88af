"""Commits one part of a load to its table, and finds out whether an earlier run has.

The errors say what a person can do: where nobody can tell whether a part has landed, its load stays announced.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from dagster_airbyte_proto.errors import CommitUnknown, ProtoError
from dagster_airbyte_proto.loads.load import CommittedRows, Load, StagedRows
from dagster_airbyte_proto.model import REPLACING
from dagster_airbyte_proto.sync.commit.table_witness import LoadMemory, check_not_set_back
from dagster_airbyte_proto.tables.writer import TableWriter


def commit_part(tables: TableWriter, load: Load, part: StagedRows) -> CommittedRows:
    """Commits a part that its table does not have."""
    try:
        return tables.commit(load.load_id, part)
    except CommitUnknown as error:
        remedy = error.remedy or (
            f"Load {load.load_id} stays announced. The next sync, or `airbyte-proto recover {load.connection}`, finds"
            f" out whether its rows are in table {part.table}."
        )
        raise CommitUnknown(error.doing, error.found, remedy=remedy, stream=error.stream) from error


def find_or_commit_part(memory: LoadMemory, tables: TableWriter, load: Load, part: StagedRows) -> CommittedRows:
    """Commits a part that an earlier run may have committed. Raises CommitUnknown where its table cannot tell."""
    return find_part(tables, load, part) or commit_missing_part(memory, tables, load, part)


def find_part(tables: TableWriter, load: Load, part: StagedRows) -> CommittedRows | None:
    """Looks for a part in its table. Raises CommitUnknown, with the ways out, where the table cannot tell."""
    with _unknown_if_unreadable(load, part):
        return tables.find_load(load.load_id, part)


def commit_missing_part(memory: LoadMemory, tables: TableWriter, load: Load, part: StagedRows) -> CommittedRows:
    """Commits a part of an earlier run that its table lacks. Raises TableError if the table was set back meanwhile, and
    rows that the state of the part covers would be missing before it."""
    if _needs_rows_before(load, part):
        with _unknown_if_unreadable(load, part):
            witness = tables.witness(part.table, load.connection)
        check_not_set_back(memory, load, part, witness)
    return commit_part(tables, load, part)


def _needs_rows_before(load: Load, part: StagedRows) -> bool:
    """True if a state of the load covers more rows of the stream than those of the part."""
    is_covered = any(
        state.stream == part.stream or (state.stream is None and not part.read_whole) for state in load.states
    )
    return is_covered and part.write not in REPLACING and not part.is_relayed


@contextmanager
def _unknown_if_unreadable(load: Load, part: StagedRows) -> Iterator[None]:
    """Raises every error as CommitUnknown, with the ways out."""
    try:
        yield
    except ProtoError as error:
        if isinstance(error, CommitUnknown) and error.remedy:
            raise
        raise CommitUnknown(
            f"recovering load {load.load_id} of connection {load.connection}",
            f"it is unknown whether its rows are in table {part.table}: {error.found}",
            remedy="Make the table readable and sync again: that finds out. If it never will be, look for the rows"
            f" (`airbyte-proto loads show {load.load_id}` has queries for that) and run `airbyte-proto loads resolve"
            f" {load.load_id} --as landed` (they are there, its state moves), or `--as lost` (they are not, the"
            f" connector sends them again). In Dagster, the job resolve_load_{load.connection} does the same.",
            stream=str(part.stream),
        ) from error
