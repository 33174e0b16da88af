"""Builds connectors of Rapidbyte for tests, from C: by `zig cc`, which is a package, and without any tool of WIT."""

import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dagster_airbyte_proto import connector_kit
from dagster_airbyte_proto.connector_kit.component_file import as_component as as_component
from dagster_airbyte_proto.connector_kit.component_file import with_section as with_section
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import ROLES
from tests.support.wasm.wasi_escapes import WASI_ESCAPES

_FOLDER = tempfile.TemporaryDirectory(prefix="components-")
CONNECTOR = Path(__file__).parent / "connector.c"
DESTINATION = Path(__file__).parent / "destination.c"
COUNTING = Path(__file__).parent / "counting.c"
ESCAPES = Path(__file__).parent / "escapes.c"
_HEADERS = Path(connector_kit.__file__).parent / "skeletons" / "c"
_FLAGS = ("-target", "wasm32-freestanding", "-O2", "-nostdlib", "-mbulk-memory", "-fno-builtin")
_LINKED = ("-Wl,--no-entry", "-Wl,--export-memory", "-Wl,-z,stack-size=1048576")
MANIFEST: Mapping[str, Any] = {
    "id": "tests/scripted",
    "name": "Scripted",
    "version": "1.2.3",
    "protocol_version": "4",
    "permissions": {"network": {"allowed_domains": ["localhost", "127.0.0.1"], "allow_runtime_config_domains": True}},
    "roles": {role: {} for role in ROLES},
}


def core_module(folder: Path, role: str, source: Path = CONNECTOR) -> bytes:
    """Compiles C to a core module, which imports the functions that it uses from `host`."""
    built = folder / f"{source.stem}-{role}-{secrets.token_hex(4)}.core.wasm"  # Threads build at once.
    names = [f"-DROLE={ROLES.index(role)}", *(["-DSOURCE"] if role == "source" else [])]
    places = ["-I", str(_HEADERS), "-o", str(built), str(source)]
    command = [sys.executable, "-m", "ziglang", "cc", *_FLAGS, *_LINKED, *names, *places]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return built.read_bytes()


def connector(
    folder: Path, role: str = "source", manifest: Mapping[str, Any] | None = MANIFEST, schema: object = None
) -> bytes:
    """A whole connector, with its manifest in the core module, as toolchains leave it."""
    core = core_module(folder, role)
    if manifest is not None:
        core = with_section(core, "rapidbyte_manifest_v1", manifest)
    if schema is not None:
        core = with_section(core, "rapidbyte_config_schema_v1", schema)
    return as_component(core, role)


@cache
def built(role: str = "source") -> Path:
    """The file of a connector of this role, built once a process."""
    path = Path(_FOLDER.name) / f"{role}.wasm"
    path.write_bytes(connector(path.parent, role))
    return path


def can_build() -> bool:
    """True where components of C can be built and run."""
    return all(find_spec(name) for name in ("ziglang", "wasmtime"))


@cache
def counting() -> bytes:
    """The source of `counting.c`."""
    core = core_module(Path(_FOLDER.name), "source", COUNTING)
    return as_component(with_section(core, "rapidbyte_manifest_v1", MANIFEST), "source")


@cache
def _escapes() -> bytes:
    """The source of `escapes.c`, without a manifest."""
    return as_component(core_module(Path(_FOLDER.name), "source", ESCAPES), "source", WASI_ESCAPES)


def escapes(folder: Path) -> bytes:
    """The source that tries to get out. It may use this folder, and the variable GRANTED."""
    permissions = {"fs": {"preopens": [str(folder)]}, "env": {"allowed_vars": ["GRANTED", "UNSET"]}}
    manifest = {**MANIFEST, "permissions": permissions, "roles": {"source": {}}}
    return with_section(_escapes(), "rapidbyte_manifest_v1", manifest)


@cache
def _destination() -> bytes:
    """The destination of `destination.c`, without a manifest."""
    return as_component(core_module(Path(_FOLDER.name), "destination", DESTINATION), "destination")


def destination(folder: Path, **role: Any) -> bytes:
    """The destination that writes into this folder, with what its manifest says of its role."""
    permissions = {"fs": {"preopens": [str(folder)]}}
    manifest = {**MANIFEST, "permissions": permissions, "roles": {"destination": role}}
    return with_section(_destination(), "rapidbyte_manifest_v1", manifest)
