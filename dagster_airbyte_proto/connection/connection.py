"""The connection: one YAML file, one model, the same for the command line, the decorator and the component."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, field_validator, model_validator

from dagster_airbyte_proto.connection.document import read_document
from dagster_airbyte_proto.connection.faults import Fault, KeyPath, kind_of, path_text, refusal
from dagster_airbyte_proto.connection.filling import Filling, refers_to_environment
from dagster_airbyte_proto.connection.launch import AnyText, Connector
from dagster_airbyte_proto.connection.streams import OTHERS, StreamOptions, Streams
from dagster_airbyte_proto.connection.types import TypeOptions
from dagster_airbyte_proto.connection.validation import AlsoWritten, RelativePath, Written, validated
from dagster_airbyte_proto.model import SchemaPolicy, StreamId

_SHORTEST_HASH_KEY = 16
_SIZE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) *((?P<unit>[kmgt])(?P<binary>i?))?b?", re.IGNORECASE)


def _bytes(size: Any) -> Any:
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if match is None:
        if isinstance(size, int) and not isinstance(size, bool):
            return size
        raise ValueError('must be a size such as "128 MiB", or a number of bytes')
    power = " kmgt".index((match["unit"] or " ").lower())
    return int(float(match["number"]) * (1024 if match["binary"] else 1000) ** power)


def _from_environment(key: str) -> str:
    if not refers_to_environment(key):
        raise ValueError('must come from the environment: "${env:NAME}"; a key that stands in a file is no secret')
    return key


def _json_object(config: Any) -> Any:
    if not isinstance(config, Mapping):
        raise ValueError(f"must be a mapping of keys to values; found {kind_of(config)}")
    problem = _unfit_for_json(config, ())
    if problem:
        raise ValueError(problem)
    return config


def _unfit_for_json(value: Any, path: KeyPath) -> str | None:
    """The first thing that JSON cannot hold: YAML readers other than ours make dates of unquoted text."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            return f"{path_text(path) or 'config'} has a key that is not text: put it in quotes"
        return next(filter(None, (_unfit_for_json(inner, (*path, key)) for key, inner in value.items())), None)
    if isinstance(value, list | tuple):
        return next(filter(None, (_unfit_for_json(inner, (*path, i)) for i, inner in enumerate(value))), None)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path_text(path)} is not a number that JSON can hold"
    if value is None or isinstance(value, str | int | float):
        return None
    return f"{path_text(path)} is {kind_of(value)}: put it in quotes"


class Destination(Written):
    """Where the tables stand. `namespace` may hold `${source_namespace}`; empty, it is the connection's name. With
    `sdc_columns` they have the columns `_sdc_…` of other loaders beside ours."""

    namespace: AnyText = ""
    table_prefix: AnyText = ""
    schema_policy: SchemaPolicy = SchemaPolicy.EVOLVE
    sdc_columns: bool = False

    @field_validator("namespace")
    @classmethod
    def _only_known_variables(cls, namespace: str) -> str:
        for name in re.findall(r"\$\{([^}]*)\}?", namespace):
            if name != "source_namespace":
                raise ValueError('may hold "${source_namespace}" and no other variable')
        return namespace


class LoadLimits(Written):
    """A load is closed at the first state after either is reached; `max_bytes` are those that its files take."""

    max_bytes: Annotated[
        int, Field(gt=0), BeforeValidator(_bytes), AlsoWritten({"type": "string", "examples": ["128 MiB"]})
    ] = 128 * 1024 * 1024
    max_seconds: Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)] = 60.0


class FilledConfig(NamedTuple):
    """A config as the connector gets it. `secrets` are the values that came from the environment."""

    config: dict[str, Any]
    secrets: frozenset[str]

    @property
    def digest(self) -> str:
        """Tells one config from another, whatever the order of its keys."""
        text = json.dumps(self.config, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Connection(Written):
    """A connector, its config, and the chosen streams and modes.

    `streams` is None when nothing was chosen: every stream, as the catalog has it. Paths in a file start at the
    file's folder; in a connection made from a dict, at the working directory. `hash_key` is what the columns that are
    to be hashed are hashed with.
    """

    name: str
    connector: Connector
    config: Annotated[dict[str, Any], BeforeValidator(_json_object)] | None = None
    config_file: RelativePath | None = None
    streams: Streams | None = None
    hash_key: Annotated[str, AfterValidator(_from_environment)] | None = None
    destination: Destination = Destination()
    load: LoadLimits = LoadLimits()
    types: TypeOptions = TypeOptions()
    _origin: Path | None = PrivateAttr(default=None)

    @classmethod
    def from_file(cls, path: Path | str) -> Self:
        """Reads a connection file; raises one ConfigError that tells every fault in it."""
        path = Path(path)
        document = read_document(path, what="connection file")
        named = document._replace(data={"name": path.stem, **document.data})
        connection = validated(cls, named, folder=path.parent)
        connection._origin = path
        return connection

    @property
    def origin(self) -> Path | None:
        """The file it was read from, as it was named."""
        return self._origin

    @property
    def namespace(self) -> str:
        """The namespace of its tables, `${source_namespace}` not yet filled."""
        return self.destination.namespace or self.name

    def options(self, stream: StreamId) -> StreamOptions | None:
        """What was chosen for a stream, by its full name, its bare name or `"*"`; None when it is not synced."""
        if self.streams is None:
            return StreamOptions()
        names = (str(stream), stream.name, OTHERS)
        return next((self.streams[name] for name in names if name in self.streams), None)

    def written_config(self) -> dict[str, Any]:
        """The config as written, nothing filled. Reads `config_file` anew; raises ConfigError when it cannot."""
        if self.config_file is None:
            return self.config or {}
        return read_document(self.config_file, what="config file", may_be_empty=True).data

    def filled_config(self, environment: Mapping[str, str]) -> FilledConfig:
        """The config with each `${env:NAME}` filled; raises ConfigError that names every variable that is not set."""
        filling = Filling(environment)
        config = filling.filled(self.written_config(), () if self.config_file else ("config",))
        if filling.faults:
            raise refusal(self._config_place(), filling.faults)
        return FilledConfig(config, frozenset(filling.secrets))

    def filled_hash_key(self, environment: Mapping[str, str]) -> str:
        """The secret that private columns are hashed with. Raises ConfigError where it is missing or easily guessed."""
        if self.hash_key is None:
            fault = Fault(("hash_key",), 'is missing, and columns are to be hashed; set it to "${env:NAME}"')
            raise refusal(self._place(), [fault])
        filling = Filling(environment)
        key: str = filling.filled(self.hash_key, ("hash_key",))
        if not filling.faults and len(key) < _SHORTEST_HASH_KEY:
            problem = f"must be of at least {_SHORTEST_HASH_KEY} characters: what a short key hides can be guessed"
            filling.faults.append(Fault(("hash_key",), problem))
        if filling.faults:
            raise refusal(self._place(), filling.faults)
        return key

    def _config_place(self) -> str:
        return f"config file {self.config_file}" if self.config_file else self._place()

    def _place(self) -> str:
        return f"connection file {self.origin}" if self.origin else f"connection {self.name}"

    @field_validator("name")
    @classmethod
    def _safe_name(cls, name: str) -> str:
        if not re.fullmatch("[a-z0-9_]+", name):
            found = json.dumps(name[:60], ensure_ascii=False)
            raise ValueError(
                f'must be of small letters, digits and "_" (it is the file\'s stem by default); found {found}'
            )
        return name

    @model_validator(mode="after")
    def _one_config(self) -> Self:
        if self.config is not None and self.config_file is not None:
            raise ValueError("give config or config_file, not both")
        return self
