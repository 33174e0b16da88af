"""The table of `docs/readers.md`: readers scan tables with each kind of deletes, and the page says what they did."""

import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.tables.iceberg.format import iceberg_version
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.sync.maintenance import scan_table
from tests.sync.maintenance.test_rollback import Lake

_PAGE = Path(__file__).parents[3] / "docs" / "readers.md"
_HEAD = "| reader | deletion vectors | position deletes | equality deletes |"
# The stream's options in the sync that makes the table, and in those that upsert. A table keeps the format that it was
# made with.
_BY_POSITION = {"write": "append_dedup", "merge": "positions"}
_BY_KEY = {"write": "append_dedup", "merge": "equality_deletes"}
KINDS = {
    "vectors": (_BY_POSITION, _BY_POSITION),
    "position_files": ({"write": "append"}, _BY_POSITION),
    "equality_deletes": (_BY_KEY, _BY_KEY),
}
_DELETE_FILES = {"vectors": [1, "puffin"], "position_files": [1, "parquet"], "equality_deletes": [2, "parquet"]}
# More rows than a reader has in one batch, in one file of which each upsert replaces a few.
_RECORDS, _KEYS = (3000, 3100, 3200), 3000
_EXPECTED = list(range(_RECORDS[-1] - _KEYS, _RECORDS[-1]))
_SECONDS = 900.0
TRINO_VERSIONS = (476, 483)
"""A server, which `test_trino.py` has beside it: the page has a row for each of these."""


class _Reader(NamedTuple):
    """A reader by its name in the page; its function in `scan_table`; and the packages of an environment of its own."""

    name: str
    scan: str
    packages: tuple[str, ...] = ()


_PYICEBERG = "pyiceberg[pyarrow]==0.12.0"
_READERS = (
    _Reader(f"pyiceberg {version('pyiceberg')}", "pyiceberg"),
    _Reader(f"polars {version('polars')}, `scan_iceberg`", "polars"),
    _Reader(
        "DuckDB 1.5.5 with its `iceberg` extension",
        "duckdb",
        ("duckdb==1.5.5", "duckdb-extension-iceberg==1.5.5", "duckdb-extension-avro==1.5.5"),
    ),
    _Reader(
        "DuckDB 1.4.4 with its `iceberg` extension",
        "duckdb",
        ("duckdb==1.4.4", "duckdb-ext-iceberg==1.4.4.20260205", "duckdb-ext-avro==1.4.4.20260205"),
    ),
    _Reader("Daft 0.7.26", "daft", ("daft==0.7.26", _PYICEBERG)),
    _Reader(
        "DataFusion 54.1.0 with pyiceberg-core 0.11.0",  # which takes no newer one
        "datafusion",
        ("datafusion==54.1.0", "pyiceberg-core==0.11.0", _PYICEBERG),
    ),
    _Reader("ClickHouse in chDB 4.4.0, `icebergLocal`", "chdb", ("chdb==4.4.0",)),
)


class DeletedRows:
    """The newest metadata file of a table of each kind, whose rows Spark has read."""

    def __init__(self, lake: Lake, spark: SparkSession) -> None:
        self.metadata: dict[str, str] = {}
        lake.more = {"load": {}}  # One for each sync.
        for number, records in enumerate(_RECORDS):
            write = {kind: options[min(number, 1)] for kind, options in KINDS.items()}
            lake.sync({kind: {"records": records, "keys": _KEYS} for kind in KINDS}, write)
        for kind, deletes in _DELETE_FILES.items():
            table = f"{lake.tables.catalog}.{lake.name}.{kind}"
            for selected in ("id", "key, id"):
                found = query(spark, f"select {selected} from {table}").rows
                assert sorted(row[-1] for row in found) == _EXPECTED
            assert query(spark, f"select count(*) from {table}").rows == [[len(_EXPECTED)]]
            content = query(spark, f"select distinct content, lower(file_format) from {table}.delete_files").rows
            # A load replaces rows of its own by their places, whatever the merge mode is.
            assert deletes in content
            logged = f"select file from {table}.metadata_log_entries order by timestamp desc limit 1"
            [[file]] = query(spark, logged).rows
            self.metadata[kind] = str(file).removeprefix("file:")

    def scanned_by(self, reader: _Reader, python: Path) -> list[str]:
        """The cells of a reader's row."""
        return [verdict(reader.name, kind, _answers(reader, python, self.metadata[kind])) for kind in KINDS]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, spark_settings: SparkSettings) -> DeletedRows:
    lake = Lake(tmp_path_factory.mktemp("readers"), spark, spark_settings)
    return DeletedRows(lake, spark)


def _answers(reader: _Reader, python: Path, metadata: str) -> Mapping[str, Sequence[int] | str]:
    command = [str(python), scan_table.__file__, reader.scan, metadata]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, (reader.name, done.returncode, done.stderr[-2000:])
    return dict(json.loads(done.stdout.splitlines()[-1]))


def verdict(reader: str, kind: str, answers: Mapping[str, Sequence[int] | str]) -> str:
    """What the page says of a reader that gave these answers, numbers or a refusal, to the queries of `scan_table`."""
    refused = {selected: found for selected, found in answers.items() if isinstance(found, str)}
    expected = {selected: [len(_EXPECTED)] if selected == scan_table.COUNT else _EXPECTED for selected in answers}
    wrong = {
        selected: found
        for selected, found in answers.items()
        if selected not in refused and sorted(found) != expected[selected]
    }
    sys.stdout.write(f"{reader}, {kind}: refused {refused}, wrong {wrong}\n")  # Shown if the test fails.
    if wrong:
        return "**wrong rows**, or refuses the query" if refused else "**wrong rows**"
    if len(refused) == len(answers):
        return "refuses the table"
    return "refuses some queries" if refused else "yes"


def _python_of(reader: _Reader, environments: Path) -> Path:
    """The Python of the reader's environment. It is made once; uv's cache keeps the packages."""
    if not reader.packages:
        return Path(sys.executable)
    made = environments / f"reader-{'-'.join(reader.packages[0].split('=='))}"
    with (environments / f"{made.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made / "whole").exists():
            shutil.rmtree(made, ignore_errors=True)
            uv, python = str(Path(sys.executable).parent / "uv"), str(made / "bin" / "python")
            for words in (
                ["venv", "--quiet", "--python", sys.executable, str(made)],
                ["pip", "install", "--quiet", "--python", python, *reader.packages],
            ):
                subprocess.run([uv, *words], check=True, timeout=_SECONDS)
            (made / "whole").touch()
    return made / "bin" / "python"


def written() -> Mapping[str, list[str]]:
    """The table of the page: the cells of each reader."""
    _, _, table = _PAGE.read_text().partition(_HEAD + "\n")
    lines = table.partition("\n\n")[0].splitlines()[1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: cells for name, *cells in rows}


def test_the_page_has_these_readers_and_no_other() -> None:
    spark = f"Spark with Iceberg {iceberg_version(pyspark.__version__)}"
    trino = (f"Trino {each}" for each in TRINO_VERSIONS)
    assert [*written()] == [spark, *trino, *(reader.name for reader in _READERS)]
    assert written()[spark] == ["yes"] * len(KINDS)


@pytest.mark.spark
@pytest.mark.connectors
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reader", _READERS, ids=lambda reader: reader.name)
def test_the_page_says_what_a_reader_does_with_deletes(
    reader: _Reader, tables: DeletedRows, connector_environments: Path
) -> None:
    assert tables.scanned_by(reader, _python_of(reader, connector_environments)) == written()[reader.name]
