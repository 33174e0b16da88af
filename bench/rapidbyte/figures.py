"""Measures components of WebAssembly: `python -m bench.rapidbyte`. It needs ziglang, which the tests need too.

Components of C, on the kit's own headers: a source whose batches are discarded, the same rows into Iceberg by it and by
a local program of Airbyte's, and a destination that only counts. CPU seconds are those of this process, of the JVM and
of all programs that they start. A missed limit is reported.
"""

import argparse
import io
import json
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from bench import replay_source
from bench.meter import cpu_seconds
from bench.report import Figure, publish_figures, shown
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connector_kit.build import built_connector, component_of_c
from dagster_airbyte_proto.encoding.arrow_frames import arrow_frame
from dagster_airbyte_proto.encoding.record_lines import RecordFrame, record_lines
from dagster_airbyte_proto.launchers.wasm.launcher import WasmLauncher
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb
from dagster_airbyte_proto.protocols.rapidbyte.messages import BATCH, batch_head, line
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.push.push_context import PushRequest
from dagster_airbyte_proto.sync.push.run import push_connection
from dagster_airbyte_proto.sync.run import sync_connection

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
_FOLDER = _ROOT / ".bench" / "rapidbyte"
_HEADERS = files("dagster_airbyte_proto.connector_kit") / "skeletons" / "c"
_MARK = "rapidbyte"
_MEGABYTE, _GIGABYTE = 1e6, 1e9
_WARM_BATCHES = 2
_PATIENCE_SECONDS = 120.0
_STARTS = 7
_DELIVERED_BATCHES = 9
_PUSHED_ROWS_A_BATCH = 50_000
_ENVELOPE = RecordFrame('{"type":"RECORD","record":{"stream":"rows","emitted_at":1700000000000,"data":', "}}")


class Read(NamedTuple):
    """One reading of a component's whole output, or the beginning of it."""

    batches: list[bytes]
    size_bytes: int
    wall_seconds: float
    our_seconds: float
    all_seconds: float


def _component(role: str) -> Path:
    """Builds the component of a role, in a folder of its own."""
    folder = _FOLDER / role
    shutil.copytree(_HERE / role, folder)
    for header in ("rapidbyte.h", "arrow.h"):
        (folder / header).write_text((_HEADERS / header).read_text())
    return built_connector(folder, component_of_c)


def _read(component: Path, stream: str, batches: int, *, keeps: bool = False) -> Read:
    runs = [{"stream": stream, "context": {"stream_name": stream}}]
    written = {"config.json": json.dumps({"batches": batches}).encode(), "runs.json": json.dumps(runs).encode()}
    launcher = WasmLauncher(component, cache=_FOLDER / "cache")
    wall, ours, everything = time.perf_counter(), time.process_time(), cpu_seconds()
    running = launcher.launch(Invocation((Verb.READ.value,), written, verb=Verb.READ), environment={})
    kept, size, is_batch = [], 0, False
    while chunk := running.read(_PATIENCE_SECONDS):
        if is_batch:
            size += len(chunk)
            kept += [chunk] if keeps else []
        is_batch = not is_batch and batch_head(chunk) is not None
    report = running.wait(_PATIENCE_SECONDS)
    if report is None or not report.ended_cleanly:
        raise RuntimeError(f"the component {report.how_it_ended if report else 'does not end'}")
    seconds = time.perf_counter() - wall, time.process_time() - ours, cpu_seconds() - everything
    return Read(kept, size, *seconds)


def _transport(component: Path, batches: int, rounds: int) -> Iterator[Figure]:
    """Batches of a compiled component to this process, which lets them go."""
    for stream, says in (("frames", "one batch of 1 MiB again and again"), ("rows", "batches that it builds")):
        _read(component, stream, _WARM_BATCHES)
        found = [_read(component, stream, 2 * batches) for _ in range(rounds)]
        speed = statistics.median(each.size_bytes / each.wall_seconds for each in found) / _MEGABYTE
        both = statistics.median(each.all_seconds / each.size_bytes for each in found) * _GIGABYTE
        ours = statistics.median(each.our_seconds / each.size_bytes for each in found) * _GIGABYTE
        is_limited = stream == "frames"
        yield Figure(f"{says}, MB/s", speed, at_least=300 if is_limited else None)
        yield Figure(f"{says}, CPU s per GB, of both sides", both, 1.5 if is_limited else None)
        yield Figure(f"{says}, CPU s per GB, of this process", ours)


def _deliver(component: Path, batch: pa.RecordBatch, count: int) -> float:
    """Writes a batch so many times to a component that counts, and returns the seconds until it has ended."""
    runs = [{"stream": "rows", "context": {"stream_name": "rows"}}]
    written = {"config.json": b"{}", "runs.json": json.dumps(runs).encode()}
    launcher = WasmLauncher(component, cache=_FOLDER / "cache")
    began = time.perf_counter()
    invocation = Invocation((Verb.WRITE.value,), written, verb=Verb.WRITE, takes_input=True)
    running = launcher.launch(invocation, environment={})
    for _ in range(count):
        frame = arrow_frame(batch)
        for piece in (line(BATCH, stream="rows", rows=batch.num_rows, bytes=len(frame)), frame):
            rest = memoryview(piece)
            while rest:
                rest = rest[running.write(rest, _PATIENCE_SECONDS) :]
    running.close_input()
    while running.read(_PATIENCE_SECONDS):
        pass
    report = running.wait(_PATIENCE_SECONDS)
    if report is None or not report.ended_cleanly:
        raise RuntimeError(f"the component {report.how_it_ended if report else 'does not end'}")
    return time.perf_counter() - began


def _deliveries(source: Path, component: Path, batches: int, rounds: int) -> Iterator[Figure]:
    """Arrow batches of about 8 MiB from this process to a component that counts: a push without its plan."""
    contents = _read(source, "rows", _DELIVERED_BATCHES, keeps=True).batches
    whole = pa.concat_tables(pa.ipc.open_stream(io.BytesIO(each)).read_all() for each in contents)
    batch = whole.combine_chunks().to_batches()[0]
    count = max(1, batches // _DELIVERED_BATCHES)
    _deliver(component, batch, 1)
    found, costs = [], []
    for _ in range(rounds):
        began = cpu_seconds()
        found.append(_deliver(component, batch, count))
        costs.append(cpu_seconds() - began)
    size = count * len(arrow_frame(batch))
    speed = size / statistics.median(found) / _MEGABYTE
    yield Figure("batches of 8 MiB to a component that counts, MB/s", speed)
    yield Figure(
        "batches of 8 MiB to a component that counts, CPU s per GB, of both sides",
        statistics.median(costs) / size * _GIGABYTE,
    )


def _starts(component: Path) -> Iterator[Figure]:
    """A start whose code is compiled already, until `open` and the run of a stream of nothing are answered."""
    found = [_read(component, "frames", 0) for _ in range(_STARTS)]
    yield Figure(
        "cached start, until `open` and an empty run are answered, CPU s",
        statistics.median(each.all_seconds for each in found),
        0.2,
    )


def _recorded(component: Path, batches: int) -> tuple[Path, Path]:
    """The rows of the component as record lines of Airbyte's, with its catalog."""
    recording, catalog = _FOLDER / f"rows-{batches}.jsonl", _FOLDER / "catalog.json"
    text, time_of_day = {"type": ["null", "string"]}, "timestamp_without_timezone"
    at = {"type": ["null", "string"], "format": "date-time", "airbyte_type": time_of_day}
    number, decimal = {"type": ["null", "integer"]}, {"type": ["null", "number"]}
    properties = {"id": number, "name": text, "email": text, "amount": decimal, "quantity": number, "created_at": at}
    schema = {"type": "object", "properties": {**properties, "updated_at": at, "note": text}}
    stream = {"name": "rows", "json_schema": schema, "supported_sync_modes": ["full_refresh"]}
    catalog.write_text(json.dumps({"type": "CATALOG", "catalog": {"streams": [stream]}}) + "\n")
    with recording.open("wb") as lines:
        for content in _read(component, "rows", batches, keeps=True).batches:
            for batch in pa.ipc.open_stream(io.BytesIO(content)):
                lines.write(record_lines(batch, _ENVELOPE))
    return recording, catalog


def _synced(engine: Engine, name: str, connector: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    """Syncs the rows into a table, and returns how many there were."""
    document = {
        "name": name,
        "connector": connector,
        "config": config,
        "streams": {"rows": {"read": "full_refresh", "write": "append"}},
    }
    file = _FOLDER / f"{name}.yaml"
    file.write_text(json.dumps(document))
    report = sync_connection(engine, Connection.from_file(file))
    if report.status != "complete":
        raise RuntimeError(f"the sync of {name} is {report.status}: {report.streams}")
    return report.streams["rows"].committed


def _tables(engine: Engine, component: Path, batches: int, rounds: int) -> Iterator[Figure]:
    """Rows of a component into Iceberg, beside the same rows as JSON of a local program."""
    program = _FOLDER / "replay"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {replay_source.__file__} "$@"\n')
    program.chmod(0o755)
    wasm = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": str(component)}}
    local = {"protocol": "airbyte", "launch": {"kind": "local", "command": [str(program)]}}

    def configs(count: int) -> tuple[dict[str, Any], dict[str, Any]]:
        recording, catalog = _recorded(component, count)
        return {"batches": count}, {"recording": str(recording), "catalog": str(catalog)}

    for few in (configs(_WARM_BATCHES), configs(_WARM_BATCHES)):
        _synced(engine, "wasm", wasm, few[0])
        _synced(engine, "lines", local, few[1])
    of_wasm, of_lines = configs(batches)
    rows, ratios, costs = 0, [], []
    for _ in range(rounds):
        began = cpu_seconds()
        rows = _synced(engine, "wasm", wasm, of_wasm)
        cost = cpu_seconds() - began
        began = cpu_seconds()
        if _synced(engine, "lines", local, of_lines) != rows:
            raise RuntimeError(f"the component gave {rows} rows, and the program another number")
        ratios.append(cost / (cpu_seconds() - began))
        costs.append(cost)
    yield Figure(f"{rows:,} rows of a component into Iceberg, CPU s", statistics.median(costs))
    yield Figure("component / the same rows as JSON of a local program, CPU", statistics.median(ratios), 0.5)


def _sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"size": [sum(batch.nbytes for batch in batches)]})


def _destinations(engine: Engine, session: SparkSession, component: Path, rounds: int) -> Iterator[Figure]:
    """The table that was synced, pushed to a component that counts. Its bytes are those of the Arrow batches."""
    document: dict[str, Any] = {
        "name": "counted",
        "connector": {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": str(component)}},
        "config": {},
        "batch": {"rows": _PUSHED_ROWS_A_BATCH},
    }
    name = f"{engine.settings.catalog.name}.wasm.rows"
    columns = "id, name, email, amount, quantity, created_at, updated_at, note"
    session.sql(
        f"CREATE TABLE {engine.settings.catalog.name}.wasm.few USING iceberg AS SELECT {columns} FROM {name} LIMIT 1000"
    )
    rows = session.table(name).selectExpr(*columns.split(", "))
    # Where they are read: all of them at once are more than Spark takes to its driver.
    size = sum(row[0] for row in rows.mapInArrow(_sizes, "size bigint").collect())

    def push(table_name: str) -> int:
        pushed = {
            "rows": {"from": table_name, "mode": "append", "changes": "all", "map": {c: c for c in columns.split(", ")}}
        }
        file = _FOLDER / "counted.yaml"
        file.write_text(json.dumps({**document, "push": pushed}))
        stream = push_connection(engine, Connection.from_file(file), PushRequest()).streams["rows"]
        if stream.status != "complete" or stream.sent != stream.acknowledged:
            raise RuntimeError(f"the push is {stream.status}: {stream.error}")
        return stream.acknowledged

    push(f"{engine.settings.catalog.name}.wasm.few")
    speeds, costs = [], []
    for _ in range(rounds):
        began, spent = time.perf_counter(), cpu_seconds()
        push(name)
        speeds.append(size / (time.perf_counter() - began) / _MEGABYTE)
        costs.append((cpu_seconds() - spent) / size * _GIGABYTE)
    yield Figure(
        f"Iceberg into a component that counts, {size / _MEGABYTE:.0f} MB, MB/s",
        statistics.median(speeds),
        at_least=250,
    )
    yield Figure("Iceberg into a component that counts, CPU s per GB", statistics.median(costs))


def _figures(parts: Sequence[str], batches: int, rounds: int) -> Iterator[Figure]:
    source, destination = _component("source"), _component("destination")
    _read(source, "frames", 1)
    if "transport" in parts:
        yield from _starts(source)
        yield from _transport(source, batches, rounds)
        yield from _deliveries(source, destination, batches, rounds)
    if "tables" in parts:
        settings = Settings.load(_FOLDER / "home")
        settings.make_home()
        with Engine(settings) as engine:
            session = engine.open_session()
            yield from _tables(engine, source, batches, rounds)
            yield from _destinations(engine, session, destination, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.rapidbyte", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=500, help="of about a megabyte")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default="transport,tables", help="only these, comma-separated")
    parser.add_argument("--write", type=Path, help="put the table into this document, between its marks")
    chosen = parser.parse_args()
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    figures = map(shown, _figures(chosen.parts.split(","), chosen.batches, chosen.rounds))
    publish_figures(figures, chosen.write, _MARK)
    shutil.rmtree(_FOLDER)
