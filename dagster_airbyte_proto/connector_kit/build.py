"""Builds a connector from its folder: what the `build.py` of a skeleton calls.

The folder has `manifest.json`, whose one role names the source file and the component: `source.c` becomes
`source.wasm`. Compilers are programs of others, which are looked for when they are needed.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtoError
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import ROLES
from dagster_airbyte_proto.protocols.rapidbyte.manifest import MANIFEST_SECTION, read_manifest

MANIFEST_FILE = "manifest.json"
WIT_FOLDER = "wit"
# Builtins of a libc are not there; `-mbulk-memory` copies by one instruction, for which no libc is needed.
_C_FLAGS = ("-target", "wasm32-freestanding", "-O2", "-nostdlib", "-mbulk-memory", "-fno-builtin", "-Wall")
# Behind the folder of the source: a header that lies there is taken first.
_C_HEADERS = Path(__file__).parent / "skeletons" / "c"
_C_LINKED = ("-Wl,--no-entry", "-Wl,--export-memory", "-Wl,-z,stack-size=1048576")
_RUST_TARGET = "wasm32-wasip2"
_PYTHON_SCRIPT = "from componentize_py import script; script()"
_MAX_SHOWN_CHARACTERS = 4000

Compiler = Callable[[Path, str], bytes]
"""Compiles what lies in a folder, for a role, to a component without a manifest."""


def build(folder: Path, compiler: Compiler) -> int:
    """Builds `ROLE.wasm` in the folder, and tells about it; returns the exit code for a program."""
    try:
        built = built_connector(folder, compiler)
    except ProtoError as error:
        print(error, file=sys.stderr)  # noqa: T201 - it is the program's output
        return 2 if isinstance(error, ConfigError) else 1
    print(f"built {built} ({built.stat().st_size:,} bytes)")  # noqa: T201
    return 0


def built_connector(folder: Path, compiler: Compiler) -> Path:
    """Builds the connector of a folder, and returns its file. Raises ConfigError or ConnectorError."""
    _require_package("wasmtime", "dagster_airbyte_proto[rapidbyte]")
    from dagster_airbyte_proto.connector_kit.component_file import with_section

    manifest = _manifest(folder / MANIFEST_FILE)
    role = _role(folder / MANIFEST_FILE, manifest)
    path = folder / f"{role}.wasm"
    component = with_section(compiler(folder, role), MANIFEST_SECTION, manifest)
    read_manifest(component, str(path))
    path.write_bytes(component)
    return path


def component_of_c(folder: Path, role: str) -> bytes:
    """Compiles `ROLE.c` by the `ziglang` package, which is a whole C compiler for WebAssembly. Where the folder has no
    `rapidbyte.h` or `arrow.h`, those of the kit are taken."""
    _require_package("ziglang", "ziglang")
    from dagster_airbyte_proto.connector_kit.component_file import as_component

    with tempfile.TemporaryDirectory() as temporary:
        core = Path(temporary) / "core.wasm"
        places = ["-I", str(_C_HEADERS), "-o", str(core), f"{role}.c"]
        _run([sys.executable, "-m", "ziglang", "cc", *_C_FLAGS, *_C_LINKED, *places], folder)
        return as_component(core.read_bytes(), role)


def component_of_python(folder: Path, role: str) -> bytes:
    """Makes a component of `ROLE.py` and a whole Python by `componentize-py`."""
    _require_package("componentize_py", "componentize-py")
    with tempfile.TemporaryDirectory() as temporary:
        built = Path(temporary) / "built.wasm"
        command = [sys.executable, "-c", _PYTHON_SCRIPT, "-d", WIT_FOLDER, "-w", f"rapidbyte-{role}"]
        _run([*command, "componentize", "-p", ".", role, "-o", str(built)], folder)
        return built.read_bytes()


def component_of_rust(folder: Path, _role: str) -> bytes:
    """Compiles the folder's crate by cargo, which makes a component of it."""
    if shutil.which("cargo") is None:
        raise ConfigError(
            "building a connector of Rust",
            "there is no program cargo",
            remedy=f"Install Rust (rustup.rs), then: rustup target add {_RUST_TARGET}",
        )
    _require_rust_target(folder)
    _run(["cargo", "build", "--quiet", "--release", "--target", _RUST_TARGET], folder)
    return (_target_folder(folder) / _RUST_TARGET / "release" / "connector.wasm").read_bytes()


def _target_folder(folder: Path) -> Path:
    return folder / os.environ.get("CARGO_TARGET_DIR", "target")


def _require_rust_target(folder: Path) -> None:
    libraries = subprocess.run(
        ["rustc", "--print", "target-libdir", "--target", _RUST_TARGET], cwd=folder, capture_output=True, text=True
    )  # fmt: skip
    if libraries.returncode or not Path(libraries.stdout.strip()).is_dir():
        raise ConfigError(
            "building a connector of Rust",
            f"this Rust has no target {_RUST_TARGET}",
            remedy=f"Run `rustup target add {_RUST_TARGET}`; where that cannot be had, write it in C or Python.",
        )


def _require_package(module: str, package: str) -> None:
    if find_spec(module) is None:
        raise ConfigError(
            "building a connector",
            f"the package {package} is not installed for {sys.executable}",
            remedy=f"Run `{sys.executable} -m pip install '{package}'`.",
        )


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise ConnectorError(
            f"building the connector in {folder}",
            f"its compiler ended with exit code {done.returncode}:\n{done.stdout[-_MAX_SHOWN_CHARACTERS:].strip()}",
        )


def _manifest(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError("building a connector", f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError("building a connector", f"{file} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError("building a connector", f"{file} is no JSON object")
    return found


def _role(file: Path, manifest: Mapping[str, Any]) -> str:
    roles = manifest.get("roles")
    named = [*roles] if isinstance(roles, dict) else []
    if len(named) != 1 or named[0] not in ROLES:
        raise ConfigError(
            "building a connector",
            f"{file} names {len(named)} roles ({', '.join(map(str, named))}) and not one",
            remedy=f'Write one of {", ".join(ROLES)}: "roles": {{"source": {{}}}}.',
        )
    return str(named[0])
