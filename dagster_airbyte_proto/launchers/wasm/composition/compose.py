"""Composes a connector with the adapter into a component that any runtime can run: a command of WASI.

The adapter (host_adapter.py, driver_adapter.py) is written as text and assembled by wasmtime's own `wat2wasm`, so no
toolchain is needed. The connector itself is not touched. It becomes a nested component, put in the place of an empty
one in the assembled whole; and its imports, copied, stand at the beginning (connector_header.py).

Why not call the connector from Python: a host function in Python gets a `list<u8>` as a list of integers, 2 MB/s. Here
the bytes never become Python's one by one: the canonical ABI copies them from memory to memory, and to a pipe.
"""

from typing import NamedTuple

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.wasm.composition.component_text import types_import
from dagster_airbyte_proto.launchers.wasm.composition.connector_header import ConnectorHeader, read_header
from dagster_airbyte_proto.launchers.wasm.composition.driver_adapter import driver_adapter
from dagster_airbyte_proto.launchers.wasm.composition.host_adapter import host_adapter
from dagster_airbyte_proto.launchers.wasm.composition.shared_text import wasi_imports
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import interface_name
from dagster_airbyte_proto.protocols.rapidbyte.component.wasm_binary import (
    COMPONENT,
    CUSTOM,
    NESTED_COMPONENT,
    WasmReader,
    WasmSection,
    section,
    sections,
)

ADAPTER_VERSION = "1"
"""Part of the key of everything compiled: it changes with each change of the adapter."""
_CUT = "cut"
_WASI_VERSIONS = tuple(f"@0.2.{patch}" for patch in range(64))


class ComposedConnector(NamedTuple):
    component: bytes
    role: str


def compose(connector: bytes, name: str) -> ComposedConnector:
    """Returns the component. Raises ConfigError if the connector is not one that we can host, or without wasmtime."""
    header = read_header(connector, name)
    shell = _assembled(_shell_text(header))
    composed, is_behind_cut = bytearray(COMPONENT + header.content), False
    for each in sections(shell):
        if not is_behind_cut:
            # Up to here the shell only counted as many types and instances as the header has.
            is_behind_cut = each.id == CUSTOM and WasmReader(shell, each.body, each.end).name() == _CUT
        elif each.id == NESTED_COMPONENT and _is_placeholder(shell, each):
            composed += section(NESTED_COMPONENT, connector)
        elif each.id != CUSTOM:
            composed += shell[each.start : each.end]
    return ComposedConnector(bytes(composed), header.role)


def _is_placeholder(shell: bytes, nested: WasmSection) -> bool:
    # wat2wasm adds custom sections with names.
    return all(each.id == CUSTOM for each in sections(shell, nested.body, nested.end))


def _assembled(text: str) -> bytes:
    try:
        import wasmtime  # An extra: most connections need none.
    except ImportError as error:
        raise without_wasmtime() from error
    return bytes(wasmtime.wat2wasm(text))


def without_wasmtime() -> ConfigError:
    return ConfigError(
        "starting a component",
        "wasmtime is not installed",
        remedy='Install it with `pip install "dagster_airbyte_proto[rapidbyte]"`.',
    )


def _shell_text(header: ConnectorHeader) -> str:
    version = _free_wasi_version(header)
    stderr, connected = _guest_output(header, version)
    arguments = " ".join(
        f'(with "{name}" {connected.get(number, f"(instance {number})")})' for number, name in enumerate(header.imports)
    )
    role = interface_name(header.role)
    return f"""(component
{" ".join(["(type u8)"] * header.types)}
{" ".join(["(instance)"] * len(header.imports))}
(@custom "{_CUT}" "")
{wasi_imports(version)}{types_import("rb-types")}
{stderr}
{host_adapter(version)}
(component $Connector)
{driver_adapter(header.role)}
(instance $h (instantiate $H
  (with "wasi:io/error{version}" (instance $io_errors)) (with "wasi:io/streams{version}" (instance $io))
  (with "wasi:cli/stdin{version}" (instance $stdin)) (with "wasi:cli/stdout{version}" (instance $stdout))
  (with "rb-types" (instance $types))))
(alias export $h "{interface_name("host")}" (instance $host))
(instance $connector (instantiate $Connector {arguments}))
(alias export $connector "{role}" (instance $role))
(alias export $h "recv" (func $recv)) (alias export $h "send" (func $send))
(instance $d (instantiate $D (with "rb-types" (instance $types)) (with "c" (instance $role))
  (with "recv" (func $recv)) (with "send" (func $send))))
(alias export $d "wasi:cli/run@0.2.0" (instance $run))
(export "wasi:cli/run@0.2.0" (instance $run))
)"""


def _free_wasi_version(header: ConnectorHeader) -> str:
    """A version of WASI that the connector does not import, for our own imports. Runtimes take any 0.2."""
    used = {version for version in _WASI_VERSIONS for name in header.imports if name.endswith(version)}
    return next(version for version in _WASI_VERSIONS if version not in used)


def _guest_output(header: ConnectorHeader, version: str) -> tuple[str, dict[int, str]]:
    """Connects the connector's stdout to stderr: what it prints must not get between the messages."""
    connected = {header.host: "(instance $host)"}
    outputs = [number for number, name in enumerate(header.imports) if name.startswith("wasi:cli/stdout@")]
    if not outputs:
        return "", connected
    streams = [number for number, name in enumerate(header.imports) if name.startswith("wasi:io/streams@")]
    if len(outputs) > 1 or len(streams) != 1 or (streams[0], "output-stream") not in header.type_numbers:
        # A second one would lead past us, into the messages.
        raise ConfigError("composing the component", "it imports stdout in a way that no known toolchain does")
    kind = header.type_numbers[streams[0], "output-stream"]
    connected[outputs[0]] = "(instance $guest_stdout)"
    text = f"""(import "wasi:cli/stderr{version}" (instance $stderr
  (alias outer 1 {kind} (type $o0)) (export "output-stream" (type $o (eq $o0)))
  (export "get-stderr" (func (result (own $o))))))
(alias export $stderr "get-stderr" (func $get-stderr))
(instance $guest_stdout (export "output-stream" (type {kind})) (export "get-stdout" (func $get-stderr)))"""
    return text, connected
