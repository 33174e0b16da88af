"""Chooses what traces and measures a sync.

Without the extra `otel` nothing does: nothing is imported, and no step does more than enter an empty context. Nor does
anything where OpenTelemetry cannot be set up: its API loads a provider that a variable of the environment names
(OTEL_PYTHON_METER_PROVIDER), and raises where that is not installed. It logs why.
"""

from collections.abc import Callable
from functools import cache

from dagster_airbyte_proto.sync.telemetry.run_telemetry import NO_TELEMETRY, RunTelemetry


def installed_telemetry() -> RunTelemetry:
    """Returns a new run's telemetry: OpenTelemetry's where its API is installed."""
    try:
        return _implementation()()
    except Exception:  # noqa: BLE001 - a sync does not fail because nobody measures it
        return NO_TELEMETRY


@cache
def _implementation() -> Callable[[], RunTelemetry]:
    # Cached: an import that fails is tried again each time, which takes milliseconds.
    try:
        from dagster_airbyte_proto.sync.telemetry.open_telemetry import OpenTelemetry
    except Exception:  # noqa: BLE001 - likewise
        return lambda: NO_TELEMETRY
    return OpenTelemetry
