"""Measures pushes beside the least that they could cost: `python -m bench.pushes`.

One warm session pushes a table to a program that only reads its stdin. Beside it, the same rows are streamed out of
Spark and written as record lines. Then nothing is new, then one row in a hundred has changed. CPU seconds of this
process, of the JVM and of all programs that they start; the ratios count. A missed limit is reported.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
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
from bench.meter import cpu_seconds, peak_bytes
from bench.report import Figure, put_into, table
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.encoding.json_types import json_schema
from dagster_airbyte_proto.encoding.record_lines import RecordFrame, record_lines
from dagster_airbyte_proto.protocols.destination import JsonDialect
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.push.push_context import PushRequest
from dagster_airbyte_proto.sync.push.report import PushedStreamReport
from dagster_airbyte_proto.sync.push.run import push_connection

_ROOT = Path(__file__).parent.parent.parent
_FOLDER = _ROOT / ".bench" / "pushes"
_ENVIRONMENTS = _ROOT / ".bench" / "environments"
_MARK = "pushes"
_BATCH_ROWS = 10_000
_REHEARSED_ROWS = 1_000
_SCRIPTED_ROWS = 100_000
_BY_DIFF: dict[str, Any] = {"key": ["id"], "mode": "mirror", "changes": "diff"}
_FRAME = RecordFrame('{"type":"RECORD","stream":"rows","record":', "}")
# The columns of the rows that were measured first: 515 bytes in an Airbyte record line.
_COLUMNS = """id, concat('name ', id) AS name, concat('user', id, '@example.com') AS email,
    cast(id * 37 % 1000000007 / 100 AS decimal(18,2)) AS amount, cast(id / 7 AS decimal(38,9)) AS price,
    cast(id % 1000 AS int) AS quantity, id * 0.37 AS score, timestamp_seconds(id * 1000) AS created_at,
    timestamp_seconds(1700000000 + id) AS updated_at,
    named_struct('street', concat('a street of some length ', id % 977), 'city', 'a city',
                 'zip', cast(id % 99999 AS int), 'geo', named_struct('lat', id * 0.01, 'lon', id * 0.02)) AS address,
    array('alpha', 'beta') AS tags,
    IF(id % 10 = 0, NULL, concat('a "note" of nine words or so \\\\ ', sha2(cast(id AS string), 224))) AS note"""
_ON_READ = (
    "'write.update.mode'='merge-on-read', 'write.delete.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"
)


class Pushed:
    """A table of so many rows, and its push."""

    def __init__(self, engine: Engine, session: SparkSession, name: str, rows: int) -> None:
        self.table, self.rows = f"{engine.settings.catalog.name}.bench.{name}", rows
        self._engine, self._session, self._name = engine, session, name
        session.sql(f"CREATE NAMESPACE IF NOT EXISTS {engine.settings.catalog.name}.bench")
        session.sql(
            f"CREATE TABLE {self.table} USING iceberg TBLPROPERTIES ({_ON_READ})"
            f" AS SELECT {_COLUMNS} FROM range({rows})"
        )

    def push(self, *, command: list[str] | None = None, plans: bool = False, **options: Any) -> PushedStreamReport:
        """Pushes to a program, or to one that only reads. `options` are those of the stream."""
        document = {
            "name": f"{self._name}_{options.get('mode', 'mirror')}",
            "connector": {
                "protocol": "singer",
                "launch": {"kind": "local", "command": command or [str(_reader())]},
            },
            "config": {"destination_path": str(_FOLDER)},
            "push": {
                "rows": {"from": self.table, **(options or {"key": ["id"], "mode": "mirror", "changes": "snapshots"})}
            },
        }
        if command is None:
            document["acknowledge"] = "exit"
        file = _FOLDER / f"{document['name']}.yaml"
        file.write_text(json.dumps(document))
        report = push_connection(self._engine, Connection.from_file(file), PushRequest(only_plans=plans))
        stream = report.streams["rows"]
        if stream.status != "complete" or stream.sent != stream.acknowledged:
            raise RuntimeError(f"the push of {self.table} is {stream.status}: {stream.error}")
        return stream

    def change(self) -> int:
        """Changes eight rows of a thousand, adds two for each of these, and removes a half."""
        changed, added, removed = self.rows * 8 // 1000, self.rows * 2 // 1000, max(1, self.rows // 2000)
        step = self.rows // changed
        self._session.sql(f"UPDATE {self.table} SET name = 'changed' WHERE id % {step} = 0 AND id > {removed}")
        self._session.sql(f"INSERT INTO {self.table} SELECT {_COLUMNS} FROM range({self.rows}, {self.rows + added})")
        self._session.sql(f"DELETE FROM {self.table} WHERE id < {removed}")
        return added

    def frame(self) -> DataFrame:
        self._session.catalog.refreshTable(self.table)
        return self._session.table(self.table)


def _reader() -> Path:
    """A Singer target that reads its input, and nothing else."""
    script = _FOLDER / "reader"
    about = json.dumps({"name": "reader", "settings": {"type": "object", "properties": {}}})
    script.write_text(f"#!/bin/sh\ncase \"$*\" in *--about*) echo '{about}' ;; *) exec cat > /dev/null ;; esac\n")
    script.chmod(0o755)
    return script


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
    streamed = _cpu(lambda: _streamed(pushed.frame()))
    yield Figure(f"streaming and encoding {size}, CPU s", streamed)
    everything = _cpu(lambda: pushed.push(mode="append", changes="all"))
    yield Figure(f"push of {size} by `all` / streaming and encoding, CPU", everything / streamed, 1.5)
    first = _cpu(pushed.push)
    yield Figure(f"first push of {size} by key, with its memory / streaming and encoding, CPU", first / streamed)
    yield Figure(f"peak memory of the driver's Python, {size}, MiB", peak_bytes() / (1 << 20), 512)


def _changes(engine: Engine, session: SparkSession, rows: int) -> Iterator[Figure]:
    """Pushes of what has changed, by the table's snapshots and by a comparison of all rows."""
    size = _size(rows)
    _warm(engine, session)
    pushed = Pushed(engine, session, "changing", rows)
    pushed.push()
    yield Figure(f"push with nothing new, {size}, by `snapshots`, CPU s", _cpu(pushed.push), 3)
    yield Figure(f"push with nothing new, {size}, by `diff`, CPU s", _cpu(lambda: pushed.push(**_BY_DIFF)))
    pushed.change()
    snapshots = _cpu(lambda: pushed.push(plans=True))
    yield Figure(f"plan of 1 % changed of {size}, by `snapshots`, CPU s", snapshots)
    diff = _cpu(lambda: pushed.push(plans=True, **_BY_DIFF))
    yield Figure(f"plan of 1 % changed of {size}, by `diff`, CPU s", diff)


def _size(rows: int) -> str:
    return f"{rows / 1_000_000:g} M rows"


def _beside_scripts(engine: Engine, session: SparkSession, rows: int) -> Iterator[Figure]:
    """Our record lines, and our push to a real target, beside what a script of a few lines costs."""
    _warm(engine, session)
    pushed = Pushed(engine, session, "scripted", rows)
    pushed.frame().coalesce(1).write.mode("overwrite").parquet(str(_FOLDER / "rows"))
    [file] = (_FOLDER / "rows").glob("*.parquet")
    batches = pq.read_table(file).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
    record_lines(batches[0], _FRAME)
    ours = min(_cpu(lambda: [record_lines(batch, _FRAME) for batch in batches]) for _ in range(3))
    size = sum(len(record_lines(batch, _FRAME)) for batch in batches) // rows
    yield Figure(f"encoding 1 M rows of {size} bytes, CPU s", ours * 1_000_000 / rows)
    yield Figure("encoding / orjson over to_pylist, CPU", ours / _script(file, "encode"), 0.2)
    program = str(environments.python_of("target-jsonl", _ENVIRONMENTS).parent / "target-jsonl")
    to_target = _cpu(lambda: pushed.push(command=[program], mode="append", changes="all"))
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
        "folder": str(_FOLDER),
        "options": {"way": way, "schema": dict(schema)},
    }
    command = [str(python), "-m", "bench.contenders.orjson_rows", json.dumps(task)]
    measured = subprocess.run(command, stdout=subprocess.PIPE, cwd=_ROOT, check=True)
    cost = json.loads(measured.stdout.splitlines()[-1])
    if cost["rows"] != pq.read_metadata(file).num_rows:
        raise RuntimeError(f"the script took {cost['rows']} rows, and there are more in {file}")
    return float(cost["cpu_seconds"])


def _cpu(work: Callable[[], object]) -> float:
    began = cpu_seconds()
    work()
    return cpu_seconds() - began


@contextmanager
def _opened() -> Iterator[tuple[Engine, SparkSession]]:
    home = _FOLDER / "home"
    shutil.rmtree(home, ignore_errors=True)
    settings = Settings.load(home)
    settings.make_home()
    with Engine(settings) as engine:
        yield engine, engine.open_session()


def _shown(figure: Figure) -> Figure:
    print("  ".join(figure.row), file=sys.stderr, flush=True)
    return figure


def _measured(part: str, rows: int) -> list[Figure]:
    with _opened() as (engine, session):
        return [_shown(figure) for figure in _PARTS[part](engine, session, rows)]


_PARTS = {"scripts": _beside_scripts, "whole": _whole, "changes": _changes}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.pushes", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--rows", type=int, nargs="*", default=[1_000_000], help="of the tables; 10000000 takes minutes"
    )
    parser.add_argument("--parts", default=",".join(_PARTS), help="only these, comma-separated")
    parser.add_argument("--write", type=Path, help="put the table into this document, between its marks")
    chosen = parser.parse_args()
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    # Each in its own process, and so with its own JVM.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as alone:
        works = [
            alone.submit(_measured, part, min(rows, _SCRIPTED_ROWS) if part == "scripts" else rows)
            for part in chosen.parts.split(",")
            for rows in (chosen.rows[:1] if part == "scripts" else chosen.rows)
        ]
        found = [figure.row for work in works for figure in work.result()]
    text = table(["what", "figure", "at most", ""], found)
    print(text)
    if chosen.write:
        put_into(chosen.write, text, mark=_MARK)
    shutil.rmtree(_FOLDER)
