"""Pushes as Dagster assets: their keys and lineage, what a run materializes, and how it fails."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest
import yaml

from dagster_airbyte_proto import (
    ConnectorResource,
    PushTranslator,
    PushTranslatorData,
    StreamChecks,
    build_connector_assets,
    build_push_assets,
    build_table_sensor,
    push_assets,
)
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.sync.push import run
from dagster_airbyte_proto.sync.telemetry.run_telemetry import NoTelemetry, RunIdentity
from tests.dagster_defs.support.folder_shop import FolderIOManager
from tests.dagster_defs.support.saved import ORDERS, USERS, connection, named, save
from tests.sync.push.pushed_table import PushedTable, person


@pytest.fixture
def table(quick_folder: Path) -> PushedTable:
    pushed = PushedTable(quick_folder)
    pushed.fill([person(1), person(2), person(3, score=float("nan"))])
    return pushed


def _run(
    table: PushedTable, assets: dg.AssetsDefinition, instance: dg.DagsterInstance, *, may_fail: bool = False
) -> dg.ExecuteInProcessResult:
    return dg.materialize([assets], resources=_resources(table), instance=instance, raise_on_error=not may_fail)


def _resources(table: PushedTable) -> dict[str, object]:
    return {
        "connector": ConnectorResource(home=str(table.home)),
        "io_manager": FolderIOManager(warehouse=str(table.home / "warehouse")),
    }


def test_a_pushed_stream_is_an_asset_downstream_of_its_table(table: PushedTable) -> None:
    assets = build_push_assets(Connection.from_file(table.connection_file()))
    key = dg.AssetKey(["crm", "contacts"])
    assert assets.keys == {key}
    assert assets.asset_deps[key] == {dg.AssetKey(["shop", "people"])}
    [spec] = assets.specs
    assert (spec.kinds, spec.group_name) == ({"airbyte"}, "crm")
    deps = {"contacts": ["people", "shop/orders"]}
    other = build_push_assets(Connection.from_file(table.connection_file()), deps=deps)
    assert other.asset_deps[key] == {dg.AssetKey(["people"]), dg.AssetKey(["shop", "orders"])}


@pytest.mark.parametrize(
    ("named", "key"),
    [("lake.shop.`Sales Orders`", ["shop", "Sales_Orders"]), ("lake.`shop.eu`.users", ["shop.eu", "users"])],
)
def test_the_asset_of_a_table_with_a_quoted_name_is_that_of_its_sync(
    table: PushedTable, named: str, key: list[str]
) -> None:
    table.push["from"] = named
    assets = build_push_assets(Connection.from_file(table.connection_file()))
    assert list(assets.asset_deps.values()) == [{dg.AssetKey(key)}]


def test_pushed_streams_with_the_names_of_tables_do_not_depend_on_each_other(table: PushedTable) -> None:
    reading = {"contacts": "lake.crm.contacts", "a": "lake.crm.b", "b": "lake.crm.a", "c": "lake.crm.made"}
    file = table.connection_file()
    written = yaml.safe_load(file.read_text())
    written["push"] = {name: {**table.push, "from": source} for name, source in reading.items()}
    file.write_text(yaml.safe_dump(written))
    assets = build_push_assets(Connection.from_file(file))
    graph = dg.Definitions([assets], resources=_resources(table)).resolve_asset_graph()
    upstream = {key.path[-1]: graph.get(key).parent_keys for key in assets.keys}
    assert upstream == {"contacts": set(), "a": set(), "b": set(), "c": {dg.AssetKey(["crm", "made"])}}


def test_the_asset_of_a_table_without_latin_letters_is_that_of_its_sync(table: PushedTable, tmp_path: Path) -> None:
    save(tmp_path, *named("клиенты", "заказы"))
    table.push["from"] = "lake.shop.`клиенты`"
    pushes = build_push_assets(Connection.from_file(table.connection_file()))
    synced = build_connector_assets(connection(), home=tmp_path)
    [source] = [spec.key for spec in synced.specs if "`клиенты`" in (spec.description or "")]
    assert list(pushes.asset_deps.values()) == [{source}]


@pytest.mark.parametrize("source", ["lake.shop.orders", "shop.orders"])
def test_a_pushed_stream_finds_its_table_by_name_where_the_key_of_the_asset_is_another(
    table: PushedTable, tmp_path: Path, source: str
) -> None:
    save(tmp_path, USERS, ORDERS)
    table.push["from"] = source
    pushes = build_push_assets(Connection.from_file(table.connection_file()))
    synced = build_connector_assets(connection(), home=tmp_path)
    graph = dg.Definitions([pushes, synced], resources=_resources(table)).resolve_asset_graph()
    assert graph.get(dg.AssetKey(["crm", "contacts"])).parent_keys == {dg.AssetKey(["shop", "sales", "orders"])}


def test_a_run_pushes_and_tells_its_numbers(table: PushedTable, dagster_instance: dg.DagsterInstance) -> None:
    connection = Connection.from_file(table.connection_file())

    @push_assets(connection=connection)
    def crm(context: dg.AssetExecutionContext, connector: ConnectorResource) -> Iterator[dg.MaterializeResult[None]]:
        yield from connector.push(context)

    result = _run(table, crm, dagster_instance)
    [event] = result.asset_materializations_for_node("crm")
    names = ("planned", "sent", "acknowledged", "rejected", "unknown")
    numbers = {name: event.metadata[f"airbyte_proto/{name}"].value for name in names}
    assert numbers == {"planned": 3, "sent": 3, "acknowledged": 2, "rejected": 1, "unknown": 0}
    assert [row["id"] for row in table.received()] == [1, 2]
    [again] = _run(table, crm, dagster_instance).asset_materializations_for_node("crm")
    assert again.metadata["airbyte_proto/sent"].value == 0


def test_assets_that_dagster_renamed_are_pushed(table: PushedTable, dagster_instance: dg.DagsterInstance) -> None:
    module = ModuleType("pushes")
    vars(module)["crm"] = build_push_assets(Connection.from_file(table.connection_file()))
    [assets] = dg.load_assets_from_modules([module], key_prefix="raw")
    assert isinstance(assets, dg.AssetsDefinition)
    [event] = _run(table, assets, dagster_instance).asset_materializations_for_node("crm")
    assert event.asset_key == dg.AssetKey(["raw", "crm", "contacts"])
    assert [row["id"] for row in table.received()] == [1, 2]


def test_the_progress_of_a_push_is_in_the_log_of_its_run(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    table.fill([person(number) for number in range(1, 24)])
    table.options["rate"] = {"rows_per_second": 8}
    job = dg.Definitions(
        assets=[build_push_assets(Connection.from_file(table.connection_file()))],
        jobs=[dg.define_asset_job("all")],
        resources={**_resources(table), "connector": ConnectorResource(home=str(table.home), progress_seconds=0.5)},
    ).resolve_job_def("all")
    result = job.execute_in_process(instance=dagster_instance)
    texts = [
        entry.message for entry in dagster_instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    ]
    assert any(re.fullmatch(r"contacts: \d+ of 23 rows acknowledged, \d+ a second", text) for text in texts), texts


def test_a_field_has_the_columns_of_the_table_as_its_lineage(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    table.push["map"] = {"id": "id", "full_name": "name", "source": {"value": "shop"}}
    assets = build_push_assets(
        Connection.from_file(table.connection_file()), deps={"contacts": ["others", ["shop", "people"]]}
    )
    [event] = _run(table, assets, dagster_instance).asset_materializations_for_node("crm")
    lineage = event.metadata["dagster/column_lineage"].value
    people = dg.AssetKey(["shop", "people"])
    assert lineage == dg.TableColumnLineage(
        {"id": [dg.TableColumnDep(people, "id")], "full_name": [dg.TableColumnDep(people, "name")]}
    )
    schema = event.metadata["dagster/column_schema"].value
    assert isinstance(schema, dg.TableSchema)
    types = {column.name: column.type for column in schema.columns}
    assert types == {"id": "bigint", "full_name": "string", "source": "string"}


def test_a_push_that_fails_fails_the_step_with_its_error(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    table.config["fails"] = "config_error"
    result = _run(
        table, build_push_assets(Connection.from_file(table.connection_file())), dagster_instance, may_fail=True
    )
    assert not result.success
    [record] = dagster_instance.fetch_observations(dg.AssetKey(["crm", "contacts"]), limit=5).records
    assert record.asset_observation is not None
    assert record.asset_observation.metadata["airbyte_proto/status"].value == "failed"
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert "it cannot go on" in str(failure.step_failure_data.user_failure_data)


def test_a_push_on_whose_rows_a_person_has_to_decide_is_unknown_and_not_tried_again(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    table.push["mode"] = "append"
    table.config |= {"fails": "transient_error", "echo": "never", "shows_catalog": True}
    connection = Connection.from_file(table.connection_file())
    assets = build_push_assets(connection, retry_policy=dg.RetryPolicy(max_retries=1))
    assert not _run(table, assets, dagster_instance, may_fail=True).success
    [record] = dagster_instance.fetch_observations(dg.AssetKey(["crm", "contacts"]), limit=5).records
    assert record.asset_observation is not None
    assert record.asset_observation.metadata["airbyte_proto/status"].value == "unknown"
    assert "--retry-unknown" in (record.asset_observation.description or "")
    assert [message["type"] for message in table.messages()].count("CONFIGURED_STREAM") == 1


def test_a_connection_without_a_push_has_no_such_assets(table: PushedTable) -> None:
    path = table.connection_file()
    written = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({name: written[name] for name in ("connector", "config")}))
    with pytest.raises(ConfigError, match="it has no `push`"):
        build_push_assets(Connection.from_file(path))


def test_a_text_in_the_place_of_a_list_is_refused(table: PushedTable) -> None:
    connection = Connection.from_file(table.connection_file())
    with pytest.raises(ConfigError, match=r'Write deps=\{"contacts": \["users"\]\}'):
        build_push_assets(connection, deps={"contacts": "users"})
    with pytest.raises(ConfigError, match=r"`tables` has a text for contacts"):
        build_table_sensor(build_push_assets(connection), tables={"contacts": "lake.shop.users"})


def test_names_of_streams_become_keys_that_dagster_allows(table: PushedTable) -> None:
    path = table.connection_file()
    written = yaml.safe_load(path.read_text())
    written["push"] = {"Contacts & Co": table.push, "Contacts/Co": table.push}
    path.write_text(yaml.safe_dump(written))
    assets = build_push_assets(Connection.from_file(path))
    names = sorted(key.path[-1] for key in assets.keys)
    assert len(names) == 2
    assert all(name.startswith("Contacts_Co") for name in names)


@pytest.mark.parametrize(
    ("key", "fault"), [(["raw"], "is that of stream contacts, or too similar to it"), (["a b"], "not of letters")]
)
def test_a_translator_that_makes_no_good_key_is_refused(table: PushedTable, key: list[str], fault: str) -> None:
    class Ours(PushTranslator):
        def get_asset_spec(self, data: PushTranslatorData) -> dg.AssetSpec:
            return super().get_asset_spec(data).replace_attributes(key=key)

    path = table.connection_file()
    written = yaml.safe_load(path.read_text())
    written["push"]["others"] = table.push
    path.write_text(yaml.safe_dump(written))
    with pytest.raises(ConfigError, match=fault):
        build_push_assets(Connection.from_file(path), translator=Ours())


def _with_two(table: PushedTable, **other: object) -> Connection:
    path = table.connection_file()
    written = yaml.safe_load(path.read_text())
    written["push"]["others"] = {**table.push, **other}
    path.write_text(yaml.safe_dump(written))
    return Connection.from_file(path)


def test_a_retry_records_what_is_pushed_and_does_not_push_it_again(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    @push_assets(connection=_with_two(table), retry_policy=dg.RetryPolicy(max_retries=1))
    def crm(context: dg.AssetExecutionContext, connector: ConnectorResource) -> Iterator[dg.MaterializeResult[None]]:
        for number, event in enumerate(connector.push(context)):
            if number == 1 and context.retry_number == 0:
                raise OSError("the step's own fault")
            yield event

    result = _run(table, crm, dagster_instance)
    records = [event.materialization for event in result.get_asset_materialization_events()]
    found = {record.asset_key.path[-1]: record.metadata["airbyte_proto/sent"].value for record in records}
    assert (found, len(records)) == ({"contacts": 3, "others": 3}, 2)
    checks = [each.asset_key.path[-1] for each in result.get_asset_check_evaluations()]
    assert checks == ["contacts", "others"]
    assert [row["id"] for row in table.received()] == [1, 2, 1, 2]


def test_a_retry_is_measured_as_one(
    table: PushedTable, dagster_instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    class Telemetry(NoTelemetry):
        def push(self, *runs: object) -> AbstractContextManager[object]:
            attempts.extend(each.attempt for each in runs if isinstance(each, RunIdentity))
            return super().push(*runs)

    monkeypatch.setattr(run, "installed_telemetry", Telemetry)

    @push_assets(connection=Connection.from_file(table.connection_file()), retry_policy=dg.RetryPolicy(max_retries=1))
    def crm(context: dg.AssetExecutionContext, connector: ConnectorResource) -> Iterator[dg.MaterializeResult[None]]:
        if context.retry_number == 0:
            raise OSError("the step's own fault")
        yield from connector.push(context)

    assert _run(table, crm, dagster_instance).success
    assert attempts == [2]


def test_streams_that_depend_on_each_other_are_pushed_upstream_first(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    contacts, others = (dg.AssetKey(["crm", name]) for name in ("contacts", "others"))
    assets = build_push_assets(_with_two(table), deps={"contacts": [others]})
    events = _run(table, assets, dagster_instance).asset_materializations_for_node("crm")
    assert [event.asset_key for event in events] == [others, contacts]


def test_checks_alone_fail_a_push_that_would_not_evaluate_them(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    assets = build_push_assets(Connection.from_file(table.connection_file()))
    selection = dg.AssetSelection.all_asset_checks()
    resources = _resources(table)
    result = dg.materialize(
        [assets], selection=selection, resources=resources, instance=dagster_instance, raise_on_error=False
    )
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert "only checks are selected" in str(failure.step_failure_data.user_failure_data)
    assert table.received() == []


def test_a_stream_that_fails_leaves_the_other_one_materialized(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    path = _with_two(table, max_rejected=0).origin
    assert path
    assets = build_push_assets(Connection.from_file(Path(path)))
    result = _run(table, assets, dagster_instance, may_fail=True)
    assert not result.success
    events = result.asset_materializations_for_node("crm")
    assert [event.asset_key for event in events] == [dg.AssetKey(["crm", "contacts"])]
    checks = [each.check_name for each in result.get_asset_check_evaluations()]
    assert checks == ["rejects"]


def test_a_blocking_check_that_failed_before_a_retry_fails_the_step(
    table: PushedTable, dagster_instance: dg.DagsterInstance
) -> None:
    @push_assets(
        connection=_with_two(table, map={"id": "id"}),
        retry_policy=dg.RetryPolicy(max_retries=1),
        checks=StreamChecks(counts=False, blocking=True),
    )
    def crm(context: dg.AssetExecutionContext, connector: ConnectorResource) -> Iterator[dg.MaterializeResult[None]]:
        for number, event in enumerate(connector.push(context)):
            if number == 1 and context.retry_number == 0:
                raise OSError("the step's own fault")
            yield event

    result = _run(table, crm, dagster_instance, may_fail=True)
    checks = {each.asset_key.path[-1]: each.passed for each in result.get_asset_check_evaluations()}
    assert (result.success, checks) == (False, {"contacts": False, "others": True})
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert "crm/contacts: its blocking check rejects has failed" in str(failure.step_failure_data.user_failure_data)
