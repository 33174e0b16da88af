"""Converts the config of a Meltano plugin to that of a connection. Pure: no file is read.

A secret is never written, only the environment variable that holds it.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dagster_airbyte_proto.connection.meltano.dotted_names import flattened, put_member
from dagster_airbyte_proto.connection.meltano.project import MeltanoProject, Plugin
from dagster_airbyte_proto.connection.references import escaped, map_strings

_VARIABLE = re.compile(r"(?P<escape>\\)?\$(?:\{(?P<curly>\w+)\}|(?P<plain>[A-Z][A-Z0-9_]*))")
_SECRET_NAME = re.compile(r"passw|secret|token|api_?key|private_?key|access_?key|credential", re.IGNORECASE)
_KINDS = {"integer": int, "decimal": float, "array": list, "object": dict}
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


def connection_config(plugin: Plugin, project: MeltanoProject, root: str, dotenv: Mapping[str, str]) -> PluginConfig:
    """Returns a plugin's config with environment variables in the syntax of connections.

    `root` is the project's folder.
    """
    references: dict[str, None] = {}
    written: dict[str, str] = {}

    def with_references(text: str, depth: int = 0) -> str:
        source = escaped(text) if depth == 0 else text

        def replaced(match: re.Match[str]) -> str:
            name = match["curly"] or match["plain"]
            if match["escape"]:
                return match[0][1:]
            if name == "MELTANO_PROJECT_ROOT":
                return root
            if name in project.variables and name not in dotenv and depth < _MAX_DEPTH:
                return with_references(project.variables[name], depth + 1)
            references[name] = None
            return f"${{env:{name}}}"

        return _VARIABLE.sub(replaced, source)

    values: dict[str, Any] = {}
    for name, value in {**flattened(plugin.config), **_dotenv_settings(plugin, dotenv)}.items():
        variable = plugin.variables(name)[0]
        if isinstance(value, _Reference):
            references[value.name] = None
            value = f"${{env:{value.name}}}"
        elif _is_secret(name, plugin) and isinstance(value, str) and value and not _VARIABLE.search(value):
            references[variable], written[name] = None, variable
            value = f"${{env:{variable}}}"
        else:
            value = map_strings(value, (), lambda text, _path: with_references(text))
        put_member(values, name.split("."), value)
    return PluginConfig(values, tuple(references), written)


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
    kind = str(setting.get("kind", "string"))
    if kind == "boolean":
        return text.strip().lower() in ("true", "1", "yes", "on", "t", "y")
    if kind in _KINDS:
        try:
            return json.loads(text)
        except ValueError:
            return _Reference(variable)
    return _Reference(variable)


def _is_secret(name: str, plugin: Plugin) -> bool:
    setting = plugin.settings.get(name)
    if setting is not None and ("sensitive" in setting or setting.get("kind") == "password"):
        return bool(setting.get("sensitive", True))
    return bool(_SECRET_NAME.search(name))
