"""The half of the adapter that stands for the host: it sends every call of the connector over stdout.

It exports `rapidbyte:connector/host`, and to the driver `recv` and `send`. The arguments of a call are already in its
memory when the call comes: the canonical ABI put them there. So a call is a header in front of that memory, one write;
the reply is read to the same place, and is the result that the canonical ABI then takes from there.

Which calls expect no reply, and why, says `wire.py`. `$open` is the handle of the frame that was made last, 0 if none,
and `$open_size` how much was written to it: they let it answer the writes to that frame itself.
"""

from dagster_airbyte_proto.launchers.wasm.composition.component_text import (
    reference,
    signature,
    types_aliased,
    types_import,
)
from dagster_airbyte_proto.launchers.wasm.composition.shared_text import MEMORY, OPTIONS, RETURN_AREA, wasi_imports
from dagster_airbyte_proto.protocols.rapidbyte.component.canonical_abi import flattened_parameters
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import (
    CONNECTOR_ERROR,
    HOST_FUNCTIONS,
    SOCKET_READ_RESULT,
    SOCKET_WRITE_RESULT,
    interface_name,
)
from dagster_airbyte_proto.protocols.rapidbyte.component.wire import (
    ANSWER,
    ARGUMENTS_AT,
    BASE,
    HEADER_BYTES,
    MAGIC,
    MAX_FRAME_BYTES,
    REPLY_EXPECTED_AT,
)
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import WitFunction

_HEADER = BASE - HEADER_BYTES
_ARGUMENTS = _HEADER + ARGUMENTS_AT
_REPLY_EXPECTED = _ARGUMENTS + 8 * REPLY_EXPECTED_AT
_REPLY_HEADER = 4096
"""The address to which headers of replies are read."""
_TYPES = (CONNECTOR_ERROR, SOCKET_READ_RESULT, SOCKET_WRITE_RESULT)
_FLUSH = f"(call $flush (global.get $out) (i32.const {RETURN_AREA}))"

_CORE = f"""(core module $Main
  (import "mem" "memory" (memory 1)) (import "mem" "top" (global $top (mut i32)))
  (import "mem" "realloc" (func $realloc (param i32 i32 i32 i32) (result i32)))
  (import "io" "stdin" (func $get_in (result i32))) (import "io" "stdout" (func $get_out (result i32)))
  (import "io" "read" (func $read (param i32 i64 i32))) (import "io" "check" (func $check (param i32 i32)))
  (import "io" "write" (func $write (param i32 i32 i32 i32))) (import "io" "flush" (func $flush (param i32 i32)))
  (global $in (mut i32) (i32.const -1)) (global $out (mut i32) (i32.const -1))
  (global $open (mut i64) (i64.const 0)) (global $open_size (mut i64) (i64.const 0))
  (func $get_streams
    (if (i32.eq (global.get $in) (i32.const -1))
      (then (global.set $in (call $get_in)) (global.set $out (call $get_out)))))
  (func $send (param $at i32) (param $size i32) (local $room i32)
    (call $get_streams)
    (loop $more (if (local.get $size) (then
      (call $check (global.get $out) (i32.const {RETURN_AREA}))
      (if (i32.load8_u (i32.const {RETURN_AREA})) (then unreachable))
      (local.set $room (i32.load (i32.const {RETURN_AREA + 8})))
      (if (i32.gt_u (local.get $room) (local.get $size)) (then (local.set $room (local.get $size))))
      (if (local.get $room)
        (then (call $write (global.get $out) (local.get $at) (local.get $room) (i32.const {RETURN_AREA}))
              (if (i32.load8_u (i32.const {RETURN_AREA})) (then unreachable)))
        (else {_FLUSH}))
      (local.set $at (i32.add (local.get $at) (local.get $room)))
      (local.set $size (i32.sub (local.get $size) (local.get $room)))
      (br $more)))))
  (func $receive (param $size i32)   ;; to where $top points, without a gap: lists of bytes have the alignment 1
    (call $get_streams)
    (loop $more (if (local.get $size) (then
      (call $read (global.get $in) (i64.extend_i32_u (local.get $size)) (i32.const {RETURN_AREA}))
      (if (i32.load8_u (i32.const {RETURN_AREA})) (then unreachable))
      (local.set $size (i32.sub (local.get $size) (i32.load (i32.const {RETURN_AREA + 8}))))
      (br $more)))))
  (func $message (param $number i32) (local $size i32)
    (local.set $size (i32.sub (global.get $top) (i32.const {BASE})))
    (i32.store (i32.const {_HEADER}) (i32.const {MAGIC}))
    (i32.store (i32.const {_HEADER + 4}) (local.get $number))
    (i32.store (i32.const {_HEADER + 8}) (local.get $size))
    (call $send (i32.const {_HEADER}) (i32.add (local.get $size) (i32.const {HEADER_BYTES}))))
  (func $reply (result i32)          ;; the body lies at BASE then; returns its size
    (global.set $top (i32.const {_REPLY_HEADER})) (call $receive (i32.const 8))
    (if (i32.ne (i32.load (i32.const {_REPLY_HEADER})) (i32.const {MAGIC})) (then unreachable))
    (global.set $top (i32.const {BASE})) (call $receive (i32.load (i32.const {_REPLY_HEADER + 4})))
    (i32.sub (global.get $top) (i32.const {BASE})) (global.set $top (i32.const {BASE})))
  (func $ask (param $number i32) (result i32)
    (call $message (local.get $number)) {_FLUSH} (drop (call $reply)) (i32.const {BASE}))
  (func $notify (param $number i32)
    (call $message (local.get $number)) (global.set $top (i32.const {BASE})))
  (func (export "recv") (result i32)
    (i32.store (i32.const {RETURN_AREA + 20}) (call $reply))
    (i32.store (i32.const {RETURN_AREA + 16}) (i32.const {BASE}))
    (i32.const {RETURN_AREA + 16}))
  (func (export "send") (param $number i32) (param $place i32) (param $data i32) (param $size i32)
    (i64.store (i32.const {_ARGUMENTS}) (i64.extend_i32_u (local.get $place)))
    (call $message (i32.add (local.get $number) (i32.const {ANSWER})))
    {_FLUSH} (global.set $top (i32.const {BASE})))
"""


def host_adapter(wasi_version: str) -> str:
    """The text of the component $H."""
    functions = "\n".join(_core_function(number, each) for number, each in enumerate(HOST_FUNCTIONS))
    cores = [*(each.name for each in HOST_FUNCTIONS), "recv", "send"]
    aliases = "\n".join(f'(alias core export $main "{name}" (core func $core-{name}))' for name in cores)
    lifted = "\n".join(
        f"{signature(each, each.name)[:-1]} (canon lift (core func $core-{each.name}) {OPTIONS}))"
        for each in HOST_FUNCTIONS
    )
    types = " ".join(f'(export "{kind.name}" (type {reference(kind)}))' for kind in _TYPES)
    exported = " ".join(f'(export "{each.name}" (func ${each.name}))' for each in HOST_FUNCTIONS)
    return f"""(component $H
{wasi_imports(wasi_version)}{types_import("rb-types")}{types_aliased(_TYPES)}
{MEMORY}
{_CORE}{functions})
{_lowered_streams()}
(core instance $main (instantiate $Main (with "mem" (instance $mem)) (with "io" (instance
  (export "stdin" (func $get_in)) (export "stdout" (func $get_out)) (export "read" (func $read))
  (export "check" (func $check)) (export "write" (func $write)) (export "flush" (func $flush))))))
{aliases}
{lifted}
(instance $host {types} {exported})
(export "{interface_name("host")}" (instance $host))
(func (export "recv") (result (list u8)) (canon lift (core func $core-recv) {OPTIONS}))
(func (export "send") (param "number" u32) (param "place" u32) (param "data" (list u8))
  (canon lift (core func $core-send) {OPTIONS}))
)"""


def _lowered_streams() -> str:
    used = (
        ("stdin", "get-stdin", "get_in"),
        ("stdout", "get-stdout", "get_out"),
        ("io", "[method]input-stream.blocking-read", "read"),
        ("io", "[method]output-stream.check-write", "check"),
        ("io", "[method]output-stream.write", "write"),
        ("io", "[method]output-stream.blocking-flush", "flush"),
    )
    return "\n".join(
        f'(alias export ${instance} "{name}" (func ${core}_))'
        f" (core func ${core} (canon lower (func ${core}_) {OPTIONS}))"
        for instance, name, core in used
    )


def _core_function(number: int, function: WitFunction) -> str:
    flat = flattened_parameters(function.parameters)
    parameters = f"(param {' '.join(flat)})" if flat else ""
    result = "(result i32)" if function.result else ""
    stored = "".join(
        f"(i64.store (i32.const {_ARGUMENTS + 8 * place}) {_widened(place, core)})" for place, core in enumerate(flat)
    )
    body = _BODIES.get(function.name, _ONE_WAY if function.result is None else _CALLED)
    return f'  (func (export "{function.name}") {parameters} {result}\n    {stored}\n    {body % {"number": number}})'


def _widened(place: int, core: str) -> str:
    return f"(local.get {place})" if core == "i64" else f"(i64.extend_i32_u (local.get {place}))"


_CALLED = "(call $ask (i32.const %(number)d))"
_ONE_WAY = f"(call $notify (i32.const %(number)d)) {_FLUSH}"
_CALLED_FOR_A_REPLY = f"""
    (i64.store (i32.const {_REPLY_EXPECTED}) (i64.const 1)) (call $ask (i32.const %(number)d))
    (i64.store (i32.const {_REPLY_EXPECTED}) (i64.const 0))"""
_OK = f"(i32.store8 (i32.const {BASE}) (i32.const 0))"
_BODIES = {
    "frame-new": f"""(drop (call $ask (i32.const %(number)d))) (global.set $open (i64.const 0))
    (if (i32.eqz (i32.load8_u (i32.const {BASE}))) (then
      (global.set $open (i64.load (i32.const {BASE + 8}))) (global.set $open_size (i64.const 0))))
    (i32.const {BASE})""",
    "frame-write": f"""(if (i64.eq (local.get 0) (global.get $open)) (then
      (global.set $open_size (i64.add (global.get $open_size) (i64.extend_i32_u (local.get 2))))
      (if (i64.le_u (global.get $open_size) (i64.const {MAX_FRAME_BYTES}))
        (then (call $notify (i32.const %(number)d)) {_OK}
          (i64.store (i32.const {BASE + 8}) (global.get $open_size)) (return (i32.const {BASE})))
        (else (global.set $open (i64.const 0))))))
    {_CALLED_FOR_A_REPLY}""",
    "frame-seal": f"""(if (i64.eq (local.get 0) (global.get $open)) (then
      (call $notify (i32.const %(number)d)) (global.set $open (i64.const 0)) {_OK} (return (i32.const {BASE}))))
    {_CALLED_FOR_A_REPLY}""",
    "frame-drop": """(if (i64.eq (local.get 0) (global.get $open)) (then (global.set $open (i64.const 0))))
    (call $notify (i32.const %(number)d))""",
}
"""The bodies of the functions that do more than to ask."""
