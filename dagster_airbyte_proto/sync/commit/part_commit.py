"""Commits one part of a load to its table, and finds out whether an earlier run has.

The errors say what a person can do: where nobody can tell whether a part has landed, its load stays announced.
"""

from dagster_airbyte_proto.errors import CommitUnknown, ProtoError
from dagster_airbyte_proto.loads.load import CommittedRows, Load, StagedRows
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


def find_or_commit_part(tables: TableWriter, load: Load, part: StagedRows) -> CommittedRows:
    """Commits a part that an earlier run may have committed. Raises CommitUnknown where its table cannot tell."""
    return find_part(tables, load, part) or commit_part(tables, load, part)


def find_part(tables: TableWriter, load: Load, part: StagedRows) -> CommittedRows | None:
    """Looks for a part in its table. Raises CommitUnknown, with the ways out, where the table cannot tell."""
    try:
        return tables.find_load(load.load_id, part)
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
