"""The metadata of an Iceberg table of a Connect server. SQL says where its file lies, and this machine reads it.

The staged files have to lie where both see them, so the metadata can be read from there too. That costs no Spark job,
and where the folder is not shared it shows before anything is staged.
"""

import gzip
from contextlib import suppress
from typing import NamedTuple

import msgspec
import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.storage import Storage, without_file_scheme
from dagster_airbyte_proto.tables.iceberg.connect.catalog_settings import remote_storage
from dagster_airbyte_proto.tables.iceberg.log import FullTableLog, History

_LOG = msgspec.json.Decoder(FullTableLog)


class _Read(NamedTuple):
    """A history and the metadata file from which it was read: one value, so that threads replace both at once."""

    file: str
    history: History


class RemoteTable:
    """One table. Threads may share it: each uses the history that its own `refresh` returned."""

    def __init__(self, session: SparkSession, storage: Storage, qualified: str) -> None:
        self._session, self._storage = session, storage
        self.qualified = qualified
        self._read = _Read("", History(None, {}, None, None))
        self.log: FullTableLog

    def refresh(self) -> History:
        """Returns the table's history as it is now. Raises what Spark raises where there is no such table."""
        # The session keeps a copy of each table that it has read.
        self._session.sql(f"refresh table {self.qualified}")
        file, read = self._newest_file(), self._read
        if file != read.file:
            self.log = _LOG.decode(self._content(file))
            self._read = read = _Read(file, History.from_log(self.log))
        return read.history

    def earlier_log(self, file: str) -> FullTableLog | None:
        """Returns the log as an older metadata file has it; None where that cannot be read."""
        with suppress(OSError, ConfigError, msgspec.MsgspecError):
            return _LOG.decode(self._content(without_file_scheme(file)))
        return None

    @property
    def is_sorted(self) -> bool:
        return self.log.is_sorted

    def _newest_file(self) -> str:
        entries = self._session.sql(f"select file from {self.qualified}.metadata_log_entries")  # noqa: S608 - quoted
        # The current file comes last. Its time proves nothing: writers' clocks differ, by a minute as Iceberg has it.
        return without_file_scheme(str(entries.collect()[-1]["file"]))

    def _content(self, file: str) -> bytes:
        filesystem, path = self._storage.at(file)
        try:
            with filesystem.open_input_file(path) as opened:
                content: bytes = opened.read()
        except FileNotFoundError as error:
            raise ConfigError(
                f"reading table {self.qualified}",
                f"this machine does not see {file}, which the Connect server wrote",
                remedy="Put the warehouse into a folder that both share under the same path, or into an object store.",
            ) from error
        return gzip.decompress(content) if ".gz." in path or path.endswith(".gz") else content


def open_remote_table(session: SparkSession, qualified: str) -> RemoteTable:
    """Returns a table of any catalog of the server, as it is now."""
    catalog = str(
        session.sql(f"DESCRIBE TABLE EXTENDED {qualified}").filter("col_name = 'Name'").collect()[0]["data_type"]
    )
    table = RemoteTable(session, remote_storage(session, catalog.split(".")[0]), qualified)
    table.refresh()
    return table
