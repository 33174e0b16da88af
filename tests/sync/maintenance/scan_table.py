"""Scans an Iceberg table with a reader of the running Python, which has that reader and nothing of ours.

    python scan_table.py READER METADATA_FILE

Prints JSON: for each of the queries the numbers that it gave, or the text of the reader's refusal.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

COUNT = "count(*)"
QUERIES = ("id", "key, id", COUNT)
"""What is selected: without the columns of the key, with them, and none at all."""


def _pyiceberg(metadata: str, query: str) -> list[int]:
    table = import_module("pyiceberg.table").StaticTable.from_metadata(metadata)
    if query == COUNT:
        return [table.scan().count()]
    return list(table.scan(selected_fields=_columns(query)).to_arrow()["id"].to_pylist())


def _polars(metadata: str, query: str) -> list[int]:
    polars = import_module("polars")
    frame = polars.scan_iceberg(metadata)
    found = frame.select(polars.len().alias("id") if query == COUNT else polars.col(*_columns(query))).collect()
    return list(found["id"].to_list())


def _duckdb(metadata: str, query: str) -> list[int]:
    """The packages bring the files of the extensions, which DuckDB would else download."""
    duckdb: Any = import_module("duckdb")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    packages = Path(duckdb.__file__).parents[1]
    for name in ("avro", "iceberg"):
        [extension] = packages.rglob(f"{name}.duckdb_extension")
        connection.execute(f"load '{extension}'")
    rows = connection.execute(f"select {query} from iceberg_scan('{metadata}')").fetchall()
    return [row[-1] for row in rows]


def _datafusion(metadata: str, query: str) -> list[int]:
    """It takes a location for a URL, and so needs its scheme."""
    context = import_module("datafusion").SessionContext()
    context.register_table("t", import_module("pyiceberg.table").StaticTable.from_metadata(f"file://{metadata}"))
    [*_, column] = context.sql(f"select {query} from t").to_arrow_table().columns
    return list(column.to_pylist())


def _daft(metadata: str, query: str) -> list[int]:
    table = import_module("pyiceberg.table").StaticTable.from_metadata(metadata)
    frame = import_module("daft").read_iceberg(table)
    return [frame.count_rows()] if query == COUNT else list(frame.select(*_columns(query)).to_pydict()["id"])


def _chdb(metadata: str, query: str) -> list[int]:
    """The engine of ClickHouse. It looks for the newest metadata of a folder by itself, below the working directory."""
    folder = Path(metadata).parents[1]
    os.chdir("/")
    answer = import_module("chdb").query(f"select {query} from icebergLocal('{folder}/')", "JSONCompact")
    return [int(row[-1]) for row in json.loads(answer.bytes())["data"]]


READERS: Mapping[str, Callable[[str, str], list[int]]] = {
    "pyiceberg": _pyiceberg,
    "polars": _polars,
    "duckdb": _duckdb,
    "datafusion": _datafusion,
    "daft": _daft,
    "chdb": _chdb,
}


def _columns(query: str) -> tuple[str, ...]:
    return tuple(query.split(", "))


def _answer(reader: str, metadata: str, query: str) -> Any:
    try:
        return READERS[reader](metadata, query)
    except Exception as error:  # noqa: BLE001 - each reader has errors of its own
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    _, reader_name, metadata_file = sys.argv
    answers = {query: _answer(reader_name, metadata_file, query) for query in QUERIES}
    sys.stdout.write(json.dumps(answers) + "\n")
    sys.stdout.flush()
    os._exit(0)  # What an engine's threads do at the end of the interpreter is no answer.
