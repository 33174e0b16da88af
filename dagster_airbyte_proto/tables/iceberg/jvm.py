"""The calls into Iceberg's Java API, over the session's gateway. Each one is a trip or more; count them.

py4j gives every Python thread its own connection and its own thread in the JVM, so tables commit side by side.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple, cast
from uuid import uuid4

import msgspec
from py4j.java_gateway import JavaMember
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto.loads.column_ids import has_type, key_ids, optional
from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.loads.table import REPLACING
from dagster_airbyte_proto.model import PartitionField, TableName, WriteMode
from dagster_airbyte_proto.schema.evolution import Columns
from dagster_airbyte_proto.tables.deleted_rows import deleted_rows
from dagster_airbyte_proto.tables.iceberg.deletion_vectors import vectors
from dagster_airbyte_proto.tables.iceberg.log import History, Snapshot, TableLog
from dagster_airbyte_proto.tables.iceberg.metrics import Footers
from dagster_airbyte_proto.tables.iceberg.partitions import create_partitioned, partition_data, unpartitioned
from dagster_airbyte_proto.tables.part_checks import landing
from dagster_airbyte_proto.tables.spark.session import storage_of

_FORMAT_VERSION = "format-version"
_WITH_VECTORS = 3
_PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}


# Made when the module is imported: msgspec makes what it knows of a type at its first use, and two threads that use
# one for the first time at once can crash the process.
_LOG, _SNAPSHOT = msgspec.json.Decoder(TableLog), msgspec.json.Decoder(Snapshot)


class _Read(NamedTuple):
    """The metadata file that a history was read from. One value, so that threads never see halves of two."""

    location: str
    history: History


class JavaTable:
    """A handle on one table. Threads may share it: what `refresh` answers is theirs."""

    def __init__(self, iceberg: "JavaIceberg", table: Any) -> None:
        self._iceberg = iceberg
        self.java = self._table = table
        self._operations = table.operations()
        self._read = _Read("", History(None, {}, 0, None))
        self.log: TableLog

    def refresh(self) -> History:
        """Reads what the table is now: two short trips when nothing changed since the last time."""
        metadata = self._operations.refresh()
        location, read = str(metadata.metadataFileLocation()), self._read
        if location != read.location:
            self.log = _LOG.decode(self._iceberg.metadata_parser.toJson(metadata))
            self._read = read = _Read(location, History.of(self.log))
        return read.history

    def rename(self, renames: Sequence[tuple[str, str]]) -> None:
        """Gives columns (old name, new name) new names. Their ids stay, and with those their values."""
        update = self._table.updateSchema()
        for old, new in renames:
            update.renameColumn(old, new)
        update.commit()

    def evolve(self, wanted: Columns) -> None:
        """Adds and widens columns until `wanted` fits."""
        if (version := _format_version(wanted)) > self.log.format_version:
            self._table.updateProperties().set(_FORMAT_VERSION, str(version)).commit()
        update = self._table.updateSchema().caseSensitive(False)
        update.unionByNameWith(self._iceberg.schema(wanted)).commit()

    def add_schema(self, columns: Columns, *, seen: TableLog) -> None:
        """Without making it the current one. Does nothing if others were given ids since the table was `seen`."""
        base = self.metadata()
        if int(base.lastColumnId()) == seen.last_column_id:
            changed = self.changed(base).upgradeFormatVersion(max(_format_version(columns), seen.format_version))
            self.replace(base, changed.addSchema(self._iceberg.schema(columns)).build())

    def change(self, part: StagedRows, history: History) -> Any:
        """The change that lands a part, not yet committed, to be refused if anything came in since `history`.

        Iceberg retries a commit on top of whatever came in between, and would so land a load twice. Each change here
        is validated from the snapshot that the history ends with: a snapshot since then that added rows or deletes
        (the same load by another run, above all) makes the commit fail, if they are of the part's slice. Without a
        snapshot to start from, it validates from the table's first. A compaction adds nothing and disturbs nothing.
        """
        base, scope = history.current, self.scope(part)
        files = landing(part, holds_rows=base is not None and base.stored_rows > 0)
        if part.write is WriteMode.APPEND_DEDUP or any(file.content is not FileContent.ROWS for file in files):
            change = (
                self._filled(self._table.newRowDelta(), part, files)
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
        """The snapshot of a load that was just committed on top of `history`."""
        metadata = self._operations.current()
        snapshot = _SNAPSHOT.decode(self._iceberg.snapshot_parser.toJson(metadata.currentSnapshot()))
        if snapshot.parent_snapshot_id != (history.current.snapshot_id if history.current else None):
            # A compaction came in between, or another load right after.
            return self.refresh().landed(load_id)
        self._read = _Read(str(metadata.metadataFileLocation()), history.after(snapshot))
        return self._read.history.landed(load_id)

    # For changes of one's own, by compare-and-set of the whole metadata

    @property
    def every_row(self) -> Any:
        """As an expression."""
        return self._iceberg.expressions.alwaysTrue()

    def metadata(self) -> Any:
        """As it is now."""
        return self._operations.refresh()

    def log_of(self, metadata: Any) -> TableLog:
        return _LOG.decode(self._iceberg.metadata_parser.toJson(metadata))

    def transaction(self, start: Any) -> Any:
        """Changes on top of some metadata. Committed as such, Iceberg would put them in the place of anything."""
        return self._iceberg.transactions.replaceTableTransaction(self._table.name(), self._operations, start)

    def changed(self, metadata: Any) -> Any:
        """A builder of what is to follow the metadata."""
        return self._iceberg.metadata.buildFrom(metadata)

    def replace(self, metadata: Any, made: Any) -> None:
        """Refused with a conflict if the table is not as in `metadata` any more."""
        self._operations.commit(metadata, made)

    def addition(self, transaction: Any, part: StagedRows, files: Sequence[StagedFile]) -> Any:
        """What brings the files in. Of none it makes a snapshot all the same."""
        if any(file.content is not FileContent.ROWS for file in files):
            return self._filled(transaction.newRowDelta(), part, files)
        change = transaction.newAppend() if files else transaction.newFastAppend()
        for file in files:
            change.appendFile(self.data_file(file, part))
        return change

    def expire(self, snapshot_ids: Iterable[int]) -> None:
        """Lets go of snapshots, and of the files that only they have."""
        # Without a time snapshots would be expired by the age that Iceberg thinks right as well.
        expiry = self._table.expireSnapshots().expireOlderThan(0)
        for each in snapshot_ids:
            expiry.expireSnapshotId(each)
        expiry.commit()

    def scope(self, part: StagedRows) -> Any:
        """The rows that a part may take the place of, and beside which no other writer may put any meanwhile."""
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

    def _filled(self, change: Any, part: StagedRows, files: Sequence[StagedFile]) -> Any:
        """A row delta with the files in."""
        for file in files:
            if file.content is FileContent.ROWS:
                change.addRows(self.data_file(file, part))
                continue
            for deletes in self.delete_files(file, part):
                change.addDeletes(deletes)
        return change

    def remove_all(self, change: Any, base: Snapshot | None, scope: Any) -> None:
        """Has a row delta take out every file that the table has in `base`, or its slice, delete files too.

        An overwrite removes by filter, in one trip, and takes no delete files; only a row delta does both in one
        snapshot, and it removes by name (three trips a file: 0.5 s for 2,000 files). So rows that came in since `base`
        are not removed, and the validations in `change` refuse the commit for them; a file that is no longer there (a
        compaction put its rows into another) refuses it as well.

        A transaction of an overwrite and a row delta would be validated anew at each retry too, but Iceberg reads the
        metadata to start from twice there, so on a handle shared by threads it may undo a commit that falls between;
        and it leaves a snapshot in the log that has the duplicates. A rewrite is not validated against at all.
        """
        change.validateDeletedFiles()
        snapshot = self._table.snapshot(base.snapshot_id) if base else None
        if snapshot is None:
            # Nothing is in yet, or `base` was expired since, and then the commit is refused.
            return
        io, specs, manifests = self._table.io(), self._table.specs(), self._iceberg.manifest_files
        for manifest in java_items(snapshot.dataManifests(io)):
            with closing(manifests.read(manifest, io, specs).filterRows(scope)) as live:
                for file in java_items(live):
                    change.removeRows(file)
        self.remove_deletes(change, snapshot, scope)

    def remove_deletes(self, change: Any, snapshot: Any, scope: Any) -> None:
        """Has a row delta take out the delete files of a snapshot (Java's), or of its slice."""
        io, specs = self._table.io(), self._table.specs()
        for manifest in java_items(snapshot.deleteManifests(io)):
            with closing(
                self._iceberg.manifest_files.readDeleteManifest(manifest, io, specs).filterRows(scope)
            ) as live:
                for file in java_items(live):
                    change.removeDeletes(file)

    def data_file(self, file: StagedFile, part: StagedRows) -> Any:
        """A staged file of rows, as Iceberg describes one."""
        metrics = self._iceberg.metrics_config.forTable(self._table)
        return self._described(file, self._placed(self._iceberg.data_files.builder, part, file), metrics)

    def delete_files(self, file: StagedFile, part: StagedRows) -> Sequence[Any]:
        """A staged file of deletes, as Iceberg describes one: positions as a vector for each of their data files, where
        the table's format has no other. Writes these."""
        builder = self._placed(self._iceberg.file_metadata.deleteFileBuilder, part, file)
        if file.content is FileContent.POSITION_DELETES:
            if self.log.format_version >= _WITH_VECTORS:
                return self._vectors(file, part)
            # Whole paths in the file's bounds tell readers that it speaks of one data file only.
            config = self._iceberg.metrics_config.forPositionDelete()
            return [self._described(file, builder.ofPositionDeletes(), config)]
        columns = self.log.columns_of("committing a load", part.aside.schema_id if part.aside else None)
        ids = self._iceberg.int_array(key_ids(columns, part.keys))
        metrics = self._iceberg.metrics_config.forTable(self._table)
        return [self._described(file, builder.ofEqualityDeletes(ids), metrics)]

    def _vectors(self, file: StagedFile, part: StagedRows) -> list[Any]:
        # Not beside the staged files: a sweep of their folder would take it for one that nobody announced.
        path = self._table.locationProvider().newDataLocation(f"{uuid4().hex}-deletes.puffin")
        content, inside = vectors(deleted_rows([file], self._iceberg.storage))
        with closing(self._table.io().newOutputFile(path).create()) as stream:
            stream.write(content)
        described = []
        for vector in inside:
            builder = self._placed(self._iceberg.file_metadata.deleteFileBuilder, part, file).ofPositionDeletes()
            builder.withPath(path).withFormat("PUFFIN").withFileSizeInBytes(len(content)).withRecordCount(vector.rows)
            builder.withReferencedDataFile(vector.data_file)
            builder.withContentOffset(vector.offset).withContentSizeInBytes(vector.size_bytes)
            described.append(builder.build())
        return described

    def _placed(self, builder: Callable[[Any], Any], part: StagedRows, file: StagedFile) -> Any:
        """A file's builder, in its partition or the part's slice."""
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

    def _described(self, file: StagedFile, builder: Any, metrics_config: Any) -> Any:
        facts = self._iceberg.footers.facts(file, metrics_config)
        # The length that readers will rely on is the file's own.
        described = builder.withPath(file.path).withFormat("PARQUET").withFileSizeInBytes(facts.size_bytes)
        return described.withMetrics(facts.metrics).build()


class JavaIceberg:
    """Iceberg's classes and one catalog, looked up once."""

    def __init__(self, session: SparkSession, catalog: str) -> None:
        self._gateway: Any = session.sparkContext._gateway
        self.storage = storage_of(session, catalog)
        jvm: Any = session._jvm
        # A catalog is made from the config of the calling thread's session, and a new thread of the gateway has none.
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
        self._namespaces = session._jsparkSession.sessionState().catalogManager().catalog(catalog)
        iceberg = jvm.org.apache.iceberg
        self._catalog = self._namespaces.icebergCatalog()
        self._cached, self._spark_catalog = session._jsparkSession.sharedState().cacheManager(), session.catalog
        self._identifiers, self._namespace = iceberg.catalog.TableIdentifier, iceberg.catalog.Namespace
        self._schemas, self._spark_schemas = iceberg.SchemaParser, iceberg.spark.SparkSchemaUtil
        self.metadata, self.transactions = iceberg.TableMetadata, iceberg.Transactions
        self.metadata_parser, self.snapshot_parser = iceberg.TableMetadataParser, iceberg.SnapshotParser
        self._specs, self.partition_data = iceberg.PartitionSpec, iceberg.PartitionData
        self.data_files, self.file_metadata = iceberg.DataFiles, iceberg.FileMetadata
        self.manifest_files = iceberg.ManifestFiles
        self.metrics_config, self.footers = iceberg.MetricsConfig, Footers(session, self.storage)
        self.expressions = iceberg.expressions.Expressions
        # A name of which py4j does not know that it is a package's is looked for in every jar, each time.
        self._string, self._int = jvm.java.lang.String, jvm.int
        self._known: dict[TableName, Any] = {}

    def create_namespace(self, namespace: str) -> None:
        levels = self._strings([namespace])
        if not self._namespaces.namespaceExists(levels):
            self._namespaces.createNamespace(levels, {})

    def load(self, name: TableName) -> JavaTable:
        """The table as it is now. The catalog's own copy may be half a minute old, or of a table dropped since."""
        self._catalog.invalidateTable(self._identifier(name))
        return JavaTable(self, self._catalog.loadTable(self._identifier(name)))

    def create(
        self,
        name: TableName,
        columns: Columns,
        comment: str,
        slice_column: str | None,
        partitioning: Sequence[PartitionField] = (),
    ) -> JavaTable:
        schema = self.schema(columns)
        builder = self._catalog.buildTable(self._identifier(name), schema)
        if slice_column is not None:
            builder.withPartitionSpec(self._specs.builderFor(schema).identity(slice_column).build())
        for key, value in {**_PROPERTIES, _FORMAT_VERSION: str(_format_version(columns))}.items():
            builder.withProperty(key, value)
        if comment:
            builder.withProperty("comment", comment)
        if partitioning:
            create_partitioned(builder, partitioning, self.expressions)
            return self.load(name)
        return JavaTable(self, builder.create())

    def show(self, name: TableName, qualified: str) -> None:
        """Makes the session's readers look again. Iceberg's own way takes half the time of Spark's REFRESH TABLE, which
        is needed only where somebody has cached a DataFrame."""
        self._catalog.invalidateTable(self._identifier(name))
        if not self._cached.isEmpty():
            self._spark_catalog.refreshTable(qualified)

    def columns_of(self, frame: DataFrame) -> Columns:
        """The columns of a frame, all of them optional, as those of any table here."""
        schema = self._schemas.toJson(self._spark_schemas.convert(frame._jdf.schema()))
        return cast(Columns, optional(msgspec.json.decode(schema)))

    def schema(self, columns: Columns) -> Any:
        return self._schemas.fromJson(msgspec.json.encode(columns).decode())

    def int_array(self, values: Sequence[int]) -> Any:
        return java_array(self._gateway, self._int, values)

    def _identifier(self, name: TableName) -> Any:
        if name not in self._known:
            self._known[name] = self._identifiers.of(self._namespace.of(self._strings([name.namespace])), name.name)
        return self._known[name]

    def _strings(self, values: Sequence[str]) -> Any:
        return java_array(self._gateway, self._string, values)


def _format_version(columns: Columns) -> int:
    """The oldest format that has such columns, which the most readers know."""
    return 3 if has_type(columns, "variant") else 2


def java_array(gateway: Any, kind: Any, values: Sequence[Any]) -> Any:
    array = gateway.new_array(kind, len(values))
    for i, value in enumerate(values):
        array[i] = value
    return array


def java_items(iterable: Any) -> Iterator[Any]:
    """What a Java iterable holds. Where reading on fails, py4j's own `next` just ends, as if there were no more."""
    iterator = iterable.iterator()
    following = JavaMember("next", iterator, iterator._target_id, iterator._gateway_client)
    while iterator.hasNext():
        yield following()
