"""The half of the adapter that drives the connector: it reads commands and calls what the connector exports.

It is the `wasi:cli/run` of the whole, so the composed component is an ordinary command for any runtime. The result of
each function of a role lies in memory, so all calls have one form: the core arguments, and the address of the result.
What lies from there on is sent back as it is.
"""

from dagster_airbyte_proto.launchers.wasm.composition.component_text import (
    signature,
    types_aliased,
    types_import,
    types_of_outside,
)
from dagster_airbyte_proto.launchers.wasm.composition.shared_text import MEMORY, OPTIONS, RETURN_AREA
from dagster_airbyte_proto.protocols.rapidbyte.component.canonical_abi import flattened_parameters
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import (
    CONNECTOR_ERROR,
    NAMED_TYPES,
    ROLE_FUNCTIONS,
    RUN_REQUEST,
    RUN_SUMMARY,
    VALIDATION_REPORT,
)
from dagster_airbyte_proto.protocols.rapidbyte.component.wire import BASE

ROLE_TYPES = (CONNECTOR_ERROR, RUN_REQUEST, RUN_SUMMARY, VALIDATION_REPORT)
"""The types that the interface of a role uses, in the order in which WIT's toolchains export them."""
_ARGUMENTS = BASE + 8
_RESULT_BYTES = 256
"""More than any result has."""


def driver_adapter(role: str) -> str:
    """The text of the component $D for a connector of this role."""
    functions = ROLE_FUNCTIONS[role]
    flat = [flattened_parameters(each.parameters) for each in functions]
    imported = "\n".join(f'(export "{each.name}" {signature(each)})' for each in functions)
    lowered = "\n".join(
        f'(alias export $c "{each.name}" (func $lifted{number}))'
        f" (core func $lowered{number} (canon lower (func $lifted{number}) {OPTIONS}))"
        for number, each in enumerate(functions)
    )
    core_imports = "\n".join(
        f'  (import "c" "{each.name}" (func $call{number} (param {" ".join(cores)} i32)))'
        for number, (each, cores) in enumerate(zip(functions, flat, strict=True))
    )
    calls = "\n".join(
        f"      (if (i32.eq (local.get $number) (i32.const {number + 1})) (then (call $call{number} "
        + " ".join(f"({core}.load (i32.const {_ARGUMENTS + 8 * place}))" for place, core in enumerate(cores))
        + " (local.get $result))))"
        for number, cores in enumerate(flat)
    )
    exported = " ".join(f'(export "{each.name}" (func $lowered{number}))' for number, each in enumerate(functions))
    return f"""(component $D
{types_import("rb-types")}{types_aliased(NAMED_TYPES)}
(import "c" (instance $c
{types_of_outside(ROLE_TYPES)}
{imported}))
(import "recv" (func $recv (result (list u8))))
(import "send" (func $send (param "number" u32) (param "place" u32) (param "data" (list u8))))
{MEMORY}
(core func $recv_ (canon lower (func $recv) {OPTIONS})) (core func $send_ (canon lower (func $send) {OPTIONS}))
{lowered}
(core module $Main
  (import "mem" "memory" (memory 1)) (import "mem" "top" (global $top (mut i32)))
  (import "mem" "realloc" (func $realloc (param i32 i32 i32 i32) (result i32)))
  (import "h" "recv" (func $recv (param i32))) (import "h" "send" (func $send (param i32 i32 i32 i32)))
{core_imports}
  (func (export "run") (result i32) (local $number i32) (local $result i32)
    (loop $next
      (global.set $top (i32.const {BASE})) (call $recv (i32.const {RETURN_AREA}))
      (local.set $number (i32.load (i32.const {BASE})))
      (if (i32.eqz (local.get $number)) (then (return (i32.const 0))))
      (local.set $result (call $realloc (i32.const 0) (i32.const 0) (i32.const 8) (i32.const {_RESULT_BYTES})))
      (memory.fill (local.get $result) (i32.const 0) (i32.const {_RESULT_BYTES}))
{calls}
      (call $send (local.get $number) (local.get $result) (local.get $result)
        (i32.sub (global.get $top) (local.get $result)))
      (br $next))
    unreachable))
(core instance $main (instantiate $Main (with "mem" (instance $mem))
  (with "h" (instance (export "recv" (func $recv_)) (export "send" (func $send_))))
  (with "c" (instance {exported}))))
(alias core export $main "run" (core func $core-run))
(func $run (result (result)) (canon lift (core func $core-run)))
(instance $exported (export "run" (func $run)))
(export "wasi:cli/run@0.2.0" (instance $exported))
)"""
