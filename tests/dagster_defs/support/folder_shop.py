"""The shop's connection as Dagster assets, on tables that need no Spark; made anew in each process that runs it."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import dagster as dg

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks
from dagster_airbyte_proto.dagster_defs.definitions.connection_definition import ConnectionDefinition
from dagster_airbyte_proto.dagster_defs.resources import ConnectorResource, SqlStateStore
from dagster_airbyte_proto.dagster_defs.step.sync_events import SyncEvents
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.schema.columns import column_type
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.sync.cluster.armed_tasks import ArmedTasks

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark.session import QueryResult


class FolderIOManager(dg.ConfigurableIOManager):
    """Confirms what a sync landed in folder tables; breaks on the stream `breaks_at`."""

    warehouse: str
    breaks_at: str = ""

    def tables(self, labels: Mapping[str, str]) -> FolderTables:
        assert labels["dagster-run"]
        return FolderTables(Path(self.warehouse))

    def handle_output(self, context: dg.OutputContext, obj: CommittedStream) -> None:
        if obj.stream.name == self.breaks_at:
            raise OSError("the table is gone")
        if obj.part is None:
            context.add_output_metadata({"was_there": "nothing came"})
            return
        assert obj.load_id is not None
        committed = FolderTables(Path(self.warehouse)).commit(obj.load_id, obj.part)
        context.add_output_metadata({"was_there": str(committed.was_there), "dagster/row_count": committed.table_rows})

    def load_input(self, context: dg.InputContext) -> Any:
        raise NotImplementedError


class ArmedIOManager(FolderIOManager):
    """An IO manager for syncs on executors, the first of which dies at a point. The file `log` has the points."""

    death: str
    log: str

    def tables(self, labels: Mapping[str, str]) -> FolderTables:
        assert labels["dagster-run"]
        return FolderTables(Path(self.warehouse), tasks=ArmedTasks([self.death], Path(self.log)))


class QueryableFolderIOManager(FolderIOManager):
    """An IO manager whose tables answer queries in Polars' SQL, and Spark's `describe table`. A query with the word
    `mute` fails. The file `log` has the queries."""

    log: str
    mute: str = "no such word"

    def query(self, sql: str) -> "QueryResult":
        # Few tests ask, and these modules take a second to import.
        from polars import SQLContext, from_arrow

        from dagster_airbyte_proto.tables.spark.session import QueryResult

        with Path(self.log).open("a") as log:
            log.write(f"{sql}\n")
        if self.mute in sql:
            raise TableError("running the query", "it is mute")
        [(whole, namespace, table)] = re.findall(r"(?:table|from) ((\w+)\.(\w+))", sql)
        rows = FolderTables(Path(self.warehouse)).rows(TableName(namespace, table))
        if sql.startswith("describe table"):
            return QueryResult((), [[field.name, column_type(field.type), None] for field in rows.schema])
        answer = SQLContext({"landed": from_arrow(rows)}).execute(sql.replace(whole, "landed"), eager=True)
        return QueryResult(tuple(answer.columns), json.loads(json.dumps(answer.rows(), default=str)))

    def sql_name(self, table: TableName) -> str:
        return str(table)


def _as_it_is(events: SyncEvents) -> SyncEvents:
    return events


class Options(NamedTuple):
    """The options of the shop's step."""

    streams: Sequence[str] = ("users", "orders")
    retry_policy: dg.RetryPolicy | None = None
    checks: StreamChecks | None = None
    connector: Mapping[str, Any] = {}
    breaks_at: str = ""
    partitions_def: dg.PartitionsDefinition[Any] | None = None
    state_url: str = ""
    takes: int | None = None
    """After so many events the step fails by a fault of its own."""
    chain: Callable[[SyncEvents], SyncEvents] = _as_it_is
    """Changes the sync's events before the step yields them."""


def shop_assets(connection_file: Path, options: Options) -> dg.AssetsDefinition:
    connection = Connection.from_file(connection_file)
    streams = {dg.AssetKey(["shop", name]): StreamId.of(name) for name in options.streams}
    definition = ConnectionDefinition(connection, streams, None, checks=options.checks)
    specs = [dg.AssetSpec(key, skippable=True, metadata=definition.metadata) for key in streams]

    names = ("counts", "rejects") if options.checks else ()

    @dg.multi_asset(
        name="shop",
        check_specs=[dg.AssetCheckSpec(name, asset=key) for key in streams for name in names],
        specs=[spec.with_io_manager_key("io_manager") for spec in specs],
        can_subset=True,
        partitions_def=options.partitions_def,
        retry_policy=options.retry_policy,
    )
    def shop(context: dg.AssetExecutionContext, connector: ConnectorResource) -> Iterator[Any]:
        if options.takes is None:
            yield from options.chain(connector.sync(context))
            return
        for number, event in enumerate(connector.sync(context)):
            if number == options.takes:
                raise OSError("the step's own fault")
            yield event

    return shop


def resources(home: Path, options: Options) -> dict[str, Any]:
    state = SqlStateStore(url=options.state_url or f"sqlite:///{home / 'state.db'}")
    connector = {"home": str(home), "lease_seconds": 5.0, "lease_wait_seconds": 20.0, **options.connector}
    return {
        "connector": ConnectorResource(state=state, **connector),
        "io_manager": FolderIOManager(warehouse=str(home / "warehouse"), breaks_at=options.breaks_at),
    }


def materialized(
    connection_file: Path,
    home: Path,
    instance: dg.DagsterInstance,
    options: Options = Options(),  # noqa: B008 - a tuple
    only: Sequence[str] | None = None,
    **others: Any,
) -> dg.ExecuteInProcessResult:
    """One run in this process, with `others` in the place of its resources."""
    return dg.materialize(
        [shop_assets(connection_file, options)],
        resources={**resources(home, options), **others},
        instance=instance,
        selection=[dg.AssetKey(["shop", name]) for name in only] if only else None,
        raise_on_error=False,
    )
