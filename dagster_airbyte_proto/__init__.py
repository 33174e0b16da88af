"""Connectors run directly and land, exactly once, in Spark tables. These are the public names, and all of them.

Each is imported when it is first asked for: a command that only reads a state need not wait for Spark's modules, nor
for Dagster's.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.dagster_defs.automation.discovery import build_partition_discovery_sensor
    from dagster_airbyte_proto.dagster_defs.automation.operations import build_connection_jobs
    from dagster_airbyte_proto.dagster_defs.automation.sensors import (
        build_schema_drift_sensor,
        build_state_staleness_sensor,
        build_sync_sensor,
    )
    from dagster_airbyte_proto.dagster_defs.definitions.assets import build_connector_assets, connector_assets
    from dagster_airbyte_proto.dagster_defs.definitions.component import ConnectorComponent
    from dagster_airbyte_proto.dagster_defs.definitions.translator import StreamTranslator, StreamTranslatorData
    from dagster_airbyte_proto.dagster_defs.step.resources import ConnectorResource, SqlStateStore
    from dagster_airbyte_proto.dagster_defs.tables.checks import StreamChecks
    from dagster_airbyte_proto.dagster_defs.tables.io_manager import SparkTableIOManager
    from dagster_airbyte_proto.dagster_defs.tables.spark_resource import SparkSessionResource
    from dagster_airbyte_proto.errors import (
        CommitUnknown,
        ConfigError,
        ConnectorError,
        InternalError,
        ProtocolViolation,
        ProtoError,
        StagingError,
        StateConflict,
        StateUnavailable,
        TableError,
    )
    from dagster_airbyte_proto.sync import sync

__all__ = [
    "CommitUnknown",
    "ConfigError",
    "Connection",
    "ConnectorComponent",
    "ConnectorError",
    "ConnectorResource",
    "InternalError",
    "ProtoError",
    "ProtocolViolation",
    "SparkSessionResource",
    "SparkTableIOManager",
    "SqlStateStore",
    "StagingError",
    "StateConflict",
    "StateUnavailable",
    "StreamChecks",
    "StreamTranslator",
    "StreamTranslatorData",
    "TableError",
    "build_connection_jobs",
    "build_connector_assets",
    "build_partition_discovery_sensor",
    "build_schema_drift_sensor",
    "build_state_staleness_sensor",
    "build_sync_sensor",
    "connector_assets",
    "sync",
]

_ERRORS = "errors"
_HOMES = {
    "Connection": "connection",
    "ConnectorComponent": "dagster_defs.definitions.component",
    "ConnectorResource": "dagster_defs.step.resources",
    "SparkSessionResource": "dagster_defs.tables.spark_resource",
    "SparkTableIOManager": "dagster_defs.tables.io_manager",
    "SqlStateStore": "dagster_defs.step.resources",
    "StreamChecks": "dagster_defs.tables.checks",
    "StreamTranslator": "dagster_defs.definitions.translator",
    "StreamTranslatorData": "dagster_defs.definitions.translator",
    "build_connection_jobs": "dagster_defs.automation.operations",
    "build_connector_assets": "dagster_defs.definitions.assets",
    "build_partition_discovery_sensor": "dagster_defs.automation.discovery",
    "build_schema_drift_sensor": "dagster_defs.automation.sensors",
    "build_state_staleness_sensor": "dagster_defs.automation.sensors",
    "build_sync_sensor": "dagster_defs.automation.sensors",
    "connector_assets": "dagster_defs.definitions.assets",
    "sync": "sync",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, _ERRORS)}"), name)


def __dir__() -> list[str]:
    """`dg` finds the component by it."""
    return __all__
