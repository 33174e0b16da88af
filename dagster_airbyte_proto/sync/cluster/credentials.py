"""The credentials that a catalog vends with its tables, on their way from the driver to an executor.

The driver's catalog client alone asks the catalog and renews them. An executor asks the driver for each file that it
opens, so each file gets those that were renewed last.
"""

from collections.abc import Mapping

from dagster_airbyte_proto.errors import ProtoError, TableError
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.loads.vended import CredentialSource


class ServedCredentials:
    """The driver's side: the credentials of its storage, with errors in a form that crosses the wire."""

    def __init__(self, storage: Storage) -> None:
        self._source = storage.source

    def settings_at(self, location: str) -> Mapping[str, str]:
        if self._source is None:
            return {}
        try:
            return self._source.settings_at(location)
        except OSError as error:
            remedy = "Is the catalog's server up, and may its client read the table?"
            raise TableError("getting the credentials of a table's files", str(error), remedy=remedy) from error


class DriverCredentials:
    """The executor's side: a CredentialSource."""

    def __init__(self, driver: CredentialSource) -> None:
        self._driver = driver

    def settings_at(self, location: str) -> Mapping[str, str]:
        try:
            return self._driver.settings_at(location)
        except ProtoError as error:
            raise OSError(str(error)) from error
