"""Connectors run directly and land, exactly once, in Spark tables. These are the public names, and all of them.

Each is imported when it is first asked for: a command that only reads a state need not wait for Spark's modules.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagster_airbyte_proto.checkpoints.sql_store import SqlStateStore
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
    "SqlStateStore",
    "StagingError",
    "StateConflict",
    "StateUnavailable",
    "TableError",
]

_HOMES = {"Connection": "connection", "SqlStateStore": "checkpoints.sql_store"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
