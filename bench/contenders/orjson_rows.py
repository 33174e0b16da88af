"""Rows of a Parquet file to record lines as a script does it: dicts by pandas or Arrow, and orjson.

`options.way` is `encode` (Arrow's `to_pylist`, lines that go nowhere) or `target` (pandas, lines into a Singer target).
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from bench.meter import Task, measure

_BATCH_ROWS = 10_000
_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY


def main() -> None:
    task = Task.from_argument(sys.argv[1])
    if task.options["way"] == "encode":
        batches = pq.read_table(task.recording).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
        measure(
            lambda: [_line(row) for batch in batches for row in batch.to_pylist()],
            lambda: sum(batch.num_rows for batch in batches),
            {"orjson": orjson.__version__, "pyarrow": pa.__version__},
        )
        return
    measure(lambda: _into_target(task), lambda: _written(Path(task.folder)), {"orjson": orjson.__version__})


def _into_target(task: Task) -> None:
    import pandas as pd

    config = Path(task.folder) / "scripted.json"
    config.write_text(json.dumps({"destination_path": task.folder, "custom_name": "scripted"}))
    rows = pd.read_parquet(task.recording).to_dict("records")
    schema = {"type": "SCHEMA", "stream": "scripted", "schema": task.options["schema"], "key_properties": []}
    with subprocess.Popen(
        [task.connector, "--config", config], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as target:
        assert target.stdin is not None
        target.stdin.write(orjson.dumps(schema) + b"\n")
        target.stdin.writelines(map(_line, rows))
    if target.returncode:
        raise RuntimeError(f"{task.connector} ended with {target.returncode}")


def _written(folder: Path) -> int:
    return sum(len(file.read_bytes().splitlines()) for file in folder.glob("scripted*.jsonl"))


def _line(row: Mapping[Any, Any]) -> bytes:
    line: bytes = orjson.dumps({"type": "RECORD", "stream": "scripted", "record": row}, default=_plain, option=_OPTIONS)
    return line


def _plain(value: Any) -> Any:
    """A decimal as a number, as the schema has it: digits may be lost, as in most scripts."""
    if isinstance(value, Decimal):
        return float(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


if __name__ == "__main__":
    main()
