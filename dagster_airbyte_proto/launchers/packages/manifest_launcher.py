"""The launcher of low-code manifests: airbyte-cdk's interpreter runs them, in its own environment.

The interpreter takes the manifest inside the config, under a key that no spec names. All versions from 6.34 to 7.39 do;
an option for it came later (6.48 has none). The added keys come back in configs that the connector rewrites:
`INJECTED_KEY_PREFIX` tells them from the user's.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.connection.launch import COMPONENTS_FILE
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.packages.manifest_file import Manifest, read_manifest
from dagster_airbyte_proto.launchers.packages.pypi_launcher import PypiLauncher
from dagster_airbyte_proto.launchers.process import HostPlace, LaunchOptions, RunningConnector
from dagster_airbyte_proto.launchers.recordings.replay import ReplayedConnector
from dagster_airbyte_proto.launchers.recordings.run_files import RecordedRun
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation

INJECTED_KEY_PREFIX = "__injected_"
"""The prefix of the keys that are added to a config for the interpreter."""
DEFAULT_CDK_VERSION = "7.39.1"
"""The version of airbyte-cdk for a connection that names none."""


class Interpreter(NamedTuple):
    """The airbyte-cdk that runs a manifest: its version, and the version of Python for it."""

    version: str | None = None
    python: str | None = None


class ManifestLauncher:
    """Runs the manifest at `path` with the `interpreter`, which is installed under `cache` when first needed.

    The spec is answered from the file: nothing is started or installed. A manifest with custom code is refused unless
    `custom_components` is set; then a components.py beside the manifest goes with it.
    """

    def __init__(
        self,
        path: Path,
        interpreter: Interpreter = Interpreter(),  # noqa: B008  # a tuple, and frozen
        *,
        cache: Path,
        custom_components: bool = False,
        options: LaunchOptions | None = None,
    ) -> None:
        self._path = path
        self._package = f"airbyte-cdk=={interpreter.version or DEFAULT_CDK_VERSION}"
        self._python = interpreter.python
        self._allows_code = custom_components
        self._read_file = (options or LaunchOptions()).read_file
        self._interpreter = PypiLauncher(
            self._package, "source-declarative-manifest", cache=cache, python=interpreter.python, options=options
        )

    def identity(self) -> str:
        """A digest of the manifest's content, its code and the version that runs it. Installs nothing."""
        parts = (self._manifest.digest, self._package, self._python or "", str(self._allows_code), self._code or "")
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self._path.stem}-{digest[:16]}"

    def host_place(self) -> HostPlace | None:
        return self._interpreter.host_place()

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> RunningConnector:
        manifest = self._manifest
        if invocation.arguments == ("spec",):
            return _connector_answering({"type": "SPEC", "spec": manifest.spec})
        # Newer versions run custom code only if this is true. Old ones run it in any case: so `read_manifest` refuses
        # it first.
        permission = {"AIRBYTE_ENABLE_UNSAFE_CODE": str(self._allows_code).lower()}
        return self._interpreter.launch(self._with_manifest(invocation), environment={**environment, **permission})

    @cached_property
    def _manifest(self) -> Manifest:
        return read_manifest(self._path, allows_code=self._allows_code, read_file=self._read_file)

    @cached_property
    def _code(self) -> str | None:
        path = self._path.with_name(COMPONENTS_FILE)
        try:
            return self._read_file(path).decode("utf-8") if self._allows_code else None
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("reading the manifest's components", f"{path} cannot be read: {error}") from error

    def _with_manifest(self, invocation: Invocation) -> Invocation:
        files = dict(invocation.files)
        for option, argument in pairwise(invocation.arguments):
            if option == "--config" and isinstance(argument, FileArgument):
                files[argument.name] = self._with_injected(files[argument.name])
        return invocation._replace(files=files)

    def _with_injected(self, config_file: bytes) -> bytes:
        config = json.loads(config_file)
        reserved = [key for key in config if key.startswith(INJECTED_KEY_PREFIX)]
        if reserved:
            raise ConfigError(
                f"handing the config to manifest {self._path}",
                f"it has {', '.join(reserved)}, which is reserved for the manifest",
                remedy="Remove it from the config: the manifest in `path` is the one that runs.",
            )
        injected: dict[str, Any] = {"declarative_manifest": _manifest_for_interpreter(self._manifest)}
        if self._code is not None:
            checksum = hashlib.sha256(self._code.encode()).hexdigest()
            injected |= {"components_py": self._code, "components_py_checksums": {"sha256": checksum}}
        return json.dumps(
            {**config, **{INJECTED_KEY_PREFIX + name: value for name, value in injected.items()}}
        ).encode()


def _manifest_for_interpreter(manifest: Manifest) -> Mapping[str, Any]:
    """The manifest with a spec that allows the added keys. The user's config was validated against the real spec."""
    schema = {**manifest.spec["connectionSpecification"], "additionalProperties": True}
    return {**manifest.content, "spec": {**manifest.content["spec"], "connection_specification": schema}}


def _connector_answering(message: Mapping[str, Any]) -> ReplayedConnector:
    """A connector that printed this message and ended with code 0."""
    output = io.BytesIO(msgspec.json.encode(message) + b"\n")
    return ReplayedConnector(output, RecordedRun("spec", ("spec",), 0, None, False, 0.0, ()))
