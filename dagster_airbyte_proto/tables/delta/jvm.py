"""The calls into Delta's own classes, over the session's gateway: its log, its transactions, its actions as JSON.

They are not Delta's public interface, which has no way to add a file that is written already; `spark.py` names the
version that they are of. py4j gives every Python thread a thread of its own in the JVM.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from dagster_airbyte_proto.loads.load import TableTotals
from dagster_airbyte_proto.tables.delta.history import KEPT_FROM, LOAD_ID, ROWS, file_of
from dagster_airbyte_proto.tables.delta.log import Metadata, changing, read_metadata

_TRANSACTION = re.compile(r"^SetTransaction\((.*),(-?\d+),(?:None|Some\(\d+\))\)$", re.M)
_PACKAGE = "org.apache.spark.sql.delta"


class Look(NamedTuple):
    """A table as it is at a version, -1 where there is none, and a transaction that began there.

    `landed_at` is where a load came in that was asked for. `becomes` is the `metaData` action that is to be committed
    with the rows.
    """

    transaction: Any
    version: int
    action: str
    metadata: Metadata
    landed_at: int | None = None
    becomes: str | None = None

    def turned(self, becomes: str) -> "Look":
        """The table as it is to be from the commit on."""
        return self._replace(metadata=read_metadata(becomes), becomes=becomes)


class Removal(NamedTuple):
    """Files that go, as Java has them, and the rows in them."""

    files: Sequence[Any] = ()
    rows: int = 0


class JavaDelta:
    """Delta's classes, looked up once. Any thread may use it."""

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
        self._sessions = jvm.org.apache.spark.sql.classic.SparkSession
        self._converters = jvm.scala.jdk.javaapi.CollectionConverters

    def look(self, location: str, load_id: str | None = None) -> Look:
        """The table as it is now. A commit that follows is refused if the load came in since."""
        # Delta asks for the session of the thread, and a new thread of the gateway has none.
        self._sessions.setActiveSession(self._session)
        transaction = self._logs.forTable(self._session, location).startTransaction(self._none, self._none)
        version = int(transaction.readVersion())
        if version < 0:
            return Look(transaction, version, "", Metadata())
        action = str(transaction.metadata().json())
        landed = None if load_id is None else _landed(transaction, load_id)
        return Look(transaction, version, action, read_metadata(action), landed)

    def removal(self, look: Look, predicate: str | None) -> Removal:
        """All files of the table, or of those that the predicate on its partition takes. What comes in among them until
        the commit refuses it."""
        transaction = look.transaction
        if predicate is None:
            transaction.readWholeTable()
            known = _known_files(transaction)
            found = transaction.filterFiles(self._seq([]), True) if known is None else known
        else:
            parser = self._session.sessionState().sqlParser()
            found = transaction.filterFiles(self._seq([parser.parseExpression(predicate)]), True)
        files, rows = [], 0
        for file in _each(found):
            files.append(file.remove())
            rows += file_of(str(file.json())).rows or 0
        return Removal(files, rows)

    def rows(self, look: Look) -> int | None:
        """Those of the table, where that is known without a job of Spark."""
        if (files := _known_files(look.transaction)) is None:
            return None
        counts = [file_of(str(file.json())).rows for file in _each(files)]
        return None if None in counts else sum(count or 0 for count in counts)

    def totals(self, look: Look) -> TableTotals | None:
        """Where Delta keeps them beside the commit. Deletes are in the files' own vectors, of which each has one at
        the most."""
        known = look.transaction.snapshot().checksumOpt()
        if not known.isDefined():
            return None
        return TableTotals(int(known.get().numFiles()), 0, int(known.get().tableSizeBytes()))

    def files(self, look: Look) -> list[str]:
        """The `add` actions of all files of the table."""
        known = _known_files(look.transaction)
        if known is None:
            return self._described(look.transaction.snapshot())
        return [str(file.json()) for file in _each(known)]

    def files_at(self, look: Look, version: int) -> list[str]:
        """As `files`, of an older version."""
        return self._described(self._snapshot_at(look, version))

    def _snapshot_at(self, look: Look, version: int) -> Any:
        # Without Delta's own limit to the last week: the table's log says what was let go of.
        return look.transaction.deltaLog().getSnapshotAt(version, self._none, self._none, False)

    def _described(self, snapshot: Any) -> list[str]:
        found = DataFrame(snapshot.allFiles().toJSON().toDF(), self._spark).toArrow()
        return [f'{{"add":{text}}}' for text in found.column(0).to_pylist()]

    def restore(self, look: Look, version: str | None, gone: Sequence[str], back: Sequence[str]) -> int:
        """Commits that files go and others come back, given as `add` actions. Refused for whatever came in since."""
        look.transaction.readWholeTable()
        look.transaction.readTxn().addOne(KEPT_FROM)
        removed = [self._actions.fromJson(action).remove() for action in gone]
        actions = [*removed, *(self._actions.fromJson(changing(action)) for action in back)]
        option = self._none
        if version is not None:
            # A number goes to the JVM as it is, not as the object that an option of Scala's has.
            boxed = self._jvm.java.util.stream.LongStream.of(int(version)).boxed().findFirst()
            option = self._jvm.scala.jdk.javaapi.OptionConverters.toScala(boxed)
        return self._commit(look, actions, self._restore(option, self._none))

    def note(self, look: Look, transaction: str) -> int:
        """A commit that does nothing but tell, as Delta's own at the end of a VACUUM, and a `txn` action by which those
        know of it that began before."""
        return self._commit(look, [self._actions.fromJson(transaction)], self._vacuum_end("COMPLETED"))

    def action_at(self, look: Look, version: int) -> str:
        """The `metaData` action of an older version."""
        return str(self._snapshot_at(look, version).metadata().json())

    def write(
        self, look: Look, actions: Sequence[str], removal: Removal, *, replaces: bool, told: Mapping[str, str]
    ) -> int:
        """Commits; the version that it is."""
        mode = self._modes.Overwrite if replaces else self._modes.Append
        rest = [self._none] * 5
        operation = self._write(mode, self._none, self._none, self._some(json.dumps(told)), *rest)
        return self._commit(look, [*removal.files, *(self._actions.fromJson(action) for action in actions)], operation)

    def landed_at(self, look: Look, load_id: str) -> int:
        """The version at which a load came in: the one it was to be, or one soon after where others came in between."""
        hinted = int(look.landed_at or 0)
        found = (
            version for version in range(hinted, look.version + 1) if self.told(look, version).get(LOAD_ID) == load_id
        )
        return next(found, hinted)

    def told(self, look: Look, version: int) -> dict[str, str]:
        """What a commit of ours says of itself; nothing for one of others, and one that the log has no longer."""
        log = look.transaction.deltaLog()
        try:
            path = self._names.unsafeDeltaFile(log.logPath(), version)
            first = json.loads(str(log.store().read(path, log.newDeltaHadoopConf()).head()))
            told = dict(json.loads(first["commitInfo"]["userMetadata"]))
        except (Py4JJavaError, KeyError, TypeError, ValueError):
            return {}
        if first["commitInfo"].get("readVersion") != version - 1:
            told.pop(ROWS, None)  # somebody else's commit came in between, and its rows with it
        return told

    def create(self, look: Look, action: str) -> None:
        self._commit(look.turned(action), [], self._create(self._actions.fromJson(action), False, False, self._none))

    def change(self, look: Look, action: str) -> None:
        """Gives the table other columns, or other properties."""
        before, after = look.transaction.metadata().schema(), self._actions.fromJson(action).schema()
        self._commit(look.turned(action), [], self._update_schema(before, after))

    def tables(self, warehouse: str) -> Iterator[str]:
        """Where each table of a warehouse is, on whatever storage."""
        pattern = self._jvm.org.apache.hadoop.fs.Path(f"{warehouse}/*/*/_delta_log")
        files = pattern.getFileSystem(self._session.sessionState().newHadoopConf())
        for status in files.globStatus(pattern) or ():
            yield str(status.getPath().getParent().toString())

    def _commit(self, look: Look, actions: Sequence[Any], operation: Any) -> int:
        if look.becomes is not None:
            look.transaction.updateMetadata(self._actions.fromJson(look.becomes), False)
        return int(look.transaction.commit(self._seq(actions), operation))

    def _seq(self, items: Sequence[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return self._converters.asScala(found).toSeq()


def telling(session: SparkSession, told: Mapping[str, str]) -> SparkSession:
    """A session beside another, whose commits tell that. Its catalogs are the same."""
    own = session.newSession()
    for key, value in session.conf.getAll.items():
        if key.startswith("spark.sql.catalog."):
            own.conf.set(key, value)
    tell(own, told)
    return own


def tell(session: SparkSession, told: Mapping[str, str]) -> None:
    session.conf.set("spark.databricks.delta.commitInfo.userMetadata", json.dumps(dict(told)))


def _landed(transaction: Any, load_id: str) -> int | None:
    """The version that a load's `txn` action has; from now on the transaction is refused if the load comes in.

    Asked by `txnVersion`, Delta would read the whole log by a job of Spark (0.3 s). What it keeps beside each commit
    has the last hundred loads; where that is not there, or is full, it is asked.
    """
    known = transaction.snapshot().checksumOpt()
    loads = known.get().setTransactions() if known.isDefined() else known
    if not loads.isDefined():
        version = int(transaction.txnVersion(load_id))
        return None if version < 0 else version
    transaction.readTxn().addOne(load_id)
    found = {app_id: int(version) for app_id, version in _TRANSACTION.findall(str(loads.get().mkString("\n")))}
    return found.get(load_id)


def _known_files(transaction: Any) -> Any | None:
    """The table's files as Scala has them, while they are few: then Delta keeps them beside each commit. To learn them
    from the log takes jobs of Spark (1 s)."""
    known = transaction.snapshot().checksumOpt()
    files = known.get().allFiles() if known.isDefined() else known
    return files.get() if files.isDefined() else None


def _each(items: Any) -> Iterator[Any]:
    """What a Scala collection holds."""
    iterator = items.iterator()
    while iterator.hasNext():
        yield iterator.next()
