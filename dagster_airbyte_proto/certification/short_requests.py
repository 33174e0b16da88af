"""The short requests that sources and destinations are certified by alike: checks of bad configs."""

import json
from typing import Any

from dagster_airbyte_proto.certification.bad_configs import bad_configs, mended
from dagster_airbyte_proto.certification.evidence import BadCheck, BadConfig
from dagster_airbyte_proto.certification.watching.watched_program import AnyConnector, WatchedProgram
from dagster_airbyte_proto.masking import named_secrets, secret_values
from dagster_airbyte_proto.protocols.conversation import encode_config
from dagster_airbyte_proto.protocols.events import CheckEvent, ConfigEvent
from dagster_airbyte_proto.sync.connector.queries import QueryListener, query_connector


def checks_of_bad_configs(watched: WatchedProgram[AnyConnector], schema: Any) -> tuple[BadCheck, ...]:
    """Checks a few bad configs, made from the good one. A recording answers without looking at them."""
    bad = () if watched.is_replay else bad_configs(watched.connector.config.current, schema)
    return tuple(_bad_check(watched, each, schema) for each in bad)


def secrets_of(watched: WatchedProgram[AnyConnector], schema: Any) -> frozenset[str]:
    """The secrets of the config: those that the spec marks, those of the environment, those whose names say so."""
    config = watched.connector.config
    return _secrets_in(config.current, schema) | config.secrets


def _secrets_in(config: Any, schema: Any) -> frozenset[str]:
    return secret_values(config, schema) | named_secrets(config)


def _bad_check(watched: WatchedProgram[AnyConnector], bad: BadConfig, schema: Any) -> BadCheck:
    connector = watched.connector
    good = connector.config.current

    def take_config(event: ConfigEvent) -> None:
        if json.loads(encode_config(bad.config)) != event.config:
            # What was rotated in the place of a bad secret is mended away, and is a secret all the same.
            connector.mask_more(_secrets_in(event.config, schema) - _secrets_in(bad.config, schema))
            connector.try_rewritten_config(ConfigEvent(mended(event.config, bad, good)))

    listener = QueryListener(connector.log, connector.mask, take_config)

    def ask() -> CheckEvent:
        invocation, seconds = connector.protocol.check(bad.config), watched.options.bounds.query_seconds
        return query_connector(connector.connector, [invocation], CheckEvent, listener, timeout_seconds=seconds)

    return BadCheck(bad, watched.reply(f"check {bad.description}", ask))
