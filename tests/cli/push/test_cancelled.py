"""Ctrl-C while a destination takes rows: no error, nothing called rejected, and the next run goes on."""

import signal
import sys
import time
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


def test_ctrl_c_waits_for_no_destination_that_does_not_answer(place: Place) -> None:
    began = place.folder / "began"
    program = f"import pathlib, time; pathlib.Path({str(began)!r}).touch(); time.sleep(600)"
    launch = {"kind": "local", "command": [sys.executable, "-c", program]}
    push = {"users": {"from": f"{place.catalog}.shop.users", "key": ["id"]}}
    place.connect({}, "crm", connector={**_DESTINATION, "launch": launch}, config={}, push=push)
    running = place.start("push", "crm.yaml")
    until(lambda: began.exists() or running.process.poll() is not None)
    began_at = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert time.monotonic() - began_at < 10
    assert (ended.code, "Traceback" in ended.err) == (130, False), ended.err


@pytest.mark.nightly
@pytest.mark.spark
def test_ctrl_c_ends_a_plan_that_spark_would_work_on_for_hours(pier: Place) -> None:
    sql = "SELECT id FROM range(0, 1000000000000000, 1, 2) WHERE id % 7 = 9"
    push = {"users": {"sql": sql, "mode": "append", "changes": "all"}}
    config = {"path": str(pier.folder / "out.jsonl")}
    pier.connect({}, "crm", connector=_DESTINATION, config=config, push=push)
    running = pier.start("push", "crm.yaml")
    until(lambda: any(pier.folder.rglob("_temporary")) or running.process.poll() is not None)
    began_at = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert time.monotonic() - began_at < 10
    assert ended.code == 130, ended.err
    assert "crm: cancelled" in ended.out and "Traceback" not in ended.err
    assert not any(pier.folder.rglob("_temporary/*"))


@pytest.mark.nightly
@pytest.mark.spark
def test_ctrl_c_waits_for_no_jvm_that_starts(pier: Place) -> None:
    push = {"users": {"sql": "SELECT 1 AS id", "key": ["id"]}}
    pier.connect({}, "crm", connector=_DESTINATION, config={"path": str(pier.folder / "out.jsonl")}, push=push)
    running = pier.start("push", "crm.yaml")
    log = pier.folder / ".airbyte-proto" / "logs" / "jvm.log"
    until(lambda: log.exists() or running.process.poll() is not None)
    began_at = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert time.monotonic() - began_at < 10
    assert ended.code == 130, ended.err
