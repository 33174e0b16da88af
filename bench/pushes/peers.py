"""Pushes and relays beside other tools, with the same rows: drt, a tap that is piped into a target, and our own push
with its records in files.

Each program counts from its start to its end: a command of drt, a pipe. Ours runs in a warm session.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench import environments
from bench.pushes.pushed_rows import FOLDER, Pushed, cpu_of
from bench.report import Figure
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.encoding.json_types import json_schema
from dagster_airbyte_proto.encoding.record_lines import RecordFrame, record_lines
from dagster_airbyte_proto.protocols.destination import JsonDialect
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run import sync_connection

_ENVIRONMENTS = FOLDER.parent / "environments"
_ALL: dict[str, Any] = {"mode": "append", "changes": "all"}
_FRAME = RecordFrame('{"type":"RECORD","stream":"rows","record":', "}")
_LOAD = "CREATE TABLE rows AS SELECT * FROM read_parquet('{file}')"


def beside_peers(pushed: Pushed, engine: Engine) -> Iterator[Figure]:
    """The figures, in the order in which they are measured."""
    pushed.frame().coalesce(1).write.mode("overwrite").parquet(str(FOLDER / "rows"))
    [file] = (FOLDER / "rows").glob("*.parquet")
    yield from _beside_drt(pushed, file)
    yield from _beside_a_pipe(pushed, engine, file)
    yield from _by_files(pushed)


def _beside_drt(pushed: Pushed, file: Path) -> Iterator[Figure]:
    """Rows into a file of JSON lines: by drt from a DuckDB file, by us into a program that writes its input down."""
    out = FOLDER / "drt.jsonl"
    project = _drt_project(file, out)
    command = [str(environments.python_of("drt", _ENVIRONMENTS).parent / "drt"), "run"]
    variables = {**os.environ, "HOME": str(project)}
    peer = cpu_of(lambda: subprocess.run(command, cwd=project, env=variables, stdout=subprocess.DEVNULL, check=True))
    _check_lines(out, pushed.rows)
    yield Figure(f"{pushed.rows:,} rows into a file by drt from DuckDB, CPU s", peer)
    ours = cpu_of(lambda: pushed.push(command=[_script("writer", "exec cat > written.jsonl")], more=_BY_EXIT, **_ALL))
    yield Figure("the same by a push into a program that writes its input down, CPU s", ours)
    yield Figure("push / drt, CPU", ours / peer, 1)


_BY_EXIT = {"acknowledge": "exit"}


def _drt_project(file: Path, out: Path) -> Path:
    """A project of drt with the rows in a DuckDB file."""
    python = environments.python_of("drt", _ENVIRONMENTS)
    project = FOLDER / "drt"
    shutil.rmtree(project, ignore_errors=True)
    (project / "syncs").mkdir(parents=True)
    (project / ".drt").mkdir()
    database = project / "rows.duckdb"
    load = f"import duckdb; duckdb.connect({str(database)!r}).execute({_LOAD.format(file=file)!r})"
    subprocess.run([python, "-c", load], check=True)
    (project / ".drt" / "profiles.yml").write_text(
        json.dumps({"bench": {"type": "duckdb", "database": str(database), "dataset": "main"}})
    )
    (project / "drt_project.yml").write_text(json.dumps({"name": "bench", "version": "0.1", "profile": "bench"}))
    sync = {
        "name": "rows",
        "model": "ref('rows')",
        "destination": {"type": "file", "path": str(out), "format": "jsonl"},
        "sync": {"mode": "full", "batch_size": 10_000, "rate_limit": {"requests_per_second": 0}},
    }
    (project / "syncs" / "rows.yml").write_text(json.dumps(sync))
    return project


def _beside_a_pipe(pushed: Pushed, engine: Engine, file: Path) -> Iterator[Figure]:
    """A tap that prints a file into target-jsonl: by a pipe of the shell, and as a relay."""
    recording, catalog = FOLDER / "recording.jsonl", FOLDER / "catalog.json"
    schema = json_schema(pq.read_schema(file), JsonDialect.PLAIN)
    message = {"type": "SCHEMA", "stream": "rows", "schema": schema, "key_properties": ["id"]}
    with recording.open("wb") as lines:
        lines.write(json.dumps(message).encode() + b"\n")
        for batch in pq.ParquetFile(file).iter_batches(10_000):
            lines.write(record_lines(batch, _FRAME))
        lines.write(b'{"type":"STATE","value":{"bookmarks":{"rows":{"id":1}}}}\n')
    catalog.write_text(json.dumps({"streams": [{"tap_stream_id": "rows", "stream": "rows", "schema": schema}]}))
    tap = _script("tap", f'case "$*" in *--discover*) exec cat {catalog} ;; *) exec cat {recording} ;; esac')
    target = environments.python_of("target-jsonl", _ENVIRONMENTS).parent / "target-jsonl"
    config = FOLDER / "target.json"
    config.write_text(json.dumps({"destination_path": str(FOLDER), "custom_name": "piped"}))
    pipe = f"{tap} | {target} --config {config} > /dev/null"
    piped = cpu_of(
        lambda: subprocess.run(["bash", "-o", "pipefail", "-c", pipe], stderr=subprocess.DEVNULL, check=True)
    )
    yield Figure(f"{pushed.rows:,} records by a tap piped into target-jsonl, CPU s", piped)
    document = {
        "name": "relayed",
        "connector": {"protocol": "singer", "launch": {"kind": "local", "command": [tap]}},
        "config": {},
        "streams": {"rows": {"write": "append"}},
        "to": {
            "connector": {"protocol": "singer", "launch": {"kind": "local", "command": [str(target)]}},
            "config": {"destination_path": str(FOLDER), "custom_name": "relayed"},
        },
    }
    (FOLDER / "relayed.yaml").write_text(json.dumps(document))

    def relay() -> None:
        report = sync_connection(engine, Connection.from_file(FOLDER / "relayed.yaml"))
        if report.status != "complete" or report.streams["rows"].committed != pushed.rows:
            raise RuntimeError(f"the relay is {report.status}: {report.error}")

    relayed = cpu_of(relay)
    yield Figure("the same by a relay, CPU s", relayed)
    yield Figure("relay / pipe, CPU", relayed / piped)


def _by_files(pushed: Pushed) -> Iterator[Figure]:
    """A push to a target on Meltano's SDK, with a line for each record and with files of them."""
    program = str(environments.python_of("target-csv", _ENVIRONMENTS).parent / "target-csv")
    connector = {"protocol": "singer", "launch": {"kind": "local", "command": [program]}}

    def push(name: str, **more: str) -> float:
        config = {"output_path": str(FOLDER), "file_naming_scheme": f"{name}.csv"}
        document = {"name": name, "connector": {**connector, **more}, "config": config}
        return cpu_of(lambda: pushed.push(command=[program], more=document, **_ALL))

    lines = push("by_lines")
    yield Figure(f"push of {pushed.rows:,} rows to meltanolabs-target-csv by lines, CPU s", lines)
    files = push("by_files", batch_folder=str(FOLDER / "batches"))
    yield Figure("the same by files (`batch_folder`), CPU s", files)
    yield Figure("push by files / by lines, CPU", files / lines)


def _script(name: str, words: str) -> str:
    """A Singer program of the shell, which starts in the folder of the benchmark."""
    about = json.dumps({"name": name, "settings": {"type": "object", "properties": {}}})
    script = FOLDER / name
    script.write_text(f"#!/bin/sh\ncd {FOLDER}\ncase \"$*\" in *--about*) echo '{about}'; exit ;; esac\n{words}\n")
    script.chmod(0o755)
    return str(script)


def _check_lines(file: Path, rows: int) -> None:
    with file.open("rb") as lines:
        found = sum(1 for _ in lines)
    if found != rows:
        raise RuntimeError(f"{file} has {found} lines, and there are {rows} rows")
