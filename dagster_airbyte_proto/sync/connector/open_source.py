"""Asking a connector something outside of a sync."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import held_lease
from dagster_airbyte_proto.sync.run_log import RunLog, new_run_id, to_nobody


@contextmanager
def opened_source(
    engine: Engine,
    connection: Connection,
    words: Mapping[str, str] | None = None,
    *,
    on_line: Callable[[str, str], None] = to_nobody,
) -> Iterator[Source]:
    """Its connector, with the config as it last rewrote it; what it makes of it meanwhile is kept, also when the rest
    fails: the token that it replaced may be good for nothing any more.

    `words` fill the templates of the config, as `Source` has it. Its log lies in a folder beside those of syncs. Raises
    ConfigError.
    """
    folder = engine.settings.logs_folder / connection.name / "asked"
    with RunLog(folder, new_run_id(), on_line=on_line) as log:
        source = engine.source(connection, log, words)
        source.take_kept_config(engine.store)
        try:
            yield source
        finally:
            _keep_config(engine, source)


def _keep_config(engine: Engine, source: Source) -> None:
    if source.unkept_config is None:
        return
    name = source.connection.name
    with held_lease(engine.store, name, new_run_id(), engine.settings.lease_seconds) as keeper:
        engine.store.keep_config(keeper.lease, source.unkept_config, based_on=source.config_digest)
