"""The manifest of a connector: who it is, its roles, and what it says it needs. It lies in the file itself.

Custom section `rapidbyte_manifest_v1` holds it as JSON, `rapidbyte_config_schema_v1` the JSON Schema of its config
(`config_schema` in the manifest does too). Where a toolchain wrapped a core module, they lie in the module within.

A connector without a manifest is granted nothing, and no role of it is known but the one that it exports.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from dagster_airbyte_proto.connection.sizes import binary_size
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import PROTOCOL_VERSION, ROLES
from dagster_airbyte_proto.protocols.rapidbyte.component.wasm_binary import WasmFormatError, custom_sections

MANIFEST_SECTION = "rapidbyte_manifest_v1"
CONFIG_SCHEMA_SECTION = "rapidbyte_config_schema_v1"
PARTITIONED_READ = "partitioned_read"
_SECTIONS = frozenset((MANIFEST_SECTION, CONFIG_SCHEMA_SECTION))


class NetworkPermissions(msgspec.Struct, frozen=True):
    """The hosts that it says it connects to: `*`, `*.suffix` or a name each; and those that its config names."""

    allowed_domains: tuple[str, ...] | None = None
    allow_runtime_config_domains: bool = False


class FilePermissions(msgspec.Struct, frozen=True):
    preopens: tuple[str, ...] = ()


class EnvironmentPermissions(msgspec.Struct, frozen=True):
    allowed_vars: tuple[str, ...] = ()


class ManifestPermissions(msgspec.Struct, frozen=True):
    network: NetworkPermissions = NetworkPermissions()
    fs: FilePermissions = FilePermissions()
    env: EnvironmentPermissions = EnvironmentPermissions()


class ManifestLimits(msgspec.Struct, frozen=True):
    max_memory: int | str | None = None
    timeout_seconds: int | float | None = None


class ConnectorManifest(msgspec.Struct, frozen=True):
    """The manifest as its author wrote it. Members that we do not know are left out."""

    id: str = ""
    name: str = ""
    version: str = ""
    protocol_version: str | int = PROTOCOL_VERSION
    permissions: ManifestPermissions = ManifestPermissions()
    limits: ManifestLimits = ManifestLimits()
    roles: Mapping[str, Any] = {}
    config_schema: Mapping[str, Any] | None = None

    @property
    def declared_roles(self) -> tuple[str, ...]:
        """The roles that it names. One that is null or false is none."""
        return tuple(role for role in ROLES if self.roles.get(role) not in (None, False))

    @property
    def reads_partitions(self) -> bool:
        """True if its source reads one partition of a stream where it is given one. Any other would read all rows."""
        source = self.roles.get("source")
        features = source.get("features") if isinstance(source, Mapping) else None
        return isinstance(features, list | tuple) and PARTITIONED_READ in features

    @property
    def version_warning(self) -> str:
        """A warning if it was written for another version of the protocol; empty otherwise."""
        if str(self.protocol_version) == PROTOCOL_VERSION:
            return ""
        return (
            f"its manifest says protocol version {self.protocol_version}, and we speak {PROTOCOL_VERSION}: "
            "it may not work"
        )


_MANIFEST = msgspec.json.Decoder(ConnectorManifest)
_SCHEMA = msgspec.json.Decoder(dict[str, Any])


def read_manifest(binary: bytes, name: str) -> ConnectorManifest:
    """Returns the manifest in the bytes of a connector, with the schema of its config. `name` is for messages.

    Raises ConfigError if the bytes are no WebAssembly, or if what lies in the sections cannot be read.
    """
    doing = f"reading the manifest of {name}"
    try:
        found = custom_sections(binary, _SECTIONS)
        manifest = _MANIFEST.decode(found.get(MANIFEST_SECTION, b"{}"))
        schema = _SCHEMA.decode(found[CONFIG_SCHEMA_SECTION]) if CONFIG_SCHEMA_SECTION in found else None
    except WasmFormatError as error:
        raise ConfigError(doing, str(error), remedy="Name the .wasm file of a connector, as `path`.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        remedy = "The connector's author can fix it: it is a custom section of the file."
        raise ConfigError(doing, f"it is no manifest: {error}", remedy=remedy) from error
    return manifest if schema is None else msgspec.structs.replace(manifest, config_schema=schema)


def declared_variables(specification: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the variables that a manifest declares, by the specification that has it. Other connectors declare
    none."""
    found = _part(specification, "manifest", "permissions", "env", "allowed_vars")
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, list | tuple) else ()


def roles_in(specification: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the roles that a manifest names, in the same way."""
    found = _part(specification, "manifest", "roles")
    return tuple(role for role in ROLES if found.get(role) not in (None, False)) if isinstance(found, Mapping) else ()


def _part(specification: Mapping[str, Any], *names: str) -> Any:
    found: Any = specification
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def size_in_bytes(written: int | str, name: str) -> int:
    """The size as a manifest writes it. Raises ConfigError for what is none: to wasmtime a negative limit is no
    limit."""
    found = binary_size(written)
    if not found:
        raise ConfigError(f"reading the manifest of {name}", f"max_memory is {str(written)[:40]!r}, which is no size")
    return found
