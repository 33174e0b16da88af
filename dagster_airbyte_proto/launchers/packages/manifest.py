"""A connector that is a low-code manifest, run by airbyte-cdk's interpreter of such in an environment of its own.

The interpreter takes the manifest in the config, under a key that no spec names: those of 6.34 to 7.39 do, while an
option for it came later (6.48 has none). What is put in a config comes back in the configs that the connector
rewrites; `INJECTED` tells what of one is not the user's.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.packages.manifest_file import Manifest, read_manifest
from dagster_airbyte_proto.launchers.packages.pypi import PypiLauncher
from dagster_airbyte_proto.launchers.process import RunningConnector, RunOptions
from dagster_airbyte_proto.launchers.recordings.recording import RecordedRun
from dagster_airbyte_proto.launchers.recordings.replay import ReplayedConnector
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation

INJECTED = "__injected_"
"""How the keys begin that a config gets on its way to the interpreter."""
CDK_VERSION = "7.39.1"
"""What runs a manifest whose connection names no version."""
_COMPONENTS_FILE = "components.py"


class ManifestLauncher:
    """Runs the manifest at `path` by airbyte-cdk of a `version`, installed under `cache` when first needed.

    Its spec is answered from the file, with nothing started or installed. Code of the manifest's own is refused unless
    `custom_components`; then a components.py beside it goes with it.
    """

    def __init__(
        self,
        path: Path,
        *,
        cache: Path,
        version: str | None = None,
        python: str | None = None,
        custom_components: bool = False,
        options: RunOptions | None = None,
    ) -> None:
        self._path = path
        self._package = f"airbyte-cdk=={version or CDK_VERSION}"
        self._python = python
        self._allows_code = custom_components
        self._interpreter = PypiLauncher(
            self._package, "source-declarative-manifest", cache=cache, python=python, options=options
        )

    def identity(self) -> str:
        """Of the manifest's content, its code and what runs it; installs nothing."""
        parts = (self._manifest.digest, self._package, self._python or "", str(self._allows_code), self._code or "")
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self._path.stem}-{digest[:16]}"

    def launch(self, invocation: Invocation, *, environment: Mapping[str, str]) -> RunningConnector:
        manifest = self._manifest
        if invocation.arguments == ("spec",):
            return _answered({"type": "SPEC", "spec": manifest.spec})
        # Old versions run whatever code there is and do not ask; newer ones ask this.
        permission = {"AIRBYTE_ENABLE_UNSAFE_CODE": str(self._allows_code).lower()}
        return self._interpreter.launch(self._with_manifest(invocation), environment={**environment, **permission})

    @cached_property
    def _manifest(self) -> Manifest:
        return read_manifest(self._path, allows_code=self._allows_code)

    @cached_property
    def _code(self) -> str | None:
        path = self._path.with_name(_COMPONENTS_FILE)
        try:
            return path.read_text(encoding="utf-8") if self._allows_code else None
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
        taken = [key for key in config if key.startswith(INJECTED)]
        if taken:
            raise ConfigError(
                f"handing the config to manifest {self._path}",
                f"it has {', '.join(taken)}, which is where the manifest goes",
                remedy="Take it out of the config: what runs is the manifest in `path`.",
            )
        injected: dict[str, Any] = {"declarative_manifest": _interpretable(self._manifest)}
        if self._code is not None:
            checksum = hashlib.sha256(self._code.encode()).hexdigest()
            injected |= {"components_py": self._code, "components_py_checksums": {"sha256": checksum}}
        return json.dumps({**config, **{INJECTED + name: value for name, value in injected.items()}}).encode()


def _interpretable(manifest: Manifest) -> Mapping[str, Any]:
    """The manifest with a spec that lets pass what is put into the config; ours was held against the real one."""
    schema = {**manifest.spec["connectionSpecification"], "additionalProperties": True}
    return {**manifest.content, "spec": {**manifest.content["spec"], "connection_specification": schema}}


def _answered(message: Mapping[str, Any]) -> ReplayedConnector:
    """A connector that has said so, and ended well."""
    said = io.BytesIO(msgspec.json.encode(message) + b"\n")
    return ReplayedConnector(said, RecordedRun("spec", ("spec",), 0, None, False, 0.0, ()))
