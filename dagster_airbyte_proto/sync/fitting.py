"""Whether the tables can take what is planned: asked before anything is started."""

from collections.abc import Sequence

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import PlannedStream
from dagster_airbyte_proto.tables.writer import FORMATS, Abilities


def refuse_unfit(connection: str, planned: Sequence[PlannedStream], abilities: Abilities) -> None:
    """Raises ConfigError for the first stream that tables of the format do not take, with the ways out."""
    for each in planned:
        if each.write not in abilities.modes:
            modes = " or ".join(f"write: {mode}" for mode in sorted(abilities.modes))
            found = f"tables of the format {abilities.format} have no write mode {each.write}"
            raise _unfit(connection, each, found, f"Use {modes} for the stream")
        if each.slice is not None and not abilities.has_slices:
            found = f"it is read for partition {each.slice}, and tables of the format {abilities.format} have none"
            raise _unfit(connection, each, found, "Take the templates of partitions out of the config")
        if each.formerly and not abilities.has_renames:
            found = f"formerly renames columns, and tables of the format {abilities.format} are read by their names"
            raise _unfit(connection, each, found, "Take formerly out of the stream's options")
        if each.shaping and each.shaping.partition_by and not abilities.has_partitioning:
            found = f"tables of the format {abilities.format} have no partition_by"
            raise _unfit(connection, each, found, "Leave it out")


def _unfit(connection: str, planned: PlannedStream, found: str, way_out: str) -> ConfigError:
    able = [each.format for each in FORMATS.values() if planned.write in each.modes and each.has_slices]
    others = " or ".join(name for name in able if name != "folder")
    return ConfigError(
        f"planning the sync of connection {connection}",
        found,
        remedy=f"{way_out}, or set catalog: {{format: {others}}} in the settings.",
        stream=str(planned.id),
    )
