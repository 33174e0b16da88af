"""Queries of a connector outside of a sync."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConnectorError, StateConflict
from dagster_airbyte_proto.launchers.process import HostPlace, Launcher, RunningConnector
from dagster_airbyte_proto.protocols.conversation import Invocation
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.opened_connector import opened_source
from dagster_airbyte_proto.sync.connector.queries import LaunchableConnector
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from tests.sync.conftest import OpenShop
from tests.sync.shop import Shop

TOKEN = "rotated-token-of-today"
USERS: Mapping[str, Any] = {"streams": {"users": {"records": 1}}}


def engine_of(place: Shop) -> Engine:
    return Engine(Settings.load(place.home, place.home / "settings.yaml"))


def kept_password(place: Shop) -> str | None:
    """The password that the store has for the next run."""
    kept = place.store.stored_config("shop")
    return None if kept is None else str(kept.config["password"])


def rotating(place: Shop, *, exit_code: int) -> dict[str, Any]:
    """A source that sends a new password with its catalog, or instead of one."""
    config = {"scenario": str(place.folder / "scenario.json"), "password": TOKEN}
    control = {"type": "CONNECTOR_CONFIG", "connectorConfig": {"config": config}}
    lines = [{"type": "CONTROL", "control": control}]
    if exit_code == 0:
        lines.append({"type": "CATALOG", "catalog": {"streams": []}})
    return {**USERS, "answers": {"discover": {"lines": [json.dumps(line) for line in lines], "exit_code": exit_code}}}


def test_a_config_that_was_rewritten_is_kept_and_used_the_next_time(shop: OpenShop) -> None:
    place = shop()
    place.offer(rotating(place, exit_code=0))
    connection = Connection.from_file(place.connection_file)
    with engine_of(place) as engine:
        with opened_source(engine, connection) as source:
            source.catalog(fresh=True)
        with opened_source(engine, connection) as source:
            assert source.config.current["password"] == TOKEN


def test_it_is_kept_also_when_there_is_no_answer(shop: OpenShop) -> None:
    place = shop()
    place.offer(rotating(place, exit_code=1))
    connection = Connection.from_file(place.connection_file)
    with (
        engine_of(place) as engine,
        pytest.raises(ConnectorError, match="exited with code 1"),
        opened_source(engine, connection) as source,
    ):
        source.catalog(fresh=True)
    assert kept_password(place) == TOKEN


def test_it_is_kept_also_when_a_run_held_the_connection_meanwhile(shop: OpenShop) -> None:
    place = shop()
    place.offer(rotating(place, exit_code=0))
    connection = Connection.from_file(place.connection_file)
    held = place.store.acquire("shop", run_id="a-sync", holder="elsewhere", seconds=600)

    def end_the_sync(_level: str, text: str) -> None:
        if "a-sync" in text:
            place.store.release(held)

    with engine_of(place) as engine, opened_source(engine, connection, on_line=end_the_sync) as source:
        source.catalog(fresh=True)
    assert kept_password(place) == TOKEN


def test_a_newer_one_that_a_run_has_kept_meanwhile_stays(shop: OpenShop) -> None:
    place = shop()
    place.offer(rotating(place, exit_code=0))
    newer = {"scenario": str(place.folder / "scenario.json"), "password": "newer"}
    with (
        engine_of(place) as engine,
        opened_source(engine, Connection.from_file(place.connection_file)) as source,
    ):
        source.catalog(fresh=True)
        with acquire_lease(place.store, "shop", "a-sync", 30) as renewal:
            place.store.save_config(renewal.lease, newer, based_on=source.config.digest)
    assert kept_password(place) == "newer"


def test_that_it_could_not_be_kept_is_an_error(shop: OpenShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagster_airbyte_proto.sync.connector.opened_connector._SAVING_SECONDS", 0.1)
    place = shop()
    place.offer(rotating(place, exit_code=0))
    place.store.acquire("shop", run_id="a-sync", holder="elsewhere", seconds=600)
    with (
        engine_of(place) as engine,
        # No StateConflict: a sensor skips its tick for that, and says no more.
        pytest.raises(ConnectorError, match=r"a-sync.*\n.*A token that it has renewed is lost"),
        opened_source(engine, Connection.from_file(place.connection_file)) as source,
    ):
        source.catalog(fresh=True)


def test_a_connector_that_renews_tokens_is_not_started_beside_its_sync(shop: OpenShop) -> None:
    place = shop()
    place.offer(rotating(place, exit_code=0))
    connection = Connection.from_file(place.connection_file)
    with engine_of(place) as engine:
        with opened_source(engine, connection) as source:
            source.catalog(fresh=True)
        held = place.store.acquire("shop", run_id="a-sync", holder="elsewhere", seconds=600)
        with pytest.raises(StateConflict, match=r"a-sync"), opened_source(engine, connection):
            pass
        place.store.release(held)
        with opened_source(engine, connection):
            pass


def test_what_it_says_is_logged_beside_the_logs_of_syncs(shop: OpenShop) -> None:
    place = shop()
    place.offer({**USERS, "answers": {"check": {"lines": ["plain words"], "exit_code": 3}}})
    heard: list[str] = []
    with (
        engine_of(place) as engine,
        pytest.raises(ConnectorError),
        opened_source(
            engine, Connection.from_file(place.connection_file), on_line=lambda _, text: heard.append(text)
        ) as source,
    ):
        source.check()
    [log] = (place.home / "logs" / "shop" / "asked").glob("*.log")
    assert "plain words" in log.read_text()
    assert "plain words" in heard


class Counting:
    """A launcher that counts the calls of its identity."""

    def __init__(self, inner: Launcher) -> None:
        self._inner = inner
        self.asked = 0

    def identity(self) -> str:
        self.asked += 1
        return self._inner.identity()

    def host_place(self) -> HostPlace | None:
        return self._inner.host_place()

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> RunningConnector:
        return self._inner.launch(invocation, environment=environment)


def test_a_launcher_is_asked_once_which_connector_would_run(shop: OpenShop) -> None:
    place = shop()
    place.offer(dict(USERS))
    with engine_of(place) as engine, opened_source(engine, Connection.from_file(place.connection_file)) as source:
        counting = Counting(source.connector.launcher)
        source.connector = LaunchableConnector(counting, source.protocol)
        for _ in range(2):
            source.check_config()
            source.catalog()
    assert counting.asked == 1


def test_streams_are_requested_again_once_the_connection_writes_another_variable(
    shop: OpenShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = shop()
    found = []
    for token, schema in (("1", "sales"), ("2", "sales"), ("2", "people")):
        monkeypatch.setenv("SHOP_TOKEN", token)
        place.connector_options = {"env_vars": ["SHOP_TOKEN", f"SHOP_SCHEMA={schema}"]}
        place.offer(dict(USERS))
        with engine_of(place) as engine, opened_source(engine, Connection.from_file(place.connection_file)) as source:
            found.append(source.cache.catalog(*source.cache_key).message is not None)
            source.catalog()
    assert found == [False, True, False]
