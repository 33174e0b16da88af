"""Turns Dagster's partitions into slices of a connection.

The start and end of a time window are written in UTC, as `2026-11-01T00:00:00Z`, whatever the time zone of the
partitions, because connectors expect UTC. The key stays as Dagster writes it, in the partitions' own `fmt`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.templating import has_template
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.sync.plan.stream_plan import Slice


def slices_of(context: dg.AssetExecutionContext) -> tuple[Slice, ...]:
    """The partitions of a step: time windows from oldest to newest, others by key; empty for assets without partitions.

    Raises ConfigError if the assets have partitions and the run names none.
    """
    partitions_def = context.assets_def.partitions_def
    if partitions_def is None:
        return ()
    if not (context.has_partition_key or context.has_partition_key_range):
        raise ConfigError(
            f"syncing {context.assets_def.node_def.name}",
            "its assets have partitions, and the run names none",
            remedy="Choose partitions in the dialog of Materialize, or pass --partition or --partition-range.",
        )
    # Dagster lists the keys of a range in the order of the definition, and dynamic keys in any order.
    slices = (slice_of(partitions_def, key) for key in context.partition_keys)
    return tuple(sorted(slices, key=lambda each: (each.window.get("start", ""), each.key)))


def slice_of(partitions_def: dg.PartitionsDefinition[Any], key: str) -> Slice:
    """One partition, with the values for the templates of a config."""
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return Slice(str(key), _dimension_words(partitions_def, key))
    return Slice(str(key), _window_words(partitions_def, key))


def newest_slice(
    partitions_def: dg.PartitionsDefinition[Any] | None, instance: dg.DagsterInstance | None = None
) -> Slice | None:
    """The newest partition, for discovering a connector's streams. None if there is no partition yet, or if only an
    instance knows the keys and none is given."""
    if partitions_def is None or (instance is None and _is_dynamic(partitions_def)):
        return None
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        key = partitions_def.get_last_partition_key()
        return None if key is None else slice_of(partitions_def, key)


def newest_slice_words(
    connection: Connection, partitions_def: dg.PartitionsDefinition[Any] | None, instance: dg.DagsterInstance
) -> Mapping[str, str]:
    """The values that a sync of the newest partition fills the config's templates with; empty without templates.

    Raises ConfigError if there are templates and no partition yet.
    """
    if not has_template(connection.written_config()):
        return {}
    newest = newest_slice(partitions_def, instance)
    if newest is not None:
        return newest.template_values
    if partitions_def is None:
        return {}
    raise ConfigError(
        f"starting the connector of connection {connection.name}",
        "its config has templates of a partition, and there is no partition yet",
        remedy="Add the first partition, and try again.",
    )


def _dimension_words(partitions_def: dg.MultiPartitionsDefinition, key: str) -> Mapping[str, str]:
    """The key in each dimension, and `start` and `end` if one dimension has time windows."""
    keys = partitions_def.get_partition_key_from_str(key).keys_by_dimension
    words: dict[str, str] = {}
    for dimension in partitions_def.partitions_defs:
        words |= _window_words(dimension.partitions_def, keys[dimension.name])
    return {**words, **keys}


def _window_words(partitions_def: dg.PartitionsDefinition[Any], key: str) -> Mapping[str, str]:
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return {}
    window = partitions_def.time_window_for_partition_key(key)
    return {"start": _utc(window.start), "end": _utc(window.end)}


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _is_dynamic(partitions_def: dg.PartitionsDefinition[Any]) -> bool:
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return any(_is_dynamic(each.partitions_def) for each in partitions_def.partitions_defs)
    return isinstance(partitions_def, dg.DynamicPartitionsDefinition)
