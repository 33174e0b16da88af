"""Gathers the evidence: runs a connector through the requests of its protocol, good ones and bad ones.

1. The spec, the check, the discover and the first read come first and are recorded, if that is wanted. What follows
   is made to go wrong, and has no place in a recording.
2. Each request ends within a bound. A connector that hangs is stopped, and the next request goes on.
3. No state is saved and no table is written. Configs that the connector writes back are kept, also from a bad config,
   without what was bad: it may have rotated a token.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dagster_airbyte_proto.certification.bad_configs import bad_configs, mended
from dagster_airbyte_proto.certification.evidence import BadCheck, BadConfig, Evidence, Reply
from dagster_airbyte_proto.certification.reads.read_series import ReadSeries
from dagster_airbyte_proto.certification.watching.secret_watch import SecretWatch, WatchedLog
from dagster_airbyte_proto.certification.watching.watched_source import Gathering, WatchedSource
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.masking import Mask, named_secrets, secret_values
from dagster_airbyte_proto.model import Catalog
from dagster_airbyte_proto.protocols.conversation import encode_config
from dagster_airbyte_proto.protocols.events import CheckEvent, ConfigEvent, SpecEvent
from dagster_airbyte_proto.sync.connector.opened_source import opened_source
from dagster_airbyte_proto.sync.connector.queries import QueryListener, query_connector
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run_log import RunLog


def gather(engine: Engine, connection: Connection, options: Gathering) -> Evidence:
    """Runs the connector. Raises ConfigError if the connection's own config is bad, or the launcher cannot start it."""
    watch = SecretWatch()

    def new_log(folder: Path, run_id: str, on_line: Callable[[str, str], None]) -> RunLog:
        return WatchedLog(folder, run_id, watch=watch, on_line=on_line)

    with opened_source(engine, connection, on_line=options.on_line, new_log=new_log) as source:
        started_at = time.monotonic()
        watched = WatchedSource(source, watch, options)
        evidence = _gathered(watched)
        return replace(evidence, leaks=watch.leaks, steps=tuple(watched.steps), seconds=time.monotonic() - started_at)


def _gathered(watched: WatchedSource) -> Evidence:
    source, seconds = watched.source, watched.options.bounds.query_seconds

    def discovered() -> Catalog:
        return source.catalog(fresh=True, timeout_seconds=seconds)

    watched.options.on_step("what it is")
    connector = source.identity  # This installs a package, which is not the connector's own time.
    with watched.recorded():
        spec = watched.reply("spec", lambda: source.spec(fresh=True, timeout_seconds=seconds))
        schema = spec.answer.config_schema if spec.answer else {}
        secrets = _secrets(watched, schema)
        watched.watch.mask = Mask(secrets)
        if spec.answer is None:
            return _evidence(watched, connector, spec, has_secrets=False)
        source.check_config()
        check = watched.reply("check", lambda: source.check(timeout_seconds=seconds))
        discover = watched.reply("discover", discovered)
        series = ReadSeries(watched, discover)
        first = series.first()
    with watched.watched():
        second_discover = watched.reply("second discover", discovered)
        bad = () if watched.is_replay else bad_configs(source.config.current, schema)
        bad_checks = [_bad_check(watched, each) for each in bad]
        later = series.later(first)
    return replace(
        _evidence(watched, connector, spec, has_secrets=bool(secrets)),
        check=check,
        bad_checks=bad_checks,
        discover=discover,
        second_discover=second_discover,
        first_read=first,
        second_read=later.second,
        resumed=later.resumed,
        resumed_at_end=later.at_end,
        cancelled_read=later.cancelled_read,
        cancelled=later.cancelled,
    )


def _evidence(watched: WatchedSource, connector: str, spec: Reply[SpecEvent], *, has_secrets: bool) -> Evidence:
    """The evidence as far as the spec. Without one nobody knows how to ask the connector anything else."""
    return Evidence(
        connector=connector,
        mask=watched.watch.mask,
        states=watched.source.protocol.states,
        has_secrets=has_secrets,
        spec=spec,
        is_replay=watched.is_replay,
    )


def _bad_check(watched: WatchedSource, bad: BadConfig) -> BadCheck:
    source = watched.source
    good = source.config.current

    def take_config(event: ConfigEvent) -> None:
        if json.loads(encode_config(bad.config)) != event.config:
            source.try_rewritten_config(ConfigEvent(mended(event.config, bad, good)))

    listener = QueryListener(source.log, source.mask, take_config)

    def ask() -> CheckEvent:
        invocation, seconds = source.protocol.check(bad.config), watched.options.bounds.query_seconds
        return query_connector(source.connector, [invocation], CheckEvent, listener, timeout_seconds=seconds)

    return BadCheck(bad, watched.reply(f"check {bad.description}", ask))


def _secrets(watched: WatchedSource, schema: Any) -> frozenset[str]:
    """The secrets of the config: those that the spec marks, those of the environment, those whose names say so."""
    config = watched.source.config
    return secret_values(config.current, schema) | named_secrets(config.current) | config.secrets
