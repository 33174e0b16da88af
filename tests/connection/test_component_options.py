"""Connections to components: what may stand there, and what is refused."""

from pathlib import Path

import pytest

from dagster_airbyte_proto.connection import Connection, WasmLaunch
from dagster_airbyte_proto.errors import ConfigError

_WASM = "launch: {kind: wasm, path: source.wasm}"
_PROGRAM = "launch: {kind: local, command: x}"


def _read(folder: Path, text: str) -> Connection:
    file = folder / "shop.yaml"
    file.write_text(text)
    return Connection.from_file(file)


def test_a_component_is_named_by_its_file_and_narrowed(tmp_path: Path) -> None:
    text = f"""
connector:
  protocol: rapidbyte
  {_WASM}
  permissions: {{network: {{allowed_hosts: ["*.internal"]}}, env: {{allowed_vars: []}}}}
  limits: {{max_memory: 512 MiB, timeout_seconds: 600}}
overrides: {{effective_parallelism: 4, copy_flush_bytes_override: 16 MiB}}
"""
    connection = _read(tmp_path, text)
    connector = connection.connector
    assert isinstance(connector.launch, WasmLaunch)
    assert connector.launch.path == tmp_path / "source.wasm"
    assert connector.permissions.network.allowed_hosts == ("*.internal",)
    assert (connector.permissions.env.allowed_vars, connector.permissions.fs.allowed_preopens) == ((), None)
    assert (connector.limits.max_memory, connector.limits.timeout_seconds) == (512 << 20, 600.0)
    assert connection.overrides.copy_flush_bytes_override == 16 << 20


def test_hints_may_be_for_the_destination_of_a_relay(tmp_path: Path) -> None:
    relay = f"""
connector: {{protocol: airbyte, {_PROGRAM}}}
to: {{connector: {{protocol: rapidbyte, launch: {{kind: wasm, path: crm.wasm}}}}}}
overrides: {{copy_flush_bytes_override: 16 MiB}}
"""
    assert _read(tmp_path, relay).overrides.copy_flush_bytes_override == 16 << 20


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"connector: {{protocol: airbyte, {_WASM}}}", "launch.kind: wasm is for connectors of protocol: rapidbyte"),
        (f"connector: {{protocol: rapidbyte, {_PROGRAM}}}", "protocol: rapidbyte is for components"),
        (
            f"connector: {{protocol: airbyte, {_PROGRAM}, permissions: {{env: {{allowed_vars: []}}}}}}",
            "permissions are for a component (launch: kind: wasm); a program has sandbox and env_vars",
        ),
        (
            f"connector: {{protocol: rapidbyte, {_WASM}, limits: {{timeout_seconds: 0}}}}",
            "connector.limits.timeout_seconds",
        ),
        (
            f"connector: {{protocol: rapidbyte, {_WASM}, permissions: {{network: {{allowed_domains: []}}}}}}",
            'did you mean "allowed_hosts"',
        ),
        (f"sandbox: true\nconnector: {{protocol: rapidbyte, {_WASM}}}", "a component is confined without it"),
        (
            f"connector: {{protocol: airbyte, {_PROGRAM}}}\noverrides: {{partition_strategy: mod}}",
            "overrides are for a connector of protocol: rapidbyte",
        ),
    ],
)
def test_what_does_not_fit_a_component_is_refused(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _read(tmp_path, text)
    assert found in str(refused.value)
