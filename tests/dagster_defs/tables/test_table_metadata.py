"""The optional metadata from queries of a table after a sync: columns, insights, a sample."""

import json
import os
import re
import signal
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto import ConfigError
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.assets import build_connector_assets
from dagster_airbyte_proto.dagster_defs.definitions.translator import StreamTranslator, StreamTranslatorData
from dagster_airbyte_proto.dagster_defs.resources import ConnectorResource
from dagster_airbyte_proto.dagster_defs.step.sync_events import SyncEvents
from dagster_airbyte_proto.dagster_defs.tables.io_manager import SparkTableIOManager
from dagster_airbyte_proto.dagster_defs.tables.spark_resource import SparkSessionResource
from dagster_airbyte_proto.dagster_defs.tables.table_metadata import SyncedTable, sample_query
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest, planned_streams
from dagster_airbyte_proto.tables.spark.session import query
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from dagster_airbyte_proto.testing.fake_source import catalog_stream, command
from tests.dagster_defs.conftest import OpenRuns
from tests.dagster_defs.support import partition_runs
from tests.dagster_defs.support.folder_shop import Options, QueryableFolderIOManager, resources
from tests.dagster_defs.support.shop_runs import Run, Runs
from tests.sync.test_sync import two

if TYPE_CHECKING:
    from dagster_airbyte_proto.tables.spark.session import QueryResult

USERS = ("users",)
_METHODS: Mapping[str, Callable[[SyncEvents], SyncEvents]] = {
    "columns": SyncEvents.fetch_column_metadata,
    "insights": SyncEvents.with_insights,
    "sample": lambda events: events.with_sample(rows=100),
}


def chained(*names: str) -> Callable[[SyncEvents], SyncEvents]:
    def chain(events: SyncEvents) -> SyncEvents:
        for name in names:
            events = _METHODS[name](events)
        return events

    return chain


def asked(shop: Runs, *names: str, streams: tuple[str, ...] = USERS, mute: str = "no such word") -> Run:
    """A run that asks for these, of tables that answer."""
    options = Options(streams=streams, chain=chained(*names))
    return shop.run(options, io_manager=_tables(shop, mute=mute))


def _tables(shop: Runs, **options: Any) -> QueryableFolderIOManager:
    return QueryableFolderIOManager(warehouse=str(shop.place.home / "warehouse"), log=str(_log(shop)), **options)


def _log(shop: Runs) -> Path:
    return shop.place.folder / "queries.txt"


def users(records: int, values: Mapping[str, Any] | None = None, **properties: Any) -> dict[str, Any]:
    stream = {"records": records, "values": dict(values or {}), "properties": properties}
    return {"streams": {"users": stream}, "state_every": 5}


def rows_of(sample: str) -> list[list[str]]:
    """The cells of a Markdown table, without its ruler."""
    head, ruler, *body = sample.split("\n")
    assert set(ruler) <= set("| -")
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in (head, *body)]


def test_nothing_is_queried_that_is_not_asked_for(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(two(5, 5))
    run = asked(shop, streams=("users", "orders"))
    assert run.succeeded, run.failures
    assert not _log(shop).exists()
    output = run.metadata("users")
    assert "dagster/column_schema" not in output
    assert not [name for name in output if "sample" in name or "/column/" in name]


@pytest.mark.parametrize("names", [tuple(_METHODS), tuple(_METHODS)[::-1]])
def test_they_are_chained_in_any_order(runs: OpenRuns, names: tuple[str, ...]) -> None:
    shop = runs(max_bytes=1 << 30)
    shop.place.offer(users(3))
    output = asked(shop, *names).metadata("users")
    assert {"dagster/column_schema", "airbyte_proto/column/id/nulls", "airbyte_proto/sample"} <= output.keys()
    assert len(_log(shop).read_text().splitlines()) == 3


def test_columns_are_the_tables_own_also_those_that_the_stream_has_lost(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(users(3, {"nick": "x"}, nick={"type": "string", "description": "What friends say."}))
    first = asked(shop, "columns").metadata("users")["dagster/column_schema"]
    output = {column.name: (column.type, column.description) for column in first.columns}
    assert output["nick"] == ("string", "What friends say.")
    assert output["_airbyte_generation_id"] == ("bigint", "Generation of the row: grows by one with each full refresh")
    shop.place.offer(users(6))
    second = asked(shop, "columns").metadata("users")["dagster/column_schema"]
    assert "nick" in [column.name for column in second.columns]


def test_insights_are_numbers_of_the_whole_table(runs: OpenRuns) -> None:
    shop = runs()
    score = {"type": ["null", "number"]}
    shop.place.offer(users(3, {"score": 1.5}, score=score))
    asked(shop)
    shop.place.offer(users(5, {"score": None}, score=score))
    output = asked(shop, "insights").metadata("users")
    numbers = {name.removeprefix("airbyte_proto/column/"): output[name] for name in output if "/column/" in name}
    assert {name: numbers[name] for name in numbers if name.startswith(("id", "score", "name"))} == {
        "id/nulls": 0,
        "id/smallest": 0,
        "id/largest": 4,
        "name/nulls": 0,
        "score/nulls": 2,
        "score/smallest": 1.5,
        "score/largest": 1.5,
    }
    assert output["dagster/row_count"] == 5


def test_a_number_that_a_web_browser_would_lose_is_reported_with_a_point(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(users(1, {"big": 2**40}, big={"type": "integer"}))
    largest = asked(shop, "insights").metadata("users")["airbyte_proto/column/big/largest"]
    assert (type(largest), largest) == (float, 2.0**40)


def test_a_sample_is_of_the_rows_that_came_this_time(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(users(10))
    asked(shop)
    shop.place.offer(users(23))
    head, *body = rows_of(asked(shop, "sample").metadata("users")["airbyte_proto/sample"])
    assert head[:3] == ["id", "key", "name"]
    assert sorted(int(line[0]) for line in body) == list(range(10, 23))
    assert "airbyte_proto/sample" not in asked(shop, "sample").metadata("users")


def test_a_sample_has_no_more_rows_than_wanted(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(users(30))
    options = Options(streams=USERS, chain=lambda events: events.with_sample(4))
    output = shop.run(options, io_manager=_tables(shop)).metadata("users")
    assert len(rows_of(output["airbyte_proto/sample"])) == 1 + 4


def test_what_a_record_holds_stays_in_its_cell(runs: OpenRuns) -> None:
    shop = runs()
    text = "a | b\n\n![c](http://d) <img src=e> `f`" + "g" * 200
    shop.place.offer(users(1, {"note": text}, note={"type": "string"}))
    [head, row] = rows_of(asked(shop, "sample").metadata("users")["airbyte_proto/sample"])
    cell = row[head.index("note")]
    assert len(head) == len(row)
    assert cell.startswith(r"a \| b !\[c\](http://d) \<img src=e\> \`f\`ggg")
    assert cell.endswith("ggg…")
    assert cell.count("g") < 100


def test_of_a_wide_table_only_so_many_columns_are_reported_and_the_rest_is_counted(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(users(1, **{f"c{number}": {"type": "integer"} for number in range(100)}))
    output = asked(shop, "insights", "sample").metadata("users")
    table, rest = output["airbyte_proto/sample"].split("\n\n")
    assert (len(rows_of(table)[0]), rest) == (100, "and 4 more columns")
    assert output["airbyte_proto/columns_left_out"] == 4
    assert len([name for name in output if name.endswith("/nulls")]) == 100


def test_a_table_that_does_not_answer_costs_its_facts_alone(runs: OpenRuns) -> None:
    shop = runs()
    shop.place.offer(users(3))
    run = asked(shop, "columns", "insights", "sample", mute="describe")
    assert run.succeeded, run.failures
    output = run.metadata("users")
    assert "dagster/column_schema" not in output
    assert {"airbyte_proto/column/id/nulls", "airbyte_proto/sample"} <= output.keys()
    assert any("could not be queried" in message and "it is mute" in message for message in run.messages)


@pytest.mark.parametrize("name", _METHODS)
def test_an_io_manager_that_answers_nothing_is_reported_before_the_sync_begins(runs: OpenRuns, name: str) -> None:
    shop = runs()
    shop.place.offer(users(3))
    run = shop.run(Options(streams=USERS, chain=chained(name)))
    assert "FolderIOManager, which answers no queries" in run.descriptions[0]
    assert shop.place.positions() == {}


def test_more_cannot_be_asked_for_once_it_has_begun() -> None:
    events = SyncEvents(lambda _: iter(()))
    assert list(events) == []
    with pytest.raises(ConfigError, match="it has started already"):
        events.with_insights()


@pytest.mark.parametrize("rows", [0, 101])
def test_a_sample_of_none_or_too_many_is_refused(rows: int) -> None:
    with pytest.raises(ConfigError, match="A sample has 1 to 100 rows"):
        SyncEvents(lambda _: iter(())).with_sample(rows)


def test_a_step_that_is_ended_while_it_asks_yields_what_is_complete(runs: OpenRuns) -> None:
    shop = runs(max_bytes=1 << 30)
    shop.place.offer(two(3, 3))
    is_asked, released = threading.Event(), threading.Event()

    class Slow(QueryableFolderIOManager):
        def query(self, sql: str) -> "QueryResult":
            is_asked.set()
            released.wait(120)
            return super().query(sql)

    def interrupt() -> None:
        assert is_asked.wait(120)
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    tables = Slow(warehouse=str(shop.place.home / "warehouse"), log=str(_log(shop)))
    run = shop.run(Options(chain=chained("insights")), io_manager=tables)
    released.set()
    interrupting.join()
    assert "was cancelled" in run.descriptions[0]
    assert sorted(run.materialized) == ["orders", "users"]
    assert shop.place.positions() == {"users": 3, "orders": 3}


def test_the_sample_of_a_backfill_is_of_its_last_partition(runs: OpenRuns) -> None:
    shop = runs()
    partition_runs.prepared(shop.place)
    keys = partition_runs.KEYS[:2]
    for number, key in enumerate(keys):
        partition_runs.offer(shop.place, key, two(3 + number, 1))
    made = partition_runs.assets(shop.place.folder, include_metadata=("column_metadata", "insights"), sample_rows=10)
    result = dg.materialize(
        [made],
        resources={**resources(shop.place.home, Options()), "io_manager": _tables(shop)},
        instance=shop.instance,
        tags={
            "dagster/asset_partition_range_start": keys[0],
            "dagster/asset_partition_range_end": keys[1],
        },
        raise_on_error=False,
    )
    assert result.success, Run(shop.instance, result.run_id).failures
    output = {
        str(event.partition): event.metadata
        for record in shop.instance.fetch_materializations(dg.AssetKey(["shop", "users"]), limit=9).records
        if (event := record.asset_materialization)
    }
    assert "airbyte_proto/sample" not in output[keys[0]]
    assert len(rows_of(str(output[keys[1]]["airbyte_proto/sample"].value))) == 1 + 4
    for metadata in output.values():
        assert metadata["airbyte_proto/column/id/largest"].value == 3
        schema = metadata["dagster/column_schema"].value
        assert isinstance(schema, dg.TableSchema)
        assert schema.columns[-1].name == "_airbyte_partition"
        assert schema.columns[-1].description


class _FromTheCrm(StreamTranslator):
    def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
        upstream = dg.AssetKey(["crm", data.stream.id.name])
        return super().get_asset_spec(data).merge_attributes(metadata={"airbyte_proto/source_asset": upstream})


_SCORE = {"type": ["null", "number"], "description": "Between 0 and 1."}


def _users(records: int, **properties: Any) -> dict[str, Any]:
    return {"records": records, "values": {"Score": 0.5}, "properties": {"Score": _SCORE, **properties}}


class Lake:
    """A connection into Spark's tables, with what its source has in a file."""

    def __init__(self, folder: Path, settings: SparkSettings) -> None:
        self.name = f"shop_{uuid.uuid4().hex[:8]}"
        self._folder = folder
        self.catalog = folder / "catalog.json"
        self.offer(_users(4))
        session = SparkSessionResource(warehouse=settings.warehouse, spark_config=dict(settings.config))
        self.resources = {
            "connector": ConnectorResource(home=str(folder / "home")),
            "io_manager": SparkTableIOManager(spark=session),
        }

    def offer(self, stream: dict[str, Any]) -> None:
        """Sets the records that the source has from now on."""
        (self._folder / "scenario.json").write_text(json.dumps({"streams": {"users": stream}}))
        self.catalog.write_text(json.dumps({"streams": [catalog_stream("users", stream)]}))

    @property
    def connection(self) -> Connection:
        file = str(self._folder / "scenario.json")
        launch = {"kind": "local", "command": command(Path(file))}
        return Connection.model_validate(
            {
                "name": self.name,
                "connector": {"protocol": "airbyte", "launch": launch},
                "config": {"scenario": file},
                "streams": {"users": {"read": "incremental", "write": "append_dedup"}},
            }
        )

    def events(self, partition: str | None = None, **options: Any) -> dict[str, Any]:
        """The metadata of a run that requests everything."""
        made = build_connector_assets(
            self.connection,
            catalog=self.catalog,
            translator=_FromTheCrm(),
            include_metadata=("column_metadata", "insights"),
            sample_rows=10,
            **options,
        )
        result = dg.materialize([made], resources=self.resources, partition_key=partition)
        [event] = result.asset_materializations_for_node(self.name)
        return {name: value.value for name, value in event.metadata.items()}


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings) -> Lake:
    return Lake(tmp_path, spark_settings)


@pytest.mark.spark
def test_sparks_tables_tell_their_columns_numbers_and_rows(
    lake: Lake, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    lake.events()
    lake.offer(_users(7))
    output = lake.events()

    columns = {column.name: (column.type, column.description) for column in output["dagster/column_schema"].columns}
    assert columns["Score"] == ("double", "Between 0 and 1.")
    assert columns["updated_at"][0] == "timestamp"
    assert columns["_airbyte_generation_id"] == ("bigint", "Generation of the row: grows by one with each full refresh")
    assert output["dagster/column_schema"].columns[0].constraints.unique

    deps = output["dagster/column_lineage"].deps_by_column
    assert deps["Score"] == [dg.TableColumnDep(asset_key=dg.AssetKey(["crm", "users"]), column_name="Score")]
    assert "_airbyte_meta" not in deps

    assert (output["dagster/row_count"], output["airbyte_proto/column/id/largest"]) == (7, 6)
    assert (output["airbyte_proto/column/Score/nulls"], output["airbyte_proto/column/Score/smallest"]) == (0, 0.5)
    assert output["airbyte_proto/column/updated_at/largest"] > output["airbyte_proto/column/updated_at/smallest"]

    _, *body = rows_of(output["airbyte_proto/sample"])
    assert sorted(int(line[0]) for line in body) == [4, 5, 6]
    assert output["dagster/uri"] == (Path(spark_settings.warehouse) / lake.name / "users").as_uri()


@pytest.mark.spark
def test_the_filter_of_a_sample_reaches_the_files(lake: Lake, spark: SparkSession) -> None:
    lake.events()
    [stream] = planned_streams(lake.connection, AirbyteSource().catalog(lake.catalog.read_bytes()), SyncRequest())
    table = SyncedTable(f"lake.{lake.name}.users", stream, 1, lambda sql: query(spark, sql))
    [[plan]] = query(spark, f"explain {sample_query(table, ['id'], 3)}").rows
    assert re.search(r"filters=[^\]]*_airbyte_meta.sync_id = 1", plan)


@pytest.mark.spark
def test_a_column_that_came_without_a_row_is_reported(lake: Lake) -> None:
    lake.events()
    lake.offer(_users(4, nick={"type": "string"}))
    output = lake.events()

    assert "nick" in [column.name for column in output["dagster/column_schema"].columns]
    assert output["airbyte_proto/column/nick/nulls"] == 4
    assert "airbyte_proto/sample" not in output


@pytest.mark.spark
def test_sparks_partitioned_table_tells_its_partitions_column_once(lake: Lake) -> None:
    output = lake.events("eu", partitions_def=dg.StaticPartitionsDefinition(["eu", "us"]))

    names = [column.name for column in output["dagster/column_schema"].columns]
    assert names[-2:] == ["_airbyte_generation_id", "_airbyte_partition"]
    assert len(rows_of(output["airbyte_proto/sample"])) == 1 + 4
