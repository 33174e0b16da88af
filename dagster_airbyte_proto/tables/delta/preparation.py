"""How a Delta table has to be for a stream, and what the next step to that is. Looks, and changes nothing.

For a generation that replaces the table its columns are only proposed (`delta_log.py`): they become the readers' in the
commit of its rows. Not so in tables without deletion vectors, where a job of Spark writes those: it knows no columns
but the readers'.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dagster_airbyte_proto.errors import InternalError, TableError
from dagster_airbyte_proto.loads.load import StagedRows
from dagster_airbyte_proto.loads.table import TableFit, TableSpec, fit_of
from dagster_airbyte_proto.schema.evolution import Columns, Verdict, decided
from dagster_airbyte_proto.schema.replacing import Before, replacement
from dagster_airbyte_proto.tables.delta.jvm import Look
from dagster_airbyte_proto.tables.delta.log import changed_table, new_table, proposing_table, published_table, widened

Wider = Sequence[tuple[tuple[str, ...], str]]


class Fitting(NamedTuple):
    """The table is as it has to be once there is nothing in `wider`, columns that get another type, and no `action` to
    commit. With a `schema_id` the columns are not the readers' yet."""

    columns: Columns
    fit: TableFit
    schema_id: int | None = None
    wider: Wider = ()
    action: str | None = None

    @property
    def is_there(self) -> bool:
        return not self.wider and self.action is None


def fitting_of(doing: str, look: Look, spec: TableSpec, wanted: Columns) -> Fitting:
    """Raises SchemaRefused where the table cannot be so."""
    if look.version < 0:
        by = [spec.slice_column] if spec.slice_column else [field.column for field in spec.partitioning]
        return Fitting(wanted, TableFit(), action=new_table(wanted, spec.comment, by))
    if spec.replaces and look.metadata.takes_deletes:
        return _brought(doing, look, spec, wanted)
    verdict = decided(look.metadata.columns, wanted, look.metadata.last_column_id, spec.terms)
    fitting = _fitting(doing, verdict, spec, wanted)
    if wider := tuple(widened(look.metadata.columns, verdict.columns)):
        return fitting._replace(wider=wider)
    if verdict.columns != look.metadata.columns:
        return fitting._replace(action=changed_table(look.action, verdict.columns, verdict.last_id))
    return fitting


def _brought(doing: str, look: Look, spec: TableSpec, wanted: Columns) -> Fitting:
    """With columns that come with the rows."""
    metadata = look.metadata
    before = Before(
        metadata.columns, metadata.last_column_id, known=metadata.proposed, fixed=metadata.partition_columns
    )
    verdict, number = replacement(before, wanted, spec.terms)
    fitting = _fitting(doing, verdict, spec, wanted)
    if verdict.columns == metadata.columns or number is not None:
        return fitting._replace(schema_id=number)
    action = proposing_table(look.action, verdict.columns, verdict.last_id, look.version + 1)
    return fitting._replace(action=action)


def _fitting(doing: str, verdict: Verdict, spec: TableSpec, wanted: Columns) -> Fitting:
    verdict.refuse(doing, spec.terms)
    return Fitting(verdict.columns, fit_of(verdict, wanted, spec.terms))


def refuse_branch(doing: str, branch: str | None) -> None:
    if branch is not None:
        raise InternalError(doing, f"there are no branches in Delta, and so no {branch}")


def turned(doing: str, look: Look, part: StagedRows) -> Look:
    """The table with the columns that a part brings with its rows. Raises TableError where these are not known any
    more."""
    if part.aside is None:
        return look
    if part.aside.after is not None or not part.aside.publishes:
        refuse_branch(doing, part.aside.branch)
    if part.aside.schema_id is None:
        return look
    becomes = published_table(look.action, part.aside.schema_id)
    if becomes is None:
        raise TableError(
            doing,
            "the table knows nothing any more of the columns that it was to get with these rows: another generation's "
            "have become its own",
            remedy="Sync again: the generation is begun anew.",
            stream=str(part.stream),
        )
    return look.turned(becomes)
