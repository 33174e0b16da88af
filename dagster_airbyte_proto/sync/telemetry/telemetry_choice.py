"""Chooses what traces and measures a sync.

Without the extra `otel` nothing does: nothing is imported, and no step does more than enter an empty context.
"""

from collections.abc import Callable
from functools import cache

from dagster_airbyte_proto.sync.telemetry.run_telemetry import NO_TELEMETRY, RunTelemetry


def installed_telemetry() -> RunTelemetry:
    """Returns a new run's telemetry: OpenTelemetry's where its API is installed."""
    return _implementation()()


@cache
def _implementation() -> Callable[[], RunTelemetry]:
    # Cached: an import that fails is tried again each time, which takes milliseconds.
    try:
        from dagster_airbyte_proto.sync.telemetry.open_telemetry import OpenTelemetry
    except ModuleNotFoundError:
        return lambda: NO_TELEMETRY
    return OpenTelemetry
