"""Sensors that start syncs, report schema drift, and report states that no longer move.

Dagster ends a tick after 60 seconds. Dagster's own tools cover the age of assets (`dg.FreshnessPolicy`, on a spec) and
failed runs (`dg.run_failure_sensor`); the sensors here watch what Dagster does not know about.
"""

import hashlib
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg

from dagster_airbyte_proto.checkpoints.store import StoredState
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.templating import has_window
from dagster_airbyte_proto.dagster_defs.automation.drift import (
    SCHEMA_DRIFT,
    CatalogDrift,
    check_result_fields,
    detect_drift,
)
from dagster_airbyte_proto.dagster_defs.definitions.asset_keys import named_asset
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import definition_of
from dagster_airbyte_proto.dagster_defs.deployment import deployment_outside_run
from dagster_airbyte_proto.dagster_defs.engines import opened_engine
from dagster_airbyte_proto.dagster_defs.failures import failing_the_tick
from dagster_airbyte_proto.dagster_defs.partitions import newest_slice_words
from dagster_airbyte_proto.errors import ConfigError, StateConflict

# Below the 60 seconds of a tick, so that a connector's timeout is reported before Dagster ends the tick.
TICK_TIMEOUT_SECONDS = 45.0
Tick = Callable[[dg.SensorEvaluationContext], dg.SensorResult | dg.SkipReason]
_MAX_NAMED_FILES = 5
_RELOAD_MUTATION = """mutation($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) {
  __typename ... on PythonError { message } } }"""


class Probe(NamedTuple):
    """The finding of a probe. `cursor` is passed to the next call; a run starts only when it has changed.

    `reason` is shown with the tick and on the run. Dagster starts at most one run for each `run_key`; without one, each
    new cursor starts a run.
    """

    cursor: str
    reason: str = ""
    run_key: str | None = None
    run_config: Mapping[str, Any] | None = None
    partition_key: str | None = None


ProbeFunction = Callable[[dg.SensorEvaluationContext, str | None], Probe | None]
"""Looks for something to sync; None for nothing. It is called at each tick, so it has to be cheap."""


def build_sync_sensor(
    name: str,
    *,
    target: Any,
    probe: ProbeFunction,
    minimum_interval_seconds: int | None = None,
    description: str | None = None,
    required_resource_keys: set[str] | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Builds a sensor that starts a run of `target` (assets, a selection, a job) whenever the probe returns a new
    cursor."""

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        found = probe(context, context.cursor)
        if not isinstance(found, Probe | None):
            answer = f"its probe returned a {type(found).__name__}"
            raise ConfigError(f"evaluating sensor {name}", answer, remedy="Return a Probe, or None for nothing new.")
        if found is None or found.cursor == context.cursor:
            return dg.SkipReason("The probe found nothing new.")
        context.log.info(found.reason or "The probe found something new.")
        request = dg.RunRequest(
            run_key=found.run_key,
            run_config=dict(found.run_config or {}),
            partition_key=found.partition_key,
            tags={"airbyte_proto/reason": found.reason} if found.reason else {},
        )
        return dg.SensorResult(run_requests=[request], cursor=found.cursor)

    return dg.SensorDefinition(
        name=name,
        evaluation_fn=evaluate,
        target=target,
        minimum_interval_seconds=minimum_interval_seconds,
        description=description,
        required_resource_keys=required_resource_keys,
        default_status=default_status,
    )


def files_changed(pattern: str | Path, *, quiet_seconds: float = 0.0) -> ProbeFunction:
    """A probe for files that appeared or changed; `**` in the pattern matches any folders.

    A file counts once it has not changed for `quiet_seconds`: its writer may not have finished.
    """

    def probe(_context: dg.SensorEvaluationContext, cursor: str | None) -> Probe | None:
        files = matching_files(str(pattern), before=time.time() - quiet_seconds)
        found = {str(path): _fingerprint(path, status) for path, status in files}
        known = set((cursor or "").split())
        fresh = sorted(path for path, fingerprint in found.items() if fingerprint not in known)
        if not fresh:
            return None
        more = f" and {len(fresh) - _MAX_NAMED_FILES} more" if len(fresh) > _MAX_NAMED_FILES else ""
        named = ", ".join(_printable(Path(path).name) for path in fresh[:_MAX_NAMED_FILES])
        return Probe(" ".join(sorted(found.values())), f"new or changed: {named}{more}")

    return probe


def asset_materialized(key: dg.AssetKey | str | Sequence[str]) -> ProbeFunction:
    """A probe for the next materialization of another asset, in any partition. A text is a key such as `shop/users`."""
    upstream = dg.AssetKey.from_coercible(named_asset(key))

    def probe(context: dg.SensorEvaluationContext, _cursor: str | None) -> Probe | None:
        records = context.instance.fetch_materializations(upstream, limit=1).records
        if not records:
            return None
        return Probe(str(records[0].storage_id), f"{upstream.to_user_string()} was materialized")

    return probe


def build_schema_drift_sensor(
    assets: dg.AssetsDefinition,
    *,
    name: str | None = None,
    connector_key: str = "connector",
    minimum_interval_seconds: int = 3600,
    save_catalog: bool = False,
    reload_url: str | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Builds a sensor that runs discovery and reports what has changed since the catalog was saved: changes as results
    of the check `schema_drift` of each asset (see `build_schema_drift_checks`), new streams in the sensor's log.

    With `save_catalog` the new catalog is saved under the connector's home, unless no assets could be made from it, for
    example because the connection names a stream that is gone, or these assets are made from another file: the sensor's
    log then says so. With `reload_url`, the address of a Dagster
    web server, the code location is reloaded after a change, so that new streams become assets. Partitioned assets are
    discovered with the newest partition. A connector that does not answer within 45 seconds fails the tick; schedule
    the checks instead.
    """
    definition = definition_of(assets, pushed=False)

    @failing_the_tick()
    @skipped_beside_a_run
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        connector = getattr(context.resources, connector_key)
        words = newest_slice_words(definition.connection, assets.partitions_def, context.instance)
        with opened_engine(connector, deployment=partial(deployment_outside_run, context.instance)) as engine:
            drift = detect_drift(definition, engine, words, timeout_seconds=TICK_TIMEOUT_SECONDS, save=save_catalog)
        reported: dict[str, Any] = json.loads(context.cursor or "{}")
        found = _cursor_value(drift)
        if found == reported:
            return dg.SkipReason("Nothing has changed since the last tick.")
        for stream in drift.new_streams:
            context.log.warning(f"{stream} is in the connector's catalog and has no asset yet")
        evaluations = [
            dg.AssetCheckEvaluation(asset_key=key, check_name=SCHEMA_DRIFT, **check_result_fields(lines))
            for key, lines in drift.changes.items()
            if found[key.to_user_string()] != reported.get(key.to_user_string())
        ]
        for each in evaluations:
            if not each.passed:
                context.log.warning(each.description or "")
        if drift.unsaved:
            context.log.error(f"The new catalog is not saved: {drift.unsaved}")
        elif reload_url is not None and (drift.new_streams or any(drift.changes.values())):
            _reload(reload_url, _location(context))
        return dg.SensorResult(asset_events=evaluations, cursor=json.dumps(found))

    return dg.SensorDefinition(
        name=name or f"{definition.connection.name}_{SCHEMA_DRIFT}",
        evaluation_fn=evaluate,
        minimum_interval_seconds=minimum_interval_seconds,
        required_resource_keys={connector_key},
        description=f"Reports changes of the source of {definition.connection.name} since its catalog was saved.",
        default_status=default_status,
    )


OnStaleStates = Callable[[dg.SensorEvaluationContext, Mapping[str, timedelta]], None]
"""Receives the states that have become stale: each stream, or "(whole)", with the age of its state."""


def build_state_staleness_sensor(
    connection: Connection,
    *,
    max_age: timedelta,
    on_stale: OnStaleStates,
    name: str | None = None,
    connector_key: str = "connector",
    minimum_interval_seconds: int = 300,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Builds a sensor that calls `on_stale` when no sync has moved a state for longer than `max_age`: once, and again
    only if the state has moved in between. Streams without a state are ignored; use a freshness policy on their
    assets. Where partitions are time windows (`{{ partition.start }}` in the config) the newest state of a stream
    counts, for those of past windows move no more; of other partitions each has its own."""

    @failing_the_tick()
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        with opened_engine(getattr(context.resources, connector_key)) as engine:
            states = engine.store.states(connection.name, partition=None)
        now, reported = datetime.now(UTC), json.loads(context.cursor or "{}")
        watched = _watched_states(states, of_windows=has_window(connection.written_config()))
        stale = {name: each for name, each in watched.items() if now - each.changed_at > max_age}
        versions = {state_name: each.version for state_name, each in stale.items()}
        new = {each: now - stale[each].changed_at for each in stale if reported.get(each) != versions[each]}
        if new:
            for state_name, age in new.items():
                context.log.warning(f"The state of {state_name} has not moved for {age}")
            on_stale(context, new)
        reason = f"{len(stale)} of {len(watched)} states are older than {max_age}."
        return dg.SensorResult(skip_reason=reason, cursor=json.dumps(versions))

    return dg.SensorDefinition(
        name=name or f"{connection.name}_state_staleness",
        evaluation_fn=evaluate,
        minimum_interval_seconds=minimum_interval_seconds,
        required_resource_keys={connector_key},
        description=f"Reports states of {connection.name} that no sync has moved for {max_age}.",
        default_status=default_status,
    )


def skipped_beside_a_run(evaluate: Tick) -> Tick:
    """Has a tick skipped while a run holds the connection, where its connector must not be started beside it."""

    @wraps(evaluate)
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            return evaluate(context)
        except StateConflict as error:
            return dg.SkipReason(str(error))

    return tick


def matching_files(pattern: str, *, before: float) -> Iterator[tuple[Path, os.stat_result]]:
    """Yields each file that was last changed before that time."""
    root = Path(Path(pattern).anchor)
    for path in root.glob(str(Path(pattern).relative_to(root))):
        try:
            status = path.stat()
        except FileNotFoundError:  # deleted since the folder was listed
            continue
        if status.st_mtime <= before and path.is_file():
            yield path, status


def _fingerprint(path: Path, status: os.stat_result) -> str:
    """A short hash that changes when the file does."""
    facts = f"{path}\0{status.st_size}\0{status.st_mtime_ns}"
    return hashlib.sha256(facts.encode(errors="surrogateescape")).hexdigest()[:16]


def _printable(name: str) -> str:
    """The name of a file that Dagster can store: not every system writes names in UTF-8."""
    return name.encode(errors="replace").decode()


def _cursor_value(drift: CatalogDrift) -> dict[str, Any]:
    found: dict[str, Any] = {key.to_user_string(): list(lines) for key, lines in drift.changes.items()}
    # An asset's key has no space. Once the catalog can be saved, the cursor is another, and the location is reloaded.
    unsaved = {"not saved": drift.unsaved} if drift.unsaved else {}
    return {**found, "": list(drift.new_streams), **unsaved}


def _watched_states(states: Sequence[StoredState], *, of_windows: bool) -> Mapping[str, StoredState]:
    """The states by their names. Of partitions that are time windows only the newest state of each stream is one."""
    if not of_windows:
        return {_state_name(each): each for each in states}
    oldest_first = sorted(states, key=lambda each: each.changed_at)
    return {_state_name(each._replace(partition="")): each for each in oldest_first}


def _state_name(stored: StoredState) -> str:
    name = str(stored.state.stream) if stored.state.stream else "(whole)"
    return f"{name} [{stored.partition}]" if stored.partition else name


def _location(context: dg.SensorEvaluationContext) -> str:
    origin = context.code_location_origin
    if origin is None:
        raise ConfigError(
            "reloading the code location", "this tick has no code location", remedy="Leave reload_url out."
        )
    return origin.location_name


def _reload(url: str, location: str) -> None:
    body = json.dumps({"query": _RELOAD_MUTATION, "variables": {"name": location}}).encode()
    request = urllib.request.Request(  # noqa: S310 - the user's own address
        f"{url.rstrip('/')}/graphql", body, {"Content-Type": "application/json"}
    )
    doing = f"reloading code location {location}"
    try:
        with urllib.request.urlopen(request, timeout=TICK_TIMEOUT_SECONDS) as response:  # noqa: S310 - as above
            answer = json.load(response)
    except (urllib.error.URLError, ValueError) as error:
        raise ConfigError(doing, str(error), remedy=f"Is {url} the address of a Dagster web server?") from error
    result = (answer.get("data") or {}).get("reloadRepositoryLocation") or {}
    if result.get("__typename") != "WorkspaceLocationEntry":
        raise ConfigError(doing, str(result.get("message") or answer))
