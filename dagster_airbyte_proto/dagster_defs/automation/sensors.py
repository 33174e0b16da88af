"""Sensors: what sets a sync going, what tells that a source has changed its streams, what tells that a state stands.

A tick may last 60 seconds. How old an asset is has a policy of Dagster's own (`dg.FreshnessPolicy`, on its spec), and
runs that fail have `dg.run_failure_sensor`; what is here looks at things that Dagster does not know of.
"""

import hashlib
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg

from dagster_airbyte_proto.checkpoints.store import StoredState
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.automation.drift import DRIFT, Drift, found_drift, verdict
from dagster_airbyte_proto.dagster_defs.definitions.definition import definition_of
from dagster_airbyte_proto.dagster_defs.deployment import deployment_around
from dagster_airbyte_proto.dagster_defs.engines import opened_engine
from dagster_airbyte_proto.dagster_defs.partitions import sample_words
from dagster_airbyte_proto.errors import ConfigError

TICK_SECONDS = 45.0
_NAMED_FILES = 5
_RELOAD = """mutation($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) {
  __typename ... on PythonError { message } } }"""


class Probe(NamedTuple):
    """What a probe found: `cursor` is handed to it the next time, and one that is not new starts nothing.

    `reason` is shown with the tick and on the run. Two runs never have the same `run_key`; without one, each new cursor
    starts a run.
    """

    cursor: str
    reason: str = ""
    run_key: str | None = None
    run_config: Mapping[str, Any] | None = None
    partition_key: str | None = None


ProbeFunction = Callable[[dg.SensorEvaluationContext, str | None], Probe | None]
"""Looks whether there is something to sync; cheap, for it is called at each tick. None: nothing."""


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
    """Starts a run of `target` (assets, a selection, a job) whenever the probe comes with a new cursor."""

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        found = probe(context, context.cursor)
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
    """A probe for files that appeared or changed; `**` in the pattern stands for any folders.

    A file counts once it was left alone for `quiet_seconds`: whoever writes it may not be through.
    """

    def probe(_context: dg.SensorEvaluationContext, cursor: str | None) -> Probe | None:
        files = matching_files(str(pattern), before=time.time() - quiet_seconds)
        found = {str(path): _mark(path, status) for path, status in files}
        known = set((cursor or "").split())
        fresh = sorted(path for path, mark in found.items() if mark not in known)
        if not fresh:
            return None
        more = f" and {len(fresh) - _NAMED_FILES} more" if len(fresh) > _NAMED_FILES else ""
        named = ", ".join(Path(path).name for path in fresh[:_NAMED_FILES])
        return Probe(" ".join(sorted(found.values())), f"new or changed: {named}{more}")

    return probe


def asset_materialized(key: dg.AssetKey | str | Sequence[str]) -> ProbeFunction:
    """A probe for the next materialization of another asset, of whatever partition."""
    upstream = dg.AssetKey.from_coercible(key)

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
    """Asks the connector of a connection's assets what it offers, and tells what has changed since its catalog was
    saved: as the check `schema_drift` of each asset (see `build_schema_drift_checks`), and new streams in its log.

    With `save_catalog` the new catalog is saved, and with `reload_url`, the address of a Dagster web server, the code
    location is loaded again after a change: streams that are new are assets then. Of partitions it is asked in the
    newest. A connector that does not answer within 45 seconds fails the tick; schedule the checks instead.
    """
    definition = definition_of(assets)

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        connector = getattr(context.resources, connector_key)
        words = sample_words(definition.connection, assets.partitions_def, context.instance)
        with opened_engine(connector, deployment=partial(deployment_around, context.instance)) as engine:
            drift = found_drift(definition, engine, words, patience_seconds=TICK_SECONDS, save=save_catalog)
        told: dict[str, Any] = json.loads(context.cursor or "{}")
        marks = _drift_marks(drift)
        if marks == told:
            return dg.SkipReason("Nothing has changed since the last look.")
        for stream in drift.new_streams:
            context.log.warning(f"{stream} is offered and no asset yet")
        evaluations = [
            dg.AssetCheckEvaluation(asset_key=key, check_name=DRIFT, **verdict(lines))
            for key, lines in drift.changes.items()
            if marks[key.to_user_string()] != told.get(key.to_user_string())
        ]
        for each in evaluations:
            if not each.passed:
                context.log.warning(each.description or "")
        if reload_url is not None and (drift.new_streams or any(drift.changes.values())):
            _reload(reload_url, _location(context))
        return dg.SensorResult(asset_events=evaluations, cursor=json.dumps(marks))

    return dg.SensorDefinition(
        name=name or f"{definition.connection.name}_{DRIFT}",
        evaluation_fn=evaluate,
        minimum_interval_seconds=minimum_interval_seconds,
        required_resource_keys={connector_key},
        description=f"Whether the source of {definition.connection.name} offers what its assets were made from.",
        default_status=default_status,
    )


StaleStates = Callable[[dg.SensorEvaluationContext, Mapping[str, timedelta]], None]
"""Is told of states that have become stale: each stream, or "(whole)", with its age."""


def build_state_staleness_sensor(
    connection: Connection,
    *,
    max_age: timedelta,
    on_stale: StaleStates,
    name: str | None = None,
    connector_key: str = "connector",
    minimum_interval_seconds: int = 300,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Calls `on_stale` once when no sync has moved a state for longer than `max_age`, again after it has moved and
    stood still anew. A stream without a state is not looked at: its asset's freshness policy is what fits."""

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        with opened_engine(getattr(context.resources, connector_key)) as engine:
            states = engine.store.states(connection.name, partition=None)
        now, told = datetime.now(UTC), json.loads(context.cursor or "{}")
        stale = {_state_name(each): each for each in states if now - each.changed_at > max_age}
        versions = {state_name: each.version for state_name, each in stale.items()}
        fresh = {each: now - stale[each].changed_at for each in stale if told.get(each) != versions[each]}
        if fresh:
            for state_name, age in fresh.items():
                context.log.warning(f"The state of {state_name} has not moved for {age}")
            on_stale(context, fresh)
        reason = f"{len(stale)} of {len(states)} states are older than {max_age}."
        return dg.SensorResult(skip_reason=reason, cursor=json.dumps(versions))

    return dg.SensorDefinition(
        name=name or f"{connection.name}_state_staleness",
        evaluation_fn=evaluate,
        minimum_interval_seconds=minimum_interval_seconds,
        required_resource_keys={connector_key},
        description=f"Whether the states of {connection.name} go on moving.",
        default_status=default_status,
    )


def matching_files(pattern: str, *, before: float) -> Iterator[tuple[Path, os.stat_result]]:
    """Each file that was last changed before that time."""
    root = Path(Path(pattern).anchor)
    for path in root.glob(str(Path(pattern).relative_to(root))):
        try:
            status = path.stat()
        except FileNotFoundError:  # it has just gone
            continue
        if status.st_mtime <= before and path.is_file():
            yield path, status


def _mark(path: Path, status: os.stat_result) -> str:
    """Another when the file has changed."""
    told = f"{path}\0{status.st_size}\0{status.st_mtime_ns}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _drift_marks(drift: Drift) -> dict[str, Any]:
    marks: dict[str, Any] = {key.to_user_string(): list(lines) for key, lines in drift.changes.items()}
    return {**marks, "": list(drift.new_streams)}


def _state_name(stored: StoredState) -> str:
    name = str(stored.state.stream) if stored.state.stream else "(whole)"
    return f"{name} [{stored.partition}]" if stored.partition else name


def _location(context: dg.SensorEvaluationContext) -> str:
    origin = context.code_location_origin
    if origin is None:
        raise ConfigError("reloading the code location", "this tick knows none", remedy="Leave reload_url out.")
    return origin.location_name


def _reload(url: str, location: str) -> None:
    body = json.dumps({"query": _RELOAD, "variables": {"name": location}}).encode()
    request = urllib.request.Request(  # noqa: S310 - the user's own address
        f"{url.rstrip('/')}/graphql", body, {"Content-Type": "application/json"}
    )
    doing = f"reloading code location {location}"
    try:
        with urllib.request.urlopen(request, timeout=TICK_SECONDS) as response:  # noqa: S310 - as above
            answer = json.load(response)
    except (urllib.error.URLError, ValueError) as error:
        raise ConfigError(doing, str(error), remedy=f"Is {url} the address of a Dagster web server?") from error
    told = (answer.get("data") or {}).get("reloadRepositoryLocation") or {}
    if told.get("__typename") != "WorkspaceLocationEntry":
        raise ConfigError(doing, str(told.get("message") or answer))
