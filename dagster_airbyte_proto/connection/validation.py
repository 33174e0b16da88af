"""Validates a document against a pydantic model, and translates pydantic's errors to plain words."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import CoreSchema, ErrorDetails

from dagster_airbyte_proto.connection.document import Document
from dagster_airbyte_proto.connection.faults import Fault, KeyPath, kind_of, not_allowed, path_text, unknown_key


class StrictModel(BaseModel):
    """The base of every model that a user writes: frozen, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


AnyModel = TypeVar("AnyModel", bound=BaseModel)


def validated(model: type[AnyModel], document: Document, *, folder: Path) -> AnyModel:
    """Returns the model of a document. Raises ConfigError with every fault. Relative paths start at `folder`."""
    try:
        return model.model_validate(document.data, context={"folder": folder})
    except ValidationError as error:
        details = _without_consequences(error.errors(include_url=False))
        # Not chained: pydantic's own text shows the input, which may be secret.
        raise document.error([_fault(model, document.data, detail) for detail in details]) from None


def check_one_config(config: object, config_file: object) -> None:
    """Raises ValueError if a connector has both forms of its config."""
    if config is not None and config_file is not None:
        raise ValueError("give config or config_file, not both")


def _without_consequences(details: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Leaves out what is said of a list to be empty whose items have faults: pydantic drops them before it counts."""
    places = [each["loc"] for each in details]

    def has_inner_fault(loc: tuple[str | int, ...]) -> bool:
        return any(len(place) > len(loc) and place[: len(loc)] == loc for place in places)

    return [each for each in details if each["type"] != "too_short" or not has_inner_fault(each["loc"])]


def _from_folder(path: Path, info: ValidationInfo) -> Path:
    return info.context["folder"] / path if info.context else path


RelativePath = Annotated[Path, AfterValidator(_from_folder)]
"""A path relative to the folder of the file that it is written in."""


@dataclass(frozen=True, eq=False)  # hashed by identity: typing hashes annotations, and a schema has no hash
class AlternativeForm:
    """Annotates a field whose validator accepts another form too, for the JSON schema that editors use."""

    form: Mapping[str, Any]

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(core_schema), dict(self.form)]}


_KINDS = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "path": "a path",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping",
    "mapping": "a mapping",
    "model": "a mapping",
    "model_attributes": "a mapping",
}
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def _fault(model: type[BaseModel], data: Any, detail: ErrorDetails) -> Fault:
    path, kind = _written_path(data, detail["loc"], detail["type"]), detail["type"]
    context, found = detail.get("ctx", {}), detail["input"]
    if kind == "extra_forbidden":
        return Fault(path, unknown_key(str(path[-1]), _known_keys(_models_at(model, detail["loc"][:-1]))))
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag = str(context["discriminator"]).strip("'")
        allowed = list(_literals(_models_at(model, detail["loc"]), tag))
        missing = "is missing; " if kind == "union_tag_not_found" else ""
        return Fault((*path, tag), missing + not_allowed(context.get("tag"), allowed))
    if kind in ("enum", "literal_error"):
        return Fault(path, not_allowed(found, re.findall(r"'([^']*)'", str(context["expected"]))))
    return Fault(path, _problem(kind, context, found) or detail["msg"].replace("Input should", "should"))


def _problem(kind: str, context: Mapping[str, Any], found: object) -> str | None:
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return str(context["error"])
    if kind in ("too_short", "string_too_short"):
        return "must not be empty"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"must be {words} {context[key]:g}"
    wanted = _KINDS.get(re.sub(r"_(type|parsing|from_float)$", "", kind))
    if wanted is None:
        return None
    # An unquoted version (3.10) is a number to YAML, and not the one that was meant.
    quotes = "; put it in quotes" if wanted == "text" and isinstance(found, int | float) else ""
    return f"must be {wanted}; found {kind_of(found)}{quotes}"


def _written_path(data: Any, location: Iterable[str | int], kind: str) -> KeyPath:
    """Returns the location as the user wrote it. Pydantic inserts the chosen kind of a union."""
    path: list[str | int] = []
    parts = list(location)
    for number, part in enumerate(parts):
        is_missing_key = kind == "missing" and number == len(parts) - 1
        is_item = isinstance(data, list) and isinstance(part, int) and part < len(data)
        if is_item or (isinstance(data, Mapping) and part in data):
            data = data[part]
        elif not is_missing_key:
            continue
        path.append(part)
    return tuple(path)


def _models_at(model: type[BaseModel], location: Iterable[str | int]) -> list[type[BaseModel]]:
    """Returns the models that are possible at a location.

    A part that is no field is a union's kind or a mapping's key.
    """
    models = [model]
    for part in location:
        below = [inner for each in models for inner in _models_of_field(each, str(part))]
        tagged = [each for each in models if part in set(_literals([each]))]
        models = below or tagged or models
    return models


def _models_of_field(model: type[BaseModel], name: str) -> Iterator[type[BaseModel]]:
    fields = [field for key, field in model.model_fields.items() if name in (field.alias or key, key)]
    return chain.from_iterable(_models_within(field.annotation) for field in fields)


def _models_within(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_within(argument)


def _known_keys(models: Iterable[type[BaseModel]]) -> list[str]:
    return list(dict.fromkeys(field.alias or name for model in models for name, field in model.model_fields.items()))


def _literals(models: Iterable[type[BaseModel]], name: str | None = None) -> Iterator[str]:
    for model in models:
        for key, field in model.model_fields.items():
            if get_origin(field.annotation) is Literal and name in (None, key):
                yield from get_args(field.annotation)


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
