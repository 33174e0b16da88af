"""The check of the state store and of its clock."""

import re
from collections.abc import Sequence

from dagster_airbyte_proto.diagnosis.health_check import Finding, HealthCheck, ok, warning
from dagster_airbyte_proto.settings import Settings

_STORE, _CLOCK = "state store", "clock"
_MAX_SKEW_SECONDS = 5.0


def store_checks(settings: Settings) -> Sequence[HealthCheck]:
    late = "Correct state_url in the settings, or end the program that holds the lock of its tables."
    return [HealthCheck(_STORE, lambda: _store(settings), seconds=30.0, late=late)]


def _store(settings: Settings) -> Sequence[Finding]:
    from dagster_airbyte_proto.checkpoints.sql.database import Database

    database = Database(settings.state_url)
    condition = database.condition()
    name = re.sub(r"^(\w+)\+\w+:", r"\1:", str(database))  # without the driver, which is of our choice
    return [_tables(name, condition.version, condition.newest_version), _clock(condition.clock_ahead_seconds)]


def _tables(name: str, version: int, newest_version: int) -> Finding:
    if not version:
        return ok(_STORE, f"{name} can be written; the first command makes its tables")
    if version < newest_version:
        found = f"{name} can be written; its tables have version {version}, ours is {newest_version}"
        return warning(_STORE, found, "The next command migrates them: stop programs of older versions first.")
    return ok(_STORE, f"{name} can be written; its tables have version {version}")


def _clock(ahead_seconds: float | None) -> Finding:
    if ahead_seconds is None:
        return ok(_CLOCK, "the state store uses the clock of this machine")
    direction = "ahead of" if ahead_seconds > 0 else "behind"
    text = f"the state store's is {abs(ahead_seconds):.1f} s {direction} this machine's"
    if abs(ahead_seconds) > _MAX_SKEW_SECONDS:
        return warning(_CLOCK, text, "Set both by NTP: times of runs and records are this machine's.")
    return ok(_CLOCK, text)
