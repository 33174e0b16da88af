"""The destination of a relay in a connection file, and configs as JSON objects."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, model_validator

from dagster_airbyte_proto.connection.faults import KeyPath, kind_of, path_text
from dagster_airbyte_proto.connection.launch import Connector, DockerLaunch
from dagster_airbyte_proto.connection.validation import RelativePath, StrictModel


def _json_object(config: Any) -> Any:
    if not isinstance(config, Mapping):
        raise ValueError(f"must be a mapping of keys to values; found {kind_of(config)}")
    problem = _unfit_for_json(config, ())
    if problem:
        raise ValueError(problem)
    return config


def _unfit_for_json(value: Any, path: KeyPath) -> str | None:
    """Describes the first value that JSON cannot hold. Other YAML readers than ours turn unquoted text into dates."""
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


JsonObject = Annotated[dict[str, Any], BeforeValidator(_json_object)]


class RelayDestination(StrictModel):
    """A destination connector in the place of tables, and its config."""

    connector: Connector
    config: JsonObject | None = None
    config_file: RelativePath | None = None
    sandbox: bool = False

    @model_validator(mode="after")
    def _one_config(self) -> Self:
        if self.config is not None and self.config_file is not None:
            raise ValueError("give config or config_file, not both")
        return self

    @model_validator(mode="after")
    def _sandbox_of_a_program(self) -> Self:
        if self.sandbox and isinstance(self.connector.launch, DockerLaunch):
            raise ValueError("sandbox is for programs of this machine; an image is confined without it")
        return self
