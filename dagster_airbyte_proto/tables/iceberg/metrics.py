"""The metrics of a data file, by which readers skip it: Iceberg computes them from the file's Parquet footer.

We read the footer here and pass it to Iceberg. Iceberg's own call does both, but reads all of Hadoop's configuration
again for each file.
"""

from typing import Any, NamedTuple

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import StagedFile
from dagster_airbyte_proto.loads.storage import Storage

_MAGIC = b"PAR1"
_TAIL_BYTES = 8
"""The end of a Parquet file: the length of the footer in four bytes, and the magic number."""
_READ_BYTES = 64 << 10
"""The first read. Most footers are smaller, so that one request to an object store is enough."""


class FileMetrics(NamedTuple):
    """The metrics (Java's) and the size of a file."""

    metrics: Any
    size_bytes: int


class FooterReader:
    """Reads footers of staged files. Threads may share it."""

    def __init__(self, session: SparkSession, storage: Storage) -> None:
        jvm: Any = session._jvm
        self._storage = storage
        self._parquet = jvm.org.apache.iceberg.parquet.ParquetUtil
        # Iceberg's runtime for Spark has its own copy of Parquet under this name.
        parquet = jvm.org.apache.iceberg.shaded.org.apache.parquet
        configuration = session.sparkContext._jsc.hadoopConfiguration()
        options = parquet.HadoopReadOptions.builder(configuration).build()
        self._converter = parquet.format.converter.ParquetMetadataConverter(options)
        self._bytes, self._streams = jvm.java.io.ByteArrayInputStream, jvm.java.util.stream.Stream

    def file_metrics(self, file: StagedFile, metrics_config: Any) -> FileMetrics:
        """Returns the metrics of a staged file.

        Raises FileNotFoundError if the file is gone, TableError if it is not as it was staged.
        """
        footer, size_bytes = self._read(file.path)
        metadata = self._converter.readParquetMetadata(self._bytes(footer))
        metrics = self._parquet.footerMetrics(metadata, self._streams.empty(), metrics_config)
        if metrics.recordCount() != file.rows:
            raise TableError(
                "committing a load", f"{file.path} holds {metrics.recordCount()} rows where {file.rows} were staged"
            )
        return FileMetrics(metrics, size_bytes)

    def _read(self, location: str) -> tuple[bytes, int]:
        try:
            filesystem, path = self._storage.at(location)
            with filesystem.open_input_file(path) as file:
                return _footer(file, location), file.size()
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{location} does not exist") from error
        except OSError as error:
            raise TableError("committing a load", f"{location}: {str(error).partition(chr(10))[0]}") from error


def _footer(file: pa.NativeFile, location: str) -> bytes:
    """Returns a file's footer, in one read if it is short enough, else in two."""
    size_bytes = file.size()
    read_bytes = min(size_bytes, _READ_BYTES)
    end: bytes = file.read_at(read_bytes, size_bytes - read_bytes)
    length = int.from_bytes(end[-_TAIL_BYTES:-4], "little")
    if not end.endswith(_MAGIC) or length + _TAIL_BYTES > size_bytes:
        raise TableError("committing a load", f"{location} is not a Parquet file any more")
    if length + _TAIL_BYTES > read_bytes:
        end = file.read_at(length + _TAIL_BYTES, size_bytes - length - _TAIL_BYTES)
    return end[-length - _TAIL_BYTES : -_TAIL_BYTES]
