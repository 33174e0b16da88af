"""The IO manager for Spark tables: it confirms rows that a sync committed, writes frames, and reads tables."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg
from dagster_shared.check import CheckError
from pydantic import Field, PrivateAttr

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import definition_in
from dagster_airbyte_proto.dagster_defs.failures import INTERRUPTS, StepCancelled
from dagster_airbyte_proto.dagster_defs.tables.frame_kinds import (
    FrameKind,
    annotated_kind,
    from_spark,
    kind_of,
    to_arrow,
)
from dagster_airbyte_proto.dagster_defs.tables.table_metadata import table_uri
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.table import SLICE_COLUMN
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.schema.names import case_folded, differ_by_mark
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.tables.formats import (
    SESSION_CATALOG,
    Format,
    SupportsSnapshotReads,
    check_works_on,
    find_format,
    frames_of,
    sql_name,
)
from dagster_airbyte_proto.tables.remote_sessions import REMOTE, is_remote
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.tables.sql_names import is_by_folder, name_parts, qualified, quoted
from dagster_airbyte_proto.tables.writer import FrameLoad, Slices, TableWriter

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark.frames import TableSelection
    from dagster_airbyte_proto.tables.spark.session import QueryResult

TABLE_NAME = "dagster/table_name"
WRITE = "airbyte_proto/write"
PARTITION_COLUMN = "airbyte_proto/partition_column"

# Spark's modules take most of a second to import, and definitions are loaded where no table is ever touched: hence
# they are imported inside functions.


class SparkTableIOManager(dg.ConfigurableIOManager):
    """Stores assets in the tables of a Spark catalog.

    `spark` is a SparkSessionResource, or dagster-pyspark's LazyPySparkResource or PySparkResource, whose session must
    have the catalog. The rows of a connection's stream are already in the table; the IO manager confirms that. A frame
    (Spark, pandas, polars, pyarrow) that an asset returns creates the asset's table or is written to it. Tables of the
    format `parquet` take streams alone.

    The asset's metadata `dagster/table_name` names the table, or else its key: the last part is the table, the parts
    before it the namespace. An input's annotation chooses the kind of frame, Spark's by default;
    `dg.AssetIn(metadata=...)` can set `columns` (a list) and `snapshot_id` (an earlier version of the table). Of a
    partitioned asset only the requested partitions are read, or the whole table by an asset without partitions, and
    overwriting replaces only the partitions of the run.
    """

    spark: dg.ResourceDependency[Any]
    catalog: str = Field(
        default="", description="The catalog of the tables; by default the Spark resource's own, or lake."
    )
    namespace: str = Field(default="default", description="The namespace of tables of assets whose key has one part.")
    write: Literal["overwrite", "append"] = Field(
        default="overwrite",
        description=f"How a frame is written to existing rows. An asset's metadata {WRITE} overrides it.",
    )
    partition_column: str = Field(
        default=SLICE_COLUMN,
        description=f"The column of the partition key. An asset's metadata {PARTITION_COLUMN} overrides it.",
    )
    _sync_tables: TableWriter | None = PrivateAttr(default=None)
    _confirm_thread: ThreadPoolExecutor | None = PrivateAttr(default=None)
    _query_tables: TableWriter | None = PrivateAttr(default=None)

    @property
    def catalog_name(self) -> str:
        if self._format.abilities.uses_session_catalog:
            return SESSION_CATALOG
        return self.catalog or str(getattr(self.spark, "catalog", "lake"))

    @property
    def _format(self) -> Format[Any]:
        """The format of our own Spark resource: other resources have none."""
        return find_format(str(getattr(self.spark, "format", "iceberg")))

    def tables(self, labels: Mapping[str, str]) -> TableWriter:
        """Returns the tables that a sync commits through, with `labels` in every snapshot it makes. Nothing starts yet:
        the thread that first needs a table opens the session."""
        self._sync_tables = self._writer(self.catalog_name, labels)
        return self._sync_tables

    def query(self, sql: str) -> "QueryResult":
        """Runs one statement in the session of the tables. Raises TableError with Spark's own first line."""
        from dagster_airbyte_proto.tables.spark import frames
        from dagster_airbyte_proto.tables.spark.session import query

        self._register_tables()
        return query(frames.open_catalog(lambda: self.spark.spark_session, self.catalog_name), sql)

    def newest_snapshot(self, table: str) -> str | None:
        """Returns a text that differs whenever the rows of this table have changed; None for one without rows.

        It starts no Spark, but for an Iceberg catalog of another type than `hadoop`. Raises ConfigError for a name
        that is none, TableError where the table cannot be read.
        """
        parts = name_parts(table, "the newest snapshot of a table", f"its name is {table!r}")
        parts = (self.catalog_name, self.namespace)[: max(0, 3 - len(parts))] + parts
        if len(parts) != 3:
            remedy = "Name it by its catalog, one namespace and its name."
            raise ConfigError(f"reading the newest snapshot of {table}", f"it has {len(parts)} parts", remedy=remedy)
        catalog, namespace, name = parts
        own = getattr(self.spark, "settings", None)
        found = self._format
        if isinstance(own, SparkSettings) and isinstance(found, SupportsSnapshotReads):
            reader = found.snapshot_reader(own._replace(catalog=catalog))
            if reader is not None:
                return reader.newest_snapshot(TableName(namespace, name))
        if found.abilities.format != "iceberg":
            remedy = "Use a SparkSessionResource as `spark`."
            raise ConfigError(f"reading the newest snapshot of {table}", "only Iceberg can be queried", remedy=remedy)
        place = qualified(catalog, TableName(namespace, name))
        self.query(f"REFRESH TABLE {place}")  # Else the session may show it as it was: each look keeps its copy alive.
        rows = self.query(f"SELECT snapshot_id FROM {place}.refs WHERE name = 'main'").rows  # noqa: S608 - quoted
        return str(rows[0][0]) if rows else None

    def sql_name(self, table: TableName) -> str:
        """The table's full name in SQL, by which the session of these tables finds it."""
        own = getattr(self.spark, "settings", None)
        settings = own if isinstance(own, SparkSettings) else SparkSettings("")
        return sql_name(self._format, settings._replace(catalog=self.catalog_name), table)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        if isinstance(obj, CommittedStream) and obj.is_relayed:
            return  # Its rows are at a destination, and not in a table.
        if isinstance(obj, CommittedStream):
            with _no_retry_when_interrupted():
                context.add_output_metadata(self._confirm_rows(context, obj))
        elif obj is not None:
            context.add_output_metadata(self._write_frame(context, obj))

    def load_input(self, context: dg.InputContext) -> Any:
        from dagster_airbyte_proto.tables.spark import frames

        if not context.has_asset_key:
            raise ConfigError("loading an input", f"{context.name} belongs to no asset, and only assets have tables")
        metadata = _upstream_metadata(context)
        if definition := definition_in(metadata):
            _check_has_table(definition.connection, context.asset_key)
        parts = self._table_parts(metadata, context.asset_key)
        if definition:
            parts = (parts[0], *_last_synced_table(context, TableName(*parts[1:])))
        kind = annotated_kind(context.dagster_type, of=".".join(parts))
        self._register_tables()
        is_own = len(parts) == 3 and parts[0] == self.catalog_name
        table = self.sql_name(TableName(*parts[1:])) if is_own else ".".join(map(quoted, parts))
        return from_spark(frames.read_table(self._session(parts[0]), table, self._selection(context)), kind)

    def _session(self, catalog: str) -> Any:
        from dagster_airbyte_proto.tables.spark import frames

        return frames.open_catalog(lambda: self.spark.spark_session, catalog)

    def _writer(self, catalog: str, labels: Mapping[str, str]) -> TableWriter:
        own = getattr(self.spark, "settings", None)
        settings = own if isinstance(own, SparkSettings) else SparkSettings("", on_connect=self._is_remote(catalog))
        check_works_on(self._format, settings)
        tables: TableWriter = self._format.open_tables(
            settings._replace(catalog=catalog), lambda: self._session(catalog), labels
        )
        return tables

    def _is_remote(self, catalog: str) -> bool:
        """Returns whether the session of a resource that is not ours is one of Spark Connect.

        Those of dagster-pyspark say so in their config. Any other is opened now: a sync must be refused before its
        connector starts.
        """
        config = getattr(self.spark, "spark_config", None)
        return is_remote(self._session(catalog)) if config is None else bool(config.get(REMOTE))

    def _register_tables(self) -> None:
        """Registers the tables with Spark's session catalog, which forgets them when the session ends."""
        if not self._format.abilities.uses_session_catalog:
            return
        self._query_tables = self._query_tables or self._writer(self.catalog_name, {})
        self._format.register(self._query_tables, self._session(self.catalog_name))

    def _confirm_rows(self, context: dg.OutputContext, synced: CommittedStream) -> dict[str, Any]:
        """Confirms that the rows are in the table, or raises. Commits are idempotent: one that exists is only found."""
        rows, snapshot_id = synced.report.table_rows, synced.report.snapshot_id
        if synced.part is not None and synced.load_id is not None:
            tables = self._sync_tables or self.tables({"run-id": context.run_id})
            # In a thread of its own: an interrupt must find this one waiting. If it struck while this thread reads an
            # answer of the JVM, the next call would read the rest of that answer as its own.
            self._confirm_thread = self._confirm_thread or ThreadPoolExecutor(1, thread_name_prefix="confirm")
            committed = self._confirm_thread.submit(tables.commit, synced.load_id, synced.part).result()
            rows, snapshot_id = committed.table_rows, committed.snapshot_id
        return _table_metadata(synced.report.table, rows, snapshot_id)

    def _write_frame(self, context: dg.OutputContext, value: Any) -> dict[str, Any]:
        from dagster_airbyte_proto.tables.spark import frames

        if not context.has_asset_key:
            raise ConfigError("storing an output", f"{context.name} belongs to no asset, and only assets have tables")
        asset = context.asset_key.to_user_string()
        kind = kind_of(value, of=asset)
        catalog, table = self._target_table(context)
        if self._replaces(context):
            self._check_is_no_streams(context, (catalog, *table))
        labels = {"run-id": context.run_id, "asset": asset}
        tables = frames_of(self._writer(catalog, labels))
        if tables is None:
            raise ConfigError(
                f"storing {asset}",
                f"the tables' format is {self._format.abilities.format}, which takes the streams of connections alone",
                remedy="Give the asset an IO manager of its own, whose Spark resource has the format iceberg or delta.",
            )
        if kind is not FrameKind.SPARK:
            value = frames.from_arrow(self._session(catalog), to_arrow(value, kind))
        slices = self._slices(context.definition_metadata, context) if context.has_asset_partitions else None
        load = FrameLoad(table, f"{context.run_id}/{asset}", self._replaces(context), slices, labels)
        written = frames.write_table(tables, value, load)
        metadata = _table_metadata(written.table, written.table_rows, written.snapshot_id)
        metadata["dagster/uri"] = table_uri(written.location)
        metadata["dagster/column_schema"] = dg.TableSchema(
            [dg.TableColumn(name, kind) for name, kind in written.columns]
        )
        # Of a range each partition has an event with this metadata, and nobody has counted the rows of each.
        is_one = slices is not None and len(slices.values) == 1
        return metadata | ({"dagster/partition_row_count": written.rows} if is_one else {})

    def _target_table(self, context: dg.OutputContext) -> tuple[str, TableName]:
        parts = self._table_parts(context.definition_metadata, context.asset_key)
        if len(parts) != 3:
            raise ConfigError(
                f"storing {context.asset_key.to_user_string()}",
                f"its metadata {TABLE_NAME} has {len(parts)} parts",
                remedy="Name a table to write to by its catalog, one namespace and its name.",
            )
        return parts[0], TableName(parts[1], parts[2])

    def _check_is_no_streams(self, context: dg.OutputContext, table: tuple[str, ...]) -> None:
        """Raises ConfigError where the table is that of a stream: `shop/users`, say, made of a stream that a translator
        gave the key `raw/shop/users`. Its synced rows would be gone."""
        streams = [key for key, parts in self._tables_of_streams(context) if parts == table]
        if streams:
            raise ConfigError(
                f"storing {context.asset_key.to_user_string()}",
                f"{'.'.join(table)} is the table of the stream {streams[0].to_user_string()}: its rows would be gone",
                remedy=f"Give the asset another key, or another table by the metadata {TABLE_NAME}.",
            )

    def _tables_of_streams(self, context: dg.OutputContext) -> Iterator[tuple[dg.AssetKey, tuple[str, ...]]]:
        for key, metadata in _assets_beside(context):
            if (found := definition_in(metadata)) and _has_table(found.connection):
                with suppress(ConfigError):  # The name that a translator gave it is none.
                    yield key, self._table_parts(metadata, key)

    def _replaces(self, context: dg.OutputContext) -> bool:
        write = context.definition_metadata.get(WRITE, self.write)
        if write not in ("overwrite", "append"):
            raise ConfigError(
                f"storing {context.asset_key.to_user_string()}",
                f"its metadata {WRITE} is {write!r}",
                remedy="Set overwrite or append; overwrite replaces the run's partitions of a partitioned asset.",
            )
        return bool(write == "overwrite")

    def _table_parts(self, metadata: Mapping[str, Any], key: dg.AssetKey) -> tuple[str, ...]:
        """The catalog, namespace and table of an asset."""
        name = metadata.get(TABLE_NAME)
        if name is None:
            *prefix, table = key.path
            return self.catalog_name, "_".join(prefix) or self.namespace, table
        name = str(getattr(name, "value", name))
        parts = name_parts(name, f"the table of {key.to_user_string()}", f"its metadata {TABLE_NAME} is {name!r}")
        if definition_in(metadata):
            # Definitions cannot see the resources, so the catalog in their table name may differ from this one's.
            return self.catalog_name, *parts[-2:]
        return (self.catalog_name, self.namespace)[: max(0, 3 - len(parts))] + parts

    def _selection(self, context: dg.InputContext) -> "TableSelection":
        from dagster_airbyte_proto.tables.spark.frames import TableSelection

        metadata = context.definition_metadata
        columns, snapshot_id = metadata.get("columns") or (), metadata.get("snapshot_id")
        if isinstance(columns, str):  # Each of its letters would be a column.
            found = f"the metadata of the input has the text {columns!r} as `columns`, where a list belongs"
            raise ConfigError(
                f"loading {context.asset_key.to_user_string()}", found, remedy=f'Write "columns": ["{columns}"].'
            )
        is_of_slices = context.has_asset_partitions and not _takes_whole_table(context)
        slices = self._slices(_upstream_metadata(context), context) if is_of_slices else None
        return TableSelection(tuple(columns), slices, None if snapshot_id is None else str(snapshot_id))

    def _slices(self, metadata: Mapping[str, Any], context: dg.InputContext | dg.OutputContext) -> Slices:
        # Dagster lists the partitions of a range in any order.
        keys = sorted(str(key) for key in context.asset_partition_keys)
        column = SLICE_COLUMN if definition_in(metadata) else self.partition_column
        return Slices(str(metadata.get(PARTITION_COLUMN, column)), tuple(keys))


def _check_has_table(connection: Connection, key: dg.AssetKey) -> None:
    """Raises ConfigError for a stream whose rows no sync brings into a table."""
    if not _has_table(connection):
        raise ConfigError(
            f"loading {key.to_user_string()}",
            f"connection {connection.name} sends its rows to a destination, and there is no table of them",
            remedy="Name it under `deps`, if the asset is only to run after it.",
        )


def _has_table(connection: Connection) -> bool:
    return connection.to is None and connection.push is None


def _assets_beside(context: dg.OutputContext) -> Iterator[tuple[dg.AssetKey, Mapping[str, Any]]]:
    """The assets of the code location, with their metadata. Those of the job alone in a run without a code location, as
    by `dg.materialize`; none for an output that is stored outside of a step."""
    try:
        step = context.step_context
    except dg.DagsterInvariantViolationError:
        return
    try:
        graph = step.repository_def.asset_graph  # A job of selected assets has those alone.
    except CheckError:
        graph = step.job_def.asset_layer.asset_graph
    for key in graph.get_all_asset_keys():
        yield key, graph.get(key).metadata


def _upstream_metadata(context: dg.InputContext) -> Mapping[str, Any]:
    return context.upstream_output.definition_metadata if context.upstream_output is not None else {}


def _last_synced_table(context: dg.InputContext, planned: TableName) -> TableName:
    """Returns the table of a stream, by the event of its last sync where that differs by a mark alone. Of streams with
    like names, and of tables whose stream is gone, only the state store knows which one has the plain name."""
    try:
        event = context.instance.get_latest_materialization_event(context.asset_key)
    except dg.DagsterInvariantViolationError:  # an input that is loaded without an instance
        return planned
    materialization = event.asset_materialization if event is not None else None
    found = materialization.metadata.get(TABLE_NAME) if materialization is not None else None
    if found is None or is_by_folder(str(found.value)):
        return planned
    *_, namespace, name = name_parts(str(found.value), "the table of a stream", f"its last event has {found.value!r}")
    is_like = case_folded(namespace) == case_folded(planned.namespace) and differ_by_mark(name, planned.name)
    return TableName(namespace, name) if is_like else planned


def _takes_whole_table(context: dg.InputContext) -> bool:
    """Returns whether an asset without partitions takes all of a partitioned one. Dagster lists the partitions that it
    knows now: the table keeps the rows of those that were removed from it."""
    try:
        assets = context.step_context.assets_def
    except dg.DagsterInvariantViolationError:  # an input that is loaded outside of a step, with the partitions wanted
        return False
    if assets is None:
        return True
    mapping = assets.get_partition_mapping_for_dep(context.asset_key)
    return assets.partitions_def is None and (mapping is None or isinstance(mapping, dg.AllPartitionMapping))


def _table_metadata(table: str, rows: int | None, snapshot_id: str | None) -> dict[str, Any]:
    """The metadata of a table. The snapshot id is text: web browsers round 64-bit numbers."""
    return {
        TABLE_NAME: table,
        **({} if rows is None else {"dagster/row_count": rows}),
        **({"airbyte_proto/snapshot_id": snapshot_id} if snapshot_id else {}),
    }


@contextmanager
def _no_retry_when_interrupted() -> Iterator[None]:
    """Turns an interrupt into a failure without retries: Dagster applies the retry policy to interrupts too, and would
    start the connector again after a Terminate."""
    try:
        yield
    except INTERRUPTS:
        raise StepCancelled("cancelled while its rows were being confirmed in the table") from None
