"""The next run of each connection, as the schedules, sensors and conditions of its code location will start it.

Only a run can tell: it has the definitions, and the instance that knows which of them are on. A sensor has no time: it
starts a run when it finds something.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import Any, NamedTuple

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorStatus
from dagster._utils.schedules import schedule_execution_time_iterator
from dagster_shared.check import CheckError

from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import definition_in

_RUNNING = "RUNNING"


class NextRun(NamedTuple):
    """The time of the next run, with the schedule's name; without a time, why it is not known."""

    at: datetime | None
    by: str

    def __str__(self) -> str:
        if self.at is None:
            return f"- ({self.by})"
        return f"{self.at.astimezone().isoformat(sep=' ', timespec='minutes')} ({self.by})"


class _Trigger(NamedTuple):
    """Something that starts runs of assets. `crons` are its times; empty for a sensor."""

    name: str
    assets: Set[dg.AssetKey]
    is_on: bool
    crons: tuple[tuple[Any, str | None], ...] = ()

    def next_time(self, now: datetime) -> datetime | None:
        times = (
            next(schedule_execution_time_iterator(now.timestamp(), cron, timezone), None)
            for cron, timezone in self.crons
        )
        return min((time for time in times if time is not None), default=None)


def next_runs(context: dg.AssetExecutionContext, connections: Sequence[str], now: datetime) -> Mapping[str, NextRun]:
    """Returns the next run of each connection."""
    repository = _repository(context)
    if repository is None:
        return dict.fromkeys(connections, NextRun(None, "known only in a run of a code location"))
    triggers = list(_triggers(repository, _statuses(context)))
    found = {
        connection: _next_run([trigger for trigger in triggers if trigger.assets & assets], now)
        for connection, assets in _assets_by_connection(repository).items()
    }
    return {name: found.get(name, NextRun(None, "of another code location, or of none")) for name in connections}


def _next_run(triggers: list[_Trigger], now: datetime) -> NextRun:
    on = [trigger for trigger in triggers if trigger.is_on]
    timed = [(time, trigger.name) for trigger in on if (time := trigger.next_time(now)) is not None]
    if timed:
        return NextRun(*min(timed))
    if on:
        return NextRun(None, f"when {on[0].name} finds something")
    if triggers:
        return NextRun(None, f"{triggers[0].name} is off")
    return NextRun(None, "no schedule or sensor")


def _repository(context: dg.AssetExecutionContext) -> dg.RepositoryDefinition | None:
    try:
        return context.repository_def
    except CheckError:  # `dg.materialize` runs assets without a code location.
        return None


def _assets_by_connection(repository: dg.RepositoryDefinition) -> Mapping[str, set[dg.AssetKey]]:
    found: dict[str, set[dg.AssetKey]] = {}
    for key, assets in repository.assets_defs_by_key.items():
        if (definition := definition_in(assets.metadata_by_key.get(key, {}))) is not None:
            found.setdefault(definition.connection.name, set()).add(key)
    return found


def _statuses(context: dg.AssetExecutionContext) -> Mapping[str, InstigatorStatus]:
    """The schedules and sensors that somebody has turned on or off. The others are as their code says."""
    origin = context.run.remote_job_origin
    selector = origin.repository_origin.get_selector_id() if origin else None
    states = context.instance.all_instigator_state(repository_selector_id=selector)
    return {state.name: state.status for state in states if state.status != InstigatorStatus.DECLARED_IN_CODE}


def _triggers(repository: dg.RepositoryDefinition, statuses: Mapping[str, InstigatorStatus]) -> Iterator[_Trigger]:
    def is_on(definition: dg.ScheduleDefinition | dg.SensorDefinition) -> bool:
        status = statuses.get(definition.name)
        return definition.default_status.value == _RUNNING if status is None else status != InstigatorStatus.STOPPED

    for schedule in repository.schedule_defs:
        crons = ((schedule.cron_schedule, schedule.execution_timezone),)
        yield _Trigger(
            f"schedule {schedule.name}", _assets_of_job(repository, schedule.job_name), is_on(schedule), crons
        )
    for sensor in repository.sensor_defs:
        name = f"sensor {sensor.name}"
        if isinstance(sensor, dg.AutomationConditionSensorDefinition):
            for key in sensor.asset_selection.resolve(repository.asset_graph):
                if (condition := repository.asset_graph.get(key).automation_condition) is not None:
                    yield _Trigger(name, {key}, is_on(sensor), tuple(_crons(condition)))
        else:
            for target in sensor.targets:
                yield _Trigger(name, _assets_of_job(repository, target.job_name), is_on(sensor))


def _assets_of_job(repository: dg.RepositoryDefinition, name: str) -> Set[dg.AssetKey]:
    return repository.get_job(name).asset_layer.selected_asset_keys if repository.has_job(name) else frozenset()


def _crons(condition: Any) -> Iterator[tuple[str, str | None]]:
    """The ticks that a condition waits for, as in `AutomationCondition.on_cron`."""
    if cron := getattr(condition, "cron_schedule", None):
        yield cron, condition.cron_timezone
    for inner in condition.children:
        yield from _crons(inner)
