"""A connector on Syncmaven's own CDK, which comes from the registry that npm is set to."""

import json
from pathlib import Path

import pytest

from dagster_airbyte_proto.launchers.packages.npm.launcher import NpmLauncher
from dagster_airbyte_proto.launchers.permissions import Permissions
from dagster_airbyte_proto.launchers.process import LaunchOptions
from dagster_airbyte_proto.protocols.conversation import Invocation
from tests.conformance.launcher import read_all, report_of
from tests.support.needs import require_bubblewrap, require_npm
from tests.support.npm_registry import running_registry

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(300)]

_SCRIPT = """
const { stdProtocol } = require("@syncmaven/node-cdk");
const { z } = require("zod");
const people = {
  name: "people",
  rowType: z.object({ id: z.number() }),
  streamOptions: z.object({}),
  createOutputStream: async () => ({ async handleRow() {}, async finish() {} }),
};
const credentialsType = z.object({ url: z.string() });
stdProtocol({ name: "crm", credentialsType, streams: [people], defaultStream: "people" });
"""


@pytest.mark.everyday("True")
@pytest.mark.parametrize("is_sandboxed", [False, True])
def test_a_destination_describes_itself(
    tmp_path: Path, runs_folder: Path, is_sandboxed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_npm()
    if is_sandboxed:
        require_bubblewrap()
    needs = {"@syncmaven/node-cdk": "0.0.11", "zod": "^3.23.8"}
    options = LaunchOptions(Permissions(sandbox=is_sandboxed, hidden=(tmp_path,)), runs_folder=runs_folder)
    with running_registry() as registry:
        monkeypatch.setenv("npm_config_@acme:registry", registry.url)
        monkeypatch.setenv("npm_config_noproxy", "127.0.0.1")
        registry.add("@acme/crm", "1.0.0", {"dist/index.js": _SCRIPT}, main="dist/index.js", dependencies=needs)
        launcher = NpmLauncher("@acme/crm@1.0.0", cache=tmp_path / "cache", options=options)
        launcher.identity()
    connector = launcher.launch(Invocation((), takes_input=True), environment={})
    connector.write(b'{"type":"describe"}\n', 60.0)
    connector.close_input()
    (spec,) = [line for line in read_all(connector).splitlines() if b'"spec"' in line]
    report_of(connector)
    credentials = json.loads(spec)["payload"]["connectionCredentials"]
    assert list(credentials["properties"]) == ["url"]
