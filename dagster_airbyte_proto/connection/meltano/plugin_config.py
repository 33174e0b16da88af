"""Converts the config of a Meltano plugin to that of a connection. Pure: no file is read.

1. A secret is never written, only the environment variable that holds it.
2. Meltano passes the default that a plugin's definition has for a setting: many taps have none of their own. A default
   that is a variable which nobody sets is none.
3. The variables of a pipeline (MELTANO_EXTRACTOR_NAMESPACE and the like) are Meltano's own: nobody has them in the
   environment of a sync, so their values are written.
4. A definition says of what kind a setting is, and how its value is changed: pipelinewise's taps and targets require
   TLS only for `ssl: "true"`, a text, which `value_post_processor: stringify` makes of `ssl: true`.
"""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from dagster_airbyte_proto.connection.faults import KeyPath
from dagster_airbyte_proto.connection.meltano.dotted_names import flattened, put_member
from dagster_airbyte_proto.connection.meltano.project import MeltanoProject, Plugin
from dagster_airbyte_proto.connection.references import escaped, has_reference, map_strings
from dagster_airbyte_proto.connection.secrets.secret_names import sounds_secret

_VARIABLE = re.compile(r"(?P<escape>\\)?\$(?:\{(?P<curly>\w+)\}|(?P<plain>[A-Z][A-Z0-9_]*))")
_KINDS = frozenset(("integer", "decimal", "array", "object"))
_PROCESSORS: Mapping[str, Callable[[Any], Any]] = {
    "stringify": lambda value: value if value is None or isinstance(value, str) else json.dumps(value),
    # A reference stays as it is.
    "upcase_string": lambda value: value.upper() if isinstance(value, str) and not has_reference(value) else value,
}
_MAX_DEPTH = 10


class PluginConfig(NamedTuple):
    """A plugin's config for a connection file. `variables` have to be in the environment when it runs.

    `open_secrets` maps each secret setting whose value is written openly in the project to the variable that takes it.
    """

    values: Mapping[str, Any]
    variables: tuple[str, ...]
    open_secrets: Mapping[str, str]

    def joined(self, other: "PluginConfig") -> "PluginConfig":
        """This config, with the variables and open secrets of another plugin too."""
        variables = tuple(dict.fromkeys((*self.variables, *other.variables)))
        return self._replace(variables=variables, open_secrets={**self.open_secrets, **other.open_secrets})


def pipeline_variables(project: MeltanoProject, root: str, tap: Plugin, loader: Plugin | None) -> dict[str, str]:
    """Returns the variables that Meltano sets where it runs a tap, perhaps with a loader. `root` is the project's
    folder."""
    ends = {"EXTRACTOR": tap, **({"LOADER": loader} if loader else {})}
    of_ends = {
        f"MELTANO_{end}_{word}": text
        for end, plugin in ends.items()
        for word, text in (("NAME", plugin.name), ("NAMESPACE", plugin.namespace))
    }
    fixed = {"MELTANO_PROJECT_ROOT": root, "MELTANO_ENVIRONMENT": project.environment, **of_ends}
    schema = with_values(tap.load_schema, fixed) or tap.namespace
    return {**fixed, "MELTANO_EXTRACT__LOAD_SCHEMA": schema}


def with_values(text: str, variables: Mapping[str, str]) -> str:
    """Returns a text with these variables filled. Others stay."""
    return _VARIABLE.sub(lambda found: variables.get(found["curly"] or found["plain"], found[0]), text)


def has_variable(text: str) -> bool:
    return _VARIABLE.search(text) is not None


def connection_config(
    plugin: Plugin, project: MeltanoProject, variables: Mapping[str, str], dotenv: Mapping[str, str]
) -> PluginConfig:
    """Returns a plugin's config with environment variables in the syntax of connections.

    `variables` are those of the pipeline, which get their values.
    """
    references: dict[str, None] = {}
    written: dict[str, str] = {}

    def with_references(text: str, depth: int = 0) -> str:
        source = escaped(text) if depth == 0 else text

        def replaced(match: re.Match[str]) -> str:
            name = match["curly"] or match["plain"]
            if match["escape"]:
                return match[0][1:]
            if name in variables:
                return variables[name]
            if name in project.variables and name not in dotenv and depth < _MAX_DEPTH:
                return with_references(project.variables[name], depth + 1)
            references[name] = None
            return f"${{env:{name}}}"

        return _VARIABLE.sub(replaced, source)

    def without_secrets(text: str, path: KeyPath) -> str:
        if not text or has_variable(text) or not _is_secret(path, plugin):
            return with_references(text)
        name = ".".join(map(str, path))
        variable = plugin.variables(name)[0]
        references[variable], written[name] = None, variable
        return f"${{env:{variable}}}"

    known = {**project.variables, **dotenv, **variables}
    defaults = {name: value for name, value in _defaults(plugin).items() if _is_set(value, known)}
    values: dict[str, Any] = {}
    for name, value in {**defaults, **_named_settings(plugin), **_dotenv_settings(plugin, dotenv)}.items():
        if isinstance(value, _Reference):
            references[value.name] = None
            value = f"${{env:{value.name}}}"
        else:
            setting = plugin.settings.get(name, {})
            if isinstance(value, str) and not (has_variable(value) or _is_secret((name,), plugin)):
                value = _of_kind(value, setting)
            value = _processed(map_strings(value, (name,), without_secrets), setting)
        put_member(values, name.split("."), value)
    return PluginConfig(values, tuple(references), written)


def _defaults(plugin: Plugin) -> dict[str, Any]:
    return flattened({name: each["value"] for name, each in plugin.settings.items() if each.get("value") is not None})


def _is_set(value: Any, known: Mapping[str, str]) -> bool:
    """True unless a default is a variable alone that is not known."""
    found = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
    return found is None or found["escape"] is not None or (found["curly"] or found["plain"]) in known


def _named_settings(plugin: Plugin) -> dict[str, Any]:
    """Returns the settings of the project's files. A definition may have further names for a setting."""
    names = {str(alias): name for name, setting in plugin.settings.items() for alias in setting.get("aliases") or ()}
    return {names.get(name, name): value for name, value in flattened(plugin.config).items()}


class _Reference(NamedTuple):
    name: str


def _dotenv_settings(plugin: Plugin, dotenv: Mapping[str, str]) -> dict[str, Any]:
    """Returns the settings that `.env` sets.

    A value that is no text is copied, because a reference always gives text.
    """
    found: dict[str, Any] = {}
    for name, setting in plugin.settings.items():
        names = [setting.get("env"), *plugin.variables(name)]
        variable = next((each for each in names if isinstance(each, str) and each in dotenv), None)
        if variable is not None:
            found[name] = _dotenv_value(dotenv[variable], setting, variable)
    if not plugin.settings:
        prefix = plugin.variables("")[0]
        bare = {key.removeprefix(prefix): key for key in dotenv if key.startswith(prefix)}
        found |= {name.lower(): _Reference(key) for name, key in bare.items() if name and not name.startswith("_")}
    return found


def _dotenv_value(text: str, setting: Mapping[str, Any], variable: str) -> Any:
    value = _of_kind(text, setting)
    return _Reference(variable) if isinstance(value, str) else value


def _of_kind(text: str, setting: Mapping[str, Any]) -> Any:
    """Returns what Meltano makes of a text for a setting of this kind."""
    kind = str(setting.get("kind"))
    if kind == "boolean":
        return text.strip().lower() in ("true", "1", "yes", "on", "t", "y")
    if kind in _KINDS:
        with suppress(ValueError):
            return json.loads(text)
    return text


def _processed(value: Any, setting: Mapping[str, Any]) -> Any:
    for word in ("value_processor", "value_post_processor"):
        process = _PROCESSORS.get(str(setting.get(word)))
        value = value if process is None else process(value)
    return value


def _is_secret(path: KeyPath, plugin: Plugin) -> bool:
    """True if the text at a path is secret. The path begins with the setting; further words lead into its value."""
    setting = plugin.settings.get(str(path[0]))
    if setting is not None and ("sensitive" in setting or setting.get("kind") == "password"):
        return bool(setting.get("sensitive", True))
    return sounds_secret(".".join(map(str, path)))
