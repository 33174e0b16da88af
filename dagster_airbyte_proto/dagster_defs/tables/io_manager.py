"""Where assets and tables meet: rows that a sync landed are confirmed, frames are written, tables are read."""

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg
from pydantic import Field, PrivateAttr

from dagster_airbyte_proto.dagster_defs.definitions.definition import definition_in
from dagster_airbyte_proto.dagster_defs.step.events import uri_of
from dagster_airbyte_proto.dagster_defs.tables.frame_kinds import FrameKind, annotated, from_spark, of_value, to_arrow
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.table import SLICE_COLUMN
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import IN_SESSION_CATALOG, SESSION_CATALOG
from dagster_airbyte_proto.sync.delivery import Delivered
from dagster_airbyte_proto.tables.parquet.tables import ParquetTables
from dagster_airbyte_proto.tables.sql_names import qualified
from dagster_airbyte_proto.tables.writer import TableWriter

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark.frames import Selection, Slices
    from dagster_airbyte_proto.tables.spark.session import QueryResult, SparkSettings

TABLE_NAME = "dagster/table_name"
WRITE = "airbyte_proto/write"
PARTITION_COLUMN = "airbyte_proto/partition_column"
_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_NAME = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")

# Spark's modules take most of a second to import, and definitions are loaded where no table is ever touched: hence
# they are imported inside functions.


class SparkTableIOManager(dg.ConfigurableIOManager):
    """Keeps assets in the tables of a Spark catalog.

    `spark` is a SparkSessionResource, or dagster-pyspark's LazyPySparkResource or PySparkResource, whose session must
    have the catalog. A stream of a connection is in its table already when it comes here: that is made sure of. A frame
    (Spark, pandas, polars, pyarrow) creates the asset's table or writes to it, once the asset returns it; where the
    resource's format is `delta` or `parquet`, streams are kept and read alone, and frames are refused.

    The table is the asset's metadata `dagster/table_name`, or its key: the last part is the table, what stands before
    it the namespace. An input takes a frame by its annotation, Spark's if it has none; `dg.AssetIn(metadata=...)` may
    say `columns` (a list) and `snapshot_id` (the table as it stood then). Of a partitioned asset only the wanted
    partitions are read, and overwriting replaces only those of the run.
    """

    spark: dg.ResourceDependency[Any]
    catalog: str = Field(
        default="", description="The catalog of the tables; by default the Spark resource's own, or lake."
    )
    namespace: str = Field(default="default", description="Where the table of an asset lies whose key has one part.")
    write: Literal["overwrite", "append"] = Field(
        default="overwrite",
        description=f"What a frame does to the rows that are there. An asset's metadata {WRITE} wins.",
    )
    partition_column: str = Field(
        default=SLICE_COLUMN,
        description=f"The column of the partition's key. An asset's metadata {PARTITION_COLUMN} wins.",
    )
    _syncing: TableWriter | None = PrivateAttr(default=None)
    _confirming: ThreadPoolExecutor | None = PrivateAttr(default=None)
    _delta_is_known: bool = PrivateAttr(default=False)

    @property
    def catalog_name(self) -> str:
        if self._format in IN_SESSION_CATALOG:
            return SESSION_CATALOG
        return self.catalog or str(getattr(self.spark, "catalog", "lake"))

    @property
    def _format(self) -> str:
        return str(getattr(self.spark, "format", "iceberg"))

    def tables(self, labels: Mapping[str, str]) -> TableWriter:
        """What a sync commits through, with `labels` in every snapshot that it makes. Nothing is started by this: the
        session is opened by the thread that first wants a table."""
        self._syncing = self._writer(self.catalog_name, labels)
        return self._syncing

    def query(self, sql: str) -> "QueryResult":
        """Runs one statement in the session of the tables. Raises TableError with Spark's own first line."""
        from dagster_airbyte_proto.tables.spark import frames
        from dagster_airbyte_proto.tables.spark.session import query

        self._make_known()
        return query(frames.opened(lambda: self.spark.spark_session, self.catalog_name), sql)

    def sql_name(self, table: TableName) -> str:
        """A table as a statement names it."""
        return qualified(self.catalog_name, table)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        if isinstance(obj, Delivered):
            with _no_retry_when_interrupted():
                context.add_output_metadata(self._confirmed(context, obj))
        elif obj is not None:
            context.add_output_metadata(self._stored(context, obj))

    def load_input(self, context: dg.InputContext) -> Any:
        from dagster_airbyte_proto.tables.spark import frames

        if not context.has_asset_key:
            raise ConfigError("loading an input", f"{context.name} is no asset's, and tables are for assets")
        parts = self._named(_upstream_metadata(context), context.asset_key)
        kind = annotated(context.dagster_type, of=".".join(parts))
        self._make_known()
        return from_spark(frames.read(self._session(parts[0]), parts, self._selection(context)), kind)

    def _session(self, catalog: str) -> Any:
        from dagster_airbyte_proto.tables.spark import frames

        return frames.opened(lambda: self.spark.spark_session, catalog)

    def _writer(self, catalog: str, labels: Mapping[str, str]) -> TableWriter:
        from dagster_airbyte_proto.tables.delta.tables import DeltaTables
        from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
        from dagster_airbyte_proto.tables.spark.session import SparkSettings

        if self._format == "delta":
            return DeltaTables(lambda: self._session(catalog), self._spark_settings, labels=dict(labels))
        if self._format == "parquet":
            return ParquetTables(Path(self._spark_settings.warehouse_location), catalog=catalog)
        settings = SparkSettings(str(getattr(self.spark, "warehouse", "")), catalog)
        return IcebergTables(lambda: self._session(catalog), settings, labels=dict(labels))

    @property
    def _spark_settings(self) -> "SparkSettings":
        """Those of a resource of ours, which alone has a format."""
        settings: SparkSettings = self.spark.settings
        return settings._replace(catalog=self.catalog_name)

    def _make_known(self) -> None:
        """Spark's own catalog forgets its tables with the session; a plain Parquet table is known as it was then."""
        from dagster_airbyte_proto.tables.delta.tables import DeltaTables
        from dagster_airbyte_proto.tables.parquet.session_catalog import register

        if self._format not in IN_SESSION_CATALOG:
            return
        tables = self._writer(self.catalog_name, {})
        if isinstance(tables, ParquetTables):
            register(self._session(self.catalog_name), tables)
        elif isinstance(tables, DeltaTables) and not self._delta_is_known:
            tables.register_all()
            self._delta_is_known = True

    def _confirmed(self, context: dg.OutputContext, delivered: Delivered) -> dict[str, Any]:
        """The rows are in, or an error: a commit that is there already is only looked up."""
        rows, snapshot_id = delivered.report.table_rows, delivered.report.snapshot_id
        if delivered.part is not None and delivered.load_id is not None:
            tables = self._syncing or self.tables({"run-id": context.run_id})
            # In a thread of its own: an interrupt must find this one waiting, not amid an answer of the JVM's, which
            # the next call would take for its own.
            self._confirming = self._confirming or ThreadPoolExecutor(1, thread_name_prefix="confirm")
            committed = self._confirming.submit(tables.commit, delivered.load_id, delivered.part).result()
            rows, snapshot_id = committed.table_rows, committed.snapshot_id
        return _told(delivered.report.table, rows, snapshot_id)

    def _stored(self, context: dg.OutputContext, value: Any) -> dict[str, Any]:
        from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
        from dagster_airbyte_proto.tables.spark import frames

        if not context.has_asset_key:
            raise ConfigError("storing an output", f"{context.name} is no asset's, and tables are for assets")
        asset = context.asset_key.to_user_string()
        kind = of_value(value, of=asset)
        catalog, table = self._place(context)
        labels = {"run-id": context.run_id, "asset": asset}
        tables = self._writer(catalog, labels)
        if not isinstance(tables, IcebergTables):
            raise ConfigError(
                f"storing {asset}",
                f"the tables' format is {self._format}, and frames are written to Iceberg tables",
                remedy="Give the asset an IO manager of its own, whose Spark resource has the format iceberg.",
            )
        if kind is not FrameKind.SPARK:
            value = frames.from_arrow(self._session(catalog), to_arrow(value, kind))
        slices = self._slices(context.definition_metadata, context) if context.has_asset_partitions else None
        load = frames.FrameLoad(table, f"{context.run_id}/{asset}", self._replaces(context), slices, labels)
        written = frames.write(tables, value, load)
        told = _told(written.table, written.table_rows, written.snapshot_id)
        told["dagster/uri"] = uri_of(written.location)
        told["dagster/column_schema"] = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in written.columns])
        return told | ({"dagster/partition_row_count": written.rows} if slices else {})

    def _place(self, context: dg.OutputContext) -> tuple[str, TableName]:
        parts = self._named(context.definition_metadata, context.asset_key)
        if len(parts) != 3:
            raise ConfigError(
                f"storing {context.asset_key.to_user_string()}",
                f"its metadata {TABLE_NAME} has {len(parts)} parts",
                remedy="A table that is written is named by its catalog, one namespace and its name.",
            )
        return parts[0], TableName(parts[1], parts[2])

    def _replaces(self, context: dg.OutputContext) -> bool:
        write = context.definition_metadata.get(WRITE, self.write)
        if write not in ("overwrite", "append"):
            raise ConfigError(
                f"storing {context.asset_key.to_user_string()}",
                f"its metadata {WRITE} is {write!r}",
                remedy="It may be overwrite or append; overwrite replaces the run's partitions of a partitioned asset.",
            )
        return bool(write == "overwrite")

    def _named(self, metadata: Mapping[str, Any], key: dg.AssetKey) -> tuple[str, ...]:
        """Catalog, namespace and table of an asset."""
        name = metadata.get(TABLE_NAME)
        if name is None:
            *prefix, table = key.path
            return self.catalog_name, "_".join(prefix) or self.namespace, table
        parts = _parts(str(getattr(name, "value", name)), key)
        if definition_in(metadata):
            # Definitions name a catalog without asking the resources, which alone know it.
            return self.catalog_name, *parts[-2:]
        return (self.catalog_name, self.namespace)[: max(0, 3 - len(parts))] + parts

    def _selection(self, context: dg.InputContext) -> "Selection":
        from dagster_airbyte_proto.tables.spark.frames import Selection

        wanted = context.definition_metadata
        snapshot_id = wanted.get("snapshot_id")
        slices = self._slices(_upstream_metadata(context), context) if context.has_asset_partitions else None
        return Selection(tuple(wanted.get("columns") or ()), slices, None if snapshot_id is None else str(snapshot_id))

    def _slices(self, metadata: Mapping[str, Any], context: dg.InputContext | dg.OutputContext) -> "Slices":
        from dagster_airbyte_proto.tables.spark.frames import Slices

        # Dagster names the partitions of a range in any order.
        keys = sorted(str(key) for key in context.asset_partition_keys)
        return Slices(str(metadata.get(PARTITION_COLUMN, self.partition_column)), tuple(keys))


def _upstream_metadata(context: dg.InputContext) -> Mapping[str, Any]:
    return context.upstream_output.definition_metadata if context.upstream_output is not None else {}


def _parts(name: str, key: dg.AssetKey) -> tuple[str, ...]:
    """The parts of a name as SQL has it."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"looking for the table of {key.to_user_string()}",
            f"its metadata {TABLE_NAME} is {name!r}",
            remedy="Write it as in SQL: lake.shop.users, with backticks around a part that has a dot in it.",
        )
    return tuple(plain or quoted.replace("``", "`") for quoted, plain in _PART.findall(name))


def _told(table: str, rows: int | None, snapshot_id: str | None) -> dict[str, Any]:
    """Text for the snapshot: a browser's numbers do not hold 64 bits."""
    return {
        TABLE_NAME: table,
        **({} if rows is None else {"dagster/row_count": rows}),
        **({"airbyte_proto/snapshot_id": snapshot_id} if snapshot_id else {}),
    }


@contextmanager
def _no_retry_when_interrupted() -> Iterator[None]:
    """A retry policy counts for interrupts too, and would start the connector again after a Terminate."""
    try:
        yield
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as interrupt:
        raise dg.Failure("cancelled while its rows were looked for in the table", allow_retries=False) from interrupt
