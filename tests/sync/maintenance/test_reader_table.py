"""The table of `docs/readers.md`: readers scan tables with each kind of deletes, and the page says what they did."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pyiceberg
import pyspark
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.tables.iceberg.format import iceberg_version
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.sync.maintenance.test_readers import static
from tests.sync.maintenance.test_rollback import Lake

_READERS_PAGE = Path(__file__).parents[3] / "docs" / "readers.md"
_HEAD = "| reader | deletion vectors | position deletes | equality deletes |"
# The stream's options in the sync that makes the table, and in those that upsert. A table keeps the format that it was
# made with.
_BY_POSITION = {"write": "append_dedup", "merge": "positions"}
_BY_KEY = {"write": "append_dedup", "merge": "equality_deletes"}
_KINDS = {
    "vectors": (_BY_POSITION, _BY_POSITION),
    "position_files": ({"write": "append"}, _BY_POSITION),
    "equality_deletes": (_BY_KEY, _BY_KEY),
}
# Packages that bring a version of DuckDB with its extension for Iceberg.
_DUCKDB = {
    "1.5.5": ("duckdb==1.5.5", "duckdb-extension-iceberg==1.5.5", "duckdb-extension-avro==1.5.5"),
    "1.4.4": ("duckdb==1.4.4", "duckdb-ext-iceberg==1.4.4.20260205", "duckdb-ext-avro==1.4.4.20260205"),
}
_SCAN_BY_DUCKDB = """
import glob, json, os, sys
import duckdb
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
packages = os.path.dirname(os.path.dirname(duckdb.__file__))
extensions = glob.glob(packages + "/**/*.duckdb_extension", recursive=True)
for name in ("avro", "iceberg"):
    [extension] = [each for each in extensions if os.path.basename(each).startswith(name + ".")]
    connection.execute(f"load '{extension}'")
print(json.dumps(connection.execute(f"select id from iceberg_scan('{sys.argv[1]}')").fetchall()))
"""
_INSTALL_SECONDS = 600.0


def _scan_by_pyiceberg(lake: Lake, spark: SparkSession, stream: str) -> list[int]:
    return [int(row["id"]) for row in static(lake, spark, stream).scan().to_arrow().to_pylist()]


def _scan_by_duckdb(python: Path, metadata: str) -> list[int]:
    call = [str(python), "-c", _SCAN_BY_DUCKDB, metadata]
    done = subprocess.run(call, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    if done.returncode:
        raise ValueError(done.stderr.splitlines()[-1])
    return [int(row) for [row] in json.loads(done.stdout)]


def _outcome(scan: Callable[[], list[int]], expected: list[int]) -> str:
    try:
        found = scan()
    except ValueError:
        return "refuses the table"
    return "yes" if sorted(found) == expected else "**wrong rows**"


def _environment(folder: Path, version: str) -> Path:
    """The Python of an environment with this version of DuckDB. It is made once."""
    made = folder / f"duckdb-{version}"
    if not (made / "whole").exists():
        shutil.rmtree(made, ignore_errors=True)
        uv = str(Path(sys.executable).parent / "uv")
        for call in ([uv, "venv", "-q", "--python", sys.executable, str(made)], [uv, "pip", "install", "-q"]):
            words = call if "venv" in call else [*call, "--python", str(made / "bin" / "python"), *_DUCKDB[version]]
            subprocess.run(words, check=True, timeout=_INSTALL_SECONDS)
        (made / "whole").touch()
    return made / "bin" / "python"


def _written() -> Mapping[str, list[str]]:
    """The table of the page: the cells of each reader."""
    _, _, table = _READERS_PAGE.read_text().partition(_HEAD + "\n")
    lines = table.partition("\n\n")[0].splitlines()[1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in rows}


@pytest.mark.spark
@pytest.mark.connectors
@pytest.mark.nightly
def test_the_page_says_what_readers_do_with_deletes(
    tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings, connector_environments: Path
) -> None:
    lake = Lake(tmp_path, spark, spark_settings)
    for records, step in ((9, 0), (24, 1), (36, 1)):
        write = {kind: options[step] for kind, options in _KINDS.items()}
        lake.sync({kind: {"records": records, "keys": 9} for kind in _KINDS}, write)
    expected: dict[str, list[int]] = {}
    metadata: dict[str, str] = {}
    for kind in _KINDS:
        table = f"lake.{lake.name}.{kind}"
        expected[kind] = [int(row) for [row] in query(spark, f"select id from {table} order by id").rows]
        assert expected[kind] == list(range(27, 36))
        logged = f"select file from {table}.metadata_log_entries order by timestamp desc limit 1"
        [[file]] = query(spark, logged).rows
        metadata[kind] = str(file)
        content = query(spark, f"select distinct content, lower(file_format) from {table}.delete_files").rows
        assert content == {"vectors": [[1, "puffin"]], "position_files": [[1, "parquet"]]}.get(kind, [[2, "parquet"]])

    found = {f"Spark with Iceberg {iceberg_version(pyspark.__version__)}": ["yes"] * len(_KINDS)}
    found[f"pyiceberg {pyiceberg.__version__}"] = [
        _outcome(partial(_scan_by_pyiceberg, lake, spark, kind), expected[kind]) for kind in _KINDS
    ]
    for version in _DUCKDB:
        python = _environment(connector_environments, version)
        found[f"DuckDB {version} with its `iceberg` extension"] = [
            _outcome(partial(_scan_by_duckdb, python, metadata[kind]), expected[kind]) for kind in _KINDS
        ]
    assert _written() == found
