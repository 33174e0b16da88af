"""The connection file and its model: how such files are read, validated and refused."""

from dagster_airbyte_proto.connection.connection import Connection, Destination, LoadLimits
from dagster_airbyte_proto.connection.launch import (
    Connector,
    DockerLaunch,
    Launch,
    LocalLaunch,
    ManifestLaunch,
    NpmLaunch,
    ProgramLaunch,
    PypiLaunch,
    ReplayLaunch,
)
from dagster_airbyte_proto.connection.push import ConstantColumn, ExpressionColumn, PushOptions
from dagster_airbyte_proto.connection.rapidbyte.component_options import WasmLaunch
from dagster_airbyte_proto.connection.references import FilledConfig
from dagster_airbyte_proto.connection.streams import OTHERS, StreamOptions

__all__ = [
    "OTHERS",
    "Connection",
    "Connector",
    "ConstantColumn",
    "Destination",
    "DockerLaunch",
    "ExpressionColumn",
    "FilledConfig",
    "Launch",
    "LoadLimits",
    "LocalLaunch",
    "ManifestLaunch",
    "NpmLaunch",
    "ProgramLaunch",
    "PushOptions",
    "PypiLaunch",
    "ReplayLaunch",
    "StreamOptions",
    "WasmLaunch",
]
