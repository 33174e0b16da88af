"""The connection: one YAML file and one model, for the command line, the decorator and the component alike."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, PrivateAttr, field_validator, model_validator

from dagster_airbyte_proto.connection.document import read_document
from dagster_airbyte_proto.connection.faults import Fault, config_error
from dagster_airbyte_proto.connection.launch import AnyText, Connector, ProgramLaunch, RelayDestination, check_sandbox
from dagster_airbyte_proto.connection.push import (
    Acknowledge,
    BatchOptions,
    DestinationCatalog,
    OnError,
    Pushes,
    RateOptions,
)
from dagster_airbyte_proto.connection.rapidbyte.component_options import OverrideOptions, SchemaEvolutionOptions
from dagster_airbyte_proto.connection.references import FilledConfig, KnownSecrets, ReferenceFiller, has_reference
from dagster_airbyte_proto.connection.secrets.secret_source import SecretContext
from dagster_airbyte_proto.connection.sizes import Bytes
from dagster_airbyte_proto.connection.stream_names import streams_named
from dagster_airbyte_proto.connection.streams import OTHERS, StreamOptions, Streams
from dagster_airbyte_proto.connection.transforms import Transforms
from dagster_airbyte_proto.connection.types import TypeOptions
from dagster_airbyte_proto.connection.validation import (
    JsonObject,
    RelativePath,
    StrictModel,
    check_one_config,
    validated,
)
from dagster_airbyte_proto.model import NamingPolicy, PushMode, SchemaPolicy, StreamId, TransformSpec

RunOn = Literal["driver", "executors"]
"""The place of a sync's connector: the driver's machine, or executors of the Spark cluster."""

_MIN_HASH_KEY_LENGTH = 16
_OF_TABLES = frozenset(("destination", "types", "run_on"))
_OF_SYNCS = _OF_TABLES | {"streams", "load", "hash_key", "to"}
_OF_DESTINATIONS = frozenset(("batch", "rate", "acknowledge", "checkpoint_rows", "on_error", "catalog"))


def _by_reference(key: str) -> str:
    if not has_reference(key):
        raise ValueError('must come from the environment: "${env:NAME}"; a key that is written in a file is no secret')
    return key


class Destination(StrictModel):
    """The place of the tables. `namespace` may hold `${source_namespace}`. Empty, it is the connection's name.

    `names` says how tables and columns are called that get no name of their own in this file. With `sdc_columns` the
    tables have the `_sdc_…` columns of Singer targets in addition to ours.
    """

    namespace: AnyText = ""
    table_prefix: AnyText = ""
    names: NamingPolicy = NamingPolicy.SOURCE
    schema_policy: SchemaPolicy = SchemaPolicy.EVOLVE
    sdc_columns: bool = False

    @field_validator("namespace")
    @classmethod
    def _only_known_variables(cls, namespace: str) -> str:
        for name in re.findall(r"\$\{([^}]*)\}?", namespace):
            if name != "source_namespace":
                raise ValueError('may hold "${source_namespace}" and no other variable')
        return namespace


class LoadLimits(StrictModel):
    """The limits of a load.

    It is closed at the first state after `max_bytes` of files or `max_seconds`. A state of more than `max_state_bytes`
    is not taken: it would be copied with each load, into the history, and into the connector's next command.
    """

    max_bytes: Bytes = 128 * 1024 * 1024
    max_seconds: Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)] = 60.0
    max_state_bytes: Bytes = 16 * 1024 * 1024


class PortableConnection(NamedTuple):
    """A connection on its way to another process: its document as JSON, without secrets, and these by
    `scheme:reference`. The files that its connectors are made of do not go with it."""

    document: str
    secrets: Mapping[str, str]

    def __repr__(self) -> str:
        return f"PortableConnection({self.document!r}, {len(self.secrets)} secrets)"


PARTITIONS_AT_ONCE = 4
"""The partitions that may be synced at once if a connection does not say so (`parallel`)."""


class Connection(StrictModel):
    """A connector, its config, and the chosen streams and modes.

    A connection with a `push` sends rows of tables to its connector, which is a destination; any other reads its
    connector, into tables or to the destination that `to` names. `batch`, `rate`, `acknowledge`, `checkpoint_rows`,
    `on_error` and `catalog` say how rows are sent to a destination.
    `acknowledge: exit` is for destinations that send no state back, or count wrongly, `checkpoint_rows` for those that
    prove only at their end: each process gets so many rows. `catalog: none` says that there are no objects.

    `streams` is None if the user chose none: then every stream is synced as the catalog offers it. Relative paths in a
    file start at the file's folder; in a connection made from a dict, at the working directory. `hash_key` is the
    secret for hashed columns. `transforms` change rows on their way. `sandbox` runs a program of this machine under
    bubblewrap. `parallel` is how many partitions may be synced at once (4 without it), or how many processes of the
    connector may read the streams of one sync (1 without it). `run_on` says where the connector runs: on the
    driver, or on an executor of the Spark cluster; None leaves it to the settings.
    """

    name: str
    connector: Connector
    config: JsonObject | None = None
    config_file: RelativePath | None = None
    streams: Streams | None = None
    hash_key: Annotated[str, AfterValidator(_by_reference)] | None = None
    destination: Destination = Destination()
    load: LoadLimits = LoadLimits()
    types: TypeOptions = TypeOptions()
    sandbox: bool = False
    transforms: Transforms = ()
    parallel: Annotated[int, Field(gt=0, strict=True)] | None = None
    run_on: RunOn | None = None
    to: RelayDestination | None = None
    push: Pushes | None = None
    batch: BatchOptions = BatchOptions()
    rate: RateOptions | None = None
    acknowledge: Acknowledge = "state"
    checkpoint_rows: Annotated[int, Field(gt=0, strict=True)] | None = None
    on_error: OnError = "reject"
    catalog: DestinationCatalog = "discover"
    overrides: OverrideOptions = OverrideOptions()
    schema_evolution: SchemaEvolutionOptions = SchemaEvolutionOptions()
    _origin: Path | None = PrivateAttr(default=None)
    _is_relay_destination: bool = PrivateAttr(default=False)
    _known_secrets: Mapping[str, str] | None = PrivateAttr(default=None)
    _read_file: Callable[[Path], bytes] | None = PrivateAttr(default=None)

    @classmethod
    def from_file(cls, path: Path | str) -> Self:
        """Reads a connection file. Raises one ConfigError that names every fault in it."""
        path = Path(path)
        document = read_document(path, what="connection file")
        named = document._replace(data={"name": path.stem, **document.data})
        connection = validated(cls, named, folder=path.parent)
        connection._origin = path
        return connection

    @property
    def origin(self) -> Path | None:
        """The path of the file that it was read from, as given."""
        return self._origin

    @property
    def namespace(self) -> str:
        """The namespace of its tables, `${source_namespace}` not yet filled."""
        return self.destination.namespace or self.name

    def options(self, stream: StreamId) -> StreamOptions | None:
        """Returns the options of a stream, by its full name, its bare name or `"*"`. None if it is not synced."""
        if self.streams is None:
            return StreamOptions()
        own = sorted((name for name in self.streams if streams_named(name, (stream,))), key=len, reverse=True)
        return next((self.streams[name] for name in (*own, OTHERS) if name in self.streams), None)

    def transforms_of(self, stream: StreamId) -> tuple[TransformSpec, ...]:
        """Returns the transforms that change the rows of a stream, in their order."""
        return tuple(
            each.spec(number)
            for number, each in enumerate(self.transforms)
            if each.streams is None or any(streams_named(name, (stream,)) for name in each.streams)
        )

    @property
    def transformed_streams(self) -> tuple[str, ...]:
        """The names of streams that its transforms have."""
        return tuple(dict.fromkeys(name for each in self.transforms for name in each.streams or ()))

    @property
    def enrichments(self) -> "dict[int, Connection]":
        """The connections to the connectors among its transforms, by their place there."""
        plain = {"to": None, "streams": None, "transforms": (), "push": None}
        return {
            number: self.model_copy(
                update={
                    **plain,
                    **{name: getattr(each, name) for name in ("connector", "config", "config_file", "sandbox")},
                }
            )
            for number, each in enumerate(self.transforms)
            if each.connector is not None
        }

    @property
    def relay_destination(self) -> "Connection | None":
        """The connection to the destination of a relay, with the options of this one; None without a `to`."""
        if self.to is None:
            return None
        own = {name: getattr(self.to, name) for name in type(self.to).model_fields}
        destination = self.model_copy(update={**own, "to": None, "transforms": ()})
        destination._is_relay_destination = True
        return destination

    @property
    def is_relay_destination(self) -> bool:
        """True if it is the `relay_destination` of another: the two share their name."""
        return self._is_relay_destination

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that its connectors are made of, those of its transforms among them."""
        return tuple(path for each in (self, *self.enrichments.values()) for path in each.connector.files)

    def read_file(self, path: Path) -> bytes:
        """Returns the content of one of its `files`. Raises OSError."""
        return path.read_bytes() if self._read_file is None else self._read_file(path)

    def for_another_process(self, environment: Mapping[str, str]) -> PortableConnection:
        """Returns the connection with what it is read from: its config files, and its secrets, as they are now.

        Raises ConfigError and SecretStoreError.
        """
        transforms = tuple(
            each.model_copy(update={"config": self.enrichments[number].written_config(), "config_file": None})
            if each.config_file
            else each
            for number, each in enumerate(self.transforms)
        )
        secrets: dict[str, str] = {}
        for each in (self, *self.enrichments.values()):
            secrets |= each.filled_config(environment).values
        if self.hash_key is not None:
            self.filled_hash_key(environment)
            filler = self._filler(environment)
            filler.filled(self.hash_key, ())
            secrets |= filler.values
        whole = self.model_copy(update={"config": self.written_config(), "config_file": None, "transforms": transforms})
        return PortableConnection(whole.model_dump_json(exclude_unset=True), secrets)

    @classmethod
    def from_another_process(cls, portable: PortableConnection, read_file: Callable[[Path], bytes]) -> Self:
        """Returns the connection that another process has sent. Its secrets are those that were sent with it, and
        `read_file` gives its `files`, by their paths there."""
        connection = cls.model_validate_json(portable.document)
        connection._read_file = read_file
        connection._known_secrets = portable.secrets
        return connection

    def written_config(self) -> dict[str, Any]:
        """Returns the config as written, nothing filled.

        Reads `config_file` each time; raises ConfigError if it cannot.
        """
        if self.config_file is None:
            return self.config or {}
        return read_document(self.config_file, what="config file", may_be_empty=True).data

    def filled_config(self, environment: Mapping[str, str]) -> FilledConfig:
        """Returns the config with each reference to a secret filled.

        Raises ConfigError that names every secret that is not there, and SecretStoreError.
        """
        filler = self._filler(environment)
        config = filler.filled(self.written_config(), () if self.config_file else ("config",))
        if filler.faults:
            raise config_error(self._config_source(), filler.faults)
        return FilledConfig(config, filler.values)

    def known_secrets(self, environment: Mapping[str, str]) -> KnownSecrets:
        """Returns the secrets that can be filled now, to mask them in what is only shown.

        Raises ConfigError if the config file cannot be read.
        """
        filler = ReferenceFiller(self._secret_context(environment), may_be_down=True)
        filler.filled(self.written_config(), ())
        return KnownSecrets(filler.secrets, tuple(map(str, filler.down.values())))

    def filled_hash_key(self, environment: Mapping[str, str]) -> str:
        """Returns the secret for hashed columns. Raises ConfigError if it is missing or too short."""
        if self.hash_key is None:
            fault = Fault(("hash_key",), 'is missing, and columns are to be hashed; set it to "${env:NAME}"')
            raise config_error(self._source(), [fault])
        filler = self._filler(environment)
        key: str = filler.filled(self.hash_key, ("hash_key",))
        if not filler.faults and len(key) < _MIN_HASH_KEY_LENGTH:
            problem = (
                f"must have at least {_MIN_HASH_KEY_LENGTH} characters: values hashed with a short key can be guessed"
            )
            filler.faults.append(Fault(("hash_key",), problem))
        if filler.faults:
            raise config_error(self._source(), filler.faults)
        return key

    def _filler(self, environment: Mapping[str, str]) -> ReferenceFiller:
        return ReferenceFiller(self._secret_context(environment))

    def _secret_context(self, environment: Mapping[str, str]) -> SecretContext:
        return SecretContext(environment, self.origin.parent if self.origin else None, self._known_secrets)

    def _config_source(self) -> str:
        return f"config file {self.config_file}" if self.config_file else self._source()

    def _source(self) -> str:
        return f"connection file {self.origin}" if self.origin else f"connection {self.name}"

    @field_validator("name")
    @classmethod
    def _safe_name(cls, name: str) -> str:
        if not re.fullmatch("[a-z0-9_]+", name):
            found = json.dumps(name[:60], ensure_ascii=False)
            raise ValueError(
                f'must be of small letters, digits and "_" (by default it is that of the file or folder); found {found}'
            )
        return name

    @model_validator(mode="after")
    def _overrides_of_a_component(self) -> Self:
        is_component, to = self.connector.protocol == "rapidbyte", self.to
        if self.overrides != OverrideOptions() and not (is_component or (to and to.connector.protocol == "rapidbyte")):
            raise ValueError("overrides are for a connector of protocol: rapidbyte")
        if self.schema_evolution != SchemaEvolutionOptions() and not (is_component and self.push is None):
            raise ValueError("schema_evolution is for a source of protocol: rapidbyte")
        return self

    @model_validator(mode="after")
    def _sandbox_of_a_program(self) -> Self:
        launch = self.connector.launch
        check_sandbox(self.connector, sandbox=self.sandbox)
        if not self.sandbox and isinstance(launch, ProgramLaunch) and launch.network is not None:
            raise ValueError("connector.launch.network is for a program in a sandbox; add `sandbox: true`")
        return self

    @model_validator(mode="after")
    def _one_direction(self) -> Self:
        fields = type(self).model_fields
        if self.push is not None:
            of_others, fits = _OF_SYNCS, "one that reads its connector, and this one has a push"
        elif self.to is not None:
            of_others, fits = _OF_TABLES, "one that syncs into tables, and this one has a destination (`to`)"
        else:
            of_others, fits = _OF_DESTINATIONS, "one with a push, or with a destination (`to`)"
            if self.connector.protocol == "rapidbyte":  # Its sources have data errors of their own.
                of_others -= {"on_error"}
        stray = sorted(name for name in of_others if getattr(self, name) != fields[name].default)
        if stray:
            raise ValueError(f"{', '.join(stray)}: only for {fits}")
        if self.push and self.checkpoint_rows and any(each.mode is PushMode.OVERWRITE for each in self.push.values()):
            raise ValueError("checkpoint_rows: a stream of mode overwrite goes to one process as a whole")
        return self

    @model_validator(mode="after")
    def _catalog_of_an_airbyte_destination(self) -> Self:
        protocol = self.connector.protocol if self.to is None else self.to.connector.protocol
        if self.catalog == "none" and protocol != "airbyte":
            raise ValueError(f"catalog: none is for an Airbyte destination; of one of {protocol} nothing is to be said")
        return self

    @model_validator(mode="after")
    def _batch_folder_of_a_target(self) -> Self:
        destination = self.connector if self.push is not None else self.to.connector if self.to is not None else None
        folder = None if destination is None else destination.batch_folder
        if destination is not None and folder is not None and (destination.protocol != "singer" or "://" in folder):
            raise ValueError("batch_folder of a destination: a folder of this machine, for a Singer target")
        return self

    @model_validator(mode="after")
    def _transforms_of_pushed_streams(self) -> Self:
        known = [StreamId.of(name) for name in self.push or ()]
        for name in self.transformed_streams if known else ():
            if not streams_named(name, known):
                raise ValueError(
                    f"transforms: there is no pushed stream {name!r}; there is {', '.join(map(str, known))}"
                )
        return self

    @model_validator(mode="after")
    def _options_of_syncmaven(self) -> Self:
        protocol = self.connector.protocol
        for name, each in (self.push or {}).items():
            if each.options and protocol != "syncmaven":
                raise ValueError(f"push.{name}.options: a destination of {protocol} takes none for a stream")
        relayed_to = None if self.to is None else self.to.connector.protocol
        for name, options in (self.streams or {}).items():
            if options.options and relayed_to != "syncmaven":
                raise ValueError(f"streams.{name}.options: only for a relay (`to`) to a Syncmaven destination")
        return self

    @model_validator(mode="after")
    def _one_config(self) -> Self:
        check_one_config(self.config, self.config_file)
        return self
