"""Converts the taps and loaders of a Meltano project to configs of connections. Pure: no file is read.

- A plugin gets the config with which Meltano would run it. From weakest to strongest: the definition in its lock file,
  the plugins it inherits from, its own, the chosen environment's, and the variables of `.env`.
- A secret is never written, only the environment variable that holds it.
- Everything that a connection cannot express is listed, with a remedy.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dagster_airbyte_proto.connection.references import escaped, map_strings
from dagster_airbyte_proto.errors import ConfigError

_VARIABLE = re.compile(r"(?P<escape>\\)?\$(?:\{(?P<curly>\w+)\}|(?P<plain>[A-Z][A-Z0-9_]*))")
_SECRET_NAME = re.compile(r"passw|secret|token|api_?key|private_?key|access_?key|credential", re.IGNORECASE)
_EXTRACTORS = "extractors"
LOADERS: Final = "loaders"
"""Meltano's word for taps and for targets, and the name of their folder in a project."""

_KINDS = {"integer": int, "decimal": float, "array": list, "object": dict}
_MAX_DEPTH = 10
_EXTRA_KEYS = ("catalog", "load_schema", "metadata", "schema", "select", "select_filter", "state", "use_cached_catalog")
_IMPORTED_KEYS = {
    "name",
    "inherit_from",
    "variant",
    "pip_url",
    "executable",
    "python",
    "namespace",
    "config",
    "settings",
}
_IGNORED_KEYS = {"label", "description", "docs", "repo", "logo_url", "logo", "capabilities", "hidden", "keywords",
                   "maintenance_status", "quality", "settings_preamble", "next_steps", "usage", "definition",
                   "domain_url", "signup_url", "prereq", "ext_repo", "plugin_type", "settings_group_validation",
                   "use_cached_catalog", "requires_meltano", "supported_python_versions"}  # fmt: skip


class Plugin(NamedTuple):
    """A tap or a loader with everything that the project declares for it. `kind` is the folder of its kind.

    `settings` are the definitions of its settings, by dotted name. `inherits_from` are the names of its parents, the
    nearest first. `not_imported` describes what a connection cannot express.
    """

    name: str
    inherits_from: tuple[str, ...] = ()
    pip_url: str = ""
    executable: str = ""
    python: str = ""
    config: Mapping[str, Any] = {}
    settings: Mapping[str, Mapping[str, Any]] = {}
    select: tuple[str, ...] = ()
    select_filter: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}
    load_schema: str = ""
    not_imported: tuple[str, ...] = ()
    kind: str = _EXTRACTORS

    def variables(self, setting: str) -> list[str]:
        """Returns the environment variables that may hold the setting: its own, and those of its parents."""
        return [re.sub("[^A-Z0-9]", "_", f"{name}_{setting}".upper()) for name in (self.name, *self.inherits_from)]


class MeltanoProject(NamedTuple):
    """A Meltano project.

    `variables` are those that the project sets itself. `not_imported` describes what is no plugin of these.
    """

    taps: tuple[Plugin, ...]
    loaders: tuple[Plugin, ...]
    variables: Mapping[str, str]
    not_imported: tuple[str, ...]


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


def parsed_project(
    document: Mapping[str, Any], locks: Sequence[Mapping[str, Any]] = (), environment: str | None = None
) -> MeltanoProject:
    """Parses a project's document. Raises ConfigError."""
    chosen = _environment(document, environment)
    plugins = _mapping(document.get("plugins"))
    overrides = _mapping(_mapping(_mapping(chosen.get("config")).get("plugins")))
    variables = {**_mapping(document.get("env")), **_mapping(chosen.get("env"))}
    return MeltanoProject(
        tuple(_plugins(_EXTRACTORS, plugins, overrides, locks)),
        tuple(_plugins(LOADERS, plugins, overrides, locks)),
        {key: str(value) for key, value in variables.items()},
        tuple(_other_parts(document, plugins)),
    )


def merged_documents(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merges a project's file and the files that it includes."""
    whole: dict[str, Any] = {}
    for document in documents:
        for key, value in document.items():
            before = whole.get(key)
            if isinstance(before, list) and isinstance(value, list):
                whole[key] = [*before, *value]
            elif isinstance(before, Mapping) and isinstance(value, Mapping):
                whole[key] = merged_documents([before, value])
            else:
                whole.setdefault(key, value)
    return whole


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
    for name, value in {**_flat(plugin.config), **_dotenv_settings(plugin, dotenv)}.items():
        variable = plugin.variables(name)[0]
        if isinstance(value, _Reference):
            references[value.name] = None
            value = f"${{env:{value.name}}}"
        elif _is_secret(name, plugin) and isinstance(value, str) and value and not _VARIABLE.search(value):
            references[variable], written[name] = None, variable
            value = f"${{env:{variable}}}"
        else:
            value = map_strings(value, (), lambda text, _path: with_references(text))
        _put(values, name.split("."), value)
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


def _plugins(
    kind: str, plugins: Mapping[str, Any], overrides: Mapping[str, Any], locks: Sequence[Mapping[str, Any]]
) -> Iterator[Plugin]:
    """The plugins of a kind. `overrides` are those of the environment."""
    written, of_environment = (
        {str(each["name"]): each for each in _named_entries(some.get(kind))} for some in (plugins, overrides)
    )
    for name in written:
        yield _plugin(name, written, of_environment, locks)._replace(kind=kind)


def _plugin(
    name: str,
    written: Mapping[str, Mapping[str, Any]],
    overrides: Mapping[str, Mapping[str, Any]],
    locks: Sequence[Mapping[str, Any]],
) -> Plugin:
    lineage = _lineage(name, written)
    oldest = lineage[0]
    origin, variant = str(oldest.get("inherit_from", oldest["name"])), oldest.get("variant")
    lock = next((each for each in locks if each.get("name") == origin and variant in (None, each.get("variant"))), {})
    layers = [lock, *(layer for each in lineage for layer in (each, overrides.get(str(each["name"]), {})))]
    whole: dict[str, Any] = {}
    config: dict[str, Any] = {}
    settings: dict[str, Mapping[str, Any]] = {}
    for layer in layers:
        whole |= layer
        config |= _flat(_mapping(layer.get("config")))
        settings |= {str(each["name"]): each for each in _named_entries(layer.get("settings"))}
    extras = {key: whole.get(key) for key in _EXTRA_KEYS} | {
        key: config[f"_{key}"] for key in _EXTRA_KEYS if f"_{key}" in config
    }
    inside = {path: value for path, value in config.items() if path.startswith("_metadata.")}
    metadata = _nested(_flat(_mapping(extras["metadata"])) | {path[10:]: value for path, value in inside.items()})
    return Plugin(
        name,
        tuple(str(each["name"]) for each in reversed(lineage[:-1])),
        str(whole.get("pip_url") or ""),
        str(whole.get("executable") or origin),
        str(whole.get("python") or ""),
        _nested({path: value for path, value in config.items() if not path.startswith("_")}),
        settings,
        _texts(extras["select"]),
        _texts(extras["select_filter"]),
        metadata,
        str(extras["load_schema"] or ""),
        tuple(_not_imported_of_plugin(whole, extras)),
    )


def _lineage(name: str, written: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the plugin and its parents, the plugin last."""
    lineage = [written[name]]
    while (parent := lineage[0].get("inherit_from")) in written and parent != lineage[0]["name"]:
        if len(lineage) > _MAX_DEPTH:
            raise ConfigError(f"reading plugin {name}", "it inherits from itself", remedy="Correct its inherit_from.")
        lineage.insert(0, written[str(parent)])
    return lineage


def _not_imported_of_plugin(whole: Mapping[str, Any], extras: Mapping[str, Any]) -> list[str]:
    known = _IMPORTED_KEYS | _IGNORED_KEYS | set(_EXTRA_KEYS)
    remedies = {
        "schema": "schema: types are changed by `types` of the stream, or where the table is read",
        "catalog": f"catalog {extras.get('catalog')}: the tap's own is discovered; save it with `discover --save`",
        "state": f"state {extras.get('state')}: import it with --state",
        "env": f"env {', '.join(_mapping(whole.get('env')))}: name it in `env_vars` of the connector",
        "mappings": "mappings: shape streams with select, exclude, hash, filter and rename_columns",
    }
    found = [remedies[key] for key in ("schema", "catalog", "state") if extras.get(key)]
    rest = sorted(key for key in set(whole) - known if whole[key])
    return found + [remedies.get(key, f"{key}: connections have nothing like it") for key in rest]


def _other_parts(document: Mapping[str, Any], plugins: Mapping[str, Any]) -> list[str]:
    """Lists the parts of a project that are not taps."""
    names = {kind: ", ".join(str(each["name"]) for each in _named_entries(some)) for kind, some in plugins.items()}
    because = {
        LOADERS: "tables are written by airbyte-proto itself; with --loader NAME the records go there",
        "mappers": "shape streams with select, exclude, hash, filter and rename_columns",
        "transformers": "run dbt as Dagster assets behind the tables",
    }
    found = [
        f"{kind} {names[kind]}: {because.get(kind, 'they are not connectors')}"
        for kind in names
        if kind != _EXTRACTORS and names[kind]
    ]
    found += [
        f"job {each['name']}: make it a Dagster job over its taps' assets"
        for each in _named_entries(document.get("jobs"))
    ]
    found += [
        f"schedule {each['name']} ({each.get('interval', 'no interval')}): make it a Dagster schedule"
        for each in _named_entries(document.get("schedules"))
    ]
    return found


def _environment(document: Mapping[str, Any], wanted: str | None) -> Mapping[str, Any]:
    known = {str(each["name"]): each for each in _named_entries(document.get("environments"))}
    name = wanted or document.get("default_environment")
    if name is None or (wanted is None and name not in known):
        return {}
    if name not in known:
        listed = ", ".join(known) or "none"
        raise ConfigError("choosing the environment", f"there is no {name!r}", remedy=f"There are: {listed}.")
    return known[str(name)]


def _flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Returns members by dotted name, which is how Meltano names settings. An empty mapping is a value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{path}{key}.")
        else:
            flat[f"{path}{key}"] = value
    return flat


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        _put(nested, name.split("."), value)
    return nested


def _put(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for step in path[:-1]:
        inner = values.get(step)
        if not isinstance(inner, dict):
            inner = values[step] = {}
        values = inner
    values[path[-1]] = value


def _named_entries(values: Any) -> list[Mapping[str, Any]]:
    return [each for each in values or () if isinstance(each, Mapping) and "name" in each]


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(str, values)) if isinstance(values, list) else ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
