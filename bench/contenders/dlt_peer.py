"""dlt, from the same source into Parquet files on disk.

The cheapest program for this work: batches of 5,000 dicts parsed by orjson (not one record at a time), every column
declared (nothing is inferred), objects and lists kept as JSON columns (no child tables), no telemetry. Its settings are
its own, or those of `cases.DLT_TURNED`.
dlt also takes Arrow tables and is then far cheaper, but then another program has to parse the records: that would be
the bare contender with dlt behind it, not a way for the output of an Airbyte connector.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlt
import orjson
import pyarrow.parquet as pq
from dlt.destinations import filesystem

from bench.contenders.catalog import json_schemas
from bench.meter import Task, measure

_BATCH = 5_000
_TYPES = {"integer": "bigint", "number": "double", "boolean": "bool", "object": "json", "array": "json"}


def main() -> None:
    task = Task.from_argument(sys.argv[1])
    os.environ |= {"RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR", **task.options["settings"]}
    folder = Path(task.folder)
    schemas = json_schemas(task.catalog)

    def land() -> None:
        pipeline = dlt.pipeline(
            "bench", destination=filesystem(bucket_url=folder.joinpath("lake").as_uri()), dataset_name="bench",
            pipelines_dir=str(folder / "pipelines"),
        )  # fmt: skip
        pipeline.run(_source(task, schemas), loader_file_format="parquet")

    def rows() -> int:
        return sum(
            pq.ParquetFile(file).metadata.num_rows
            for name in schemas
            for file in folder.glob(f"lake/bench/{name}/*.parquet")
        )

    measure(land, rows, {"dlt": dlt.__version__})


def _source(task: Task, schemas: dict[str, dict[str, Any]]) -> Any:
    """One resource that sends each batch to the table of its stream."""

    def records() -> Iterator[Any]:
        declared = set()
        for name, batch in _batches(task, schemas):
            if name in declared:
                yield dlt.mark.with_table_name(batch, name)
            else:
                declared.add(name)
                hints = dlt.mark.make_hints(
                    table_name=name, columns=_columns(schemas[name]), write_disposition="append"
                )
                yield dlt.mark.with_hints(batch, hints, create_table_variant=True)

    return dlt.resource(records, name="records", write_disposition="append", max_table_nesting=0)


def _batches(task: Task, schemas: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    folder = Path(task.folder)
    config, catalog = folder / "config.json", folder / "catalog.json"
    config.write_text(json.dumps({"recording": task.recording, "catalog": task.catalog}))
    catalog.write_text(json.dumps({"streams": [{"stream": {"name": name}} for name in schemas]}))
    command = [task.connector, "read", "--config", str(config), "--catalog", str(catalog)]
    held: dict[str, list[dict[str, Any]]] = {name: [] for name in schemas}
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=1 << 20) as source:
        for line in source.stdout or ():
            message = orjson.loads(line)
            if message["type"] == "RECORD":
                record = message["record"]
                batch = held[record["stream"]]
                batch.append(record["data"])
                if len(batch) >= _BATCH:
                    yield record["stream"], batch
                    held[record["stream"]] = []
    yield from ((name, batch) for name, batch in held.items() if batch)


def _columns(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: {"data_type": _data_type(kind), "nullable": True} for name, kind in schema["properties"].items()}


def _data_type(schema: dict[str, Any]) -> str:
    if schema.get("format") == "date-time":
        return "timestamp"
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return _TYPES.get(next(kind for kind in kinds if kind != "null"), "text")


if __name__ == "__main__":
    main()
