"""Makes configs that a connector should refuse, from one that is good and from its spec."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from dagster_airbyte_proto.certification.evidence import BadConfig
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.json_references import names_in, properties_in
from dagster_airbyte_proto.sync.connector.config_check import check_config

_NONSENSE = "nonsense-of-certify"
_MAX_OF_EACH_KIND = 2
_Path = tuple[str, ...]


def bad_configs(config: Mapping[str, Any], schema: Any) -> tuple[BadConfig, ...]:
    """Returns a few bad configs: a required property is missing, a value is of a wrong type, a secret is nonsense."""
    kinds = (
        [_without(config, path) for path in _required(config, schema, ())],
        [_with(config, path, value) for path, value in _wrong_values(config, schema, ())],
        [_with(config, path, _NONSENSE, "nonsense in the secret") for path in _secrets(config, schema, ())],
    )
    found = [bad for kind in kinds for bad in kind[:_MAX_OF_EACH_KIND]]
    return tuple(bad._replace(is_certain=_is_refused(bad.config, schema)) for bad in found)


def mended(rewritten: Mapping[str, Any], bad: BadConfig, good: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config that a connector wrote back from a bad one, with the good value in the place of the bad one.

    It must not be lost: with it the connector may have rotated a token, and the old one is dead.
    """
    config = copy.deepcopy(dict(rewritten))
    place, source = config, good
    for name in bad.path[:-1]:
        if not isinstance(place.get(name), dict):
            place[name] = {}
        place, source = place[name], source[name]
    place[bad.path[-1]] = source[bad.path[-1]]
    return config


def _without(config: Mapping[str, Any], path: _Path) -> BadConfig:
    changed = copy.deepcopy(dict(config))
    _parent(changed, path).pop(path[-1])
    return BadConfig(f"without {'.'.join(path)}", path, changed, is_certain=False)


def _with(config: Mapping[str, Any], path: _Path, value: Any, problem: str = "a wrong type in") -> BadConfig:
    changed = copy.deepcopy(dict(config))
    _parent(changed, path)[path[-1]] = value
    return BadConfig(f"with {problem} {'.'.join(path)}", path, changed, is_certain=False)


def _parent(config: dict[str, Any], path: _Path) -> dict[str, Any]:
    for name in path[:-1]:
        config = config[name]
    return config


def _is_refused(config: Mapping[str, Any], schema: Any) -> bool:
    try:
        check_config(config, schema, where="a bad config")
    except ConfigError:
        return True
    return False


def _required(config: Any, schema: Any, path: _Path) -> Iterator[_Path]:
    """The paths of all properties that are required and present."""
    for name, inner in _present(config, schema):
        if name in names_in(schema.get("required")):
            yield (*path, name)
        yield from _required(config[name], inner, (*path, name))


def _wrong_values(config: Any, schema: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
    for name, inner in _present(config, schema):
        types = set(names_in(inner.get("type")))
        if types and "string" not in types:
            yield (*path, name), _NONSENSE
        elif types == {"string"}:
            yield (*path, name), {_NONSENSE: [True]}
        yield from _wrong_values(config[name], inner, (*path, name))


def _secrets(config: Any, schema: Any, path: _Path) -> Iterator[_Path]:
    for name, inner in _present(config, schema):
        if inner.get("airbyte_secret") is True and isinstance(config[name], str):
            yield (*path, name)
        yield from _secrets(config[name], inner, (*path, name))


def _present(config: Any, schema: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The declared properties that the config has."""
    if isinstance(config, Mapping):
        declared = properties_in(schema).items()
        yield from ((name, inner) for name, inner in declared if name in config and isinstance(inner, Mapping))
