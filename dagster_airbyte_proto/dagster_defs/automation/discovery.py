"""Partitions that appear: tenants, files, namespaces. Who knows them is asked at an interval, and each new one becomes
a dynamic partition with a run.

1. What a tick adds and the runs of it are one answer, of which Dagster does the partitions first. The cursor, which has
   the keys whose runs were asked for, is kept last: a tick that ended half done is done again, and a partition that it
   added already gets its run.
2. Without a cursor, what was materialized before counts as done: a sensor that is switched on late, or whose first tick
   ended half done, does not sync everything anew, and leaves nothing out.
3. The key of a run holds a mark that changes with the cursor. So a tick that is done again starts no run twice, and a
   partition that went and came back is synced again.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
from dagster._core.definitions.partitions.utils import raise_error_on_invalid_partition_key_substring

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.automation.sensors import TICK_SECONDS, matching_files
from dagster_airbyte_proto.dagster_defs.definitions.definition import definition_of
from dagster_airbyte_proto.dagster_defs.deployment import deployment_around
from dagster_airbyte_proto.dagster_defs.engines import opened_engine
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.model import Catalog
from dagster_airbyte_proto.sync.connector.open_source import opened_source

# What Dagster advises an asset to have at most.
_MAX_PARTITIONS = 100_000
_NAMED = 5

FindKeys = Callable[[dg.SensorEvaluationContext], Iterable[str]]
"""Tells every partition key that there is now, in any order; cheap, for it is called at each tick."""


def build_partition_discovery_sensor(
    assets: dg.AssetsDefinition,
    *,
    find: FindKeys,
    name: str | None = None,
    remove_gone: bool = False,
    max_runs: int = 100,
    minimum_interval_seconds: int = 60,
    required_resource_keys: set[str] | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Adds a partition for each key that `find` comes with and that is none yet, and starts a run of it; `max_runs` at
    a tick, the others at those that follow.

    With `remove_gone` a partition whose key is not found any more is removed; what stands in the tables stays. If no
    key at all is found, none is removed. Raises ConfigError for assets whose partitions are not dynamic.
    """
    partitions_def = _dynamic(assets)
    doing = f"looking for partitions of connection {definition_of(assets).connection.name}"

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        found = _found(find, context, doing)
        existing = set(partitions_def.get_partition_keys(dynamic_partitions_store=context.instance))
        before = _before(context, assets, existing & set(found))
        settled = before.keys & existing
        new = [key for key in found if key not in settled]
        gone = sorted(settled - set(found)) if remove_gone and found else []
        nothing = f"Nothing new among {len(found)} keys."
        if context.cursor is not None and not new and not gone:
            return dg.SkipReason(nothing)
        taken = new[:max_runs]
        _tell(context, new, taken, gone)
        return dg.SensorResult(
            run_requests=[dg.RunRequest(partition_key=key, run_key=f"{key}@{before.mark}") for key in taken],
            dynamic_partitions_requests=_requests(partitions_def, [key for key in taken if key not in existing], gone),
            cursor=before.after(taken, gone).as_text(),
            skip_reason=None if taken else f"Removed: {_named(gone)}" if gone else nothing,
        )

    return dg.SensorDefinition(
        name=name or f"{definition_of(assets).connection.name}_partition_discovery",
        evaluation_fn=evaluate,
        target=assets,
        minimum_interval_seconds=minimum_interval_seconds,
        required_resource_keys=required_resource_keys,
        description=f'Adds partitions to "{partitions_def.name}" as they appear, and syncs them.',
        default_status=default_status,
    )


def files_found(pattern: str | Path, *, quiet_seconds: float = 0.0) -> FindKeys:
    """A partition for each file, whose key is its path below the part of the pattern that has no wildcard.

    `**` stands for any folders. A file counts once it was left alone for `quiet_seconds`.
    """
    parts = Path(pattern).parts
    fixed = next((place for place, part in enumerate(parts) if set(part) & set("*?[")), len(parts) - 1)

    def find(_context: dg.SensorEvaluationContext) -> list[str]:
        found = matching_files(str(pattern), before=time.time() - quiet_seconds)
        return [path.relative_to(Path(*parts[:fixed])).as_posix() for path, _ in found]

    return find


def namespaces_offered(connection: Connection, *, connector_key: str = "connector") -> FindKeys:
    """A partition for each namespace that a connector offers streams of; the sensor requires `connector_key`.

    The connection's own config has to be without templates of a partition.
    """
    return _offered(connection, connector_key, lambda catalog: [each.id.namespace for each in catalog.streams])


def streams_offered(connection: Connection, *, connector_key: str = "connector") -> FindKeys:
    """The same for each stream, by its name with its namespace."""
    return _offered(connection, connector_key, lambda catalog: [str(each.id) for each in catalog.streams])


def _offered(connection: Connection, connector_key: str, keys: Callable[[Catalog], Sequence[str | None]]) -> FindKeys:
    def find(context: dg.SensorEvaluationContext) -> list[str]:
        connector = getattr(context.resources, connector_key)
        with (
            opened_engine(connector, deployment=partial(deployment_around, context.instance)) as engine,
            opened_source(engine, connection, {}) as source,
        ):
            source.check_config()
            return [key for key in keys(source.catalog(anew=True, patience_seconds=TICK_SECONDS)) if key]

    return find


class _Seen(NamedTuple):
    """What the cursor holds: the keys whose runs were asked for, and a number that is another after each change."""

    keys: frozenset[str]
    mark: int

    def after(self, taken: Collection[str], gone: Collection[str]) -> "_Seen":
        return _Seen(self.keys - set(gone) | set(taken), self.mark + 1)

    def as_text(self) -> str:
        return json.dumps({"mark": self.mark, "keys": sorted(self.keys)})


def _before(context: dg.SensorEvaluationContext, assets: dg.AssetsDefinition, known: set[str]) -> _Seen:
    """What was seen before this tick. `known` are keys found that are partitions already."""
    if context.cursor is not None:
        cursor = json.loads(context.cursor)
        return _Seen(frozenset(cursor["keys"]), cursor["mark"])
    done: set[str] = set()
    for key in assets.keys:
        if done >= known:
            break
        done |= context.instance.get_materialized_partitions(key) & known
    # The time, for a cursor that a person reset must not bring the marks of old runs back.
    return _Seen(frozenset(done), int(time.time()))


def _dynamic(assets: dg.AssetsDefinition) -> dg.DynamicPartitionsDefinition:
    found = assets.partitions_def
    if isinstance(found, dg.DynamicPartitionsDefinition) and found.name is not None:
        return found
    raise ConfigError(
        f"making a partition discovery sensor for {assets.node_def.name}",
        "the partitions of its assets are not dynamic ones with a name",
        remedy='Give the assets partitions_def=dg.DynamicPartitionsDefinition(name="...").',
    )


def _found(find: FindKeys, context: dg.SensorEvaluationContext, doing: str) -> list[str]:
    """The keys, each once. Raises ConfigError with what is wrong with them."""
    by_whom = f"{getattr(find, '__module__', '')}.{getattr(find, '__qualname__', type(find).__name__)}"
    try:
        told: Any = find(context)
        values = None if isinstance(told, str) else list(told)
    except ProtoError:
        raise
    except Exception as error:
        raise ConfigError(doing, f"{by_whom} failed with {type(error).__name__}") from error
    if values is None:
        raise ConfigError(doing, f"{by_whom} gave one text", remedy="Give a list of texts.")
    for value in values:
        _check(value, doing, by_whom)
    keys = list(dict.fromkeys(values))
    if len(keys) > _MAX_PARTITIONS:
        remedy = "Find fewer, or make each stand for more."
        raise ConfigError(doing, f"{by_whom} gave {len(keys)} keys, and {_MAX_PARTITIONS} is the most", remedy=remedy)
    return keys


def _check(value: object, doing: str, by_whom: str) -> None:
    if not isinstance(value, str):
        raise ConfigError(doing, f"{by_whom} gave a {type(value).__name__} for a key", remedy="A key is text.")
    if not value:
        raise ConfigError(doing, f"{by_whom} gave an empty key")
    try:
        raise_error_on_invalid_partition_key_substring([value])
    except dg.DagsterInvalidDefinitionError as error:
        raise ConfigError(doing, f"{by_whom} gave {value!r} for a key, which Dagster does not take") from error


def _requests(
    partitions_def: dg.DynamicPartitionsDefinition, added: Sequence[str], gone: Sequence[str]
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    return [
        *([partitions_def.build_add_request(list(added))] if added else []),
        *([partitions_def.build_delete_request(list(gone))] if gone else []),
    ]


def _tell(context: dg.SensorEvaluationContext, new: Sequence[str], taken: Sequence[str], gone: Sequence[str]) -> None:
    waiting = len(new) - len(taken)
    if taken:
        context.log.info(f"New: {_named(taken)}" + (f"; {waiting} more at the next ticks" if waiting else ""))
    if gone:
        context.log.info(f"Removed: {_named(gone)}")


def _named(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return ", ".join(keys[:_NAMED]) + more
