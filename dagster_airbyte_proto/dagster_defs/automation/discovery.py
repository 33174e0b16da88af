"""A sensor that finds new partition keys (tenants, files, namespaces), adds each as a dynamic partition and runs it.

1. A tick returns the partitions to add and their runs in one result. Dagster adds the partitions first and stores the
   cursor, which holds the keys whose runs were requested, last. So a tick that was interrupted is repeated, and a
   partition that it had already added still gets its run.
2. Without a cursor, partitions that were materialized before count as done. So a sensor that is switched on late, or
   whose first tick was interrupted, neither syncs everything again nor skips a partition.
3. The run key contains a number that changes with the cursor. So a repeated tick starts no run twice, and a partition
   that was removed and came back is synced again.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
from dagster._core.definitions.partitions.utils import raise_error_on_invalid_partition_key_substring

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.automation.sensors import (
    TICK_TIMEOUT_SECONDS,
    matching_files,
    skipped_beside_a_run,
)
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import definition_of
from dagster_airbyte_proto.dagster_defs.deployment import deployment_outside_run
from dagster_airbyte_proto.dagster_defs.engines import opened_engine
from dagster_airbyte_proto.dagster_defs.failures import failing_the_tick
from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.model import Stream
from dagster_airbyte_proto.sync.connector.opened_connector import opened_source

# The most partitions that Dagster recommends for one asset.
_MAX_PARTITIONS = 100_000
_MAX_NAMED_KEYS = 5

FindKeys = Callable[[dg.SensorEvaluationContext], Iterable[str]]
"""Returns every current partition key, in any order. It is called at each tick, so it has to be cheap."""


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
    """Builds a sensor that adds a partition for each new key that `find` returns, and starts a run of it: at most
    `max_runs` in a tick, the others in the next ticks.

    With `remove_gone`, a partition whose key is no longer found is removed; its rows stay in the tables. If `find`
    returns no keys at all, nothing is removed. Raises ConfigError for assets whose partitions are not dynamic, and if
    `max_runs` is not at least 1.
    """
    partitions_def = _dynamic_partitions(assets)
    if max_runs < 1:
        doing = f"making a partition discovery sensor for {assets.node_def.name}"
        raise ConfigError(doing, f"max_runs is {max_runs}", remedy="Let a tick start at least 1 run.")
    doing = f"looking for partitions of connection {definition_of(assets).connection.name}"

    @skipped_beside_a_run
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        found = _checked_keys(find, context, doing)
        existing = set(partitions_def.get_partition_keys(dynamic_partitions_store=context.instance))
        before = _stored_cursor(context, assets, existing & set(found))
        settled = before.keys & existing
        new = [key for key in found if key not in settled]
        removed = sorted(settled - set(found)) if remove_gone and found else []
        nothing = f"Nothing new among {len(found)} keys."
        if context.cursor and not new and not removed:
            return dg.SkipReason(nothing)
        started = new[:max_runs]
        _log_changes(context, new, started, removed)
        return dg.SensorResult(
            run_requests=[dg.RunRequest(partition_key=key, run_key=f"{key}@{before.mark}") for key in started],
            dynamic_partitions_requests=_requests(
                partitions_def, [key for key in started if key not in existing], removed
            ),
            cursor=before.after(settled - set(removed), started).as_text(),
            skip_reason=None if started else f"Removed: {_key_list(removed)}" if removed else nothing,
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
    """Finds a partition for each file. Its key is the file's path below the part of the pattern without wildcards.

    `**` matches any folders. A file counts once it has not changed for `quiet_seconds`. One whose path can be no key,
    as it is not in UTF-8 or has `...` or a line break in it, gives a warning.
    """
    parts = Path(pattern).parts
    fixed = next((place for place, part in enumerate(parts) if set(part) & set("*?[")), len(parts) - 1)

    def find(context: dg.SensorEvaluationContext) -> list[str]:
        found = matching_files(str(pattern), before=time.time() - quiet_seconds)
        keys = [path.relative_to(Path(*parts[:fixed])).as_posix() for path, _ in found]
        return _without_forbidden(context, keys, "file")

    return find


def _without_forbidden(context: dg.SensorEvaluationContext, keys: Iterable[str], of: str) -> list[str]:
    """The keys that Dagster allows. Each of the others gives a warning: it must not keep the rest from being synced."""
    allowed = []
    for key in keys:
        if not _is_utf8(key):
            context.log.warning(f"The name of the {of} {key!a} is not in UTF-8: it gets no partition")
        elif _is_forbidden(key):
            context.log.warning(f"Dagster allows no partition key like the name of the {of} {key!r}: it gets none")
        else:
            allowed.append(key)
    return allowed


def _is_utf8(path: str) -> bool:
    """False for a path with bytes that are no UTF-8, which Python decodes to surrogates."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_forbidden(key: str) -> bool:
    try:
        raise_error_on_invalid_partition_key_substring([key])
    except dg.DagsterInvalidDefinitionError:
        return True
    return False


def namespaces_offered(connection: Connection, *, connector_key: str = "connector") -> FindKeys:
    """Finds a partition for each namespace in the connector's catalog. The sensor has to require `connector_key`.

    The connection's own config must not have templates of a partition.
    """
    return _catalog_keys(connection, connector_key, "namespace", lambda found: [each.id.namespace for each in found])


def streams_offered(connection: Connection, *, connector_key: str = "connector") -> FindKeys:
    """Finds a partition for each stream in the connector's catalog; its key is the name with the namespace. See
    `namespaces_offered`."""
    return _catalog_keys(connection, connector_key, "stream", lambda found: [str(each.id) for each in found])


def _catalog_keys(
    connection: Connection, connector_key: str, of: str, keys: Callable[[Sequence[Stream]], Sequence[str | None]]
) -> FindKeys:
    def find(context: dg.SensorEvaluationContext) -> list[str]:
        connector = getattr(context.resources, connector_key)
        with (
            failing_the_tick(),
            opened_engine(connector, deployment=partial(deployment_outside_run, context.instance)) as engine,
            opened_source(engine, connection, {}) as source,
        ):
            source.check_config()
            streams = source.catalog(fresh=True, timeout_seconds=TICK_TIMEOUT_SECONDS).streams
        return _without_forbidden(context, filter(None, keys(streams)), of)

    return find


class _Cursor(msgspec.Struct, frozen=True):
    """The sensor's cursor: the keys whose runs were requested, and a number that changes with each change of them."""

    keys: frozenset[str]
    mark: int

    def after(self, settled: frozenset[str], started: Collection[str]) -> "_Cursor":
        return _Cursor(settled.union(started), self.mark + 1)

    def as_text(self) -> str:
        return json.dumps({"mark": self.mark, "keys": sorted(self.keys)})


_CURSOR = msgspec.json.Decoder(_Cursor)


def _stored_cursor(context: dg.SensorEvaluationContext, assets: dg.AssetsDefinition, known: set[str]) -> _Cursor:
    """The cursor before this tick. `known` are the found keys that are partitions already."""
    if context.cursor:
        try:
            return _CURSOR.decode(context.cursor)
        except msgspec.MsgspecError as error:
            found = f"its cursor is none that it wrote: {error}"
            raise ConfigError("looking for partitions", found, remedy="Reset the cursor.") from None
    done: set[str] = set()
    for key in assets.keys:
        if done >= known:
            break
        done |= context.instance.get_materialized_partitions(key) & known
    # The time: after a person resets the cursor, run keys must not repeat those of old runs.
    return _Cursor(frozenset(done), int(time.time()))


def _dynamic_partitions(assets: dg.AssetsDefinition) -> dg.DynamicPartitionsDefinition:
    found = assets.partitions_def
    if isinstance(found, dg.DynamicPartitionsDefinition) and found.name is not None:
        return found
    raise ConfigError(
        f"making a partition discovery sensor for {assets.node_def.name}",
        "the partitions of its assets are not dynamic partitions with a name",
        remedy='Give the assets partitions_def=dg.DynamicPartitionsDefinition(name="...").',
    )


def _checked_keys(find: FindKeys, context: dg.SensorEvaluationContext, doing: str) -> list[str]:
    """Calls `find` and returns each key once. Raises ConfigError if a key is invalid."""
    finder = f"{getattr(find, '__module__', '')}.{getattr(find, '__qualname__', type(find).__name__)}"
    try:
        found: Any = find(context)
        values = None if isinstance(found, str) else list(found)
    except ProtoError:
        raise
    except Exception as error:
        raise ConfigError(doing, f"{finder} failed with {type(error).__name__}") from error
    if values is None:
        raise ConfigError(doing, f"{finder} returned one string", remedy="Return a list of strings.")
    for value in values:
        _check_key(value, doing, finder)
    keys = list(dict.fromkeys(values))
    if len(keys) > _MAX_PARTITIONS:
        remedy = "Return fewer keys, or let each key cover more data."
        found = f"{finder} returned {len(keys)} keys, more than the allowed {_MAX_PARTITIONS}"
        raise ConfigError(doing, found, remedy=remedy)
    return keys


def _check_key(value: object, doing: str, finder: str) -> None:
    if not isinstance(value, str):
        raise ConfigError(doing, f"{finder} returned a {type(value).__name__} as a key", remedy="Keys are strings.")
    if not value:
        raise ConfigError(doing, f"{finder} returned an empty key")
    if _is_forbidden(value):
        raise ConfigError(doing, f"{finder} returned the key {value!r}, which Dagster does not allow")


def _requests(
    partitions_def: dg.DynamicPartitionsDefinition, added: Sequence[str], removed: Sequence[str]
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    return [
        *([partitions_def.build_add_request(list(added))] if added else []),
        *([partitions_def.build_delete_request(list(removed))] if removed else []),
    ]


def _log_changes(
    context: dg.SensorEvaluationContext, new: Sequence[str], started: Sequence[str], removed: Sequence[str]
) -> None:
    waiting = len(new) - len(started)
    if started:
        context.log.info(f"New: {_key_list(started)}" + (f"; {waiting} more in the next ticks" if waiting else ""))
    if removed:
        context.log.info(f"Removed: {_key_list(removed)}")


def _key_list(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _MAX_NAMED_KEYS} more" if len(keys) > _MAX_NAMED_KEYS else ""
    return ", ".join(keys[:_MAX_NAMED_KEYS]) + more
