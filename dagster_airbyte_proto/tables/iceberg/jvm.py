"""Calls into Iceberg's Java API over the session's py4j gateway.

- Every call, and every attribute of a Java object, is a round trip to the JVM. Keep the number of them small.
- py4j gives every Python thread its own connection and its own thread in the JVM, so tables commit in parallel.
- A plain Iceberg commit is retried on top of concurrent commits, and so could land a load twice. Every change here is
  validated from the snapshot in whose history we looked for the load (`JavaTable.change`), or is a compare-and-set of
  the whole metadata (`JavaTable.swap_metadata`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any, NamedTuple, cast
from uuid import uuid4

import msgspec
import pyspark
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto.loads.column_ids import all_optional, key_ids
from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.model import REPLACING, PartitionField, TableName, WriteMode
from dagster_airbyte_proto.schema.evolution import IcebergSchema
from dagster_airbyte_proto.tables.deleted_rows import deleted_rows
from dagster_airbyte_proto.tables.iceberg.hadoop_catalog import TableFolders
from dagster_airbyte_proto.tables.iceberg.layout import create_partitioned, oldest_format, partition_data, unpartitioned
from dagster_airbyte_proto.tables.iceberg.log import History, Snapshot, TableLog
from dagster_airbyte_proto.tables.iceberg.metrics import FooterReader
from dagster_airbyte_proto.tables.iceberg.positions.deletion_vectors import puffin_file
from dagster_airbyte_proto.tables.iceberg.vended_credentials import NEVER, vended_credentials
from dagster_airbyte_proto.tables.part_checks import effective_files
from dagster_airbyte_proto.tables.spark.jvm.errors import CALL_ERRORS
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_array, java_items, use_session
from dagster_airbyte_proto.tables.spark.session import session_storage

FORMAT_VERSION = "format-version"
WITH_VECTORS = 3
_PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    **{f"write.{change}.mode": "merge-on-read" for change in ("delete", "update", "merge")},
}
_LOG, _SNAPSHOT = msgspec.json.Decoder(TableLog), msgspec.json.Decoder(Snapshot)


class _Read(NamedTuple):
    """A history and the metadata file from which it was read: one value, so that threads replace both at once."""

    location: str
    history: History


class JavaTable:
    """A handle on one table. Threads may share it: each uses the history that its own `refresh` returned.

    At `renew_at` the table should be loaded again, for the credentials that came with it.
    """

    def __init__(self, iceberg: "JavaIceberg", table: Any, renew_at: float = NEVER) -> None:
        self._iceberg, self.renew_at = iceberg, renew_at
        self.java = self._table = table
        self._operations = table.operations()
        self._read = _Read("", History(None, {}, None, None))
        self.log: TableLog

    def refresh(self) -> History:
        """Returns the table's history as it is now. It takes two short round trips if the table has not changed."""
        metadata = self._operations.refresh()
        location, read = str(metadata.metadataFileLocation()), self._read
        if location != read.location:
            self.log = _LOG.decode(self._iceberg.metadata_parser.toJson(metadata))
            self._read = read = _Read(location, History.from_log(self.log))
        return read.history

    def alone(self) -> AbstractContextManager[None]:
        """While it is entered, no other process of this machine commits to the table, if it lies on it."""
        return self._iceberg.folders.committing(str(self._table.location()), self._read.location)

    def rename(self, renames: Sequence[tuple[str, str]]) -> None:
        """Renames columns (old name, new name). Their ids stay, and therefore their values."""
        update = self._table.updateSchema()
        for old, new in renames:
            update.renameColumn(old, new)
        with self.alone():
            update.commit()

    def evolve(self, columns: IcebergSchema) -> None:
        """Adds and widens columns until all `columns` fit."""
        with self.alone():
            if (version := oldest_format(columns)) > self.log.format_version:
                self._table.updateProperties().set(FORMAT_VERSION, str(version)).commit()
            # By `schema/evolution.py` every column may be null from now on, and those that identify rows may not.
            update = self._table.updateSchema().caseSensitive(False).setIdentifierFields([])
            update.unionByNameWith(self._iceberg.schema(columns)).commit()

    def add_schema(self, columns: IcebergSchema, *, seen: TableLog) -> None:
        """Adds a schema that is not the current one.

        Does nothing if field ids were assigned since the table was `seen`: they would collide with those in `columns`.
        """
        base = self.metadata()
        if int(base.lastColumnId()) == seen.last_column_id:
            changed = self.metadata_builder(base).upgradeFormatVersion(max(oldest_format(columns), seen.format_version))
            self.swap_metadata(base, changed.addSchema(self._iceberg.schema(columns)).build())

    def change(self, part: StagedRows, history: History) -> Any:
        """Returns the change that lands a part, not yet committed. Its commit fails if rows came in since `history`.

        Iceberg retries a commit on top of concurrent commits, and could so land a load twice. Therefore the change is
        validated from the last snapshot of the history: a later snapshot that added rows or deletes to the part's slice
        makes the commit fail. Above all this stops the same load of another run. Without a snapshot to start from, the
        validation covers all snapshots. A compaction adds no rows, so it makes no commit fail.
        """
        base, scope = history.current, self.scope(part)
        files = effective_files(part, holds_rows=history.may_have_rows)
        if part.write is WriteMode.APPEND_DEDUP or any(file.content is not FileContent.ROWS for file in files):
            change = (
                self.with_files(self._table.newRowDelta(), part, files)
                .validateNoConflictingDataFiles()
                .validateNoConflictingDeleteFiles()
            )
            if part.write in REPLACING:
                self.remove_all(change, base, scope)
        else:
            change = self._overwrite(part, files, scope).validateNoConflictingData().validateNoConflictingDeletes()
        change.conflictDetectionFilter(scope)
        return change.validateFromSnapshot(base.snapshot_id) if base else change

    def committed(self, load_id: str, history: History) -> Snapshot | None:
        """Returns the snapshot of a load that was just committed on top of `history`."""
        metadata = self._operations.current()
        snapshot = _SNAPSHOT.decode(self._iceberg.snapshot_parser.toJson(metadata.currentSnapshot()))
        if snapshot.parent_snapshot_id != (history.current.snapshot_id if history.current else None):
            # A compaction was committed in between, or another load directly after.
            return self.refresh().snapshot_of(load_id)
        self._read = _Read(str(metadata.metadataFileLocation()), history.after(snapshot))
        return self._read.history.snapshot_of(load_id)

    # For changes by compare-and-set of the whole metadata

    @property
    def every_row(self) -> Any:
        """The expression that matches every row."""
        return self._iceberg.expressions.alwaysTrue()

    def metadata(self) -> Any:
        """Returns the table's metadata as it is now."""
        return self._operations.refresh()

    def log_of(self, metadata: Any) -> TableLog:
        return _LOG.decode(self._iceberg.metadata_parser.toJson(metadata))

    def transaction(self, start: Any) -> Any:
        """Returns a transaction on top of some metadata. Never commit it: it would replace any concurrent change."""
        return self._iceberg.transactions.replaceTableTransaction(self._table.name(), self._operations, start)

    def metadata_builder(self, metadata: Any) -> Any:
        """Returns a builder for the metadata that follows the given one."""
        return self._iceberg.metadata.buildFrom(metadata)

    def swap_metadata(self, base: Any, new: Any) -> None:
        """Commits new metadata. Fails with a conflict if the table's metadata is no longer `base`."""
        with self.alone():
            self._operations.commit(base, new)

    def append_change(self, transaction: Any, part: StagedRows, files: Sequence[StagedFile], after: int | None) -> Any:
        """Returns a change that adds the files on top of a snapshot. It makes a snapshot even if there are none."""
        if any(file.content is not FileContent.ROWS for file in files):
            change = self.with_files(transaction.newRowDelta(), part, files)
            # Iceberg validates new deletion vectors in any case: without a start over all of the history, which ends
            # somewhere once snapshots have expired, and then the change is refused.
            return change if after is None else change.validateFromSnapshot(after)
        change = transaction.newAppend() if files else transaction.newFastAppend()
        for file in files:
            change.appendFile(self.data_file(file, part))
        return change

    def expire(self, snapshot_ids: Iterable[int]) -> None:
        """Expires snapshots, and deletes the files that only they have."""
        # Without this time Iceberg would also expire other snapshots, by the table's maximum age.
        expiry = self._table.expireSnapshots().expireOlderThan(0)
        for each in snapshot_ids:
            expiry.expireSnapshotId(each)
        with self.alone():
            expiry.commit()

    def scope(self, part: StagedRows) -> Any:
        """Returns the expression for the rows that a part may replace, and where concurrent writes are a conflict."""
        if part.slice is None:
            return self._iceberg.expressions.alwaysTrue()
        return self._iceberg.expressions.equal(self.log.slice_column, part.slice)

    def _overwrite(self, part: StagedRows, files: Sequence[StagedFile], scope: Any) -> Any:
        change = self._table.newOverwrite()
        if part.write in REPLACING:
            change.overwriteByRowFilter(scope)
        for file in files:
            change.addFile(self.data_file(file, part))
        return change

    def with_files(self, change: Any, part: StagedRows, files: Sequence[StagedFile]) -> Any:
        """Adds the files to a row delta."""
        for file in files:
            if file.content is FileContent.ROWS:
                change.addRows(self.data_file(file, part))
                continue
            for deletes in self.delete_files(file, part):
                change.addDeletes(deletes)
        return change

    def remove_all(self, change: Any, base: Snapshot | None, scope: Any) -> None:
        """Makes a row delta remove every file, delete files too, that the table or the slice has in `base`.

        An overwrite removes by filter in one round trip, but cannot add delete files. Only a row delta does both in one
        snapshot, and it removes files one by one (three round trips a file: 0.5 s for 2,000 files). Rows that came in
        since `base` are not removed, so the validations in `change` make the commit fail for them. The commit also
        fails if a file is gone, because a compaction moved its rows to another file.

        Alternatives that do not work: a transaction of an overwrite and a row delta is validated at each retry too, but
        Iceberg reads its starting metadata twice, so on a handle that threads share it may undo a commit that falls in
        between. It also leaves a snapshot with the duplicates in the log. A rewrite is not validated at all.
        """
        change.validateDeletedFiles()
        snapshot = self._table.snapshot(base.snapshot_id) if base else None
        if snapshot is None:
            # The table is empty, or `base` has expired since; then the commit is refused.
            return
        io, specs, manifests = self._table.io(), self._table.specs(), self._iceberg.manifest_files
        for manifest in java_items(snapshot.dataManifests(io)):
            with closing(manifests.read(manifest, io, specs).filterRows(scope)) as live:
                for file in java_items(live):
                    change.removeRows(file)
        self.remove_deletes(change, snapshot, scope)

    def remove_deletes(self, change: Any, snapshot: Any, scope: Any) -> None:
        """Makes a row delta remove the delete files of a snapshot (Java's), or those of the slice in it."""
        io, specs = self._table.io(), self._table.specs()
        for manifest in java_items(snapshot.deleteManifests(io)):
            with closing(
                self._iceberg.manifest_files.readDeleteManifest(manifest, io, specs).filterRows(scope)
            ) as live:
                for file in java_items(live):
                    change.removeDeletes(file)

    def data_file(self, file: StagedFile, part: StagedRows) -> Any:
        """Returns Iceberg's description of a staged file of rows."""
        metrics = self._iceberg.metrics_config.forTable(self._table)
        return self._with_metrics(
            file, self._partitioned_builder(self._iceberg.data_files.builder, part, file), metrics
        )

    def delete_files(self, file: StagedFile, part: StagedRows) -> Sequence[Any]:
        """Returns Iceberg's descriptions of a staged file of deletes.

        Format 3 has deletion vectors in place of files of position deletes. There this writes a vector for each data
        file that the staged file refers to.
        """
        builder = self._partitioned_builder(self._iceberg.file_metadata.deleteFileBuilder, part, file)
        if file.content is FileContent.POSITION_DELETES:
            if self.log.format_version >= WITH_VECTORS:
                return self._vectors(file, part)
            # With full paths in the file's bounds, readers can see that it refers to a single data file.
            config = self._iceberg.metrics_config.forPositionDelete()
            return [self._with_metrics(file, builder.ofPositionDeletes(), config)]
        columns = self.log.columns_of(
            "committing a load", part.branch_position.schema_id if part.branch_position else None
        )
        ids = self._iceberg.int_array(key_ids(columns, part.keys))
        metrics = self._iceberg.metrics_config.forTable(self._table)
        return [self._with_metrics(file, builder.ofEqualityDeletes(ids), metrics)]

    def _vectors(self, file: StagedFile, part: StagedRows) -> list[Any]:
        # Not in the folder of the staged files: the sweep of that folder deletes files that no announced load names.
        path = self._table.locationProvider().newDataLocation(f"{uuid4().hex}-deletes.puffin")
        content, vectors = puffin_file(deleted_rows([file], self._iceberg.storage))
        with closing(self._table.io().newOutputFile(path).create()) as stream:
            stream.write(content)
        described = []
        for vector in vectors:
            builder = self._partitioned_builder(
                self._iceberg.file_metadata.deleteFileBuilder, part, file
            ).ofPositionDeletes()
            builder.withPath(path).withFormat("PUFFIN").withFileSizeInBytes(len(content)).withRecordCount(vector.rows)
            builder.withReferencedDataFile(vector.data_file)
            builder.withContentOffset(vector.offset).withContentSizeInBytes(vector.size_bytes)
            described.append(builder.build())
        return described

    def _partitioned_builder(self, builder: Callable[[Any], Any], part: StagedRows, file: StagedFile) -> Any:
        """Returns a file builder that is set to the file's partition, or to the part's slice."""
        spec = self._table.spec()
        if part.partitioned_by:
            if file.partition is None:
                return builder(unpartitioned(self._table))
            return builder(spec).withPartition(partition_data(self._iceberg.data_files, spec, file.partition))
        if part.slice is None:
            return builder(spec)
        data = self._iceberg.partition_data(spec.partitionType())
        data.set(0, part.slice)
        return builder(spec).withPartition(data)

    def _with_metrics(self, file: StagedFile, builder: Any, metrics_config: Any) -> Any:
        file_metrics = self._iceberg.footers.file_metrics(file, metrics_config)
        # Readers rely on this length, so it is read from the file itself and not taken from staging.
        described = builder.withPath(file.path).withFormat("PARQUET").withFileSizeInBytes(file_metrics.size_bytes)
        return described.withMetrics(file_metrics.metrics).build()


class JavaIceberg:
    """Iceberg's Java classes and one catalog, looked up once."""

    def __init__(self, session: SparkSession, catalog: str) -> None:
        self._gateway: Any = session.sparkContext._gateway
        jvm: Any = session._jvm
        use_session(session)
        self._namespaces = session._jsparkSession.sessionState().catalogManager().catalog(catalog)
        iceberg = jvm.org.apache.iceberg
        self._catalog, self.folders = self._namespaces.icebergCatalog(), TableFolders.of(session, catalog)
        self._vended = vended_credentials(session, catalog, self.load)
        self.storage = session_storage(session, catalog, self._vended)
        self._cached, self._spark_catalog = session._jsparkSession.sharedState().cacheManager(), session.catalog
        self._identifiers, self._namespace = iceberg.catalog.TableIdentifier, iceberg.catalog.Namespace
        self._schemas, self._spark_schemas = iceberg.SchemaParser, iceberg.spark.SparkSchemaUtil
        self.metadata, self.transactions = iceberg.TableMetadata, iceberg.Transactions
        self.metadata_parser, self.snapshot_parser = iceberg.TableMetadataParser, iceberg.SnapshotParser
        self._specs, self.partition_data = iceberg.PartitionSpec, iceberg.PartitionData
        self.data_files, self.file_metadata = iceberg.DataFiles, iceberg.FileMetadata
        self.manifest_files = iceberg.ManifestFiles
        self.metrics_config, self.footers = iceberg.MetricsConfig, FooterReader(session, self.storage)
        self.expressions = iceberg.expressions.Expressions
        # py4j searches every jar for a name that it does not know as a package, each time. So these are looked up once.
        self._string, self._int = jvm.java.lang.String, jvm.int
        self._known: dict[TableName, Any] = {}

    def create_namespace(self, namespace: str) -> None:
        """Creates the namespace unless it is there. Tables are created side by side, so others may be quicker."""
        levels = self._strings([namespace])
        if self._namespaces.namespaceExists(levels):
            return
        try:
            self._namespaces.createNamespace(levels, {})
        except CALL_ERRORS:
            # Only some catalogs say that it exists: a JDBC catalog reports a broken constraint of its database.
            if not self._namespaces.namespaceExists(levels):
                raise

    def load(self, name: TableName) -> JavaTable:
        """Loads the table as it is now. The catalog's cached copy may be 30 s old, or of a table dropped since."""
        self._catalog.invalidateTable(self._identifier(name))
        return self._java_table(name, self.folders.load(name, lambda: self._catalog.loadTable(self._identifier(name))))

    def create(
        self,
        name: TableName,
        columns: IcebergSchema,
        slice_column: str | None,
        partitioning: Sequence[PartitionField],
        properties: Mapping[str, str],
    ) -> JavaTable:
        """Creates a table with these properties beside our usual ones."""
        schema = self.schema(columns)
        builder = self._catalog.buildTable(self._identifier(name), schema)
        if slice_column is not None:
            builder.withPartitionSpec(self._specs.builderFor(schema).identity(slice_column).build())
        for key, value in {**_PROPERTIES, FORMAT_VERSION: str(oldest_format(columns)), **properties}.items():
            builder.withProperty(key, value)
        if partitioning:
            create_partitioned(builder, partitioning, self.expressions)
            return self.load(name)
        return self._java_table(name, builder.create())

    def refresh_readers(self, name: TableName, qualified: str) -> None:
        """Makes the session's readers see the table as it is now.

        Invalidating Iceberg's catalog takes half the time of Spark's REFRESH TABLE. The latter is needed only if
        somebody has cached a DataFrame.
        """
        self._catalog.invalidateTable(self._identifier(name))
        if not self._cached.isEmpty():
            self._spark_catalog.refreshTable(qualified)

    def columns_of(self, frame: DataFrame) -> IcebergSchema:
        """Returns the columns of a frame, all of them optional, as in every table that we create."""
        schema = self._schemas.toJson(self._spark_schemas.convert(frame._jdf.schema()))
        return cast(IcebergSchema, all_optional(msgspec.json.decode(schema)))

    def schema(self, columns: IcebergSchema) -> Any:
        return self._schemas.fromJson(msgspec.json.encode(columns).decode())

    def int_array(self, values: Sequence[int]) -> Any:
        return java_array(self._gateway, self._int, values)

    def _java_table(self, name: TableName, table: Any) -> JavaTable:
        return JavaTable(self, table, self._vended.note(name, table) if self._vended else NEVER)

    def _identifier(self, name: TableName) -> Any:
        if name not in self._known:
            self._known[name] = self._identifiers.of(self._namespace.of(self._strings([name.namespace])), name.name)
        return self._known[name]

    def _strings(self, values: Sequence[str]) -> Any:
        return java_array(self._gateway, self._string, values)
