"""A config that its connector rewrites is saved, and secrets never show."""

import json
from typing import Any

import pytest
import yaml

from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.connector_config import connector_config
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import acquire_lease
from dagster_airbyte_proto.sync.report import SyncStatus
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.testing.fake_source import error
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults
from tests.support.needs import require_bubblewrap
from tests.sync.conftest import OpenShop
from tests.sync.shop import SECRET, Shop

TOKEN = "rotated-token-of-today"


def users(records: int, **whole: Any) -> dict[str, Any]:
    return {"streams": {"users": {"records": records}}, "state_every": 5, **whole}


def rotated(place: Shop, records: int, **whole: Any) -> dict[str, Any]:
    """A source that sends a new password, and from then on has so many records."""
    later = place.folder / "later.json"
    later.write_text(json.dumps(users(records)))
    return users(3, new_config={"scenario": str(later), "password": TOKEN}, **whole)


@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_a_config_that_the_connector_rewrote_is_used_from_then_on(protocol: str, shop: OpenShop) -> None:
    place = shop()
    place.protocol = protocol
    assert place.sync_of(rotated(place, 9)).status is SyncStatus.COMPLETE
    kept = place.store.stored_config("shop")
    assert kept is not None
    assert kept.config["password"] == TOKEN
    place.sync()
    assert place.column("users") == list(range(9))


@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_a_config_is_kept_at_once_also_when_the_sync_then_breaks(protocol: str, shop: OpenShop) -> None:
    place = shop()
    place.protocol = protocol
    place.sync_of(rotated(place, 9, failure={"kind": "signal", "after": 1}))
    kept = place.store.stored_config("shop")
    assert kept is not None
    assert kept.config["password"] == TOKEN


@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_a_config_that_came_while_the_store_did_not_answer_is_kept_by_the_end_of_the_run(
    protocol: str, shop: OpenShop
) -> None:
    place = shop()
    place.protocol = protocol
    place.offer(rotated(place, 9))
    store = with_faults(place.store, CallFaults({("save_config", 1): CallFault.BEFORE}))
    with Engine(Settings.load(place.home, place.home / "settings.yaml"), store=store) as engine:
        report = sync_connection(engine, Connection.from_file(place.connection_file))
    assert "a planned fault" in report.warnings[0]
    kept = place.store.stored_config("shop")
    assert kept is not None
    assert kept.config["password"] == TOKEN


def test_a_kept_config_gives_way_when_the_user_changes_theirs(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(rotated(place, 9))
    place.config["count"] = 2
    place.sync_of(users(4))
    assert place.column("users") == list(range(4))


@pytest.mark.parametrize(("protocol", "scheme"), [("airbyte", "env"), ("singer", "env"), ("airbyte", "file")])
def test_what_a_reference_was_filled_with_is_kept_as_it_is_written(
    protocol: str, scheme: str, shop: OpenShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    monkeypatch.setenv("SHOP_TOKEN", "token-of-yesterday")
    place = shop()
    place.protocol = protocol
    (place.folder / "password").write_text(f"{SECRET}\n")
    password = {"env": "${env:SHOP_PASSWORD}", "file": f"${{file:{place.folder}/password}}"}[scheme]
    written = {"password": password, "tokens": ["${env:SHOP_TOKEN}"], "literal": "$${env:SHOP_TOKEN}"}
    place.config = dict(written)
    later = place.folder / "later.json"
    new = {"scenario": str(later), "password": SECRET, "tokens": [TOKEN], "literal": "${env:SHOP_TOKEN}", "seen": 1}
    tap = {"tap": "python"} if protocol == "singer" else {}
    later.write_text(json.dumps(users(5, **tap, **_saying(protocol, f"{SECRET} {TOKEN}"))))
    place.sync_of(users(3, new_config=new, **tap))
    kept = place.store.stored_config("shop")
    assert kept is not None
    assert kept.config == {**new, "password": written["password"]}
    report = place.sync()
    assert place.column("users") == list(range(5))
    assert "*** ***" in place.log(report)
    after = place.store.stored_config("shop")
    assert after == kept


def test_a_config_that_is_rewritten_during_a_query_is_saved_too(shop: OpenShop) -> None:
    place = shop()
    place.protocol = "singer"
    later = place.folder / "later.json"
    later.write_text(json.dumps(users(5)))
    place.sync_of(users(3, discover_config={"scenario": str(later), "password": TOKEN}))
    kept = place.store.stored_config("shop")
    assert kept is not None
    assert kept.config["password"] == TOKEN
    assert place.column("users") == list(range(5))


def test_a_config_that_is_rewritten_during_a_query_is_saved_though_the_sync_cannot_begin(shop: OpenShop) -> None:
    place = shop()
    place.protocol, place.modes = "singer", {"nothing": {}}
    new = {"scenario": str(place.folder / "scenario.json"), "password": TOKEN}
    with pytest.raises(ConfigError, match="nothing"):
        place.sync_of(users(3, discover_config=new))
    kept = place.store.stored_config("shop")
    assert kept is not None
    assert kept.config["password"] == TOKEN


def _saying(protocol: str, text: str) -> dict[str, Any]:
    return {"log": [text]} if protocol == "singer" else {"stderr": [text]}


@pytest.mark.parametrize("left", ["as it was", "half"])
def test_a_config_file_that_is_as_it_was_or_no_json_changes_nothing(left: str, shop: OpenShop) -> None:
    place = shop()
    place.protocol = "singer"
    given = {"scenario": str(place.folder / "scenario.json"), **place.config}
    report = place.sync_of(users(3, new_config=given if left == "as it was" else '{"password": "new'))
    assert (report.status, place.store.stored_config("shop")) == (SyncStatus.COMPLETE, None)
    told = "the connector left a config behind that is no JSON object"
    assert any(told in warning for warning in report.warnings) is (left == "half")


@pytest.mark.parametrize("secret", [SECRET, TOKEN])
def test_secrets_are_masked_in_the_log_the_report_and_the_store(secret: str, shop: OpenShop) -> None:
    place = shop()
    chatter = {"lines": [f"plain {secret}"], "stderr": [f"stderr {secret}"]}
    failure = {"kind": "error", "after": 2, "message": f"login with {secret} failed"}
    report = place.sync_of(rotated(place, 9, failure=failure, **(chatter if secret == SECRET else {})))
    assert report.status is SyncStatus.FAILED
    shown = json.dumps(report.as_json())
    assert "login with *** failed" in shown
    assert "login with *** failed" in place.log(report)
    if secret == SECRET:
        assert {"plain ***", "stderr ***"} <= {line.split(maxsplit=2)[2] for line in place.log(report).splitlines()}
    for text in (shown, place.log(report)):
        assert secret not in text


def test_secrets_are_masked_in_errors(shop: OpenShop) -> None:
    place = shop()
    told = error(f"no access with {SECRET}", None, None)
    with pytest.raises(ConnectorError) as raised:
        place.sync_of(users(3, answers={"discover": {"lines": [json.dumps(told)], "exit_code": 1}}))
    assert "no access with ***" in str(raised.value)
    assert SECRET not in repr(raised.value.args)


_PASSWORD = {"type": "object", "required": ["password"], "properties": {"password": {"type": "string", "minLength": 3}}}
_STRICT = {"spec": {"lines": [json.dumps({"type": "SPEC", "spec": {"connectionSpecification": _PASSWORD}})]}}


def test_a_connector_sees_the_variables_that_it_is_granted_and_its_secrets_are_masked(
    shop: OpenShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    monkeypatch.setenv("STATE_URL", f"postgresql://user:{SECRET}@host/state")
    monkeypatch.setenv("https_proxy", "http://ann:pw-of-the-proxy@127.0.0.1:9")
    place = shop()
    place.connector_options = {"env_vars": ["SHOP_TOKEN", "SHOP_LEVEL=debug"]}
    place.offer(users(3))
    source = yaml.safe_load(place.connection_file.read_text())["connector"]["launch"]["command"]
    place.program = ["sh", "-c", 'env >&2; exec "$@"', "source", *source]
    report = place.sync_of(users(3))
    log = place.log(report)
    assert report.status is SyncStatus.COMPLETE
    assert "SHOP_TOKEN=***" in log
    assert "SHOP_LEVEL=debug" in log
    assert "https_proxy=http://ann:***@127.0.0.1:9" in log
    assert "STATE_URL" not in log
    monkeypatch.delenv("SHOP_TOKEN")
    with pytest.raises(ConfigError, match="env_vars names SHOP_TOKEN"):
        place.sync()


def test_a_connector_in_a_sandbox_reads_its_working_folder_and_not_our_home(shop: OpenShop) -> None:
    require_bubblewrap()
    place = shop()
    place.offer(users(3))
    written = yaml.safe_load(place.connection_file.read_text())["connector"]
    command = ["sh", "-c", f'ls {place.home} >&2; exec "$@"', "source", *written["launch"]["command"]]
    launch = {**written["launch"], "command": command, "working_folder": str(place.folder)}
    place.more |= {"sandbox": True, "connector": {**written, "launch": launch}}
    report = place.sync_of(users(3))
    assert report.status is SyncStatus.COMPLETE
    assert place.column("users") == list(range(3))
    assert "state.db" not in place.log(report)
    assert (place.home / "state.db").exists()


@pytest.mark.parametrize("new", [{}, {"scenario": "x"}, {"password": "a", "scenario": "x"}])
def test_a_config_that_the_spec_refuses_is_not_kept(new: dict[str, Any], shop: OpenShop) -> None:
    place = shop()
    report = place.sync_of(users(3, new_config=new, answers=_STRICT))
    assert (report.status, place.store.stored_config("shop")) == (SyncStatus.COMPLETE, None)
    [warning] = report.warnings
    assert "taking the config that the connector wrote back" in warning
    assert place.sync().status is SyncStatus.COMPLETE


@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_an_empty_config_is_kept_of_no_connector(protocol: str, shop: OpenShop) -> None:
    place = shop()
    place.protocol = protocol
    place.sync_of(users(3, new_config={}))
    assert place.store.stored_config("shop") is None
    assert place.sync().status is SyncStatus.COMPLETE


def test_a_kept_config_that_no_longer_fits_is_told_as_the_connectors_and_dropped_by_hand(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(users(3, answers=_STRICT))
    with Engine(Settings.load(place.home, place.home / "settings.yaml")) as engine:
        based_on = connector_config(Connection.from_file(place.connection_file), {}).digest
        with acquire_lease(engine.store, "shop", "by-hand", 30) as keeper:
            engine.store.save_config(keeper.lease, {"seen": 1}, based_on=based_on)
    with pytest.raises(ConfigError) as raised:
        place.sync()
    assert "config that the connector of shop wrote back: password: is missing" in str(raised.value)
    assert "airbyte-proto config reset shop drops it" in str(raised.value)
    assert main(["--home", str(place.home), "config", "reset", "shop"]) == 0
    assert place.sync().status is SyncStatus.COMPLETE
