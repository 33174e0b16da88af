"""A component out of a core module: what `wit-component` does for toolchains, for one that has none.

The module imports the functions that it uses from `host`, and exports its role's and `cabi_realloc` under their bare
names. All their types are those of `interface.py`.
"""

import json
from collections.abc import Sequence
from typing import Any

import wasmtime

from dagster_airbyte_proto.connector_kit.wasi_files import WASI_FILES, WasiFunction, WasiImports
from dagster_airbyte_proto.launchers.wasm.composition.component_text import (
    reference,
    signature,
    types_aliased,
    types_import,
    types_of_outside,
)
from dagster_airbyte_proto.launchers.wasm.composition.driver_adapter import ROLE_TYPES
from dagster_airbyte_proto.launchers.wasm.composition.shared_text import OPTIONS
from dagster_airbyte_proto.protocols.rapidbyte.component.canonical_abi import flattened_parameters
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import (
    CONNECTOR_ERROR,
    HOST_FUNCTIONS,
    NAMED_TYPES,
    ROLE_FUNCTIONS,
    SOCKET_READ_RESULT,
    SOCKET_WRITE_RESULT,
    interface_name,
)
from dagster_airbyte_proto.protocols.rapidbyte.component.wasm_binary import (
    COMPONENT,
    CORE_MODULE,
    CUSTOM,
    leb128,
    section,
    sections,
)


def with_section(binary: bytes, name: str, content: Any) -> bytes:
    """The binary with a custom section at its end, which holds JSON."""
    written = name.encode()
    return binary + section(CUSTOM, leb128(len(written)) + written + json.dumps(content).encode())


def as_component(core: bytes, role: str, wasi: WasiImports | None = None) -> bytes:
    """Wraps a core module, in the order of sections that wit-component has. It may import from WASI; without a word of
    what, those functions that write files."""
    if wasi is None and b"get-directories" in core:
        wasi = WASI_FILES
    found, shell, modules = COMPONENT, bytes(wasmtime.wat2wasm(_component_text(core, role, wasi))), 0
    for each in sections(shell):
        modules += each.id == CORE_MODULE
        if each.id == CORE_MODULE and modules == 3:  # the placeholder
            found += section(CORE_MODULE, core)
        elif each.id:
            found += shell[each.start : each.end]
    return found


def _component_text(core: bytes, role: str, wasi: WasiImports | None) -> str:
    used = [each for each in HOST_FUNCTIONS if each.name.encode() in core]
    files: tuple[WasiFunction, ...] = wasi.functions if wasi else ()
    functions = ROLE_FUNCTIONS[role]
    host_types = (CONNECTOR_ERROR, SOCKET_READ_RESULT, SOCKET_WRITE_RESULT)
    imported = "\n".join(f'(export "{each.name}" {signature(each)})' for each in used)
    flat = [([*flattened_parameters(each.parameters), *(["i32"] if each.result else [])], "") for each in used]
    flat += [([*each.cores], each.returned) for each in files]
    names = [each.name for each in used] + [each.name for each in files]
    sources = [f'$host "{each.name}"' for each in used] + [f'{each.instance} "{each.full_name}"' for each in files]
    lifted = "\n".join(
        f'(alias core export $m "{each.name}" (core func $c-{each.name}))'
        f" {signature(each, 'e-' + each.name)[:-1]} (canon lift (core func $c-{each.name}) {OPTIONS}))"
        for each in functions
    )
    with_files = ' (with "files" (instance $shim))' if files else ""
    types = " ".join(f'(export "{kind.name}" (type {reference(kind)}))' for kind in ROLE_TYPES)
    exported = " ".join(f'(export "{each.name}" (func $e-{each.name}))' for each in functions)
    return f"""(component
{types_import(interface_name("types"))}{types_aliased(NAMED_TYPES)}
(import "{interface_name("host")}" (instance $host {types_of_outside(host_types)}
{imported}))
{wasi.text if wasi else ""}
{_stub_modules(names, flat)}
(core module $M)
(core instance $shim (instantiate $Shim))
(core instance $m (instantiate $M (with "host" (instance $shim)){with_files}))
(alias core export $m "memory" (core memory $memory)) (alias core export $m "cabi_realloc" (core func $realloc))
(alias core export $shim "t" (core table $t))
{_lowered(sources)}
{lifted}
(instance $e {types} {exported})
(export "{interface_name(role)}" (instance $e)))"""


def _stub_modules(names: Sequence[str], flat: Sequence[tuple[Sequence[str], str]]) -> str:
    """A lowered function needs the module's memory, and the module the function: so it imports stubs, which call what
    another module puts into their table afterwards.
    """
    types = [_parts_of_type("param", *cores) + _parts_of_type("result", returned) for cores, returned in flat]
    stubs = "\n".join(
        f'(type $t{number} (func {written})) (func (export "{name}") {written} '
        f"{' '.join(f'(local.get {place})' for place in range(len(cores)))}"
        f" (call_indirect (type $t{number}) (i32.const {number})))"
        for number, (name, (cores, _), written) in enumerate(zip(names, flat, types, strict=True))
    )
    fixed = "\n".join(f'(import "" "{number}" (func $f{number} {each}))' for number, each in enumerate(types))
    elements = " ".join(f"$f{number}" for number in range(len(names)))
    return f"""(core module $Shim (table (export "t") {len(names)} funcref) {stubs})
(core module $Fix (import "" "t" (table {len(names)} funcref)) {fixed} (elem (i32.const 0) func {elements}))"""


def _parts_of_type(kind: str, *cores: str) -> str:
    return f"({kind} {' '.join(cores)})" if any(cores) else ""


def _lowered(sources: Sequence[str]) -> str:
    """Lowers the imported functions, and fills the table of the stubs with them."""
    lowered = "\n".join(
        f"(alias export {source} (func $h{number})) (core func $l{number} (canon lower (func $h{number}) {OPTIONS}))"
        for number, source in enumerate(sources)
    )
    filled = " ".join(f'(export "{number}" (func $l{number}))' for number in range(len(sources)))
    return f"""{lowered}
(core instance (instantiate $Fix (with "" (instance (export "t" (table $t)) {filled}))))"""
