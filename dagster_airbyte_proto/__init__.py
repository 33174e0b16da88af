"""Runs data connectors directly and lands their records, exactly once, in Spark tables. `__all__` is the public API.

Each name is imported at its first use: a command that only reads a state need not wait until Spark's or Dagster's
modules are loaded.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError("dagster_airbyte_proto does not run on Windows itself. Use it in WSL 2.")

if TYPE_CHECKING:
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.dagster_defs.automation.discovery import (
        build_partition_discovery_sensor,
        files_found,
        namespaces_offered,
        streams_offered,
    )
    from dagster_airbyte_proto.dagster_defs.automation.drift import build_schema_drift_checks
    from dagster_airbyte_proto.dagster_defs.automation.operations import build_connection_jobs
    from dagster_airbyte_proto.dagster_defs.automation.sensors import (
        Probe,
        asset_materialized,
        build_schema_drift_sensor,
        build_state_staleness_sensor,
        build_sync_sensor,
        files_changed,
    )
    from dagster_airbyte_proto.dagster_defs.automation.status import build_status_asset
    from dagster_airbyte_proto.dagster_defs.component import ConnectorComponent
    from dagster_airbyte_proto.dagster_defs.definitions.assets import build_connector_assets, connector_assets
    from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks
    from dagster_airbyte_proto.dagster_defs.definitions.translator import StreamTranslator, StreamTranslatorData
    from dagster_airbyte_proto.dagster_defs.push.assets import build_push_assets, push_assets
    from dagster_airbyte_proto.dagster_defs.push.delivered_tables import build_push_tables
    from dagster_airbyte_proto.dagster_defs.push.table_sensor import build_table_sensor
    from dagster_airbyte_proto.dagster_defs.push.translator import PushTranslator, PushTranslatorData
    from dagster_airbyte_proto.dagster_defs.resources import ConnectorResource, SqlStateStore
    from dagster_airbyte_proto.dagster_defs.tables.io_manager import SparkTableIOManager
    from dagster_airbyte_proto.dagster_defs.tables.spark_resource import SparkSessionResource
    from dagster_airbyte_proto.errors import (
        CommitUnknown,
        ConfigError,
        ConnectorError,
        InternalError,
        ProtocolViolation,
        ProtoError,
        SecretStoreError,
        StagingError,
        StateConflict,
        StateUnavailable,
        TableError,
    )
    from dagster_airbyte_proto.sync import sync, sync_all
    from dagster_airbyte_proto.sync.enrichment import enrich
    from dagster_airbyte_proto.sync.push import push

__all__ = [
    "CommitUnknown",
    "ConfigError",
    "Connection",
    "ConnectorComponent",
    "ConnectorError",
    "ConnectorResource",
    "InternalError",
    "Probe",
    "ProtoError",
    "ProtocolViolation",
    "PushTranslator",
    "PushTranslatorData",
    "SecretStoreError",
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
    "asset_materialized",
    "build_connection_jobs",
    "build_connector_assets",
    "build_partition_discovery_sensor",
    "build_push_assets",
    "build_push_tables",
    "build_schema_drift_checks",
    "build_schema_drift_sensor",
    "build_state_staleness_sensor",
    "build_status_asset",
    "build_sync_sensor",
    "build_table_sensor",
    "connector_assets",
    "enrich",
    "files_changed",
    "files_found",
    "namespaces_offered",
    "push",
    "push_assets",
    "streams_offered",
    "sync",
    "sync_all",
]

_ERRORS_MODULE = "errors"
_MODULES = {
    "Connection": "connection",
    "ConnectorComponent": "dagster_defs.component",
    "ConnectorResource": "dagster_defs.resources",
    "Probe": "dagster_defs.automation.sensors",
    "PushTranslator": "dagster_defs.push.translator",
    "PushTranslatorData": "dagster_defs.push.translator",
    "SparkSessionResource": "dagster_defs.tables.spark_resource",
    "SparkTableIOManager": "dagster_defs.tables.io_manager",
    "SqlStateStore": "dagster_defs.resources",
    "StreamChecks": "dagster_defs.definitions.checks",
    "StreamTranslator": "dagster_defs.definitions.translator",
    "StreamTranslatorData": "dagster_defs.definitions.translator",
    "asset_materialized": "dagster_defs.automation.sensors",
    "build_connection_jobs": "dagster_defs.automation.operations",
    "build_connector_assets": "dagster_defs.definitions.assets",
    "build_partition_discovery_sensor": "dagster_defs.automation.discovery",
    "build_push_assets": "dagster_defs.push.assets",
    "build_push_tables": "dagster_defs.push.delivered_tables",
    "build_schema_drift_checks": "dagster_defs.automation.drift",
    "build_schema_drift_sensor": "dagster_defs.automation.sensors",
    "build_state_staleness_sensor": "dagster_defs.automation.sensors",
    "build_status_asset": "dagster_defs.automation.status",
    "build_sync_sensor": "dagster_defs.automation.sensors",
    "build_table_sensor": "dagster_defs.push.table_sensor",
    "connector_assets": "dagster_defs.definitions.assets",
    "enrich": "sync.enrichment",
    "files_changed": "dagster_defs.automation.sensors",
    "files_found": "dagster_defs.automation.discovery",
    "namespaces_offered": "dagster_defs.automation.discovery",
    "push": "sync.push",
    "push_assets": "dagster_defs.push.assets",
    "streams_offered": "dagster_defs.automation.discovery",
    "sync": "sync",
    "sync_all": "sync",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, _ERRORS_MODULE)}"), name)


def __dir__() -> list[str]:
    """Lists the public names. `dg` finds the component by this list."""
    return __all__
