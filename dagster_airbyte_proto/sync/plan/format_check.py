"""Checks before anything is started that tables of the chosen format can take the planned streams."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import PlannedStream, Shaping, StreamId
from dagster_airbyte_proto.schema.partitioning import transform_of
from dagster_airbyte_proto.tables.abilities import Abilities
from dagster_airbyte_proto.tables.formats import formats


class _Misfit(NamedTuple):
    found: str
    remedy: str


def streams_unfit_for_format(
    connection: str, planned: Iterable[PlannedStream], abilities: Abilities
) -> dict[StreamId, ConfigError]:
    """Returns the streams that tables of the format cannot take, each with its error. Its remedy names what to change,
    and the formats that can take the stream."""
    misfits = ((each, next(_misfits(each, abilities), None)) for each in planned)
    return {each.id: _unfit_error(connection, each, misfit) for each, misfit in misfits if misfit is not None}


def _unfit_error(connection: str, planned: PlannedStream, misfit: _Misfit) -> ConfigError:
    able = [other.abilities.format for other in formats() if not any(_misfits(planned, other.abilities))]
    others = f", or set catalog: {{format: {' or '.join(able)}}} in the settings"
    return ConfigError(
        f"planning the sync of connection {connection}",
        misfit.found,
        remedy=f"{misfit.remedy}{others if able else ''}.",
        stream=str(planned.id),
    )


def _misfits(planned: PlannedStream, abilities: Abilities) -> Iterator[_Misfit]:
    shaping, tables = planned.shaping or Shaping(), f"tables of the format {abilities.format}"
    if planned.write not in abilities.modes:
        modes = " or ".join(f"write: {mode}" for mode in sorted(abilities.modes))
        yield _Misfit(f"{tables} have no write mode {planned.write}", f"Use {modes} for the stream")
    if planned.slice is not None and not abilities.has_slices:
        found = f"it is read for partition {planned.slice}, and {tables} have none"
        yield _Misfit(found, "Take the templates of partitions out of the config")
    if planned.formerly and not abilities.has_renames:
        found = f"formerly renames columns, and {tables} are read by their names"
        yield _Misfit(found, "Take formerly out of the stream's options")
    if shaping.partition_by and not abilities.transforms:
        yield _Misfit(f"{tables} have no partition_by", "Leave it out")
    elif other := [each for each in shaping.partition_by if transform_of(each) not in abilities.transforms]:
        found = f"{tables} are partitioned by the values of columns, and not by {' and '.join(other)}"
        yield _Misfit(found, "Name a column that has few values, such as a date, or leave it out")
    if shaping.cluster and not abilities.has_clustering:
        yield _Misfit(f"{tables} have no cluster", "Leave it out, or use sort_by")
    if planned.merge not in abilities.merges:
        yield _Misfit(f"{tables} have no merge: {planned.merge}", "Leave it out")
