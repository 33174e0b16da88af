"""The launcher of connectors that are WebAssembly components, each in a child program of ours.

The child program is started like any program of this machine, so it ends with us, and all at once (local/guardian.py).
It gets nothing of our environment that a component could see. The component gets what its grants say, and no more.
"""

import hashlib
import json
import os
import struct
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import msgspec

from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.permissions import Permissions
from dagster_airbyte_proto.launchers.process import HostPlace, LaunchOptions, RunningConnector
from dagster_airbyte_proto.launchers.wasm import child_program
from dagster_airbyte_proto.launchers.wasm.compiled_components import (
    CachedComponent,
    cached_component,
    read_connector,
    wasmtime_version,
)
from dagster_airbyte_proto.launchers.wasm.composition.compose import ADAPTER_VERSION, without_wasmtime
from dagster_airbyte_proto.launchers.wasm.host.component_state import ComponentState, MemoryState
from dagster_airbyte_proto.launchers.wasm.host.host_functions import HostFunctions
from dagster_airbyte_proto.launchers.wasm.host.inbox import Inbox
from dagster_airbyte_proto.launchers.wasm.partitions import RunningPartitions, partition_invocations
from dagster_airbyte_proto.launchers.wasm.requests import OpenedComponent, carried_out
from dagster_airbyte_proto.launchers.wasm.running_component import PreparedAnswer, RunningComponent
from dagster_airbyte_proto.launchers.wasm.session import ComponentSession
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb
from dagster_airbyte_proto.protocols.rapidbyte import messages
from dagster_airbyte_proto.protocols.rapidbyte.grants import Grants, Narrowing, granted
from dagster_airbyte_proto.protocols.rapidbyte.manifest import ConnectorManifest, read_manifest
from dagster_airbyte_proto.protocols.rapidbyte.source import CONFIG_FILE, KEPT, KEPT_FILE

_SOURCE_VERBS = (Verb.DISCOVER, Verb.READ)
_START_SECONDS = 30.0
_OF_KERNEL = (Path("/proc"), Path("/sys"), Path("/dev"))
"""Folders of no files. By `/proc` a component writes to the memory of the process that holds it, and is out."""
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - files, in memory
_PLACES = "A source belongs under `connector`, a destination beside `push` or under `to`, a transform in `transforms`."
_CONFIG = msgspec.json.Decoder(dict[str, object])


class _Connector(NamedTuple):
    binary: bytes
    manifest: ConnectorManifest


class WasmLauncher:
    """Launches the component in the file `path`. `narrowing` is what its connection allows it.

    Compiled code is kept under `cache`. The component's state lives as long as it runs, unless there is a `state`.
    """

    def __init__(
        self,
        path: Path,
        narrowing: Narrowing = Narrowing(),  # noqa: B008  # a tuple, and frozen
        *,
        cache: Path,
        options: LaunchOptions | None = None,
        state: ComponentState | None = None,
    ) -> None:
        self._path = path
        self._narrowing = narrowing
        self._cache = cache
        self._options = options or LaunchOptions()
        self._state = state

    def identity(self) -> str:
        """Names the component by its bytes, with all else that its spec depends on."""
        parts = (self._binary(), repr(self._narrowing).encode(), ADAPTER_VERSION.encode())
        digest = hashlib.sha256(b"\0".join(parts)).hexdigest()
        return f"{self._path.stem}-{digest[:16]}"

    def host_place(self) -> HostPlace | None:
        return None

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> RunningConnector:  # noqa: ARG002 - a component sees none of it
        connector = self._connector()
        if invocation.verb is Verb.SPEC:
            return PreparedAnswer(self._specification(connector))
        component = cached_component(connector.binary, self._path.name, self._cache)
        _check_role(component, connector.manifest, invocation.verb, self._path.name)
        config = _CONFIG.decode(invocation.files[CONFIG_FILE])
        grants = granted(connector.manifest, self._narrowing, config)
        if not component.is_compiled and self._options.on_notice:
            self._options.on_notice(f"compiling {self._path.name}, once for this machine")
        parts = partition_invocations(invocation) if connector.manifest.reads_partitions else [invocation]
        state = self._state or MemoryState(_kept(invocation))
        running: list[RunningComponent] = []
        try:
            for part in parts:
                running.append(self._running(part, component, grants, state, connector.manifest.version_warning))
        except BaseException:
            for each in running:
                each.stop()
            raise
        return running[0] if len(parts) == 1 else RunningPartitions(running, invocation)

    def _running(
        self, invocation: Invocation, component: CachedComponent, grants: Grants, state: ComponentState, warning: str
    ) -> RunningComponent:
        program = self._started(component, grants)
        inbox = Inbox() if invocation.takes_input else None
        host = HostFunctions(component.role, grants.hosts, state, inbox)
        session = ComponentSession(program, component.role, host, grants.timeout_seconds)
        warnings = tuple(filter(None, (warning,)))
        steps = carried_out(invocation, OpenedComponent(program, session, host), warnings)
        return RunningComponent(program, session, steps, inbox)

    def _connector(self) -> _Connector:
        wasmtime_version()
        binary = self._binary()
        return _Connector(binary, read_manifest(binary, self._path.name))

    def _binary(self) -> bytes:
        return read_connector(self._path, self._options.read_file)

    def _specification(self, connector: _Connector) -> bytes:
        manifest = connector.manifest
        spec = {
            "manifest": msgspec.to_builtins(msgspec.structs.replace(manifest, config_schema=None)),
            "config_schema": manifest.config_schema or {},
            "grants": [*granted(manifest, self._narrowing).lines(), *_of_config(manifest)],
        }
        return messages.line("spec", spec=spec)

    def _started(self, component: CachedComponent, grants: Grants) -> RunningConnector:
        task = {
            "component": str(component.composed.absolute()),
            "compiled": str(component.compiled.absolute()),
            "memory_bytes": grants.memory_bytes,
            "memory_is_declared": grants.memory_is_declared,
            "variables": self._variables(grants),
            "preopens": self._preopens(grants),
        }
        command = [sys.executable, "-I", "-S", child_program.__file__, _wasmtime_folder()]
        # Of its connection's words, none is for the child program itself.
        options = self._options._replace(permissions=Permissions(), working_folder=None, waits_for_replies=True)
        program = LocalLauncher(command, options=options).launch(Invocation((), takes_input=True), environment={})
        try:
            _write_task(program, json.dumps(task).encode())
        except BaseException:
            program.stop()
            raise
        return program

    def _variables(self, grants: Grants) -> Mapping[str, str]:
        """The variables that it sees: granted ones that our environment has, and those that its connection sets."""
        named = self._options.permissions.named_variables(os.environ)
        if unknown := sorted(named.keys() - set(grants.variables)):
            raise ConfigError(
                f"starting the component {self._path.name}",
                f"env_vars names {', '.join(unknown)}, which it is not granted",
                remedy="A component gets only variables that its manifest declares, and that permissions allows.",
            )
        allowed = named.keys() if named else set(grants.variables)
        return {**{name: os.environ[name] for name in allowed if name in os.environ}, **named}

    def _preopens(self, grants: Grants) -> list[tuple[str, str]]:
        """The granted folders: where each is, and its name for the component. Links are followed here, and once."""
        doing = f"starting the component {self._path.name}"
        found = [(Path(folder).resolve(), Path(os.path.normpath(folder))) for folder in grants.preopens]
        hidden = [each.resolve() for each in self._options.permissions.hidden]
        hidden_places = self._options.permissions.hidden_places()
        for where, folder in found:
            if _meets(where, hidden):
                raise ConfigError(
                    doing,
                    f"its folder {folder} holds our own files, or is among them",
                    remedy="Leave it out of permissions: fs: allowed_preopens.",
                )
            inside = sorted(place.name for place in hidden_places if place.is_relative_to(where))
            if inside:
                raise ConfigError(
                    doing,
                    f"its folder {folder} holds the state store, or settings with secrets: {', '.join(inside)}",
                    remedy="Leave it out of permissions: fs: allowed_preopens, or move the store (state_url), or the"
                    " settings (--settings).",
                )
            if _meets(where, _OF_KERNEL) and not where.is_relative_to(_SHARED_MEMORY):
                raise ConfigError(
                    doing,
                    f"its folder {folder} holds files of the kernel, by which processes and devices are reached",
                    remedy="Leave it out of permissions: fs: allowed_preopens.",
                )
            if not where.is_dir():
                remedy = "Make it, or leave it out of permissions: fs: allowed_preopens."
                raise ConfigError(doing, f"its folder {folder} does not exist here", remedy=remedy)
        # It writes to the outer one, and could put a link to anywhere in the place of the inner one.
        for one, other in permutations(found, 2):
            if any(inner.is_relative_to(outer) for inner in one for outer in other):
                raise ConfigError(
                    doing,
                    f"its folder {one[1]} lies within its folder {other[1]}",
                    remedy="Name one of them in permissions: fs: allowed_preopens.",
                )
        return [(str(where), name) for (where, _), name in zip(found, grants.preopens, strict=True)]


def _meets(folder: Path, others: Iterable[Path]) -> bool:
    return any(folder.is_relative_to(each) or each.is_relative_to(folder) for each in others)


def _of_config(manifest: ConnectorManifest) -> list[str]:
    is_wanted = manifest.permissions.network.allow_runtime_config_domains
    return ["hosts of its config: as if it had declared them"] if is_wanted else []


def _kept(invocation: Invocation) -> Mapping[str, Mapping[str, str]]:
    """The values of earlier runs that belong to no stream."""
    kept: Mapping[str, Mapping[str, str]] = KEPT.decode(invocation.files.get(KEPT_FILE, b"{}"))
    return kept


def _check_role(component: CachedComponent, manifest: ConnectorManifest, verb: Verb, name: str) -> None:
    doing = f"starting the component {name}"
    if manifest.declared_roles and component.role not in manifest.declared_roles:
        named = ", ".join(manifest.declared_roles)
        remedy = "Build it again with a manifest that names its role."
        raise ConfigError(doing, f"it is a {component.role}, and its manifest says {named}", remedy=remedy)
    if verb in _SOURCE_VERBS and component.role != "source":
        found = f"it is a {component.role}, and no source: it has no streams to read"
        raise ConfigError(doing, found, remedy=_PLACES)
    if verb is Verb.TRANSFORM and component.role != "transform":
        raise ConfigError(doing, f"it is a {component.role}, and no transform", remedy=_PLACES)
    if verb is Verb.WRITE and component.role != "destination":
        found = f"it is a {component.role}, and no destination: it takes no rows"
        raise ConfigError(doing, found, remedy=_PLACES)


def _wasmtime_folder() -> str:
    found = find_spec("wasmtime")
    if found is None or found.origin is None:
        raise without_wasmtime()
    return str(Path(found.origin).parent.parent)


def _write_task(program: RunningConnector, task: bytes) -> None:
    rest = memoryview(struct.pack("<I", len(task)) + task)
    while rest:
        taken = program.write(rest, _START_SECONDS)
        if not taken:
            raise ConnectorError("starting the component", "its program does not start", retryable=True)
        rest = rest[taken:]
