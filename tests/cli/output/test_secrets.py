"""A secret that a connector says, in each way in which it says anything, is nowhere in what is kept or shown.

The words around it are there: nothing is masked by being lost.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.testing import fake_tap
from tests.cli.components.test_component_syncs import CONFIG, checkpoint
from tests.cli.conftest import USERS, Place
from tests.support.wasm import guests

_SECRET = "hunter22-of-the-shop"
_SAID, _SHOWN = f"denied:{_SECRET}:twice", "denied:***:twice"
_KEY = {"api_key": "${env:SHOP_KEY}"}


class Way(NamedTuple):
    """A connection whose connector says the secret, the command that runs it, and words that are shown of it."""

    document: Mapping[str, Any]
    command: str = "sync"
    secret: str = _SECRET
    shown: str = _SHOWN


def _local(protocol: str, *command: str) -> dict[str, Any]:
    return {"protocol": protocol, "launch": {"kind": "local", "command": [*command]}}


def _fake(protocol: str, name: str) -> dict[str, Any]:
    return _local(protocol, sys.executable, "-m", f"dagster_airbyte_proto.testing.{name}")


def _wasm(name: str) -> dict[str, Any]:
    return {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": f"{name}.wasm"}}


def _source(scenario: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"config": {"scenario": {**USERS, **(scenario or {})}, **_KEY}, **more}


def _tap(**scenario: Any) -> dict[str, Any]:
    return _source(scenario, connector=_local("singer", *fake_tap.command()))


def _trace(**error: str) -> str:
    body = {"message": "it failed", "failure_type": "system_error", **error}
    return json.dumps({"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1.0, "error": body}})


def _airbyte(*lines: str) -> dict[str, Any]:
    return _source({"lines": lines})


def _answer(verb: str, line: str) -> dict[str, Any]:
    return _source({"answers": {verb: {"lines": [line], "exit_code": 1}}})


def _relay(connector: Mapping[str, Any], **config: Any) -> dict[str, Any]:
    return _source(to={"connector": connector, "config": {"path": "out.jsonl", **config, **_KEY}})


def _push(connector: Mapping[str, Any], **config: Any) -> dict[str, Any]:
    stream = {"from": "shop.users", "key": ["id"], "mode": "upsert", "map": {"id": "id", "name": "name"}}
    document = _relay(connector, **config)["to"]
    return {**document, "push": {"contacts": {**stream, "max_rejected": "100 %"}}}


def _component(script: str, **config: Any) -> dict[str, Any]:
    said = {**CONFIG, "script_users": script, **config, **_KEY}
    return {"connector": _wasm("source"), "config": said, "streams": {"users": {"write": "append"}}}


def _transform(script: str, *, on_error: str = "reject", **config: Any) -> dict[str, Any]:
    step = {"connector": _wasm("transform"), "config": {"script": script, **config, **_KEY}, "on_error": on_error}
    return _source(transforms=[{**step, "columns": {"name": "string"}}])


def _enrichment(**config: Any) -> dict[str, Any]:
    step = {"connector": _fake("syncmaven", "fake_enrichment"), "config": {**config, **_KEY}}
    return _source(transforms=[{**step, "key": ["id"], "columns": {"city": "string"}}])


_LOG = json.dumps({"type": "LOG", "log": {"level": "WARN", "message": _SAID}})
_VERDICT = {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "FAILED", "message": _SAID}}
_STDERR = f"cat > /dev/null; echo 'CRITICAL {_SAID}' >&2; exit 1"
_REJECTED = f"dlq users {{}} {_SAID} data;{checkpoint(1)}"
_CANNOT = {"secret": "cannot go", "shown": "it *** on"}
_FULL = {"secret": "list is full", "shown": "the ***"}
_CREDITS = {"secret": "more credits", "shown": "no ***"}
_HOME = {"secret": "no home", "shown": "it has ***"}
_REJECTS = {"record": '{"id": 3}', "failed": "1", "commit_rows": "2"}
_FAILS = {"fault": "error", "fault_at": "3", "error_code": _SAID}
_MAVEN = _fake("syncmaven", "fake_syncmaven")
_CONTACTS = {"users": {"rename": "contacts", "select": ["id", "name"]}}
_WAYS = {
    "airbyte log": Way(_airbyte(_LOG)),
    "airbyte error": Way(_airbyte(_trace(message=_SAID))),
    "airbyte error inside": Way(_airbyte(_trace(internal_message=_SAID))),
    "airbyte stack trace": Way(_airbyte(_trace(stack_trace=f"Traceback\n  File 'a'\nValueError: {_SAID}"))),
    "airbyte stderr": Way(_source({"stderr": [f"CRITICAL {_SAID}"], "exit_code": 1})),
    "airbyte check": Way(_answer("check", json.dumps(_VERDICT)), "check"),
    "airbyte discover": Way(_answer("discover", _trace(message=_SAID)), "discover"),
    "singer stderr": Way(_tap(log=[f"CRITICAL {_SAID}"], failure={"kind": "exit", "after": 3})),
    "singer discover": Way(_source(connector=_local("singer", "sh", "-c", _STDERR)), "discover"),
    "rapidbyte rejected": Way(_component(_REJECTED)),
    "rapidbyte metric": Way(_component(f'metric {{"name":"{_SAID}","value":1}};{checkpoint(1)}')),
    "rapidbyte error": Way(_component("fail", error_code=_SAID)),
    "rapidbyte check": Way(_component("", fail="validate", error_code=_SAID), "check"),
    "rapidbyte transform rejected": Way(_transform(f'dlq rows {{"_airbyte_row":2}} {_SAID} data;upper')),
    "rapidbyte transform unnamed": Way(_transform(f"dlq rows {{}} {_SAID} data;upper")),
    "rapidbyte transform fails": Way(_transform(f"dlq rows {{}} {_SAID} data;upper", on_error="fail")),
    "rapidbyte transform error": Way(_transform("fail", error_code=_SAID)),
    "syncmaven enrichment": Way(_enrichment(halts_at=2), **_CREDITS),
    "relay airbyte": Way(_relay(_fake("airbyte", "fake_destination"), fails="system_error"), **_CANNOT),
    "relay singer": Way(_relay(_local("singer", "sh", "-c", _STDERR))),
    "relay syncmaven": Way({**_relay(_MAVEN, halts_after=2), "streams": _CONTACTS}, **_FULL),
    "relay rapidbyte rejected": Way(_relay(_wasm("destination"), **_REJECTS), **_HOME),
    "relay rapidbyte error": Way(_relay(_wasm("destination"), **_FAILS)),
    "push airbyte": Way(_push(_fake("airbyte", "fake_destination"), fails="system_error"), "push", **_CANNOT),
    "push singer": Way(_push(_local("singer", "sh", "-c", _STDERR)), "push"),
    "push syncmaven": Way(_push(_MAVEN, halts_after=2), "push", **_FULL),
    "check syncmaven": Way(_push(_MAVEN, refuses=True), "check", secret="key was", shown="the *** refused"),
    "push rapidbyte rejected": Way(_push(_wasm("destination"), **_REJECTS), "push", **_HOME),
    "push rapidbyte error": Way(_push(_wasm("destination"), **_FAILS), "push"),
    "check rapidbyte": Way(_push(_wasm("destination")), "check", secret="it looked", shown="***"),
}


def _build(place: Place, document: str) -> None:
    """Builds the components that a connection names."""
    (place.folder / "granted").mkdir()
    if "destination.wasm" in document:
        (place.folder / "destination.wasm").write_bytes(guests.destination(place.folder / "granted"))
    for role in ("source", "transform"):
        if f"{role}.wasm" in document:
            (place.folder / f"{role}.wasm").write_bytes(guests.built(role).read_bytes())


def _kept(home: Path) -> Iterator[tuple[str, str]]:
    """The files of a home, and what is in those of Parquet, by their names. Programs are left out: some have the words
    that they say."""
    for file in home.rglob("*"):
        if file.suffix in (".wasm", ".cwasm"):
            continue
        if file.suffix == ".parquet":
            yield file.name, str(pq.read_table(file).to_pylist())
        elif file.is_file():
            yield file.name, file.read_bytes().decode(errors="replace")


@pytest.mark.everyday("airbyte error inside", "rapidbyte rejected", "rapidbyte transform unnamed", "push airbyte")
@pytest.mark.parametrize("name", _WAYS)
def test_it_is_masked_wherever_it_is_kept_or_shown(place: Place, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    way = _WAYS[name]
    monkeypatch.setenv("SHOP_KEY", way.secret)
    _build(place, json.dumps(way.document))
    if way.command == "push":
        place.json("sync", place.connect(USERS))
    file = place.connect({}, "crm", **way.document)
    results = [place.run(way.command, file, *words) for words in (("--verbose",), ("--json",))]
    results += [place.run(*words) for words in (("push", "rejected", file), ("status",), ("loads", "list", "crm"))]
    found = dict(_kept(place.folder / ".airbyte-proto"))
    found["shown"] = "\n".join(result.out + result.err for result in results)
    assert not [where for where, text in found.items() if way.secret in text]
    assert way.shown in found["shown"] or any(way.shown in text for text in found.values()), found["shown"]
