"""A real `dg dev` of the tests' own: webserver, daemon and code server in a process group that goes as one."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests.support.network.ports import free_port

_STARTS_WITHIN_SECONDS = 300
_STOPS_WITHIN_SECONDS = 30
_POLL_SECONDS = 0.1
# Telemetry would reach out of the machine. The first-run dialog stays on: a test looks at it, the others put it away.
_INSTANCE_CONFIG = "telemetry:\n  enabled: false\n"
_ENDED = frozenset({"SUCCESS", "FAILURE", "CANCELED"})

_LOADED = "{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError { __typename ... on PythonError { message } } } } } }"  # noqa: E501
_DAEMONS = "{ instance { daemonHealth { allDaemonStatuses { daemonType required healthy } } } }"
_RUN = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
_TAGGED_RUNS = (
    "query($tags: [ExecutionTag!]) { runsOrError(filter: {tags: $tags}) { ... on Runs { results { runId status } } } }"
)
_NEWEST_RUN = "{ runsOrError(limit: 1) { ... on Runs { results { runId } } } }"
_BACKFILL = "query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }"
_MATERIALIZATIONS = "query($path: [String!]!) { assetOrError(assetKey: {path: $path}) { ... on Asset { assetMaterializations { runId } } } }"  # noqa: E501
_EVENTS = "query($id: ID!) { logsForRun(runId: $id) { ... on EventConnection { events { ... on MessageEvent { message } ... on ErrorEvent { error { message } } } } } }"  # noqa: E501

_Answer = TypeVar("_Answer")


class Run(NamedTuple):
    """A run as the instance knows it."""

    run_id: str
    status: str


class Target(NamedTuple):
    """A `dg dev`: its options, the folder to run it in, and the folder of its program."""

    words: Sequence[str]
    folder: Path
    programs: Path = Path(sys.executable).parent


class DagsterServer:
    """Queries of the server itself, past the UI. Every wait is bounded, and its error shows the last answer."""

    def __init__(self, url: str, home: Path, log: Path) -> None:
        self.url = url
        self.home = home
        self.log = log

    def query(self, text: str, **variables: object) -> dict[str, Any]:
        """The data of a GraphQL query or mutation."""
        body = json.dumps({"query": text, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            answer: dict[str, Any] = json.load(response)
        if answer.get("errors"):
            raise AssertionError(f"GraphQL refused {text!r}: {answer['errors']}")
        data: dict[str, Any] = answer["data"]
        return data

    def first_run_dialog_is_due(self) -> bool:
        """Whether the UI is to show its first-run dialog to a browser that has not been here before."""
        return bool(self.query("{ shouldShowNux }")["shouldShowNux"])

    def put_first_run_dialog_away(self) -> None:
        """For every browser: the mark is a file in DAGSTER_HOME."""
        self.query("mutation { setNuxSeen }")

    def bring_first_run_dialog_back(self) -> None:
        (self.home / ".nux" / "nux.yaml").unlink(missing_ok=True)

    def run_status(self, run_id: str) -> str:
        return str(self.query(_RUN, id=run_id)["runOrError"]["status"])

    def has_ended(self, run_id: str) -> bool:
        return self.run_status(run_id) in _ENDED

    def runs_tagged(self, **tags: str) -> list[Run]:
        """Newest first. A double underscore in a name stands for a slash: `dagster__backfill`."""
        pairs = [{"key": key.replace("__", "/"), "value": value} for key, value in tags.items()]
        found = self.query(_TAGGED_RUNS, tags=pairs)["runsOrError"]["results"]
        return [Run(run["runId"], run["status"]) for run in found]

    def newest_run(self) -> str | None:
        runs = self.query(_NEWEST_RUN)["runsOrError"]["results"]
        return str(runs[0]["runId"]) if runs else None

    def materializations(self, asset: Sequence[str]) -> list[str]:
        """The run of each materialization of an asset."""
        found = self.query(_MATERIALIZATIONS, path=asset)["assetOrError"].get("assetMaterializations", [])
        return [str(event["runId"]) for event in found]

    def messages(self, run_id: str) -> list[str]:
        """The messages of a run's events and the errors in them, in order."""
        events = self.query(_EVENTS, id=run_id)["logsForRun"]["events"]
        return [
            text
            for event in events
            for text in (event.get("message"), (event.get("error") or {}).get("message"))
            if text
        ]

    def wait_for_run(self, run_id: str, status: str, *, within_seconds: float = 300) -> None:
        """Returns when the run has that status; fails at once when it ended with another."""
        seen = until(
            lambda: now if (now := self.run_status(run_id)) == status or now in _ENDED else None,
            f"run {run_id} to be {status}",
            within_seconds=within_seconds,
            otherwise=lambda: f"it is {self.run_status(run_id)}",
        )
        assert seen == status, f"run {run_id} is {seen}:\n" + "\n".join(self.messages(run_id))

    def wait_for_message(self, run_id: str, part: str, *, within_seconds: float = 300) -> None:
        """Returns when an event of the run says this: a run is STARTED long before its step has begun."""
        until(
            lambda: any(part in message for message in self.messages(run_id)) or None,
            f"run {run_id} to say {part!r}",
            within_seconds=within_seconds,
            otherwise=lambda: "\n".join(self.messages(run_id)),
        )

    def wait_for_backfill(self, backfill_id: str, *, within_seconds: float = 450) -> list[Run]:
        """The runs of the backfill, when it has succeeded."""

        def ended() -> str | None:
            status = str(self.query(_BACKFILL, id=backfill_id)["partitionBackfillOrError"]["status"])
            return status if status.startswith(("COMPLETED", "FAILED", "CANCELED")) else None

        def runs() -> list[Run]:
            return self.runs_tagged(dagster__backfill=backfill_id)

        status = until(
            ended,
            f"backfill {backfill_id} to end",
            within_seconds=within_seconds,
            otherwise=lambda: f"its runs: {runs()}",
        )
        assert status == "COMPLETED_SUCCESS", f"backfill {backfill_id} is {status}; its runs: {runs()}"
        return runs()


def until(
    probe: Callable[[], _Answer | None],
    what: str,
    *,
    within_seconds: float,
    otherwise: Callable[[], str] = lambda: "",
) -> _Answer:
    """The first answer of the probe that is not None."""
    deadline = time.monotonic() + within_seconds
    while (answer := probe()) is None:
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {within_seconds} s for {what}; {otherwise()}")
        time.sleep(_POLL_SECONDS)
    return answer


@contextmanager
def running_dagster(target: Target, folder: Path, environment: Mapping[str, str]) -> Iterator[DagsterServer]:
    """`dg dev`, up, loaded and with healthy daemons; no process of it is left afterwards."""
    home, log = folder / "dagster_home", folder / "dagster_dev.log"
    home.mkdir()
    (home / "dagster.yaml").write_text(_INSTANCE_CONFIG)
    port = free_port()
    process = _start(target, port, log, {**os.environ, **environment, "DAGSTER_HOME": f"{home}"})
    try:
        server = DagsterServer(f"http://127.0.0.1:{port}", home, log)
        _wait_until_it_serves(server, process)
        yield server
    finally:
        _stop(process)


def _start(target: Target, port: int, log: Path, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    # A shell's background job ignores SIGINT and so do all its children; `dg dev` then outlives SIGINT and
    # SIGTERM both.
    command = ["env", "--default-signal=INT", f"{target.programs / 'dg'}", "dev"]
    arguments = [*target.words, "-h", "127.0.0.1", "-p", f"{port}"]
    # `dg dev` starts its parts by the `python` it runs on, but code may look for the venv's programs on the PATH.
    path = f"{target.programs}{os.pathsep}{environment.get('PATH', '')}"
    with log.open("wb") as output:
        return subprocess.Popen(
            [*command, *arguments],
            cwd=target.folder,
            env={**environment, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Politely, then the whole group, so that no run worker is left either."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOPS_WITHIN_SECONDS)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait(_STOPS_WITHIN_SECONDS)


def _wait_until_it_serves(server: DagsterServer, process: "subprocess.Popen[bytes]") -> None:
    def ready() -> bool | None:
        if process.poll() is not None:
            raise AssertionError(f"dg dev ended with {process.returncode}:\n{server.log.read_text()}")
        try:
            return (_has_loaded(server) and _daemons_are_healthy(server)) or None
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    until(ready, "dg dev to serve", within_seconds=_STARTS_WITHIN_SECONDS, otherwise=server.log.read_text)


def _has_loaded(server: DagsterServer) -> bool:
    entries = server.query(_LOADED)["workspaceOrError"]["locationEntries"]
    found = [entry["locationOrLoadError"] or {"__typename": None} for entry in entries]
    broken = [location["message"] for location in found if location["__typename"] == "PythonError"]
    assert not broken, broken
    return bool(found) and all(location["__typename"] == "RepositoryLocation" for location in found)


def _daemons_are_healthy(server: DagsterServer) -> bool:
    """The webserver answers seconds before the daemon does; a sensor or a backfill would hang until then."""
    daemons = server.query(_DAEMONS)["instance"]["daemonHealth"]["allDaemonStatuses"]
    return bool(daemons) and all(daemon["healthy"] for daemon in daemons if daemon["required"])
