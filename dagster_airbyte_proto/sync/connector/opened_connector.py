"""Opens a connection's connector outside of a sync, for a check, a discover or the like."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConnectorError, StateConflict
from dagster_airbyte_proto.sync.connector.configured_connector import ConfiguredConnector
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.connector.queries import AnyConversation
from dagster_airbyte_proto.sync.connector.source import Source
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import LeaseWait, acquire_lease
from dagster_airbyte_proto.sync.process_identity import is_dead
from dagster_airbyte_proto.sync.run_log import RunLog, ignore_line, new_run_id

_SAVING_SECONDS = 600.0
"""The wait for a run that holds the connection, to save a config that the connector rewrote meanwhile. Without it a
token that can be used once would be lost."""


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
    beside the logs of syncs; `new_log` makes it. Raises ConfigError, and StateConflict where a run of the connection is
    under way and a connector that rewrites its config would change it under that one.
    """
    with new_log(_logs_folder(engine, connection), new_run_id(), on_line) as log:
        source = engine.source(connection, log, template_values)
        with _kept_config(engine, source):
            yield source


@contextmanager
def opened_destination(
    engine: Engine,
    connection: Connection,
    *,
    on_line: Callable[[str, str], None] = ignore_line,
    new_log: Callable[[Path, str, Callable[[str, str], None]], RunLog] = _new_log,
) -> Iterator[Destination]:
    """Opens the connector of a connection with a push, in the same way."""
    with new_log(_logs_folder(engine, connection), new_run_id(), on_line) as log:
        destination = engine.destination(connection, log)
        with _kept_config(engine, destination):
            yield destination


def _logs_folder(engine: Engine, connection: Connection) -> Path:
    return engine.settings.logs_folder / connection.name / "asked"


@contextmanager
def _kept_config(engine: Engine, connector: ConfiguredConnector[AnyConversation]) -> Iterator[None]:
    connector.use_stored_config(engine.store)
    if connector.config.rewritten is not None:
        _check_not_running(engine, connector.connection.name)
    try:
        yield
    finally:
        if connector.has_unsaved_config:
            _save_config(engine, connector)


def _save_config(engine: Engine, connector: ConfiguredConnector[AnyConversation]) -> None:
    name = connector.connection.name
    wait = LeaseWait(_SAVING_SECONDS, notify=partial(connector.log.write, "NOTE"))
    try:
        with acquire_lease(engine.store, name, new_run_id(), engine.settings.lease_seconds, wait) as renewal:
            if connector.is_config_replaced(engine.store):
                connector.log.write("WARN", "a run has stored a newer config meanwhile: that of this query is dropped")
            else:
                connector.save_config(engine.store, renewal.lease)
    except StateConflict as error:  # Not to be taken for that of a connector that was not started.
        raise ConnectorError(
            f"storing the config that the connector of {name} rewrote",
            error.found,
            remedy="A token that it has renewed is lost. If its next run is refused, renew the credentials.",
        ) from error


def _check_not_running(engine: Engine, name: str) -> None:
    """Raises StateConflict while a run holds the connection: of two that renew a token, one has an invalid one."""
    for lease in engine.store.current_leases(name, only_live=True):
        if not is_dead(lease.holder):
            raise StateConflict(
                f"starting the connector of {name}",
                f"run {lease.run_id} holds the connection, and its connector renews tokens in its config",
                remedy="Try again when that run has ended.",
            )
