"""Finds out, on Spark, which rows of a table or query a push has to send, and writes them as Parquet.

1. The rows are mapped to the fields of the destination, and each gets a hash of all of them.
2. With a delivered table the rows are joined with it by key: added, changed, and removed where that is asked for.
3. What is found is written once, and read by nobody here: `sync/push` seals and delivers it.

Where the changes since a snapshot can be found (`tables/changes`), only they are mapped and joined. So what is found is
the same, but for keys that rows of old and new files share.

The guards that need no second look at the rows (keys that are null or not unique) are counted in the same job.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import CalendarIntervalType, DayTimeIntervalType, VariantType, YearMonthIntervalType

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.plan_query import (
    CHANGE,
    HASH,
    PARTITION,
    PlannedRows,
    PlanQuery,
    RowChange,
    lacking_column,
)
from dagster_airbyte_proto.loads.push import TableSnapshot
from dagster_airbyte_proto.tables.changes.cursor_values import cursor_values, greatest_cursor, reached_cursor
from dagster_airbyte_proto.tables.changes.row_events import IS_GONE, STEP, EventsWanted, NoCommonHistory, RowEvents
from dagster_airbyte_proto.tables.changes.snapshots import (
    changes_since,
    files_at,
    keep_snapshot,
    newest_snapshot,
    release_snapshot,
)
from dagster_airbyte_proto.tables.planner import WholeFiles
from dagster_airbyte_proto.tables.spark.columns import has_variant
from dagster_airbyte_proto.tables.spark.jvm.errors import (
    SESSION_ERRORS,
    first_line,
    is_server_lost,
    log_no_raised_errors,
)
from dagster_airbyte_proto.tables.spark.jvm.job_tags import TaggedJobs
from dagster_airbyte_proto.tables.spark.row_hash import row_hash
from dagster_airbyte_proto.tables.spark.session import has_file_system
from dagster_airbyte_proto.tables.spark.session_copies import copy_with
from dagster_airbyte_proto.tables.spark.unknown_names import (
    field_at_fault,
    is_missing_table,
    planned_column,
    where_to_look,
)
from dagster_airbyte_proto.tables.sql_names import quoted
from dagster_airbyte_proto.transforms.transform import DROPPED

# Names that no column of a user has.
_CURSOR, _COPIES, _PLACE = (f"_airbyte_proto_{name}" for name in ("cursor", "copies", "place"))
_KNOWN_HASH, _KNOWN_STATUS, _KNOWN_REASON, _KNOWN_PARTITION = (
    f"_airbyte_proto_known_{name}" for name in ("hash", "status", "reason", "partition")
)
# Parquet's own form of times. Of Spark's default form others can read the years 1677 to 2262 only.
_IN_MICROSECONDS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
_SHOWN_KEYS = 3
_BROADCAST_KEYS = 1_000_000  # Up to so many go to every executor: the delivered table is read once, and not sorted.
_NO_JSON = (CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType)


class SparkPlanner(TaggedJobs):
    """The PushPlanner of tables that Spark reads."""

    def __init__(self, session: SparkSession) -> None:
        super().__init__(session)
        log_no_raised_errors()

    def fields(self, query: PlanQuery) -> pa.Schema:
        with _translated(query):
            fields = _mapped_frame(_origin(self._session, query), query, as_text=False).schema
        for field in fields:
            if not isinstance(field.dataType, VariantType) and has_variant(field.dataType):
                raise _refused(
                    query,
                    f"field {field.name} has a VARIANT within its {field.dataType.typeName()}",
                    remedy=f"Cast it in `sql:`, for example to_json({quoted(field.name)}), or leave it out of `map`.",
                )
        frame = _mapped(self._session, query)
        for field in frame.schema.fields:
            if isinstance(field.dataType, _NO_JSON):
                kind = field.dataType.simpleString()
                raise _refused(query, f"field {field.name} is of type {kind}, which JSON has not")
        texts = [field.name for field in fields if isinstance(field.dataType, VariantType)]
        return pa.schema(
            [
                field.with_type(pa.json_(pa.string())) if field.name in texts else field
                for field in to_arrow_schema(frame.schema)
            ]
        )

    def snapshot(self, table: str) -> TableSnapshot | None:
        return newest_snapshot(self._session, table)

    def keep_snapshot(self, tag: str, snapshot: TableSnapshot) -> None:
        keep_snapshot(self._session, tag, snapshot)

    def release_snapshot(self, tag: str, table: str) -> None:
        release_snapshot(self._session, tag, table)

    def whole_files(self, query: PlanQuery) -> WholeFiles | None:
        return None if query.at is None else files_at(self._session, query.at)

    def writes_to(self, location: str) -> bool:
        return has_file_system(self._session, location)

    def write(self, query: PlanQuery, folder: str) -> PlannedRows:
        with _translated(query), copy_with(self._session, _IN_MICROSECONDS) as session:
            if query.since is None:
                return _write_all(session, query, folder)
            try:
                return _write_changes(session, query, folder)
            except NoCommonHistory as reason:
                note = str(reason)
            except SESSION_ERRORS as error:  # Above all for files that somebody's expiry has taken meanwhile.
                note = first_line(error)
            return _write_all(session, query, folder)._replace(note=note)


def _write_all(session: SparkSession, query: PlanQuery, folder: str) -> PlannedRows:
    with _translated(query):
        if not query.keys and query.cursor is None:
            # Nothing has to be known of the rows but their number, and each look of Spark's costs a seventh of a plan.
            written = _write(_as_added(_hashed(_mapped(session, query), query)), f"{folder}/rows")
            return PlannedRows(written, written=written)
        counts, removed = Observation("rows"), Observation("delivered")
        rows = _observed(_mapped(session, query, with_cursor=True), query, counts)
        compares = query.delivered is not None and (query.marks_known or not query.sends_all)
        found = _changed(rows, _delivered(session, query), query) if compares else _as_added(rows)
        written = _write(found.drop(_COPIES, _CURSOR), f"{folder}/rows")
        seen: dict[str, Any] = counts.get
        delivered = 0
        if query.finds_removed and query.delivered is not None:
            there = _there(_delivered(session, query), query).observe(removed, f.count(f.lit(1)).alias("delivered"))
            gone = there.join(_mapped(session, query).select(*_keys(query)), list(query.keys), "left_anti")
            written += _write(gone.select(*_keys(query)), f"{folder}/removed")
            delivered = int(removed.get["delivered"])
        if seen["without_key"] or seen["copies"]:
            raise _refused_keys(_mapped(session, query), query, seen)
        cursor = seen["cursor"]
        return PlannedRows(int(seen["rows"]), delivered, None if cursor is None else str(cursor), written=written)


def _as_added(rows: DataFrame) -> DataFrame:
    return rows.withColumn(CHANGE, f.lit(RowChange.ADDED.value))


def _write_changes(session: SparkSession, query: PlanQuery, folder: str) -> PlannedRows:
    """Writes a plan from what has changed since a snapshot. Raises NoCommonHistory where that cannot be found."""
    assert query.since is not None
    assert query.at is not None
    wanted = EventsWanted(query.key_columns, query.finds_removed)
    with changes_since(session, query.since, query.at, wanted) as events, ExitStack() as stack:
        if events.are_none:
            return PlannedRows(0, has_compared_all=False)
        is_small = events.most_rows is not None and events.most_rows <= _BROADCAST_KEYS
        last = stack.enter_context(_computed_once(_last_events(query, events), is_small=is_small))
        counts = Observation("rows")
        rows = _observed(last.filter(~f.col(IS_GONE)).drop(STEP, IS_GONE), query, counts)
        delivered = _delivered(session, query)
        keys = last.select(*_keys(query)).distinct()
        known = delivered.join(f.broadcast(keys) if is_small else keys, list(query.keys), "left_semi")
        known = stack.enter_context(_computed_once(known, is_small=is_small))
        written = _write(_changed(rows, known, query).drop(_COPIES), f"{folder}/rows")
        seen: dict[str, Any] = counts.get
        if seen["without_key"] or seen["copies"]:
            raise _refused_keys(last.filter(~f.col(IS_GONE)), query, seen)
        had = 0
        if query.finds_removed:
            gone = last.filter(IS_GONE).select(*_keys(query)).join(_there(known, query), list(query.keys), "left_semi")
            removed = _write(gone.distinct(), f"{folder}/removed")
            written += removed
            if removed:
                had = _there(delivered, query).count()
        return PlannedRows(int(seen["rows"]), had, has_compared_all=False, written=written)


def _write(rows: DataFrame, folder: str) -> int:
    """Writes rows as Parquet and returns their number."""
    written = Observation("written")
    rows.observe(written, f.count(f.lit(1)).alias("rows")).write.mode("overwrite").parquet(folder)
    return int(written.get["rows"])


@contextmanager
def _computed_once(frame: DataFrame, *, is_small: bool) -> Iterator[DataFrame]:
    """Has Spark keep the rows of a frame that several jobs read, if it is small."""
    if not is_small:
        yield frame
        return
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _last_events(query: PlanQuery, events: RowEvents) -> DataFrame:
    """Returns the mapped rows with the last event of each key; of a key that is twice in the last step, both."""
    carried = (STEP, IS_GONE)
    frames = [_mapped_frame(frame, query, carried=carried) for frame in events.rows]
    names = dict(zip(query.key_columns or (), query.keys, strict=False))
    frames += [frame.withColumnsRenamed(names) for frame in events.gone_keys]
    frames += [
        _mapped_frame(frame, query, carried=carried).select(*_keys(query), *carried) for frame in events.gone_rows
    ]
    found = frames[0]
    for frame in frames[1:]:
        found = found.unionByName(frame, allowMissingColumns=True)
    order = Window.partitionBy(*_keys(query)).orderBy(f.col(STEP).desc(), f.col(IS_GONE).asc())
    return found.withColumn(_PLACE, f.rank().over(order)).filter(f.col(_PLACE) == 1).drop(_PLACE)


def _mapped(session: SparkSession, query: PlanQuery, *, with_cursor: bool = False) -> DataFrame:
    """Returns the rows of the origin as the destination gets them."""
    with _translated(query):
        origin = _origin(session, query)
        _check_columns(origin, query)
        if query.partition is not None and query.partition.column is not None:
            origin = origin.filter(f.col(quoted(query.partition.column)).cast("string") == f.lit(query.partition.key))
        if query.cursor is None:
            return _mapped_frame(origin, query)
        cursor = cursor_values(origin, query.cursor)
        if query.after is not None:
            origin = origin.filter(cursor > reached_cursor(query.after, origin.select(cursor).schema[0].dataType))
        if not with_cursor:
            return _mapped_frame(origin, query)
        return _mapped_frame(origin.withColumn(_CURSOR, cursor), query, carried=(_CURSOR,))


def _check_columns(origin: DataFrame, query: PlanQuery) -> None:
    """Raises ConfigError without the columns that pick the rows. Spark takes a name in any case."""
    known = {name.casefold() for name in origin.columns}
    for column in (query.partition.column if query.partition else None, query.cursor):
        if column is not None and column.casefold() not in known:
            raise lacking_column(query, column, origin.columns)


def _mapped_frame(
    frame: DataFrame, query: PlanQuery, carried: tuple[str, ...] = (), *, as_text: bool = True
) -> DataFrame:
    """Returns rows as the destination gets them, with the columns of ours that are carried along.

    A VARIANT is the text of its JSON.
    """
    mapped = _selected(frame, query, carried)
    names = [name.casefold() for name in mapped.columns if name not in carried]
    if lacking := [key for key in query.keys if key not in mapped.columns]:
        raise _refused(query, f"key {', '.join(lacking)} is no field that the destination gets ({', '.join(names)})")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise _refused(query, f"fields that differ by case at most: {', '.join(twice)}")
    variants = [field.name for field in mapped.schema if isinstance(field.dataType, VariantType)] if as_text else []
    return mapped.withColumns({name: f.to_json(f.col(quoted(name))) for name in variants}) if variants else mapped


def _selected(frame: DataFrame, query: PlanQuery, carried: tuple[str, ...]) -> DataFrame:
    if not query.fields:
        return frame.select(*map(quoted, query.fields_among(frame.columns)))  # The carried ones are among them.
    try:
        return frame.select(*(planned_column(each).alias(each.name) for each in query.fields), *carried)
    except PySparkException as error:
        name = field_at_fault(frame, query.fields)
        raise _refused(query, f"field {name}: {first_line(error)}" if name else first_line(error)) from error


def _origin(session: SparkSession, query: PlanQuery) -> DataFrame:
    if query.sql is not None:
        return session.sql(query.sql)
    table = query.table or ""
    try:
        session.catalog.refreshTable(table)
        newest = session.read.table(table)
    except PySparkException as error:
        if is_missing_table(error):
            raise _refused(query, "there is no such table", remedy=where_to_look(session, table)) from error
        raise
    if query.at is None or not query.at.snapshot_id:
        return newest
    then = session.read.option("versionAsOf", query.at.snapshot_id).table(table)
    # Iceberg reads a snapshot with its own columns: those that the table got since then would be missing, or the types.
    return then if then.dtypes == newest.dtypes else newest


def _keys(query: PlanQuery) -> list[str]:
    return [quoted(key) for key in query.keys]


def _observed(frame: DataFrame, query: PlanQuery, counts: Observation) -> DataFrame:
    """Adds the hash, and counts rows, rows without a key, and rows whose key others have too."""
    frame = _hashed(frame, query)
    copies: Column = f.lit(0)
    if query.keys:
        # A join with what is delivered needs the rows grouped by key anyway.
        copies = f.count(f.lit(1)).over(Window.partitionBy(*_keys(query))) - 1
    frame = frame.withColumn(_COPIES, copies)
    without_key = f.lit(False)
    for key in query.keys:
        without_key = without_key | f.col(quoted(key)).isNull()
    greatest = greatest_cursor(frame, _CURSOR) if query.cursor is not None else f.lit(None).cast("string")
    return frame.observe(
        counts,
        f.count(f.lit(1)).alias("rows"),
        f.count_if(without_key).alias("without_key"),
        f.count_if(f.col(_COPIES) > 0).alias("copies"),
        greatest.alias("cursor"),
    )


def _hashed(frame: DataFrame, query: PlanQuery) -> DataFrame:
    """Adds the hash, or 0 where nobody compares rows: JSON of nested fields is the dearest part of a plan."""
    kinds = [(each.name, each.dataType) for each in frame.schema.fields if each.name != _CURSOR]
    return frame.withColumn(HASH, row_hash(query.fingerprint, kinds) if query.compares_keys else f.lit(0).cast("long"))


def _changed(rows: DataFrame, known: DataFrame, query: PlanQuery) -> DataFrame:
    keys = [f.col(f"new.{quoted(key)}") == f.col(f"known.{quoted(key)}") for key in query.keys]
    joined = rows.alias("new").join(known.alias("known"), keys, "left")
    differs, was_rejected = f.col(_KNOWN_HASH) != f.col(HASH), f.col(_KNOWN_STATUS) == "rejected"
    if not query.sends_changed:
        differs = differs & was_rejected  # The destination may have none of this key.
    if query.partition is not None and query.sends_changed:
        # A row that came from another partition is sent again: else a push of that one would remove it.
        differs = differs | ~f.col(_KNOWN_PARTITION).eqNullSafe(f.lit(query.partition.key))
    differs = differs | was_rejected if query.retries_rejected else differs
    is_new = f.col(_KNOWN_HASH).isNull()
    is_there = ~is_new & ~f.col(_KNOWN_REASON).eqNullSafe(DROPPED)
    change = f.when(is_there, f.lit(RowChange.CHANGED.value)).otherwise(f.lit(RowChange.ADDED.value))
    return (joined if query.sends_all else joined.filter(is_new | differs)).select("new.*", change.alias(CHANGE))


def _delivered(session: SparkSession, query: PlanQuery) -> DataFrame:
    table = query.delivered or ""
    session.catalog.refreshTable(table)
    return session.read.table(table).select(
        *map(quoted, query.keys),
        f.col(HASH).alias(_KNOWN_HASH),
        f.col("_status").alias(_KNOWN_STATUS),
        f.col("_reason").alias(_KNOWN_REASON),
        *([] if query.partition is None else [f.col(PARTITION).alias(_KNOWN_PARTITION)]),
    )


def _there(known: DataFrame, query: PlanQuery) -> DataFrame:
    """Returns what the destination may have, of what is known: in the partition, where one is pushed.

    Of a row that was rejected it may have the one before.
    """
    there = known.filter(~f.col(_KNOWN_REASON).eqNullSafe(DROPPED))
    return there if query.partition is None else there.filter(f.col(_KNOWN_PARTITION) == query.partition.key)


def _refused_keys(rows: DataFrame, query: PlanQuery, seen: dict[str, Any]) -> TableError:
    names = ", ".join(query.keys)
    if seen["without_key"]:
        found = f"{seen['without_key']:,} of {seen['rows']:,} rows have no {names}, which is the key"
        return TableError(_doing(query), found, remedy="Filter them out with `sql`, or choose another key.")
    groups = rows.groupBy(*_keys(query)).count().filter("count > 1")
    shown = [", ".join(f"{key}={row[key]!s}" for key in query.keys) for row in groups.limit(_SHOWN_KEYS).collect()]
    found = f"{seen['copies']:,} rows share their key ({names}) with others, for example {'; '.join(shown)}"
    return TableError(_doing(query), found, remedy="Keep one row of each with `sql`, or choose another key.")


@contextmanager
def _translated(query: PlanQuery) -> Iterator[None]:
    try:
        yield
    except (ConfigError, TableError):
        raise
    except SESSION_ERRORS as error:
        if isinstance(error, PySparkException) and not is_server_lost(error):
            raise _refused(query, first_line(error)) from error
        raise TableError(_doing(query), first_line(error)) from error


def _refused(query: PlanQuery, found: str, remedy: str = "") -> ConfigError:
    return ConfigError(_doing(query), found, remedy=remedy, stream=query.stream)


def _doing(query: PlanQuery) -> str:
    return f"planning the rows of {query.table or 'a query'}"
