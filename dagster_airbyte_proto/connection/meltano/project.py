"""Parses the taps and loaders of a Meltano project. Pure: no file is read.

- A plugin gets the config with which Meltano would run it. From weakest to strongest: the definition in its lock file,
  the plugins it inherits from, its own, the chosen environment's, and the variables of `.env`.
- Everything that a connection cannot express is listed, with a remedy.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dagster_airbyte_proto.connection.meltano.dotted_names import flattened, nested
from dagster_airbyte_proto.errors import ConfigError

_EXTRACTORS = "extractors"
LOADERS: Final = "loaders"
"""Meltano's word for taps and for targets, and the name of their folder in a project."""

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
    `error` says why it cannot be imported: then only its name is known.
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
    namespace: str = ""
    error: ConfigError | None = None

    def variables(self, setting: str) -> list[str]:
        """Returns the environment variables that may hold the setting: its own, and those of its parents."""
        return [re.sub("[^A-Z0-9]", "_", f"{name}_{setting}".upper()) for name in (self.name, *self.inherits_from)]


class MeltanoProject(NamedTuple):
    """A Meltano project.

    `variables` are those that the project sets itself. `not_imported` describes what is no plugin of these.
    `environment` is the name of the chosen one.
    """

    taps: tuple[Plugin, ...]
    loaders: tuple[Plugin, ...]
    variables: Mapping[str, str]
    not_imported: tuple[str, ...]
    environment: str = ""


def parsed_project(
    document: Mapping[str, Any],
    locks: Sequence[Mapping[str, Any]] = (),
    environment: str | None = None,
    unread: Mapping[str, ConfigError] = {},
) -> MeltanoProject:
    """Parses a project's document. `unread` are the errors of locks that cannot be read, by their files without ending.
    Raises ConfigError."""
    chosen = _environment(document, environment)
    plugins = _mapping(document.get("plugins"))
    overrides = _mapping(_mapping(_mapping(chosen.get("config")).get("plugins")))
    variables = {**_mapping(document.get("env")), **_mapping(chosen.get("env"))}
    return MeltanoProject(
        tuple(_plugins(_EXTRACTORS, plugins, overrides, locks, unread)),
        tuple(_plugins(LOADERS, plugins, overrides, locks, unread)),
        {key: str(value) for key, value in variables.items()},
        tuple(_other_parts(document, plugins)),
        str(chosen.get("name") or ""),
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


def _plugins(
    kind: str,
    plugins: Mapping[str, Any],
    overrides: Mapping[str, Any],
    locks: Sequence[Mapping[str, Any]],
    unread: Mapping[str, ConfigError],
) -> Iterator[Plugin]:
    """The plugins of a kind. `overrides` are those of the environment."""
    written, of_environment = (
        {str(each["name"]): each for each in _named_entries(some.get(kind))} for some in (plugins, overrides)
    )
    for name in written:
        try:
            plugin = _plugin(name, written, of_environment, locks, unread)
        except ConfigError as error:
            plugin = Plugin(name, error=error)
        yield plugin._replace(kind=kind)


def _plugin(
    name: str,
    written: Mapping[str, Mapping[str, Any]],
    overrides: Mapping[str, Mapping[str, Any]],
    locks: Sequence[Mapping[str, Any]],
    unread: Mapping[str, ConfigError],
) -> Plugin:
    lineage = _lineage(name, written)
    oldest = lineage[0]
    origin, variant = str(oldest.get("inherit_from", oldest["name"])), oldest.get("variant")
    lock = _lock(origin, variant, locks, unread)
    layers = [lock, *(layer for each in lineage for layer in (each, overrides.get(str(each["name"]), {})))]
    whole: dict[str, Any] = {}
    config: dict[str, Any] = {}
    settings: dict[str, Mapping[str, Any]] = {}
    for layer in layers:
        whole |= layer
        # Meltano takes null for "not set here": the weaker layer counts.
        named = flattened(_mapping(layer.get("config")))
        config |= {path: value for path, value in named.items() if value is not None}
        settings |= {str(each["name"]): each for each in _named_entries(layer.get("settings"))}
    extras = {key: whole.get(key) for key in _EXTRA_KEYS} | {
        key: config[f"_{key}"] for key in _EXTRA_KEYS if f"_{key}" in config
    }
    inside = nested({path[10:]: value for path, value in config.items() if path.startswith("_metadata.")})
    # Not by dotted names: that of a stream may have a dot.
    metadata = {str(pattern): _mapping(values) for pattern, values in _mapping(extras["metadata"]).items()}
    metadata |= {pattern: {**metadata.get(pattern, {}), **_mapping(values)} for pattern, values in inside.items()}
    return Plugin(
        name,
        tuple(str(each["name"]) for each in reversed(lineage[:-1])),
        str(whole.get("pip_url") or ""),
        str(whole.get("executable") or origin),
        str(whole.get("python") or ""),
        nested({path: value for path, value in config.items() if not path.startswith("_")}),
        settings,
        _texts(extras["select"]),
        _texts(extras["select_filter"]),
        metadata,
        str(extras["load_schema"] or ""),
        (*_not_imported_of_plugin(whole, extras), *_unknown_extras(config)),
        namespace=str(whole.get("namespace") or origin.replace("-", "_")),
    )


def _lock(
    origin: str, variant: Any, locks: Sequence[Mapping[str, Any]], unread: Mapping[str, ConfigError]
) -> Mapping[str, Any]:
    """Returns the definition that a plugin has in its lock. Raises ConfigError if the lock cannot be read."""
    for lock in locks:
        if lock.get("name") == origin and variant in (None, lock.get("variant")):
            return lock
    wanted = origin if variant is None else f"{origin}--{variant}"
    for file, error in unread.items():
        if file in (origin, wanted) or file.startswith(f"{wanted}--"):
            raise error
    return {}


def _lineage(name: str, written: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the plugin and its parents, the plugin last."""
    lineage = [written[name]]
    while (parent := _parent(lineage[0])) in written and parent != str(lineage[0]["name"]):
        if len(lineage) > _MAX_DEPTH:
            raise ConfigError(f"reading plugin {name}", "it inherits from itself", remedy="Correct its inherit_from.")
        lineage.insert(0, written[parent])
    return lineage


def _parent(plugin: Mapping[str, Any]) -> str:
    """Returns the name of the plugin that it inherits from; empty if there is none."""
    named = plugin.get("inherit_from") or ""
    if not isinstance(named, str):
        remedy = "Name one plugin there."
        raise ConfigError(f"reading plugin {plugin['name']}", "its inherit_from is no name", remedy=remedy)
    return named


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


def _unknown_extras(config: Mapping[str, Any]) -> Iterator[str]:
    """Lists the settings of Meltano itself (`_config_path`) that a connection cannot express."""
    for path in config:
        name = path[1:].partition(".")[0]
        if path.startswith("_") and (name not in _EXTRA_KEYS or name == "schema"):
            yield f"config {path}: connections have nothing like it"


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
    name = wanted or str(document.get("default_environment") or "")
    if not name or (wanted is None and name not in known):
        return {}
    if name not in known:
        listed = ", ".join(known) or "none"
        raise ConfigError("choosing the environment", f"there is no {name!r}", remedy=f"There are: {listed}.")
    return known[name]


def _named_entries(values: Any) -> list[Mapping[str, Any]]:
    listed = values if isinstance(values, list) else []
    return [each for each in listed if isinstance(each, Mapping) and "name" in each]


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(str, values)) if isinstance(values, list) else ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
