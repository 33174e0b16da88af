"""Measures a push to a Syncmaven destination beside Syncmaven's own command line, and an enrichment of a frame.

`python -m bench.pushes.syncmaven`. It needs Node, npm and PostgreSQL. Both hosts send the same rows to the same
destination, which does nothing with them. Its own cost is measured with the same lines from a file, and taken out of
both. Theirs counts from the start of the command, and without the database that it reads; ours in a warm session, with
Spark.
"""

import argparse
import json
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.pushes.pushed_rows import cpu_of
from bench.report import Figure, publish_figures, shown
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.enrichment import enrich
from dagster_airbyte_proto.sync.push.push_context import PushRequest
from dagster_airbyte_proto.sync.push.run import push_connection
from tests.support.postgres import programs, running_server
from tests.sync.push.syncmaven.original import PACKAGE, OriginalSync
from tests.sync.push.syncmaven.people import KIT, installed

_HERE = Path(__file__).parent
_FOLDER = _HERE.parent.parent / ".bench" / "syncmaven"
_MARK = "syncmaven"
_COLUMNS = "id, concat('p', id, '@example.com') AS email, concat('city ', id % 97) AS city"
_WARM_ROWS = 1_000
_ENRICHED_ROWS = 100_000


def _children_cpu(work: Callable[[], object]) -> float:
    """The CPU seconds of programs that have ended meanwhile, with theirs. A server that goes on is left out."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime


def _row(number: int) -> dict[str, Any]:
    return {"id": number, "email": f"p{number}@example.com", "city": f"city {number % 97}"}


def _message(kind: str, payload: Any = None, **beside: str) -> str:
    return json.dumps({"type": kind, **beside, **({} if payload is None else {"payload": payload})}) + "\n"


def _connector_alone(script: Path, rows: int) -> float:
    """The CPU seconds of the three processes of the destination, by lines from a file."""
    lines, credentials = _FOLDER / "lines", {"url": "none"}
    start = {"stream": "people", "connectionCredentials": credentials, "streamOptions": {}, "syncId": "people"}
    conversations = (
        [_message("describe")],
        [_message("describe-streams", {"credentials": credentials})],
        [
            _message("start-stream", start),
            *(_message("row", {"row": _row(number)}) for number in range(rows)),
            _message("end-stream", reason="success"),
        ],
    )
    spent = 0.0
    for conversation in conversations:
        lines.write_text("".join(conversation))
        spent += _children_cpu(partial(_fed, ["node", str(script)], lines))
    return spent


def _fed(command: list[str], lines: Path) -> None:
    with lines.open() as given:
        subprocess.run(command, stdin=given, stdout=subprocess.DEVNULL, check=False, timeout=600)


def _original(script: Path, rows: int) -> float:
    found = programs()
    if found is None:
        raise RuntimeError("PostgreSQL is missing")
    with running_server(found) as postgres:
        original = OriginalSync(_FOLDER / "original", script, postgres, "none")
        original.fill([_row(number) for number in range(rows)])

        def run() -> None:
            outcome = original.run(seconds=1200)
            if outcome.exit_code != 0:
                raise RuntimeError(f"syncmaven ended with {outcome.exit_code}: {outcome.output[-2000:]}")

        spent = _children_cpu(run)
        if original.saved_cursor() != rows - 1:
            raise RuntimeError(f"syncmaven saved the cursor {original.saved_cursor()}")
        return spent


def _push(engine: Engine, script: Path, name: str, options: dict[str, Any]) -> None:
    document = {
        "name": name,
        "connector": {"protocol": "syncmaven", "launch": {"kind": "local", "command": ["node", str(script)]}},
        "config": {"url": "none"},
        "push": {"people": {"from": f"{engine.settings.catalog.name}.bench.{name}", **options}},
    }
    report = push_connection(engine, Connection.model_validate(document), PushRequest())
    stream = report.streams["people"]
    if stream.status != "complete" or stream.acknowledged != stream.planned.to_send or not stream.acknowledged:
        raise RuntimeError(f"the push is {stream.status}: {stream.error}")


def _pushes(engine: Engine, session: SparkSession, script: Path, rows: int) -> Iterator[Figure]:
    alone = _connector_alone(script, rows)
    yield Figure(f"the destination alone, {rows:,} rows from a file, CPU s", alone)
    original = _original(script, rows)
    yield Figure("`syncmaven sync` with it, without PostgreSQL, CPU s", original)
    session.sql(f"CREATE NAMESPACE IF NOT EXISTS {engine.settings.catalog.name}.bench")
    for name, count in (("warm_up", _WARM_ROWS), ("by_all", rows), ("by_key", rows)):
        place = f"{engine.settings.catalog.name}.bench.{name}"
        session.sql(f"CREATE TABLE {place} USING iceberg AS SELECT {_COLUMNS} FROM range({count})")
    everything: dict[str, Any] = {"mode": "append", "changes": "all"}
    by_key: dict[str, Any] = {"mode": "upsert", "key": ["id"]}
    _push(engine, script, "warm_up", by_key)
    for name, options, says in (
        ("by_all", everything, "our push with it, `append` by `all`"),
        ("by_key", by_key, "our first push with it, `upsert` by key, with its memory"),
    ):
        ours = cpu_of(partial(_push, engine, script, name, options))
        yield Figure(f"{says}, CPU s", ours)
        yield Figure(f"rows per CPU second of `syncmaven sync`, beside {name}", rows / max(original - alone, 1e-3))
        yield Figure(f"rows per CPU second of our push, {name}", rows / max(ours - alone, 1e-3))
        ratio = (ours - alone) / (original - alone)
        yield Figure(f"push / `syncmaven sync`, without the destination, {name}, CPU", ratio, 1 / 3)


def _enrichments(session: SparkSession, rows: int) -> Iterator[Figure]:
    launch = {"kind": "local", "command": ["node", str(_HERE / "cities_enrichment.js")]}
    connector = {"protocol": "syncmaven", "launch": launch}
    geo = Connection.model_validate({"name": "geo", "connector": connector, "config": {}})
    lines = _FOLDER / "requests"
    lines.write_text("".join(_message("enrichment-request", {"row": _row(number)}) for number in range(rows)))
    began = time.perf_counter()
    alone = _children_cpu(lambda: _fed(["node", str(_HERE / "cities_enrichment.js")], lines))
    yield Figure(f"the enrichment alone, {rows:,} rows from a file, rows/s", rows / (time.perf_counter() - began))
    yield Figure("the enrichment alone, CPU s", alone)
    schema = "id bigint, email string, city string"
    for partitions in (1, 2):
        few, frame = (session.sql(f"SELECT {_COLUMNS} FROM range(0, {count}, 1, {partitions})") for count in (10, rows))
        enrich(few, geo, schema=schema, home=_FOLDER / "home").collect()  # Starts Spark's workers of Python.
        made = enrich(frame, geo, schema=schema, home=_FOLDER / "home")
        began = time.perf_counter()
        spent = cpu_of(made.write.format("noop").mode("overwrite").save)
        seconds = time.perf_counter() - began
        says = f"`enrich` of {rows:,} rows of a frame, {partitions} {'process' if partitions == 1 else 'processes'}"
        yield Figure(f"{says}, rows/s of each", rows / seconds / partitions)
        yield Figure(f"{says}, CPU s without the enrichment's own", spent - alone)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.pushes.syncmaven", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the pushes")
    parser.add_argument("--write", type=Path, help="put the table into this document, between its marks")
    chosen = parser.parse_args()
    shutil.rmtree(_FOLDER, ignore_errors=True)
    for folder in ("kit", "original", "home"):
        (_FOLDER / folder).mkdir(parents=True)
    script = installed(_FOLDER / "kit", *KIT, PACKAGE, script=_HERE / "counting_destination.js")
    found: list[Figure] = []
    with Engine(Settings.load(_FOLDER / "home")) as engine:
        engine.settings.make_home()
        session = engine.open_session()
        for figures in (_pushes(engine, session, script, chosen.rows), _enrichments(session, _ENRICHED_ROWS)):
            found += map(shown, figures)
    publish_figures(found, chosen.write, _MARK)
    shutil.rmtree(_FOLDER)


if __name__ == "__main__":
    main()
