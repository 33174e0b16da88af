"""Functions of WASI for a guest of C, as the text of a component imports and lowers them: the few that write files."""

from typing import NamedTuple

_ERRORS = (
    "access would-block already bad-descriptor busy deadlock quota exist file-too-large illegal-byte-sequence"
    " in-progress interrupted invalid io is-directory loop too-many-links message-size name-too-long no-device no-entry"
    " no-lock insufficient-memory insufficient-space not-directory not-empty not-recoverable unsupported no-tty"
    " no-such-device overflow not-permitted pipe read-only invalid-seek text-file-busy cross-device"
)
_VERSION = "0.2.0"


class WasiFunction(NamedTuple):
    """A function as the core module calls it: its name there and in WASI, and its parameters in the canonical ABI.

    It may return a number; any other result goes where the last parameter points.
    """

    name: str
    instance: str
    full_name: str
    cores: tuple[str, ...]
    returned: str = ""


class WasiImports(NamedTuple):
    """Functions that the core module imports from `files`, and the text of the imports that they come from."""

    functions: tuple[WasiFunction, ...]
    text: str


_FILE_FUNCTIONS = (
    WasiFunction("get-directories", "$preopens", "get-directories", ("i32",)),
    WasiFunction("open-at", "$files", "[method]descriptor.open-at", ("i32",) * 7),
    WasiFunction("write", "$files", "[method]descriptor.write", ("i32", "i32", "i32", "i64", "i32")),
    WasiFunction("sync-data", "$files", "[method]descriptor.sync-data", ("i32", "i32")),
)


def _quoted(names: str) -> str:
    return " ".join(f'"{name}"' for name in names.split())


_FILE_TEXT = f"""(import "wasi:filesystem/types@{_VERSION}" (instance $files
(export "descriptor" (type $d (sub resource)))
(type $ec0 (enum {_quoted(_ERRORS)})) (export "error-code" (type $ec (eq $ec0)))
(type $pf0 (flags "symlink-follow")) (export "path-flags" (type $pf (eq $pf0)))
(type $of0 (flags "create" "directory" "exclusive" "truncate")) (export "open-flags" (type $of (eq $of0)))
(type $df0 (flags "read" "write" "file-integrity-sync" "data-integrity-sync" "requested-write-sync" "mutate-directory"))
(export "descriptor-flags" (type $df (eq $df0)))
(export "[method]descriptor.open-at" (func (param "self" (borrow $d)) (param "path-flags" $pf) (param "path" string)
 (param "open-flags" $of) (param "flags" $df) (result (result (own $d) (error $ec)))))
(export "[method]descriptor.write" (func (param "self" (borrow $d)) (param "buffer" (list u8)) (param "offset" u64)
 (result (result u64 (error $ec)))))
(export "[method]descriptor.sync-data" (func (param "self" (borrow $d)) (result (result (error $ec)))))))
(alias export $files "descriptor" (type $descriptor))
(import "wasi:filesystem/preopens@{_VERSION}" (instance $preopens
(alias outer 1 $descriptor (type $d0)) (export "descriptor" (type $d (eq $d0)))
(export "get-directories" (func (result (list (tuple (own $d) string)))))))
"""
WASI_FILES = WasiImports(_FILE_FUNCTIONS, _FILE_TEXT)
