"""The catalog in a component's state before a refresh: the new one keeps the order of its streams, so their keys."""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

from dagster._core.storage.defs_state.base import DefsStateStorage
from dagster.components.utils.defs_state import DefsStateConfig
from dagster_shared.serdes.objects.models.defs_state_info import DefsStateManagementType

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.saved_catalog import saved_catalog
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog

_LOG = logging.getLogger("dagster.airbyte_proto")


def former_catalog(connection: Connection, config: DefsStateConfig, state_path: Path) -> Catalog:
    """Returns the catalog that a refresh replaces: at `state_path`, where Dagster leaves it there, or in its storage of
    versions. Without streams if there is none, or it cannot be read."""
    if state_path.is_file():
        return _catalog_in(connection, state_path)
    storage = DefsStateStorage.get()
    if storage is None or config.management_type is not DefsStateManagementType.VERSIONED_STATE_STORAGE:
        return Catalog(())
    version = storage.get_latest_version(config.key)
    if version is None:
        return Catalog(())
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        storage.download_state_to_path(config.key, version, path)
        return _catalog_in(connection, path)


def _catalog_in(connection: Connection, path: Path) -> Catalog:
    """A refresh is also the way out of a state that cannot be read."""
    try:
        return saved_catalog(connection, catalog=path) or Catalog(())
    except ConfigError as error:
        _LOG.warning(
            f"Keys of streams with like names may change, for the state before could not be read: {error.found}"
        )
        return Catalog(())
