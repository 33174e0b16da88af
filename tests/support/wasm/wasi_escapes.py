"""What `escapes.c` imports of WASI, as the text of a component: variables, files, clocks, streams, and sockets."""

from dagster_airbyte_proto.connector_kit.wasi_files import WASI_FILES, WasiFunction, WasiImports

_V = "@0.2.0"
_CODES = (
    "unknown access-denied not-supported invalid-argument out-of-memory timeout concurrency-conflict not-in-progress"
    " would-block invalid-state new-socket-limit address-not-bindable address-in-use remote-unreachable"
    " connection-refused connection-reset connection-aborted datagram-too-large name-unresolvable"
    " temporary-resolver-failure permanent-resolver-failure"
)
_TEXT = f"""
(import "wasi:io/error{_V}" (instance $w-error (export "error" (type (sub resource)))))
(alias export $w-error "error" (type $w-err))
(import "wasi:io/poll{_V}" (instance $w-poll (export "pollable" (type $p (sub resource)))
 (export "[method]pollable.block" (func (param "self" (borrow $p))))))
(alias export $w-poll "pollable" (type $w-pollable))
(import "wasi:io/streams{_V}" (instance $w-streams
 (export "input-stream" (type $in (sub resource))) (export "output-stream" (type $out (sub resource)))
 (alias outer 1 $w-err (type $e0)) (export "error" (type $e (eq $e0)))
 (type $se0 (variant (case "last-operation-failed" (own $e)) (case "closed")))
 (export "stream-error" (type $se (eq $se0)))
 (export "[method]input-stream.blocking-read"
  (func (param "self" (borrow $in)) (param "len" u64) (result (result (list u8) (error $se)))))
 (export "[method]output-stream.blocking-write-and-flush"
  (func (param "self" (borrow $out)) (param "contents" (list u8)) (result (result (error $se)))))))
(alias export $w-streams "input-stream" (type $w-in)) (alias export $w-streams "output-stream" (type $w-out))
(import "wasi:cli/stdin{_V}" (instance $w-stdin (alias outer 1 $w-in (type $i0))
 (export "input-stream" (type $i (eq $i0))) (export "get-stdin" (func (result (own $i))))))
(import "wasi:cli/stdout{_V}" (instance $w-stdout (alias outer 1 $w-out (type $o0))
 (export "output-stream" (type $o (eq $o0))) (export "get-stdout" (func (result (own $o))))))
(import "wasi:cli/environment{_V}" (instance $w-environment
 (export "get-environment" (func (result (list (tuple string string)))))))
(import "wasi:clocks/monotonic-clock{_V}" (instance $w-clock (alias outer 1 $w-pollable (type $p0))
 (export "pollable" (type $p (eq $p0))) (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
(import "wasi:sockets/network{_V}" (instance $w-network
 (export "network" (type (sub resource)))
 (type $ec0 (enum {" ".join(f'"{each}"' for each in _CODES.split())})) (export "error-code" (type (eq $ec0)))
 (type $f0 (enum "ipv4" "ipv6")) (export "ip-address-family" (type (eq $f0)))
 (type $a40 (tuple u8 u8 u8 u8)) (export "ipv4-address" (type $a4 (eq $a40)))
 (type $a60 (tuple u16 u16 u16 u16 u16 u16 u16 u16)) (export "ipv6-address" (type $a6 (eq $a60)))
 (type $s40 (record (field "port" u16) (field "address" $a4))) (export "ipv4-socket-address" (type $s4 (eq $s40)))
 (type $s60 (record (field "port" u16) (field "flow-info" u32) (field "address" $a6) (field "scope-id" u32)))
 (export "ipv6-socket-address" (type $s6 (eq $s60)))
 (type $sa0 (variant (case "ipv4" $s4) (case "ipv6" $s6))) (export "ip-socket-address" (type (eq $sa0)))))
(alias export $w-network "network" (type $w-net)) (alias export $w-network "error-code" (type $w-code))
(alias export $w-network "ip-address-family" (type $w-family))
(alias export $w-network "ip-socket-address" (type $w-address))
(import "wasi:sockets/instance-network{_V}" (instance $w-instance (alias outer 1 $w-net (type $n0))
 (export "network" (type $n (eq $n0))) (export "instance-network" (func (result (own $n))))))
(import "wasi:sockets/tcp{_V}" (instance $w-tcp
 (export "tcp-socket" (type $t (sub resource)))
 (alias outer 1 $w-net (type $n0)) (export "network" (type $n (eq $n0)))
 (alias outer 1 $w-code (type $c0)) (export "error-code" (type $c (eq $c0)))
 (alias outer 1 $w-address (type $a0)) (export "ip-socket-address" (type $a (eq $a0)))
 (export "[method]tcp-socket.start-connect" (func (param "self" (borrow $t)) (param "network" (borrow $n))
  (param "remote-address" $a) (result (result (error $c)))))))
(alias export $w-tcp "tcp-socket" (type $w-socket))
(import "wasi:sockets/tcp-create-socket{_V}" (instance $w-create
 (alias outer 1 $w-socket (type $t0)) (export "tcp-socket" (type $t (eq $t0)))
 (alias outer 1 $w-code (type $c0)) (export "error-code" (type $c (eq $c0)))
 (alias outer 1 $w-family (type $f0)) (export "ip-address-family" (type $f (eq $f0)))
 (export "create-tcp-socket" (func (param "address-family" $f) (result (result (own $t) (error $c)))))))
"""
_FUNCTIONS = (
    WasiFunction("get-environment", "$w-environment", "get-environment", ("i32",)),
    WasiFunction("subscribe-duration", "$w-clock", "subscribe-duration", ("i64",), "i32"),
    WasiFunction("block", "$w-poll", "[method]pollable.block", ("i32",)),
    WasiFunction("get-stdin", "$w-stdin", "get-stdin", (), "i32"),
    WasiFunction("get-stdout", "$w-stdout", "get-stdout", (), "i32"),
    WasiFunction("take-in", "$w-streams", "[method]input-stream.blocking-read", ("i32", "i64", "i32")),
    WasiFunction("put-out", "$w-streams", "[method]output-stream.blocking-write-and-flush", ("i32",) * 4),
    WasiFunction("instance-network", "$w-instance", "instance-network", (), "i32"),
    WasiFunction("create-tcp-socket", "$w-create", "create-tcp-socket", ("i32", "i32")),
    WasiFunction("start-connect", "$w-tcp", "[method]tcp-socket.start-connect", ("i32",) * 15),
)
WASI_ESCAPES = WasiImports((*WASI_FILES.functions, *_FUNCTIONS), WASI_FILES.text + _TEXT)
