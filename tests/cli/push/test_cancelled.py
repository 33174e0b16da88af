"""Ctrl-C while a destination takes rows: no error, nothing called rejected, and the next run goes on."""

import signal
import sys
from typing import Any

import pytest

from tests.cli.conftest import Place, until

_DESTINATION = {
    "protocol": "airbyte",
    "launch": {"kind": "local", "command": [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_destination"]},
}
_SOURCE = {"streams": {"users": {"records": 25}}}


def _options(place: Place) -> dict[str, Any]:
    return {"path": str(place.folder / "out.jsonl"), "hangs_after": 7, "once": str(place.folder / "hung")}


@pytest.mark.parametrize("kind", ["relay", "push"])
@pytest.mark.everyday("relay")
def test_what_is_cancelled_is_no_error_and_goes_on(place: Place, kind: str) -> None:
    words = ["sync", "crm.yaml"]
    if kind == "push":
        words = ["push", "crm.yaml"]
        place.json("sync", place.connect(_SOURCE))
        push = {"users": {"from": f"{place.catalog}.shop.users", "key": ["id"], "mode": "upsert"}}
        place.connect({}, "crm", connector=_DESTINATION, config=_options(place), push=push, batch={"rows": 5})
    else:
        to = {"connector": _DESTINATION, "config": _options(place)}
        place.connect(_SOURCE, "crm", to=to, streams={"users": {"write": "append_dedup"}}, batch={"rows": 5})
    running = place.start(*words)
    until(lambda: (place.folder / "hung").exists() or running.process.poll() is not None)
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert ended.code == 130, ended.out
    assert "crm: cancelled" in ended.out
    assert "rejected" not in ended.out and "error" not in ended.out and "Traceback" not in ended.err
    if kind == "relay":
        assert "users: 25 rows not committed yet: the next sync reads them again" in ended.out
        assert "not landed: users" in place.run("loads", "list", "crm").out
        assert "to stream" in ended.out  # And not a table.
        assert "sync crm`" in place.run("push", "unknown", "crm.yaml").err
    assert place.run(*words).code == 0
    received = (place.folder / "out.jsonl").read_text()
    assert all(f'"id": {number},' in received for number in range(25))
