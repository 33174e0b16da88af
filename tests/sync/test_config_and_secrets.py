"""What a connector does to its own config is kept, and its secrets never show."""

import json
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.fake_source import error
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


def test_a_config_that_the_connector_rewrote_is_used_from_then_on(shop: OpenShop) -> None:
    place = shop()
    assert place.sync_of(rotated(place, 9)).status is SyncStatus.COMPLETE
    kept = place.store.config("shop")
    assert kept is not None
    assert kept.config["password"] == TOKEN
    place.sync()
    assert place.column("users") == list(range(9))


def test_a_config_is_kept_at_once_also_when_the_sync_then_breaks(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(rotated(place, 9, failure={"kind": "signal", "after": 1}))
    kept = place.store.config("shop")
    assert kept is not None
    assert kept.config["password"] == TOKEN


def test_a_kept_config_gives_way_when_the_user_changes_theirs(shop: OpenShop) -> None:
    place = shop()
    place.sync_of(rotated(place, 9))
    place.config["count"] = 2
    place.sync_of(users(4))
    assert place.column("users") == list(range(4))


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


def test_secrets_are_masked_in_what_is_raised(shop: OpenShop) -> None:
    place = shop()
    told = error(f"no access with {SECRET}", None, None)
    with pytest.raises(ConnectorError) as raised:
        place.sync_of(users(3, answers={"discover": {"lines": [json.dumps(told)], "exit_code": 1}}))
    assert "no access with ***" in str(raised.value)
    assert SECRET not in repr(raised.value.args)
