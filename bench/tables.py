"""Measures upserts beside appends, and scans after many of them: `python -m bench.tables`.

Whole syncs of 100,000 records, in one warm session, into tables of many rows, in alternation: one appends them, one
upserts them, with keys from all parts of the table. Then ten more upserts, a scan of every column, and the same scan
after a compaction. Then upserts by each way to merge, of 1 % and of 0.01 % of a table: their CPU, that of a scan after
ten of them, and that of a compaction. Last, appends to a Delta table beside Spark's own INSERT of the same lines. Wall
seconds, medians; the ratios count. A missed limit is reported.
"""

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

from pyspark.sql import SparkSession

from bench.meter import cpu_seconds
from bench.report import Figure, publish_figures, shown
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import MergeMode, TableName
from dagster_airbyte_proto.settings import CatalogSettings, CompactAfter, Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.formats import care_of
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings

_ROOT = Path(__file__).parent.parent
_FOLDER = _ROOT / ".bench" / "tables"
_BATCH = 100_000
_UPSERTS = 10
_MARK = "tables"
_NEVER = CompactAfter(delete_files=0, small_files=0)
_FIELDS = {
    "id": {"type": "integer"},
    "customer": {"type": "string"},
    "amount": {"type": "number"},
    "at": {"type": "string", "format": "date-time"},
    "note": {"type": "string"},
}


class Grown:
    """A connection into one table, filled until it has `rows`. Each sync brings `batch` records, the first 100,000."""

    def __init__(
        self,
        engine: Engine,
        session: SparkSession,
        options: Mapping[str, str],
        rows: int,
        batch: int = _BATCH,
    ) -> None:
        self.name = TableName("grown", "_".join((*options.values(), str(rows), str(batch))))
        self._table = f"{engine.settings.catalog.name}.{self.name}"
        self._engine = engine
        self._session = session
        self._rows, self._batch = rows, batch
        self._turn = 0
        self._recording = _FOLDER / f"{self.name.name}.jsonl"
        self._connection = self._written(options)
        self._fill()

    def sync(self) -> float:
        """The wall seconds of one sync of the next records."""
        records = self._batch if self._turn else _BATCH
        self._record(records)
        began = time.perf_counter()
        report = sync_connection(self._engine, self._connection)
        seconds = time.perf_counter() - began
        told = report.streams["orders"]
        if told.committed != records:
            raise RuntimeError(f"{told.committed} rows of {records} landed: {told.error}")
        return seconds

    def scan(self) -> float:
        """The wall seconds of reading every column of every row; the best of three."""
        return min(_timed(self.scan_once) for _ in range(3))

    def scan_once(self) -> None:
        self._session.sql(f"select bit_xor(xxhash64(*)) from {self._table}").collect()

    def compact(self) -> None:
        care_of(self._engine.tables).compact(self.name)

    def insert(self) -> float:
        """Spark's own INSERT of the lines that were synced last, into a table with the same columns of the source."""
        names = ", ".join(_FIELDS)
        self._session.sql(
            f"create table if not exists {self._table}_inserted using delta as "
            f"select {names} from {self._table} where false"
        )
        data = "struct<id: bigint, customer: string, amount: double, at: timestamp, note: string>"
        read = (
            f"select from_json(value, 'record struct<data: {data}>').record.data as data from text.`{self._recording}`"
        )
        sql = f"insert into {self._table}_inserted select data.* from ({read}) where data is not null"
        return _timed(lambda: self._session.sql(sql).collect())

    def _fill(self) -> None:
        """Makes the table by a first sync. Spark then inserts older rows over the same keys."""
        self.sync()
        if self._rows == _BATCH:
            return
        self._session.sql(
            f"""insert into {self._table} select id, concat('customer ', id % 1000), rand(), current_timestamp(),
                repeat(uuid(), 3), uuid(), current_timestamp(), null, 1 from range({_BATCH}, {self._rows})"""
        )

    def _record(self, records: int) -> None:
        """Keys in equal steps, another first one each time, so that all of the table's files have some."""
        step = self._rows // records
        first = self._turn % step
        emitted_at = time.time_ns() // 1_000_000
        self._turn += 1
        with self._recording.open("w") as file:
            for number in range(records):
                key = number if self._turn == 1 else first + number * step
                data = (
                    f'{{"id":{key},"customer":"customer {key % 1000}","amount":{key * 0.25},'
                    f'"at":"2026-11-22T10:00:00Z","note":"{key:036d}{key * 7919:036d}{key * 104729:036d}"}}'
                )
                record = f'{{"stream":"orders","data":{data},"emitted_at":{emitted_at}}}'
                file.write(f'{{"type":"RECORD","record":{record}}}\n')
            state = {"stream_descriptor": {"name": "orders"}, "stream_state": {"turn": self._turn}}
            file.write(json.dumps({"type": "STATE", "state": {"type": "STREAM", "stream": state}}) + "\n")

    def _written(self, options: Mapping[str, str]) -> Connection:
        catalog = _FOLDER / "catalog.json"
        stream = {
            "name": "orders",
            "json_schema": {"type": "object", "properties": _FIELDS},
            "supported_sync_modes": ["full_refresh", "incremental"],
            "source_defined_cursor": True,
            "source_defined_primary_key": [["id"]],
        }
        catalog.write_text(json.dumps({"type": "CATALOG", "catalog": {"streams": [stream]}}) + "\n")
        command = [sys.executable, "-I", "-S", str(_ROOT / "bench" / "replay_source.py")]
        document = {
            "name": self.name.name,
            "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": command}},
            "config": {"recording": str(self._recording), "catalog": str(catalog)},
            "streams": {"orders": {"read": "incremental", **options, "rename": self.name.name}},
            "destination": {"namespace": self.name.namespace},
        }
        file = _FOLDER / f"{self.name.name}.yaml"
        file.write_text(json.dumps(document))
        return Connection.from_file(file)


def _figures(engine: Engine, session: SparkSession, sizes: list[int], rounds: int) -> Iterator[Figure]:
    for rows in sizes:
        appended, upserted = (Grown(engine, session, {"write": each}, rows) for each in ("append", "append_dedup"))
        pairs = [(appended.sync(), upserted.sync()) for _ in range(rounds + 1)][1:]  # the first one warms up
        append, upsert = (statistics.median(each) for each in zip(*pairs, strict=True))
        size = f"{rows // 1_000_000} M rows"
        yield Figure(f"append of 100k into {size}, s", append)
        yield Figure(f"upsert of 100k / append of 100k, {size}", upsert / append, 2)
        if rows == sizes[0]:
            yield from _scans(engine, upserted)


def _scans(engine: Engine, table: Grown) -> Iterator[Figure]:
    """The scans after upserts alone, then under the default rule for compaction."""
    table.compact()
    for _ in range(_UPSERTS):
        table.sync()
    after = table.scan()
    table.compact()
    compacted = table.scan()
    yield Figure(f"scan after {_UPSERTS} upserts / compacted", after / compacted, 4)
    engine.settings = engine.settings.model_copy(update={"compact_after": CompactAfter()})
    slowest = 0.0
    for _ in range(_UPSERTS):
        table.sync()
        slowest = max(slowest, table.scan())
    engine.settings = engine.settings.model_copy(update={"compact_after": _NEVER})
    yield Figure("slowest scan among as many with the automatic rule / compacted", slowest / compacted, 2)


def _merges(engine: Engine, session: SparkSession, rows: int) -> Iterator[Figure]:
    """CPU seconds of whole syncs, medians of ten, of a scan after them and of a compaction, for each way to merge."""
    for batch in (rows // 100, rows // 10_000):
        for merge in MergeMode:
            if merge is MergeMode.ON_READ:
                continue
            table = Grown(engine, session, {"write": "append_dedup", "merge": merge}, rows, batch)
            table.sync()
            upsert = statistics.median(_cpu(table.sync) for _ in range(_UPSERTS))
            scan = min(_cpu(table.scan_once) for _ in range(3))
            what = f"{batch:,} into {rows // 1_000_000} M rows, {merge}"
            yield Figure(f"upsert of {what}, CPU s", upsert)
            yield Figure(f"scan after {_UPSERTS} upserts of {what}, CPU s", scan)
            yield Figure(f"compaction after {_UPSERTS} upserts of {what}, CPU s", _cpu(table.compact))


def _cpu(work: Callable[[], object]) -> float:
    """The CPU seconds of this process and its JVM."""
    before = cpu_seconds()
    work()
    return cpu_seconds() - before


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@contextmanager
def _opened(format_name: Literal["iceberg", "delta"]) -> Iterator[tuple[Engine, SparkSession]]:
    """An engine that compacts nothing by itself, and the one session of this process."""
    home = _FOLDER / format_name
    catalog = CatalogSettings(format=format_name).with_defaults(home)
    settings = Settings.load(home).model_copy(update={"compact_after": _NEVER, "catalog": catalog})
    spark = SparkSettings(catalog.warehouse, catalog.name, format_name)
    session = start_session(spark)
    tables = (DeltaTables if format_name == "delta" else IcebergTables)(session, spark)
    with Engine(settings, tables=tables) as engine:
        yield engine, session


def _iceberg(sizes: list[int], rounds: int) -> list[Figure]:
    with _opened("iceberg") as (engine, session):
        return [shown(figure) for figure in _figures(engine, session, sizes, rounds)]


def _by_merge(rows: int) -> list[Figure]:
    with _opened("iceberg") as (engine, session):
        return [shown(figure) for figure in _merges(engine, session, rows)]


def _delta(rounds: int) -> list[Figure]:
    with _opened("delta") as (engine, session):
        table = Grown(engine, session, {"write": "append"}, _BATCH)
        pairs = [(table.sync(), table.insert()) for _ in range(2 * rounds)][rounds:]  # the first half warms up
        append, insert = (statistics.median(each) for each in zip(*pairs, strict=True))
        seconds = Figure("append of 100k to Delta, s", append)
        return [shown(seconds), shown(Figure("append of 100k to Delta / Spark's own INSERT", append / insert, 1.2))]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.tables", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--millions", type=int, nargs="*", default=[10, 1, 30], help="rows of the Iceberg tables")
    parser.add_argument("--merge-millions", type=int, nargs="*", default=[1], help="rows of the tables of each merge")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path, help="put the table into this document, between its marks")
    parser.add_argument("--mark", default=_MARK, help="the name of the marks in that document")
    chosen = parser.parse_args()
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    # Each in its own process, and so with its own JVM.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as alone:
        sizes = [each * 1_000_000 for each in chosen.millions]
        works = [alone.submit(_by_merge, each * 1_000_000) for each in chosen.merge_millions]
        if chosen.millions:
            works += [alone.submit(_iceberg, sizes, chosen.rounds), alone.submit(_delta, chosen.rounds)]
        figures = [figure for work in works for figure in work.result()]
    publish_figures(figures, chosen.write, chosen.mark)
    shutil.rmtree(_FOLDER)


if __name__ == "__main__":
    main()
