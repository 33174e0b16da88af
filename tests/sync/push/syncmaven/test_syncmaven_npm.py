"""Pushes to destinations that are packages of npm: they are installed, described and pushed to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.needs import require_npm
from tests.support.npm_registry import NpmRegistry, running_registry, use_registry
from tests.sync.push.pushed_table import PushedTable
from tests.sync.push.syncmaven.people import PEOPLE, SCRIPT, PeopleServer, person

_PLAIN = """
const say = (type, payload) => console.log(JSON.stringify({ type, payload }));
let sent = [], credentials;
require("readline").createInterface({ input: process.stdin }).on("line", async (line) => {
  const { type, payload } = JSON.parse(line);
  if (type === "describe") say("spec", { roles: ["destination"], connectionCredentials: { type: "object" } });
  if (type === "describe-streams")
    say("stream-spec", { defaultStream: "people", streams: [{ name: "people", rowType: { type: "object" } }] });
  if (type === "start-stream") credentials = payload.connectionCredentials;
  if (type === "row") sent.push(payload.row);
  if (type === "end-stream") {
    for (const row of sent) await fetch(`${credentials.url}/plain`, { method: "POST", body: JSON.stringify(row) });
    say("stream-result", { received: sent.length, success: sent.length, skipped: 0, failed: 0 });
  }
});
"""


@pytest.fixture
def registry() -> Iterator[NpmRegistry]:
    require_npm()
    with running_registry() as made:
        yield made


@pytest.fixture
def table(quick_folder: Path, server: PeopleServer) -> PushedTable:
    pushed = PushedTable(quick_folder, protocol="syncmaven", schema=PEOPLE)
    pushed.launch, pushed.config = {"kind": "npm", "package": "@acme/people@1.0.0"}, {"url": server.url}
    pushed.stream = "people"
    pushed.fill([person(number, city="Rome") for number in range(1, 8)])
    return pushed


def test_a_package_is_installed_and_pushed_to(
    table: PushedTable, server: PeopleServer, registry: NpmRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_registry(registry, table.folder, monkeypatch)
    registry.add("@acme/people", "1.0.0", {"index.js": _PLAIN}, main="index.js")
    report = table.run().streams["people"]
    assert (report.error, report.acknowledged) == (None, 7)
    assert server.rows == [("/plain", person(number, city="Rome")) for number in range(1, 8)]
    requests = len(registry.requests)
    assert table.run().streams["people"].planned.to_send == 0
    assert len(registry.requests) == requests  # It is installed once.


@pytest.mark.connectors
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_package_on_the_kit_brings_what_it_depends_on(
    table: PushedTable, server: PeopleServer, registry: NpmRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("npm_config_@acme:registry", registry.url)
    monkeypatch.setenv("npm_config_noproxy", "127.0.0.1")
    needs = {"@syncmaven/node-cdk": "0.0.11", "zod": "3.23.8"}
    files = {"dist/people.js": SCRIPT.read_text()}
    registry.add("@acme/people", "1.0.0", files, main="dist/people.js", dependencies=needs)
    table.push["options"] = {"list": "vip"}
    report = table.run().streams["people"]
    assert (report.error, report.acknowledged) == (None, 7)
    table.fill([person(number, city="Oslo" if number > 6 else "Rome") for number in range(1, 9)])
    assert table.run().streams["people"].acknowledged == 2
    assert [(path, row["id"]) for path, row in server.rows] == [("/vip", number) for number in (*range(1, 8), 7, 8)]
