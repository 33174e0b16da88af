"""The lower bound: pyarrow.json and Parquet, and nothing else.

Reads the file itself (no connector, no pipe), finds the runs of a stream with one regex, parses whole segments in one
thread with an explicit schema, and writes zstd-1 Parquet. It lands `data` alone: no metadata columns, no check of the
text's encoding, no state, no unusual line. An object becomes a STRUCT. The segment size is the
cheapest of 2, 4, 8, 16 and 32 MiB.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from bench.contenders.catalog import json_schemas
from bench.contenders.parquet_rows import parquet_rows
from bench.meter import Task, measure

_CHUNK_BYTES = 1 << 20
_SEGMENT_BYTES = 8 << 20


def main() -> None:
    task = Task.from_argument(sys.argv[1])
    folder = Path(task.folder)
    files = {name: folder / f"{name}.parquet" for name in json_schemas(task.catalog)}
    measure(
        lambda: _land(task.recording, json_schemas(task.catalog), files),
        lambda: parquet_rows(folder),
        {"pyarrow": pa.__version__},
    )


def _land(recording: str, streams: dict[str, dict[str, Any]], files: dict[str, Path]) -> None:
    landings = {name.encode(): _Landing(_arrow(schema), files[name]) for name, schema in streams.items()}
    for name, lines in _runs(recording, list(landings)):
        landings[name].add(lines)
    for landing in landings.values():
        landing.close()


def _runs(recording: str, names: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The runs of whole lines of one stream, in order. The possessive `++` keeps the match linear."""
    begin = b'\\{"type": ?"RECORD", ?"record": ?\\{"stream": ?"'
    one = b"(?:" + begin + b'%b"[^\n]*+\n)++'
    if len(names) <= 100:  # groups cannot have the names of any stream; the shop has three streams
        pattern = re.compile(b"|".join(b"(" + one % re.escape(name) + b")" for name in names) + b"|[^\n]*+\n")
    else:
        pattern = re.compile(begin + b'([^"]*)"[^\n]*+\n(?:' + begin + b'\\1"[^\n]*+\n)*+|[^\n]*+\n')
    with Path(recording).open("rb", buffering=0) as file:
        rest = b""
        while chunk := file.read(_CHUNK_BYTES):
            chunk = rest + chunk
            end = chunk.rfind(b"\n") + 1
            rest = chunk[end:]
            for match in pattern.finditer(chunk, 0, end):
                if (group := match.lastindex) is not None:
                    yield (names[group - 1] if len(names) <= 100 else match[1]), match[0]


class _Landing:
    """One stream's Parquet file."""

    def __init__(self, data: pa.StructType, file: Path) -> None:
        self._schema = pa.schema(list(data))
        self._parse = pj.ParseOptions(
            explicit_schema=pa.schema([("record", pa.struct([("data", data)]))]), unexpected_field_behavior="ignore"
        )
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd", compression_level=1)
        self._held: list[bytes] = []
        self._size = 0

    def add(self, lines: bytes) -> None:
        self._held.append(lines)
        self._size += len(lines)
        if self._size >= _SEGMENT_BYTES:
            self._flush()

    def close(self) -> None:
        if self._held:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        segment = b"".join(self._held)
        reading = pj.ReadOptions(use_threads=False, block_size=len(segment) + 1)
        table = pj.read_json(pa.BufferReader(segment), read_options=reading, parse_options=self._parse)
        for chunk in table.column("record").chunks:
            self._writer.write_table(pa.Table.from_arrays(chunk.field("data").flatten(), schema=self._schema))
        self._held.clear()
        self._size = 0


def _arrow(schema: dict[str, Any]) -> pa.DataType:
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    match next(kind for kind in kinds if kind != "null"):
        case "object":
            return pa.struct([(name, _arrow(child)) for name, child in schema["properties"].items()])
        case "array":
            return pa.list_(_arrow(schema["items"]))
        case "integer":
            return pa.int64()
        case "number":
            return pa.float64()
        case "boolean":
            return pa.bool_()
        case _:
            return pa.timestamp("us", "UTC") if schema.get("format") == "date-time" else pa.string()


if __name__ == "__main__":
    main()
