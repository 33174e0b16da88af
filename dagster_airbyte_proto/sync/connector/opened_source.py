"""Opens a connection's connector outside of a sync, for a check, a discover or the like."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.run_log import RunLog, ignore_line, new_run_id


def _new_log(folder: Path, run_id: str, on_line: Callable[[str, str], None]) -> RunLog:
    return RunLog(folder, run_id, on_line=on_line)


@contextmanager
def opened_source(
    engine: Engine,
    connection: Connection,
    template_values: Mapping[str, str] | None = None,
    *,
    on_line: Callable[[str, str], None] = ignore_line,
    new_log: Callable[[Path, str, Callable[[str, str], None]], RunLog] = _new_log,
) -> Iterator[Source]:
    """Opens the connector, with the config that it last rewrote. Saves the config if the connector rewrites it again.

    The config is saved also after a failure: if the connector renewed a token, the old one may be invalid by now.
    `template_values` fill the templates of the config, as the window of a sync does. The log lies in the folder `asked`
    beside the logs of syncs; `new_log` makes it. Raises ConfigError.
    """
    folder = engine.settings.logs_folder / connection.name / "asked"
    with new_log(folder, new_run_id(), on_line) as log:
        source = engine.source(connection, log, template_values)
        source.use_stored_config(engine.store)
        try:
            yield source
        finally:
            _save_config(engine, source)


def _save_config(engine: Engine, source: Source) -> None:
    if not source.has_unsaved_config:
        return
    name = source.connection.name
    with acquire_lease(engine.store, name, new_run_id(), engine.settings.lease_seconds) as renewal:
        source.save_config(engine.store, renewal.lease)
