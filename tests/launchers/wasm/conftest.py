"""Scripted connectors (tests/support/wasm/connector.c), built once for each worker, and a way to run them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
import pytest

from dagster_airbyte_proto.launchers.process import ExitReport, LaunchOptions
from dagster_airbyte_proto.launchers.wasm import child_program
from dagster_airbyte_proto.launchers.wasm.launcher import WasmLauncher
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb
from dagster_airbyte_proto.protocols.rapidbyte.grants import Narrowing
from dagster_airbyte_proto.protocols.rapidbyte.messages import batch_head
from tests.conformance.launcher import is_running, until
from tests.soak.kill_methods import words_of
from tests.support.wasm import guests

_SECONDS = 60.0
NOTHING = Narrowing()


class Output(NamedTuple):
    """What a run wrote: its lines, and the content of its batches."""

    lines: list[dict[str, Any]]
    batches: list[bytes]
    report: ExitReport

    @property
    def logged(self) -> list[str]:
        return [line["message"] for line in self.lines if line["type"] == "log"]

    @property
    def errors(self) -> list[str]:
        return [f"{line['error'][0]}/{line['error'][1]}: {line['error'][2]}" for line in self.lines if "error" in line]

    def kinds(self) -> list[str]:
        return [line["type"] for line in self.lines]


class Component(NamedTuple):
    """A connector's file, and the folder that its compiled code is kept in."""

    path: Path
    cache: Path

    def launcher(
        self,
        narrowing: Narrowing = NOTHING,
        options: LaunchOptions | None = None,
        **parts: Any,
    ) -> WasmLauncher:
        return WasmLauncher(self.path, narrowing, cache=self.cache, options=options, **parts)

    def read(self, script: str, launcher: WasmLauncher | None = None, **config: Any) -> Output:
        """Runs the script for the stream `users`."""
        return output(launcher or self.launcher(), Verb.READ, {**config, "script": script})


def invocation(verb: Verb, config: Mapping[str, Any], *streams: str, context: Mapping[str, Any] = {}) -> Invocation:
    runs = [{"stream": name, "context": {"stream_name": name, **context}} for name in streams or ("users",)]
    files = {"config.json": json.dumps(config).encode(), "runs.json": msgspec.json.encode(runs)}
    return Invocation((verb.value,), files, verb=verb)


def _component_processes() -> set[int]:
    """The child programs that run below this process."""
    below = psutil.Process().children(recursive=True)
    return {each.pid for each in below if is_running(each.pid) and child_program.__file__ in words_of(each)}


def output(launcher: WasmLauncher, verb: Verb, config: Mapping[str, Any], *streams: str) -> Output:
    """Runs a request to its end. However it ends, it leaves no process."""
    before = _component_processes()
    running = launcher.launch(invocation(verb, config, *streams), environment={})
    lines: list[dict[str, Any]] = []
    batches: list[bytes] = []
    size = -1
    try:
        while (chunk := running.read(_SECONDS)) != b"":
            assert chunk is not None, "nothing came in time"
            if size >= 0:
                assert len(chunk) == size
                batches.append(chunk)
                size = -1
                continue
            lines.append(json.loads(chunk))
            head = batch_head(chunk)
            size = -1 if head is None else head[1]
        report = running.wait(_SECONDS)
        assert report is not None
        until(lambda: _component_processes() <= before, "no process of it is left")
    finally:
        running.stop()
    return Output(lines, batches, report)


@pytest.fixture(scope="session")
def built() -> Callable[[str], Component]:
    """Gives the connector of a role, with a cache that all tests of this worker share."""
    return lambda role: Component(guests.built(role), guests.built(role).parent / "cache")


@pytest.fixture(scope="session")
def source(built: Callable[[str], Component]) -> Component:
    return built("source")
