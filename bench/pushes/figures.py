"""Measures pushes beside the least that they could cost: `python -m bench.pushes`.

One warm session pushes a table to a program that only reads its stdin. Beside it, the same rows are streamed out of
Spark and written as record lines. Then nothing is new, then one row in a hundred has changed. CPU seconds of this
process, of the JVM and of all programs that they start; the ratios count. A missed limit is reported.
"""

import argparse
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession

from bench import environments
from bench.meter import peak_bytes
from bench.pushes.peers import beside_peers
from bench.pushes.pushed_rows import FEW_COLUMNS, FOLDER, Pushed, cpu_of
from bench.report import Figure, publish_figures, shown
from dagster_airbyte_proto.encoding.json_types import json_schema
from dagster_airbyte_proto.encoding.record_lines import RecordFrame, record_lines
from dagster_airbyte_proto.protocols.destination import JsonDialect
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine

_ROOT = Path(__file__).parent.parent.parent
_ENVIRONMENTS = _ROOT / ".bench" / "environments"
_MARK = "pushes"
_BATCH_ROWS = 10_000
_REHEARSED_ROWS = 1_000
_SCRIPTED_ROWS = 100_000
_BY_DIFF: dict[str, Any] = {"key": ["id"], "mode": "mirror", "changes": "diff"}
_FRAME = RecordFrame('{"type":"RECORD","stream":"rows","record":', "}")


def _warm(engine: Engine, session: SparkSession) -> None:
    """Has the JVM load the classes of all that is measured."""
    rehearsed = Pushed(engine, session, "rehearsed", _REHEARSED_ROWS)
    rehearsed.push(mode="append", changes="all")
    rehearsed.push()
    rehearsed.push()
    rehearsed.change()
    rehearsed.push(plans=True)
    rehearsed.push(plans=True, **_BY_DIFF)
    _streamed(rehearsed.frame())


def _streamed(frame: DataFrame) -> int:
    """Streams the rows of a frame out of Spark as Arrow batches, in bounded memory, and writes them as record lines."""
    schema, rows = frame.limit(0).toArrow().schema, 0
    java_rdd: Any = frame._jdf.toArrowBatchRdd().toJavaRDD()
    with open("/dev/null", "wb", buffering=0) as out:  # noqa: PTH123 - as a pipe, without a buffer
        batches: RDD[bytes] = RDD(java_rdd, frame.sparkSession.sparkContext, NoOpSerializer())
        for raw in batches.toLocalIterator(prefetchPartitions=True):
            batch = pa.ipc.read_record_batch(pa.py_buffer(raw), schema)
            out.write(record_lines(batch, _FRAME))
            rows += batch.num_rows
    return rows


def _whole(engine: Engine, session: SparkSession, rows: int) -> Iterator[Figure]:
    """Pushes of every row, beside the least that they could cost."""
    size = _size(rows)
    _warm(engine, session)
    pushed = Pushed(engine, session, "whole", rows)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(_BATCH_ROWS))
    streamed = cpu_of(lambda: _streamed(pushed.frame()))
    yield Figure(f"streaming and encoding {size}, CPU s", streamed)
    everything = cpu_of(lambda: pushed.push(mode="append", changes="all"))
    yield Figure(f"push of {size} by `all` / streaming and encoding, CPU", everything / streamed, 1.5)
    first = cpu_of(pushed.push)
    yield Figure(f"first push of {size} by key, with its memory / streaming and encoding, CPU", first / streamed)
    yield Figure(f"peak memory of the driver's Python, {size}, MiB", peak_bytes() / (1 << 20), 512)


def _changes(engine: Engine, session: SparkSession, rows: int) -> Iterator[Figure]:
    """Pushes of what has changed, by the table's snapshots and by a comparison of all rows."""
    _warm(engine, session)
    pushed = Pushed(engine, session, "changing", rows)
    pushed.push()
    yield from _changed(pushed, _size(rows))


def _growing(engine: Engine, session: SparkSession, rows: int) -> Iterator[Figure]:
    """The same with rows of three columns, for tables of ten million rows."""
    size = f"{_size(rows)} of 3 columns"
    _warm(engine, session)
    pushed = Pushed(engine, session, "growing", rows, columns=FEW_COLUMNS)
    yield Figure(f"first push of {size} by key, CPU s", cpu_of(pushed.push))
    yield from _changed(pushed, size)
    yield Figure(f"peak memory of the driver's Python, {size}, MiB", peak_bytes() / (1 << 20), 512)


def _changed(pushed: Pushed, size: str) -> Iterator[Figure]:
    yield Figure(f"push with nothing new, {size}, by `snapshots`, CPU s", cpu_of(pushed.push), 3)
    yield Figure(f"push with nothing new, {size}, by `diff`, CPU s", cpu_of(lambda: pushed.push(**_BY_DIFF)))
    pushed.change()
    snapshots = cpu_of(lambda: pushed.push(plans=True))
    yield Figure(f"plan of 1 % changed of {size}, by `snapshots`, CPU s", snapshots)
    diff = cpu_of(lambda: pushed.push(plans=True, **_BY_DIFF))
    yield Figure(f"plan of 1 % changed of {size}, by `diff`, CPU s", diff)


def _size(rows: int) -> str:
    return f"{rows / 1_000_000:g} M rows"


def _beside_scripts(engine: Engine, session: SparkSession, rows: int) -> Iterator[Figure]:
    """Our record lines, and our push to a real target, beside what a script of a few lines costs."""
    _warm(engine, session)
    pushed = Pushed(engine, session, "scripted", rows)
    pushed.frame().coalesce(1).write.mode("overwrite").parquet(str(FOLDER / "rows"))
    [file] = (FOLDER / "rows").glob("*.parquet")
    batches = pq.read_table(file).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
    record_lines(batches[0], _FRAME)
    ours = min(cpu_of(lambda: [record_lines(batch, _FRAME) for batch in batches]) for _ in range(3))
    size = sum(len(record_lines(batch, _FRAME)) for batch in batches) // rows
    yield Figure(f"encoding 1 M rows of {size} bytes, CPU s", ours * 1_000_000 / rows)
    yield Figure("encoding / orjson over to_pylist, CPU", ours / _script(file, "encode"), 0.2)
    program = str(environments.python_of("target-jsonl", _ENVIRONMENTS).parent / "target-jsonl")
    to_target = cpu_of(lambda: pushed.push(command=[program], mode="append", changes="all"))
    yield Figure(f"push of {rows:,} rows to target-jsonl, CPU s", to_target)
    schema = json_schema(pq.read_schema(file), JsonDialect.PLAIN)
    scripted = _script(file, "target", program, schema)
    yield Figure("the same by pandas and orjson from one Parquet file, CPU s", scripted)
    yield Figure("push / pandas and orjson, both with target-jsonl, CPU", to_target / scripted, 1)


def _script(file: Path, way: str, program: str = "", schema: Mapping[str, Any] = MappingProxyType({})) -> float:
    """The CPU seconds of the script, without its imports. It declares what we declare: the target checks each row."""
    python = environments.python_of("script", _ENVIRONMENTS)
    task = {
        "recording": str(file),
        "catalog": "",
        "connector": program,
        "folder": str(FOLDER),
        "options": {"way": way, "schema": dict(schema)},
    }
    command = [str(python), "-m", "bench.contenders.orjson_rows", json.dumps(task)]
    measured = subprocess.run(command, stdout=subprocess.PIPE, cwd=_ROOT, check=True)
    cost = json.loads(measured.stdout.splitlines()[-1])
    if cost["rows"] != pq.read_metadata(file).num_rows:
        raise RuntimeError(f"the script took {cost['rows']} rows, and there are more in {file}")
    return float(cost["cpu_seconds"])


@contextmanager
def _opened() -> Iterator[tuple[Engine, SparkSession]]:
    home = FOLDER / "home"
    shutil.rmtree(home, ignore_errors=True)
    settings = Settings.load(home)
    settings.make_home()
    with Engine(settings) as engine:
        yield engine, engine.open_session()


def _measured(part: str, rows: int) -> list[Figure]:
    with _opened() as (engine, session):
        return [shown(figure) for figure in _PARTS[part](engine, session, rows)]


def _beside_peers(engine: Engine, session: SparkSession, rows: int) -> Iterator[Figure]:
    _warm(engine, session)
    yield from beside_peers(Pushed(engine, session, "peers", rows), engine)


_SMALL = {"scripts": _beside_scripts, "peers": _beside_peers}
_PARTS = {**_SMALL, "whole": _whole, "changes": _changes, "growing": _growing}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.pushes", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--rows", type=int, nargs="*", default=[1_000_000], help="of the tables; 10000000 takes minutes"
    )
    parser.add_argument("--parts", default=",".join(_PARTS), help="only these, comma-separated")
    parser.add_argument("--write", type=Path, help="put the table into this document, between its marks")
    chosen = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    # Each in its own process, and so with its own JVM.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as alone:
        works = [
            alone.submit(_measured, part, min(rows, _SCRIPTED_ROWS) if part in _SMALL else rows)
            for part in chosen.parts.split(",")
            for rows in (chosen.rows[:1] if part in _SMALL else chosen.rows)
        ]
        figures = [figure for work in works for figure in work.result()]
    publish_figures(figures, chosen.write, _MARK)
    shutil.rmtree(FOLDER)
