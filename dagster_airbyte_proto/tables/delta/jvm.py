"""Calls into Delta's own classes through py4j: the log, transactions, and actions as JSON.

These classes are not Delta's public interface, which cannot add a file that is written already. They are those of the
version that `tables/spark/session.py` pins. py4j gives every Python thread a thread of its own in the JVM.

Delta keeps a checksum file beside each commit, with totals and, while they are few, all loads (`txn`, up to a hundred)
and all files of the table (up to fifty). Other loads are looked up in the files of the log. What else is not in there
has to be read from the log by Spark jobs, which take up to a second.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import TableTotals
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.tables.delta.actions import TableMetadata, read_metadata, with_data_change
from dagster_airbyte_proto.tables.delta.history import OLDEST_KEPT, TABLE_ROWS, look_up_load, parse_add_action
from dagster_airbyte_proto.tables.formats import LOAD_ID
from dagster_airbyte_proto.tables.only_writer import only_writer
from dagster_airbyte_proto.tables.spark.jvm.java_values import java_items, use_session
from dagster_airbyte_proto.tables.spark.log_folders import log_files

_TRANSACTION = re.compile(r"^SetTransaction\((.*),(-?\d+),(?:None|Some\(\d+\))\)$", re.M)
_PACKAGE = "org.apache.spark.sql.delta"
_LOG_FILE = re.compile(r"[0-9]{20}\.(json|checkpoint\..*)")


class DeltaSnapshot(NamedTuple):
    """A table at a version, and a transaction that began there. The version is -1 where there is no table.

    `load_version` is the version in the `txn` action of the requested load, None where the table does not hold it.
    `new_metadata` is a `metaData` action that will be committed with the rows.
    """

    transaction: Any
    version: int
    metadata_action: str
    metadata: TableMetadata
    load_version: int | None = None
    new_metadata: str | None = None

    def with_metadata(self, new_metadata: str) -> "DeltaSnapshot":
        """Returns the snapshot with the metadata that its commit will give the table."""
        return self._replace(metadata=read_metadata(new_metadata), new_metadata=new_metadata)


class Removal(NamedTuple):
    """The `remove` actions of files, as Java objects, and the number of rows in the files."""

    files: Sequence[Any] = ()
    rows: int = 0


class JavaDelta:
    """Delta's classes, looked up once. Safe from any thread."""

    def __init__(self, session: SparkSession) -> None:
        self._spark = session
        self._session = session._jsparkSession
        jvm: Any = session._jvm
        self._jvm = jvm
        delta = jvm.org.apache.spark.sql.delta
        self._logs, self._actions = delta.DeltaLog, delta.actions.Action
        self._write = getattr(jvm, f"{_PACKAGE}.DeltaOperations$Write")
        self._create = getattr(jvm, f"{_PACKAGE}.DeltaOperations$CreateTable")
        self._update_schema = getattr(jvm, f"{_PACKAGE}.DeltaOperations$UpdateSchema")
        self._restore = getattr(jvm, f"{_PACKAGE}.DeltaOperations$Restore")
        self._vacuum_end = getattr(jvm, f"{_PACKAGE}.DeltaOperations$VacuumEnd")
        self._names = delta.util.FileNames
        self._modes = jvm.org.apache.spark.sql.SaveMode
        self._some, self._none = jvm.scala.Option.apply, jvm.scala.Option.empty()
        self._converters = jvm.scala.jdk.javaapi.CollectionConverters

    def snapshot(self, location: str, load_id: str | None = None) -> DeltaSnapshot:
        """Takes a snapshot of the table and begins a transaction, which is refused if the load lands meanwhile.

        Raises TableError where Delta finds no table, and the folder does not show that there is none.
        """
        use_session(self._spark)
        transaction, version = self._begin(location)
        doing, folder = "reading the log of a Delta table", f"{location}/_delta_log"
        if version < 0 and (files := log_files(doing, folder, _LOG_FILE)):
            transaction, version = self._begin(location)  # Another writer may have made it in between.
            if version < 0:
                found = f"{folder} has {files[0]}, and Delta does not find the table"
                raise TableError(doing, found, remedy="Run again.")
        if version < 0:
            return DeltaSnapshot(transaction, version, "", TableMetadata())
        action = str(transaction.metadata().json())
        landed = None if load_id is None else _read_load_version(transaction, location, load_id)
        return DeltaSnapshot(transaction, version, action, read_metadata(action), landed)

    def _begin(self, location: str) -> tuple[Any, int]:
        transaction = self._logs.forTable(self._session, location).startTransaction(self._none, self._none)
        return transaction, int(transaction.readVersion())

    def removal(self, snapshot: DeltaSnapshot, predicate: str | None) -> Removal:
        """Returns the removal of all files, or of those in the partitions that the predicate selects.

        The transaction has then read these partitions: a commit that adds files to them meanwhile makes it fail.
        """
        transaction = snapshot.transaction
        if predicate is None:
            transaction.readWholeTable()
            known = _known_files(transaction)
            found = transaction.filterFiles(self._seq([]), True) if known is None else known
        else:
            parser = self._session.sessionState().sqlParser()
            found = transaction.filterFiles(self._seq([parser.parseExpression(predicate)]), True)
        files, rows = [], 0
        for file in java_items(found):
            files.append(file.remove())
            rows += parse_add_action(str(file.json())).rows or 0
        return Removal(files, rows)

    def read_all(self, snapshot: DeltaSnapshot) -> None:
        """Makes the commit fail if files are added to the table, or taken out of it, meanwhile."""
        snapshot.transaction.readWholeTable()

    def rows(self, snapshot: DeltaSnapshot) -> int | None:
        """Returns the number of rows of the table. None where only a Spark job could tell."""
        if (files := _known_files(snapshot.transaction)) is None:
            return None
        counts = [parse_add_action(str(file.json())).rows for file in java_items(files)]
        return None if None in counts else sum(count or 0 for count in counts)

    def totals(self, snapshot: DeltaSnapshot) -> TableTotals | None:
        """Returns the totals from Delta's checksum file, or None where there is none.

        No delete files are counted: a Delta file has one deletion vector at the most, so they do not pile up.
        """
        known = snapshot.transaction.snapshot().checksumOpt()
        if not known.isDefined():
            return None
        return TableTotals(int(known.get().numFiles()), 0, int(known.get().tableSizeBytes()))

    def add_actions(self, snapshot: DeltaSnapshot) -> list[str]:
        """Returns the `add` actions of all files of the table."""
        known = _known_files(snapshot.transaction)
        if known is None:
            return self._collect_add_actions(snapshot.transaction.snapshot())
        return [str(file.json()) for file in java_items(known)]

    def add_actions_at(self, snapshot: DeltaSnapshot, version: int) -> list[str]:
        """Returns the `add` actions of all files that an older version had."""
        return self._collect_add_actions(self._snapshot_at(snapshot, version))

    def _snapshot_at(self, snapshot: DeltaSnapshot, version: int) -> Any:
        # False: not limited to the last week, Delta's own retention. The markers in the log say what has expired.
        return snapshot.transaction.deltaLog().getSnapshotAt(version, self._none, self._none, False)

    def _collect_add_actions(self, snapshot: Any) -> list[str]:
        found = DataFrame(snapshot.allFiles().toJSON().toDF(), self._spark).toArrow()
        return [f'{{"add":{text}}}' for text in found.column(0).to_pylist()]

    def restore(self, snapshot: DeltaSnapshot, version: str | None, gone: Sequence[str], back: Sequence[str]) -> int:
        """Commits that files go and others come back, all given as `add` actions.

        Fails for any commit since the snapshot.
        """
        snapshot.transaction.readWholeTable()
        snapshot.transaction.readTxn().addOne(OLDEST_KEPT)
        removed = [self._actions.fromJson(action).remove() for action in gone]
        actions = [*removed, *(self._actions.fromJson(with_data_change(action)) for action in back)]
        option = self._none
        if version is not None:
            # py4j passes a primitive long, and Scala's Option needs a boxed one.
            boxed = self._jvm.java.util.stream.LongStream.of(int(version)).boxed().findFirst()
            option = self._jvm.scala.jdk.javaapi.OptionConverters.toScala(boxed)
        return self._commit(snapshot, actions, self._restore(option, self._none))

    def commit_marker(self, snapshot: DeltaSnapshot, transaction: str) -> int:
        """Commits a `txn` action alone, as Delta's own operation at the end of a VACUUM.

        It disturbs no writer, but fails the transactions that have read the entry before.
        """
        return self._commit(snapshot, [self._actions.fromJson(transaction)], self._vacuum_end("COMPLETED"))

    def metadata_action_at(self, snapshot: DeltaSnapshot, version: int) -> str:
        """Returns the `metaData` action of an older version."""
        return str(self._snapshot_at(snapshot, version).metadata().json())

    def write(
        self,
        snapshot: DeltaSnapshot,
        actions: Sequence[str],
        removal: Removal,
        *,
        replaces: bool,
        user_metadata: Mapping[str, str],
    ) -> int:
        """Commits the actions and the removal. Returns the version of the commit."""
        mode = self._modes.Overwrite if replaces else self._modes.Append
        rest = [self._none] * 5
        operation = self._write(mode, self._none, self._none, self._some(json.dumps(user_metadata)), *rest)
        return self._commit(
            snapshot, [*removal.files, *(self._actions.fromJson(action) for action in actions)], operation
        )

    def load_version(self, snapshot: DeltaSnapshot, load_id: str) -> int:
        """Returns the version in which a load landed.

        The `txn` action has the version that its writer expected. Where other commits came in between, the load is in a
        later one.
        """
        expected = int(snapshot.load_version or 0)
        found = (
            version
            for version in range(expected, snapshot.version + 1)
            if self.user_metadata(snapshot, version).get(LOAD_ID) == load_id
        )
        return next(found, expected)

    def user_metadata(self, snapshot: DeltaSnapshot, version: int) -> dict[str, str]:
        """Returns the user metadata of a commit of ours.

        Empty for another writer's, and for one that the log no longer has.
        """
        log = snapshot.transaction.deltaLog()
        try:
            path = self._names.unsafeDeltaFile(log.logPath(), version)
            first = json.loads(str(log.store().read(path, log.newDeltaHadoopConf()).head()))
            user_metadata = dict(json.loads(first["commitInfo"]["userMetadata"]))
        except (Py4JJavaError, KeyError, TypeError, ValueError):
            return {}
        if first["commitInfo"].get("readVersion") != version - 1:
            user_metadata.pop(TABLE_ROWS, None)  # another commit came in between, so its count does not hold
        return user_metadata

    def create(self, snapshot: DeltaSnapshot, action: str) -> None:
        self._commit(
            snapshot.with_metadata(action), [], self._create(self._actions.fromJson(action), False, False, self._none)
        )

    def change_metadata(self, snapshot: DeltaSnapshot, action: str) -> None:
        """Commits other columns or other properties of the table."""
        before, after = snapshot.transaction.metadata().schema(), self._actions.fromJson(action).schema()
        self._commit(snapshot.with_metadata(action), [], self._update_schema(before, after))

    def table_locations(self, warehouse: str) -> Iterator[str]:
        """Yields the folder of each table of a warehouse, on any storage that Hadoop reaches."""
        pattern = self._jvm.org.apache.hadoop.fs.Path(f"{warehouse}/*/*/_delta_log")
        files = pattern.getFileSystem(self._session.sessionState().newHadoopConf())
        for status in files.globStatus(pattern) or ():
            yield str(status.getPath().getParent().toString())

    def _commit(self, snapshot: DeltaSnapshot, actions: Sequence[Any], operation: Any) -> int:
        if snapshot.new_metadata is not None:
            snapshot.transaction.updateMetadata(self._actions.fromJson(snapshot.new_metadata), False)
        with only_writer(str(snapshot.transaction.deltaLog().dataPath().toString())):
            return int(snapshot.transaction.commit(self._seq(actions), operation))

    def _seq(self, items: Sequence[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return self._converters.asScala(found).toSeq()


def session_with_user_metadata(session: SparkSession, user_metadata: Mapping[str, str]) -> SparkSession:
    """Returns a new session with the same catalogs, whose commits carry the user metadata."""
    own = session.newSession()
    for key, value in session.conf.getAll.items():
        if key.startswith("spark.sql.catalog."):
            own.conf.set(key, value)
    set_user_metadata(own, user_metadata)
    return own


def set_user_metadata(session: SparkSession, user_metadata: Mapping[str, str]) -> None:
    session.conf.set("spark.databricks.delta.commitInfo.userMetadata", json.dumps(dict(user_metadata)))


def _read_load_version(transaction: Any, location: str, load_id: str) -> int | None:
    """Returns the version in a load's `txn` action. From then on the transaction fails if the load lands meanwhile.

    `txnVersion` would read the whole log by a Spark job (0.3 s). It is called only where neither the checksum file nor
    the files of the log say it.
    """
    known = transaction.snapshot().checksumOpt()
    loads = known.get().setTransactions() if known.isDefined() else known
    if loads.isDefined():
        transaction.readTxn().addOne(load_id)
        found = {app_id: int(version) for app_id, version in _TRANSACTION.findall(str(loads.get().mkString("\n")))}
        return found.get(load_id)
    logged = look_up_load(LOCAL.at(f"{location}/_delta_log"), int(transaction.readVersion()), load_id)
    if logged is None:
        version = int(transaction.txnVersion(load_id))
        return None if version < 0 else version
    transaction.readTxn().addOne(load_id)
    return logged.version


def _known_files(transaction: Any) -> Any | None:
    """Returns the table's files as a Scala collection, or None where they are too many for the checksum file.

    Reading them from the log would take Spark jobs (1 s).
    """
    known = transaction.snapshot().checksumOpt()
    files = known.get().allFiles() if known.isDefined() else known
    return files.get() if files.isDefined() else None
