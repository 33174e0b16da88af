"""`version`. Slow modules are imported when the command runs; see call.py."""

import os
import platform
from pathlib import Path

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.output import Answer
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.project_folder import expanded

_PACKAGES = ("pyspark", "pyarrow", "dagster", "sqlalchemy", "pydantic", "msgspec")


@command_in(program, "version")
def version(call: Call) -> Answer:
    """Shows the versions of everything that matters for a bug report."""
    found: dict[str, str | int | None] = {
        "airbyte_proto": _package("dagster_airbyte_proto"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: _package(name) for name in _PACKAGES},
        "iceberg_runtime": _iceberg_runtime(),
        "java": _java(),
        "node": _node(),
        "state_store_schema": _state_store_schema(call),
    }
    width = max(map(len, found))
    lines = (f"{name.replace('_', ' '):{width}}  {value or 'none'}" for name, value in found.items())
    return Answer(found, tuple(lines))


def _package(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed(name)
    except PackageNotFoundError:
        return None


def _iceberg_runtime() -> str | None:
    from dagster_airbyte_proto.tables.iceberg.format import iceberg_version

    pyspark = _package("pyspark")
    return iceberg_version(pyspark) if pyspark else None


def _java() -> str | None:
    """The version line of the Java that would run Spark."""
    from dagster_airbyte_proto.tables.spark.jvm.java_home import java_home, version_line
    from dagster_airbyte_proto.tables.spark.settings import SparkSettings

    cache: Path = SparkSettings._field_defaults["cache"]
    try:
        return version_line(java_home(expanded(cache), os.environ))
    except (ConfigError, OSError):
        return None


def _node() -> str | None:
    """The version of the Node that would run packages of npm."""
    from dagster_airbyte_proto.launchers.packages.npm.node import find_node

    try:
        return find_node().version
    except ConfigError:
        return None


def _state_store_schema(call: Call) -> int | None:
    """The schema version of a state store in an existing file. It is read only, so nothing is created or migrated."""
    import sqlite3

    from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
    from dagster_airbyte_proto.checkpoints.sqlite_files import read_only

    url = call.settings().state_url
    try:
        file = SqlStore(url).file  # It reads the escapes of the URL, and opens nothing.
    except ConfigError:  # The command that opens it says so.
        return None
    if file is None or not file.is_file():
        return None
    try:
        with read_only(file) as connection:
            row = connection.execute("SELECT version FROM airbyte_proto_schema_version").fetchone()
    except sqlite3.Error:
        return None
    return int(row[0]) if row else None
