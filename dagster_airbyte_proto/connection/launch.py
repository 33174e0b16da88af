"""The connectors of a connection file. `launchers` decides which kinds of launch can run on this machine."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from dagster_airbyte_proto.connection.rapidbyte.component_options import ComponentPermissions, WasmLaunch
from dagster_airbyte_proto.connection.references import first_scheme
from dagster_airbyte_proto.connection.secrets.schemes import known_schemes
from dagster_airbyte_proto.connection.sizes import Bytes
from dagster_airbyte_proto.connection.validation import (
    AlternativeForm,
    JsonObject,
    RelativePath,
    StrictModel,
    check_one_config,
)


def _without_references(text: str) -> str:
    scheme = first_scheme(text)
    # Texts without a reference are almost all: known_schemes reads the metadata of every installed package.
    if scheme and scheme in known_schemes():
        raise ValueError(f'"${{{scheme}:…}}" is filled in config only')
    return text


AnyText = Annotated[str, AfterValidator(_without_references)]
Text = Annotated[AnyText, Field(min_length=1)]


def _variable(text: str) -> str:
    if not _VARIABLE.match(text):
        raise ValueError("must be NAME, or NAME=VALUE")
    return text


_VARIABLE = re.compile(r"[^=\s\0]+(=|\Z)")
Variable = Annotated[Text, AfterValidator(_variable)]


def _split_command(command: Any) -> Any:
    if not isinstance(command, str):
        return command
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {error}") from None


def _program_from_folder(command: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    is_relative = "/" in command[0] and not command[0].startswith(("/", "~"))
    if not is_relative or not info.context:
        return command
    return (str(info.context["folder"].absolute() / command[0]), *command[1:])


class ProgramLaunch(StrictModel):
    """A launch that starts a process on this machine.

    `working_folder` is where it starts, and so where relative paths in its config start. The default is our own working
    directory, in a sandbox the private folder of its run. `network` is for a sandbox: `host` is this machine's.
    """

    working_folder: RelativePath | None = None
    network: Literal["none", "host"] | None = None


class LocalLaunch(ProgramLaunch):
    """A program on this machine: found on the PATH, or by a path relative to the connection file's folder."""

    kind: Literal["local"]
    command: Annotated[
        tuple[Text, ...],
        Field(min_length=1),
        BeforeValidator(_split_command),
        AfterValidator(_program_from_folder),
        AlternativeForm({"type": "string", "minLength": 1}),
    ]


class PypiLaunch(ProgramLaunch):
    """A PyPI package in a virtual environment of its own. `python` is a version or a path. The default is ours."""

    kind: Literal["pypi"]
    package: Text
    executable: Text | None = None
    python: Text | None = None


class NpmLaunch(ProgramLaunch):
    """A package of npm, with its dependencies in a folder of its own. `main` is the script that Node runs: a file of
    the package. `overrides` are versions of its dependencies, by their names, in the place of those that it pins.
    Install scripts do not run unless `install_scripts` allows them."""

    kind: Literal["npm"]
    package: Text
    main: Text | None = None
    overrides: Mapping[Text, Text] = {}
    install_scripts: bool = False


def _one_version(version: str) -> str:
    if not re.fullmatch(r"[0-9][0-9A-Za-z.+!]*", version):
        raise ValueError('must be one version of airbyte-cdk, such as "7.39.1"')
    return version


class ManifestLaunch(ProgramLaunch):
    """A low-code manifest, run by airbyte-cdk of that `version` in a virtual environment of its own.

    `python` is as for a package. Python code in the manifest is refused unless `custom_components` allows it.
    """

    kind: Literal["manifest"]
    path: RelativePath
    version: Annotated[Text, AfterValidator(_one_version)] | None = None
    python: Text | None = None
    custom_components: bool = False

    @property
    def components_file(self) -> Path:
        """The file of its custom code, which need not be there."""
        return self.path.with_name(COMPONENTS_FILE)


COMPONENTS_FILE = "components.py"
"""The name of the file with the custom code of a manifest, beside it."""
_SIZE = re.compile(r"[0-9]+[bkmg]?", re.IGNORECASE)


def _docker_size(text: str) -> str:
    if not _SIZE.fullmatch(text):
        raise ValueError('must be a number of bytes with b, k, m or g behind it, such as "2g"')
    return text


Size = Annotated[Text, AfterValidator(_docker_size)]
_CONTAINER_MEMORY = "2g"


_SET_BY_KEY = {
    **{key: key for key in ("command", "image", "network", "platform", "read_only", "user", "volumes")},
    "cap_add": "capabilities",
    "cpu_quota": "cpus",
    "entrypoint": "command",
    "environment": "env_vars",
    "mem_limit": "memory",
    "nano_cpus": "cpus",
    "network_mode": "network",
    "pids_limit": "pids",
    "tmpfs": "tmp",
}
# We need these to read the connector, to end it, and to find its container among others.
_RESERVED_KWARGS = frozenset(
    {"auto_remove", "cap_drop", "detach", "init", "labels", "log_config", "memswap_limit", "mounts", "name", "remove",
     "stderr", "stdin_open", "stdout", "tty", "working_dir"}
)  # fmt: skip


def _without_reserved(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in kwargs:
        if key in _SET_BY_KEY:
            raise ValueError(f"{key} is set by {_SET_BY_KEY[key]}, next to container_kwargs")
        if key in _RESERVED_KWARGS:
            raise ValueError(f"{key} cannot be set: connectors run with a value of ours")
    return kwargs


class DockerLaunch(StrictModel):
    """An image, run in a confined container. Each limit can be loosened.

    `limits.max_memory` of the connector takes the place of `memory`. `command` replaces the entry point of the image.
    `env_vars` are added to those of the connector. `container_kwargs` are arguments of docker-py's `containers.create`
    that have no key here.
    """

    kind: Literal["docker"]
    image: Text
    command: tuple[Text, ...] = ()
    pull: Literal["missing", "always", "never"] = "missing"
    platform: Text | None = None
    network: Text | None = None
    memory: Size = _CONTAINER_MEMORY
    cpus: Annotated[float, Field(gt=0)] = 2.0
    pids: Annotated[int, Field(gt=0)] = 1024
    tmp: Size = "512m"
    user: Text | None = None
    read_only: bool = True
    new_privileges: bool = False
    capabilities: tuple[Text, ...] = ()
    volumes: tuple[Text, ...] = ()
    env_vars: tuple[Variable, ...] = ()
    container_kwargs: Annotated[Mapping[str, Any], AfterValidator(_without_reserved)] = {}


class ReplayLaunch(StrictModel):
    """A replay of an earlier run from its recording, which `record` made."""

    kind: Literal["replay"]
    recording: RelativePath


Launch = Annotated[
    LocalLaunch | PypiLaunch | NpmLaunch | ManifestLaunch | DockerLaunch | WasmLaunch | ReplayLaunch,
    Field(discriminator="kind"),
]


def _path_or_url(place: str, info: ValidationInfo) -> str:
    if "://" not in place:
        return str(info.context["folder"] / place) if info.context else place
    if place.startswith("file:"):
        raise ValueError("must be a path, or a URL of an object store such as s3://bucket/folder")
    return place


class ConnectorLimits(StrictModel):
    """The limits of a connector, in the same words for every launch.

    `max_memory` is for all processes of a program together, for a container, or for each memory of a component.
    `timeout_seconds` is for one run of a program or a container, by the clock. Of a component it is for one call, which
    for a read is a stream, and counts the component's own time alone.
    """

    max_memory: Bytes | None = None
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class ConnectorTimeouts(StrictModel):
    """The times after which a connector of Syncmaven counts as hung.

    `result_seconds` is for a destination that takes no row and sends no result, and for an enrichment that takes and
    sends nothing. The default is 900.
    """

    result_seconds: Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)] | None = None


class Connector(StrictModel):
    """A program that speaks a protocol.

    `env_vars` are the variables that it gets, however it is launched: `NAME` of our own environment, or `NAME=VALUE`.

    `limits` hold for it however it is launched. Those of a component (`kind: wasm`) narrow what its manifest declares,
    as its `permissions` do.

    Singer: `batch_folder` is the folder, or the URL of one, whose files a tap may name in BATCH messages. They are read
    with our permissions and then removed. The default is the `working_folder` of the launch. A target that has a
    `batch_folder` gets its records in files there, named in BATCH messages. `catalog_file` takes the place of the tap's
    own catalog.

    Syncmaven: `timeouts` say when it counts as hung.
    """

    protocol: Literal["airbyte", "singer", "rapidbyte", "syncmaven"]
    launch: Launch
    permissions: ComponentPermissions = ComponentPermissions()
    limits: ConnectorLimits = ConnectorLimits()
    env_vars: tuple[Variable, ...] = ()
    batch_folder: Annotated[Text, AfterValidator(_path_or_url)] | None = None
    catalog_file: RelativePath | None = None
    timeouts: ConnectorTimeouts = ConnectorTimeouts()

    @property
    def variables(self) -> tuple[str, ...]:
        """All variables that it gets, those that its launch names among them."""
        return (*self.env_vars, *(self.launch.env_vars if isinstance(self.launch, DockerLaunch) else ()))

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it is made of, beside installed programs. That of a manifest's code need not be there."""
        launch, catalog = self.launch, () if self.catalog_file is None else (self.catalog_file,)
        if isinstance(launch, WasmLaunch):
            return (launch.path, *catalog)
        if isinstance(launch, ManifestLaunch):
            return (launch.path, *([launch.components_file] if launch.custom_components else []), *catalog)
        return catalog

    @model_validator(mode="after")
    def _options_of_a_component(self) -> Self:
        is_component = isinstance(self.launch, WasmLaunch)
        if is_component and self.protocol != "rapidbyte":
            raise ValueError("launch.kind: wasm is for connectors of protocol: rapidbyte")
        if self.protocol == "rapidbyte" and not is_component and not isinstance(self.launch, ReplayLaunch):
            raise ValueError("protocol: rapidbyte is for components: launch: {kind: wasm, path: …}")
        if not is_component and self.permissions != ComponentPermissions():
            raise ValueError("permissions are for a component (launch: kind: wasm); a program has sandbox and env_vars")
        return self

    @model_validator(mode="after")
    def _one_limit_of_memory(self) -> Self:
        if (
            isinstance(self.launch, DockerLaunch)
            and self.launch.memory != _CONTAINER_MEMORY
            and self.limits.max_memory is not None
        ):
            raise ValueError("give launch.memory or limits.max_memory, not both: they are one limit")
        return self

    @model_validator(mode="after")
    def _has_a_catalog(self) -> Self:
        if self.catalog_file is not None and self.protocol != "singer":
            raise ValueError("catalog_file is for taps (protocol: singer); other connectors list their streams")
        return self

    @model_validator(mode="after")
    def _has_its_own_timeouts(self) -> Self:
        if self.timeouts.result_seconds is not None and self.protocol != "syncmaven":
            raise ValueError("timeouts.result_seconds is for connectors that send results (protocol: syncmaven)")
        return self


class RelayDestination(StrictModel):
    """A destination connector in the place of tables, and its config."""

    connector: Connector
    config: JsonObject | None = None
    config_file: RelativePath | None = None
    sandbox: bool = False

    @model_validator(mode="after")
    def _one_config(self) -> Self:
        check_one_config(self.config, self.config_file)
        return self

    @model_validator(mode="after")
    def _sandbox_of_a_program(self) -> Self:
        check_sandbox(self.connector, sandbox=self.sandbox)
        return self


def check_sandbox(connector: Connector, *, sandbox: bool) -> None:
    """Raises ValueError for a sandbox around what has none."""
    if sandbox and isinstance(connector.launch, DockerLaunch | WasmLaunch):
        raise ValueError("sandbox is for programs of this machine; an image or a component is confined without it")
