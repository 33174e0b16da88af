"""Asking a connector for its catalog, when a component's state is refreshed: the one time that it is started for it."""

from collections.abc import Mapping
from pathlib import Path

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run import keep_asked_config, new_run_id
from dagster_airbyte_proto.sync.run_log import RunLog


def discovered(connection: Connection, settings: Settings, window: Mapping[str, str] | None) -> bytes:
    """The catalog that the connector offers, as `airbyte-proto discover --save` keeps it. Raises ProtoError.

    Templates in the config are filled from the window of a partition. An empty one refuses them; with None they stand
    as they are written.
    """
    with (
        Engine(settings) as engine,
        RunLog(settings.logs_folder / connection.name / "asked", new_run_id()) as log,
    ):
        source = engine.source(connection, log, window)
        kept = engine.store.config(connection.name)
        if kept is not None and kept.based_on == source.config_digest:
            source.take_config(kept.config)
        source.check_config()
        catalog = source.catalog(anew=True)
        keep_asked_config(engine, source)
        return source.protocol.catalog_message(catalog)


def keep_catalog(path: Path, message: bytes) -> None:
    """Whoever loads definitions at the same time finds the old catalog or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_bytes(message)
    unfinished.replace(path)
