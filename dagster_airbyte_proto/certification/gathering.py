"""Gathers the evidence: runs a connector through the requests of its protocol, good ones and bad ones.

1. The spec, the check, the discover and the first read come first and are recorded, if that is wanted. What follows
   is made to go wrong, and has no place in a recording.
2. Each request ends within a bound. A connector that hangs is stopped, and the next request goes on.
3. No state is saved, no table is written, and configs that the connector writes back from a bad config are not kept.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dagster_airbyte_proto.certification.bad_configs import bad_configs
from dagster_airbyte_proto.certification.evidence import BadCheck, BadConfig, Evidence, Reply
from dagster_airbyte_proto.certification.memory_meter import MemoryMeter, container_meter, process_meter
from dagster_airbyte_proto.certification.secret_watch import SecretWatch, WatchedLog
from dagster_airbyte_proto.certification.watched_launcher import WatchedLauncher
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.masking import Mask, named_secrets, secret_values
from dagster_airbyte_proto.model import Catalog
from dagster_airbyte_proto.protocols.events import CheckEvent, SpecEvent
from dagster_airbyte_proto.sync.connector.opened_source import opened_source
from dagster_airbyte_proto.sync.connector.queries import QueryListener, query_connector
from dagster_airbyte_proto.sync.connector.source import Source, recorded_connector
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run_log import RunLog, ignore_line

Answer = TypeVar("Answer")


class Bounds(NamedTuple):
    """The bounds of the runs: each short request, and each read, ends within so many seconds."""

    query_seconds: float = 120.0
    read_seconds: float = 600.0


class Gathering(NamedTuple):
    """Options of a gathering. `on_step` gets the name of each step before it begins; `folder` is for a recording."""

    bounds: Bounds = Bounds()
    folder: Path | None = None
    on_step: Callable[[str], None] = lambda _step: None
    on_line: Callable[[str, str], None] = ignore_line


def gather(engine: Engine, connection: Connection, options: Gathering) -> Evidence:
    """Runs the connector. Raises ConfigError if the connection's own config is bad, or the launcher cannot start it."""
    watch = SecretWatch()

    def new_log(folder: Path, run_id: str, on_line: Callable[[str, str], None]) -> RunLog:
        return WatchedLog(folder, run_id, watch=watch, on_line=on_line)

    with opened_source(engine, connection, on_line=options.on_line, new_log=new_log) as source:
        gatherer = _Gatherer(source, watch, options)
        started_at = time.monotonic()
        evidence = gatherer.gather()
        return replace(evidence, seconds=time.monotonic() - started_at)


class _Gatherer:
    def __init__(self, source: Source, watch: SecretWatch, options: Gathering) -> None:
        self._source, self._watch, self._options = source, watch, options
        self._launcher = WatchedLauncher(source.connector.launcher, _meter(source))

    def gather(self) -> Evidence:
        source, seconds = self._source, self._options.bounds.query_seconds
        with self._recorded():
            spec = self._reply("spec", lambda: source.spec(fresh=True, timeout_seconds=seconds))
            schema = spec.answer.config_schema if spec.answer else {}
            secrets = self._secrets(schema)
            self._watch.mask = Mask(secrets)
            if spec.answer is None:
                return _without_spec(spec, source, self._watch)
            source.check_config()
            check = self._reply("check", lambda: source.check(timeout_seconds=seconds))
            discover = self._reply("discover", self._discover)
        with self._watched():
            second = self._reply("second discover", self._discover)
            is_replay = source.connection.connector.launch.kind == "replay"
            bad = () if is_replay else bad_configs(source.config.current, schema)
            bad_checks = [self._bad_check(each) for each in bad]
        return Evidence(
            connector=source.identity,
            mask=self._watch.mask,
            has_secrets=bool(secrets),
            config=source.config.current,
            spec=spec,
            check=check,
            bad_checks=bad_checks,
            discover=discover,
            second_discover=second,
            leaks=self._watch.leaks,
            is_replay=is_replay,
        )

    def _discover(self) -> Catalog:
        return self._source.catalog(fresh=True, timeout_seconds=self._options.bounds.query_seconds)

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Every run of the connector is watched meanwhile, and recorded if that is wanted."""
        launcher, folder = self._source.connector.launcher, self._options.folder
        try:
            with recorded_connector(self._source, folder) if folder else nullcontext(), self._watched():
                yield
        finally:
            self._source.connector = self._source.connector._replace(launcher=launcher)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        before = self._source.connector.launcher
        self._launcher.inner = before
        self._source.connector = self._source.connector._replace(launcher=self._launcher)
        try:
            yield
        finally:
            self._source.connector = self._source.connector._replace(launcher=before)

    def _reply(self, step: str, ask: Callable[[], Answer]) -> Reply[Answer]:
        self._options.on_step(step)
        self._watch.run = step
        before = len(self._launcher.runs)
        answer, failure = None, None
        try:
            answer = ask()
        except ConnectorError as error:
            failure = error
        runs = tuple(self._launcher.runs[before:])
        for run in runs:
            self._watch.look_through(run.output)
        return Reply(answer, failure, runs)

    def _bad_check(self, bad: BadConfig) -> BadCheck:
        source = self._source
        listener = QueryListener(source.log, source.mask, lambda _event: None)

        def ask() -> CheckEvent:
            invocation = source.protocol.check(bad.config)
            seconds = self._options.bounds.query_seconds
            return query_connector(source.connector, [invocation], CheckEvent, listener, timeout_seconds=seconds)

        return BadCheck(bad, self._reply(f"check {bad.description}", ask))

    def _secrets(self, schema: Any) -> frozenset[str]:
        """The secrets of the config: those that the spec marks, those of the environment, those whose names say so."""
        config = self._source.config
        return secret_values(config.current, schema) | named_secrets(config.current) | config.secrets


def _without_spec(spec: Reply[SpecEvent], source: Source, watch: SecretWatch) -> Evidence:
    """The evidence on a connector that does not answer its first request: nobody knows how to ask it anything else."""
    return Evidence(source.identity, watch.mask, False, source.config.current, spec)


def _meter(source: Source) -> MemoryMeter:
    connection = source.connection
    if connection.connector.launch.kind == "docker":
        return container_meter(connection.name, source.log.run_id)
    return process_meter
