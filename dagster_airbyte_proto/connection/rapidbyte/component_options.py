"""The options of a connector that is a WebAssembly component: its file, and what it may have of this machine.

Its own manifest says what it needs. A connection only narrows that: what is left out here stays as the manifest has it,
and an empty list blocks all.
"""

from typing import Annotated, Literal

from pydantic import Field

from dagster_airbyte_proto.connection.sizes import Bytes
from dagster_airbyte_proto.connection.validation import RelativePath, StrictModel

_Names = tuple[Annotated[str, Field(min_length=1)], ...] | None


class WasmLaunch(StrictModel):
    """A component in a file, run by wasmtime in a process of ours. Nothing is fetched."""

    kind: Literal["wasm"]
    path: RelativePath


class AllowedNetwork(StrictModel):
    """Hosts: a name, `*.suffix`, or `*`."""

    allowed_hosts: _Names = None


class AllowedEnvironment(StrictModel):
    allowed_vars: _Names = None


class AllowedFolders(StrictModel):
    allowed_preopens: _Names = None


class ComponentPermissions(StrictModel):
    """The part that a component may have of what its manifest declares."""

    network: AllowedNetwork = AllowedNetwork()
    env: AllowedEnvironment = AllowedEnvironment()
    fs: AllowedFolders = AllowedFolders()


class OverrideOptions(StrictModel):
    """Hints for how fast a component works, not for what it does. What is left out, the component chooses."""

    effective_parallelism: Annotated[int, Field(gt=0, strict=True)] | None = None
    partition_strategy: Literal["mod", "range"] | None = None
    copy_flush_bytes_override: Bytes | None = None


class SchemaEvolutionOptions(StrictModel):
    """The answer to a batch whose columns are not those that `discover` gave. What is left out follows the
    `schema_policy` of the stream."""

    new_column: Literal["add", "ignore", "fail"] | None = None
    removed_column: Literal["ignore", "fail"] | None = None
    type_change: Literal["coerce", "null", "fail"] | None = None
    nullability_change: Literal["allow", "fail"] | None = None
