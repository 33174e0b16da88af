"""The text that both halves of the adapter share: their memory, and their imports from WASI.

The memory is a stack: `realloc` takes from `top`, and whoever has sent a message, or reads the next, sets `top` back to
BASE. Thus what lies from BASE to `top` is always one message, laid by the canonical ABI itself.
"""

from dagster_airbyte_proto.protocols.rapidbyte.component.wire import BASE

OPTIONS = "(memory $memory) (realloc $realloc)"
RETURN_AREA = 2048
"""The address for the results of calls to WASI."""

MEMORY = f"""(core module $Mem
  (memory (export "memory") 2)
  (global $top (export "top") (mut i32) (i32.const {BASE}))
  (func (export "realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $new i32) (result i32)
    (local $at i32) (local $end i32)
    (if (i32.and (i32.ne (local.get $old) (i32.const 0))
                 (i32.eq (i32.add (local.get $old) (local.get $old_size)) (global.get $top)))
      (then (local.set $at (local.get $old)))
      (else (local.set $at (i32.and
        (i32.add (global.get $top) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))))
    (local.set $end (i32.add (local.get $at) (local.get $new)))
    (if (i32.lt_u (local.get $end) (local.get $at)) (then unreachable))
    (if (i32.gt_u (local.get $end) (i32.mul (memory.size) (i32.const 65536)))
      (then (if (i32.eq (i32.const -1) (memory.grow
          (i32.sub (i32.add (i32.shr_u (local.get $end) (i32.const 16)) (i32.const 1)) (memory.size))))
        (then unreachable))))
    (if (i32.and (i32.ne (local.get $old) (i32.const 0)) (i32.ne (local.get $at) (local.get $old)))
      (then (memory.copy (local.get $at) (local.get $old)
        (select (local.get $old_size) (local.get $new) (i32.lt_u (local.get $old_size) (local.get $new))))))
    (global.set $top (local.get $end))
    (local.get $at)))
(core instance $mem (instantiate $Mem))
(alias core export $mem "memory" (core memory $memory)) (alias core export $mem "realloc" (core func $realloc))"""


def wasi_imports(version: str) -> str:
    """Imports of what the adapter needs of WASI. `version` ("@0.2.5") is one that the connector does not import: two
    imports of the same name are not allowed."""
    return f"""(import "wasi:io/error{version}" (instance $io_errors (export "error" (type (sub resource)))))
(alias export $io_errors "error" (type $io-error))
(import "wasi:io/streams{version}" (instance $io
  (export "input-stream" (type $in (sub resource))) (export "output-stream" (type $out (sub resource)))
  (alias outer 1 $io-error (type $e0)) (export "error" (type $e (eq $e0)))
  (type $se0 (variant (case "last-operation-failed" (own $e)) (case "closed")))
  (export "stream-error" (type $se (eq $se0)))
  (export "[method]input-stream.blocking-read"
    (func (param "self" (borrow $in)) (param "len" u64) (result (result (list u8) (error $se)))))
  (export "[method]output-stream.check-write" (func (param "self" (borrow $out)) (result (result u64 (error $se)))))
  (export "[method]output-stream.write"
    (func (param "self" (borrow $out)) (param "contents" (list u8)) (result (result (error $se)))))
  (export "[method]output-stream.blocking-flush"
    (func (param "self" (borrow $out)) (result (result (error $se)))))))
(alias export $io "input-stream" (type $in)) (alias export $io "output-stream" (type $out))
(import "wasi:cli/stdin{version}" (instance $stdin
  (alias outer 1 $in (type $i0)) (export "input-stream" (type $i (eq $i0)))
  (export "get-stdin" (func (result (own $i))))))
(import "wasi:cli/stdout{version}" (instance $stdout
  (alias outer 1 $out (type $o0)) (export "output-stream" (type $o (eq $o0)))
  (export "get-stdout" (func (result (own $o))))))
"""
