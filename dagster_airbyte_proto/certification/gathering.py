"""Gathers the evidence: runs a connector through the requests of its protocol, good ones and bad ones.

1. The spec, the check, the discover and the first read come first and are recorded, if that is wanted. What follows
   is made to go wrong, and has no place in a recording.
2. Each request ends within a bound. A connector that hangs is stopped, and the next request goes on.
3. No state is saved and no table is written. Configs that the connector writes back are kept, also from a bad config,
   without what was bad: it may have rotated a token.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dagster_airbyte_proto.certification.evidence import Reply, SourceEvidence
from dagster_airbyte_proto.certification.reads.read_series import ReadSeries
from dagster_airbyte_proto.certification.short_requests import checks_of_bad_configs, secrets_of
from dagster_airbyte_proto.certification.watching.secret_watch import SecretWatch, WatchedLog
from dagster_airbyte_proto.certification.watching.watched_program import Gathering
from dagster_airbyte_proto.certification.watching.watched_source import WatchedSource
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog
from dagster_airbyte_proto.protocols.events import SpecEvent
from dagster_airbyte_proto.protocols.rapidbyte.manifest import roles_in
from dagster_airbyte_proto.sync.connector.opened_connector import opened_source
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run_log import RunLog


def gather(engine: Engine, connection: Connection, options: Gathering) -> SourceEvidence:
    """Runs the connector. Raises ConfigError if the connection's own config is bad, or the launcher cannot start it."""
    watch = SecretWatch()

    def new_log(folder: Path, run_id: str, on_line: Callable[[str, str], None]) -> RunLog:
        return WatchedLog(folder, run_id, watch=watch, on_line=on_line)

    with opened_source(engine, connection, on_line=options.on_line, new_log=new_log) as source:
        started_at = time.monotonic()
        watched = WatchedSource(source, watch, options)
        evidence = _gathered(watched)
        seconds = time.monotonic() - started_at
        # The last mask: whatever was met earlier is shown with the secrets hidden that came up since.
        return replace(evidence, mask=watch.mask, leaks=watch.leaks, steps=tuple(watched.steps), seconds=seconds)


def _gathered(watched: WatchedSource) -> SourceEvidence:
    source, seconds = watched.source, watched.options.bounds.query_seconds

    def discovered() -> Catalog:
        return source.catalog(fresh=True, timeout_seconds=seconds)

    watched.options.on_step("what it is")
    connector = source.identity  # This installs a package, which is not the connector's own time.
    with watched.recorded():
        spec = watched.reply("spec", lambda: source.spec(fresh=True, timeout_seconds=seconds))
        schema = spec.answer.config_schema if spec.answer else {}
        secrets = secrets_of(watched, schema)
        watched.mask_more(secrets)
        if spec.answer is None:
            return _evidence(watched, connector, spec, has_secrets=False)
        _check_is_source(source.connection, spec.answer)
        source.check_config()
        check = watched.reply("check", lambda: source.check(timeout_seconds=seconds))
        discover = watched.reply("discover", discovered)
        series = ReadSeries(watched, discover)
        first = series.first()
    with watched.watched():
        second_discover = watched.reply("second discover", discovered)
        bad_checks = checks_of_bad_configs(watched, schema)
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


def _check_is_source(connection: Connection, spec: SpecEvent) -> None:
    """Raises ConfigError for a component with another role: the rules of sources would say nothing of it."""
    roles = roles_in(spec.message)
    if roles and "source" not in roles:
        raise ConfigError(
            f"certifying connection {connection.name}",
            f"its connector is no source: its manifest has the roles {', '.join(roles)}",
            remedy="Transforms are not certified. A destination is, by a connection with a `push`. If it is a source,"
            " name that role in its manifest.",
        )


def _evidence(watched: WatchedSource, connector: str, spec: Reply[SpecEvent], *, has_secrets: bool) -> SourceEvidence:
    """The evidence as far as the spec. Without one nobody knows how to ask the connector anything else."""
    return SourceEvidence(
        connector=connector,
        mask=watched.watch.mask,
        states=watched.source.protocol.states,
        has_secrets=has_secrets,
        spec=spec,
        is_replay=watched.is_replay,
    )
