"""Rows on their way through a component: one process for many batches, and what ends it."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConnectorError, TransformCancelled, TransformError
from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.rapidbyte import transform as protocol
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.enrichment.component_process import ComponentProcess
from dagster_airbyte_proto.sync.enrichment.component_transformer import (
    MAX_PROCESSES,
    ComponentExchange,
    ComponentTransformer,
)
from dagster_airbyte_proto.sync.run_log import RunLog, new_run_id
from tests.conformance.launcher import is_running, until
from tests.support.wasm import guests

pytestmark = pytest.mark.everyday(
    "test_batches_go_through_one_process[tally]",
    "test_a_row_that_comes_too_late[pass waver 3]",
    "test_a_process_that_fails_leaves_nothing[pass trap 2-the component trapped]",
)


class Component:
    """A transform that follows a script, and says when it begins to run."""

    def __init__(self, engine: Engine, log: RunLog, lines: list[str]) -> None:
        self._engine, self._log, self._lines = engine, log, lines
        self.cancel = threading.Event()

    def connector(self, script: str, more: Mapping[str, str] = {}, **connector: Any) -> Destination:
        launch = {"kind": "wasm", "path": str(guests.built("transform"))}
        document = {"protocol": "rapidbyte", "launch": launch, **connector}
        config = {"script": f"log 2 it begins;{script}", **more}
        connection = Connection.model_validate({"name": "geo", "connector": document, "config": config})
        return self._engine.destination(connection, self._log)

    def transformer(self, script: str, **connector: Any) -> ComponentTransformer:
        return ComponentTransformer(self.connector(script, **connector), "scripted", {}, self.cancel)

    @property
    def runs(self) -> int:
        """How often it began to run."""
        return self._lines.count("it begins")


@pytest.fixture
def component(tmp_path: Path) -> Iterator[Component]:
    settings = Settings.load(tmp_path, None)
    settings.make_home()
    lines: list[str] = []
    with (
        RunLog(tmp_path, new_run_id(), on_line=lambda _, text: lines.append(text)) as log,
        Engine(settings) as engine,
    ):
        yield Component(engine, log, lines)


def _batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"name": [f"n-{each}" for each in numbers], "_airbyte_row": list(numbers)})


BATCHES = [_batch(0, 1), _batch(2, 3), _batch(4, 5), _batch(6)]


def _exchange(transformer: ComponentTransformer, on_error: str = "reject") -> ComponentExchange:
    return transformer.exchange(on_error, TransformState(transformer.name))


def _came(exchange: ComponentExchange, batches: Sequence[pa.RecordBatch] = BATCHES) -> list[list[int]]:
    """The rows that come back of each batch."""
    return [
        [number for each in exchange.transform(batch).batches for number in each.column("_airbyte_row").to_pylist()]
        for batch in batches
    ]


def _children(process: int | str = "self") -> list[int]:
    """The programs that the threads of a process have started, and that run. A thread may end meanwhile."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError):
            found += map(int, (task / "children").read_text().split())
    return [child for child in found if is_running(child)]


def _until_gone(before: Sequence[int]) -> bool:
    until(lambda: not set(_children()) - set(before), "its process is gone")
    return True


@pytest.mark.parametrize("script", ["tally", "tally each"])
def test_batches_go_through_one_process(component: Component, script: str) -> None:
    exchange = _exchange(component.transformer(script))
    assert _came(exchange) == [[0, 1], [2, 3], [4, 5], [6]]
    assert exchange.state.values == ({"rows": "7"} if script == "tally each" else {})
    exchange.finish()
    assert exchange.state.values == {"rows": "7"}
    assert '"value":7' in exchange.state.checkpoint.replace(" ", "")
    assert component.runs == 1
    assert _came(exchange, BATCHES[:1]) == [[0, 1]]  # Another process, which goes on with its state.
    exchange.finish()
    assert (exchange.state.values, component.runs) == ({"rows": "9"}, 2)


@pytest.mark.parametrize(
    ("script", "runs", "came"),
    [
        ("pass drop 2", 2, [[0, 1], [], [4, 5], []]),  # Once it is known to drop rows it lives.
        ("pass keep 1", 4, [[0, 1], [2, 3], [4, 5], [6]]),  # One that collects rows gets a process for each batch.
        ("pass keep 3", 2, [[0, 1], [2, 3], [4, 5], [6]]),
        ("pass end 1", 4, [[0, 1], [2, 3], [4, 5], [6]]),
    ],
)
def test_rows_that_are_missing_may_still_come(
    component: Component, script: str, runs: int, came: list[list[int]]
) -> None:
    exchange = _exchange(component.transformer(script))
    assert _came(exchange) == came
    exchange.finish()
    assert component.runs == runs


@pytest.mark.parametrize("script", ["pass waver 3", "pass twice 4"])
def test_a_row_that_comes_too_late(component: Component, script: str) -> None:
    """The second batch has shown that it drops rows; or it has sent all rows of each batch."""
    before = _children()
    exchange = _exchange(component.transformer(script))
    _came(exchange, [*BATCHES, _batch(7), _batch(8)] if "waver" in script else BATCHES)
    with pytest.raises(TransformError, match="rows came back at the end of its run"):
        exchange.finish()
    assert _until_gone(before)


@pytest.mark.parametrize(
    ("script", "found"),
    [("pass trap 2", "the component trapped"), ("pass spin 2", "its call run took more than 1 s"), ("fail", "BOOM")],
)
def test_a_process_that_fails_leaves_nothing(component: Component, script: str, found: str) -> None:
    before = _children()
    seconds = 1 if "spin" in script else 60
    exchange = _exchange(component.transformer(script, limits={"timeout_seconds": seconds}))
    with pytest.raises(TransformError, match=found):
        _came(exchange)
    assert _until_gone(before)


def test_one_that_takes_no_batch_drops_no_row(component: Component) -> None:
    exchange = _exchange(component.transformer("context"))
    with pytest.raises(TransformError, match="BATCHES_LEFT"):
        exchange.transform(BATCHES[0])


def test_a_batch_of_which_it_rejects_each_row_is_whole(component: Component) -> None:
    rejects = [f'dlq rows {{"_airbyte_row":{number}}} bad data' for number in (0, 1, 10**20)]
    exchange = _exchange(component.transformer(";".join([*rejects, "pass drop 1"])))
    assert [*exchange.transform(BATCHES[0]).rejected] == [0, 1, 10**20]  # No row of ours has the last.
    assert _came(exchange, BATCHES[1:]) == [[2, 3], [4, 5], [6]]
    exchange.finish()
    assert component.runs == 1


def test_an_error_at_its_end_is_one_of_its_rows(component: Component) -> None:
    exchange = _exchange(component.transformer("tally each;fail"))
    _came(exchange)
    with pytest.raises(TransformError, match="BOOM"):
        exchange.finish()


@pytest.mark.parametrize("step", ["transform", "finish"])
def test_one_that_dies_between_two_batches_is_found_out(component: Component, step: str) -> None:
    before = _children()
    exchange = _exchange(component.transformer("tally"))
    _came(exchange, BATCHES[:1])
    (guardian,) = set(_children()) - set(before)
    (program,) = _children(guardian)
    os.kill(program, signal.SIGKILL)
    until(lambda: not is_running(program), "it is dead")
    with pytest.raises(TransformError, match="signal 9"):
        exchange.finish() if step == "finish" else _came(exchange, BATCHES[1:2])
    assert _until_gone(before)


def test_seconds_are_of_a_batch(component: Component) -> None:
    exchange = _exchange(component.transformer("tally", limits={"timeout_seconds": 2}))
    for _ in range(3):
        _came(exchange, BATCHES[:1])
        time.sleep(1)
    exchange.finish()
    assert component.runs == 1


def test_a_run_that_is_cancelled_waits_no_longer(component: Component) -> None:
    before = _children()
    exchange = _exchange(component.transformer("pass spin 2"))
    threading.Timer(1.5, component.cancel.set).start()
    with pytest.raises(TransformCancelled):
        _came(exchange)
    assert _until_gone(before)


def test_streams_in_turns_have_few_processes(component: Component) -> None:
    before = _children()
    transformer = component.transformer("tally")
    exchanges = [_exchange(transformer) for _ in range(MAX_PROCESSES + 2)]
    for exchange in exchanges:
        _came(exchange, BATCHES[:1])
    assert len(_children()) - len(before) <= MAX_PROCESSES
    for exchange in exchanges:
        exchange.finish()
        assert exchange.state.values == {"rows": "2"}
    assert component.runs == MAX_PROCESSES + 2
    assert _until_gone(before)


def test_an_error_of_a_process_that_made_room_is_of_its_own_stream(component: Component) -> None:
    before = _children()
    transformer = component.transformer("pass twice 1")
    exchanges = [_exchange(transformer) for _ in range(MAX_PROCESSES + 1)]
    for exchange in exchanges:
        _came(exchange, BATCHES[:1])
    for step in (lambda: _came(exchanges[0]), exchanges[0].finish, exchanges[1].finish):
        with pytest.raises(TransformError, match="rows came back at the end of its run"):
            step()
    for exchange in exchanges[1:]:
        exchange.discard()
    assert _until_gone(before)


def test_values_for_no_stream_go_from_process_to_process(component: Component) -> None:
    transformer = component.transformer("get 0 p;put 0 p one;pass none 0")
    exchanges = [_exchange(transformer) for _ in range(2)]
    for exchange in exchanges:
        _came(exchange, BATCHES[:2])
        exchange.finish()
    assert transformer.changed == {"pipeline": {"p": "one"}}


def test_of_values_for_no_stream_the_one_that_was_put_last_stays(component: Component) -> None:
    """Also where a process gets them from the one that made room for it, and goes on behind the last put."""
    scripts = {
        "script_first": "tally;put 0 p first",
        "script_second": "tally;put 0 p second;put 0 q second",
        "script_last": "put 0 q last;tally",
    }
    transformer = component.transformer("tally", more=scripts)
    streams = ["first", "second", *(f"other{number}" for number in range(MAX_PROCESSES - 2)), "last"]
    exchanges = [transformer.exchange("reject", TransformState("scripted"), StreamId.of(each)) for each in streams]
    for exchange in exchanges:
        _came(exchange, BATCHES[:1])
    assert transformer.changed == {"pipeline": {"p": "first", "q": "last"}}
    exchanges[1].finish()
    _came(exchanges[-1], BATCHES[1:2])
    for exchange in exchanges:
        exchange.finish()
    assert transformer.changed == {"pipeline": {"p": "second", "q": "second"}}


def test_the_replies_to_one_batch_are_bounded(component: Component) -> None:
    connector = component.connector("pass none 0")
    invocation = protocol.invocation(connector.config.current, (), "reject", protocol.KeptByTransform())
    process = ComponentProcess(connector, connector.connector.launch(invocation, {}), max_bytes=100)
    try:
        with pytest.raises(ConnectorError, match="have more than 100 bytes"):
            process.answer(BATCHES[0])
    finally:
        process.stop()


def test_the_values_of_replies_to_one_batch_are_bounded(component: Component) -> None:
    """A null has no byte, and becomes one of eight."""
    nulls = pa.RecordBatch.from_arrays([pa.nulls(1 << 20)] * 2, names=["name", "_airbyte_row"])
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, nulls.schema) as stream:
        stream.write_batch(nulls)
    connector = component.connector("ipc nulls;pass none 0", {"nulls": written.getvalue().to_pybytes().hex()})
    invocation = protocol.invocation(connector.config.current, (), "reject", protocol.KeptByTransform())
    process = ComponentProcess(connector, connector.connector.launch(invocation, {}), max_bytes=1 << 20)
    try:
        with pytest.raises(ConnectorError, match="unpack to more than 4,194,304 bytes"):
            process.answer(BATCHES[0])
    finally:
        process.stop()
