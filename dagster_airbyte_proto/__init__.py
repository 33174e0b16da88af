"""Connectors run directly and land, exactly once, in Spark tables. These are the public names, and all of them."""

from dagster_airbyte_proto.connection import Connection
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

__all__ = [
    "CommitUnknown",
    "ConfigError",
    "Connection",
    "ConnectorError",
    "InternalError",
    "ProtoError",
    "ProtocolViolation",
    "StagingError",
    "StateConflict",
    "StateUnavailable",
    "TableError",
]
