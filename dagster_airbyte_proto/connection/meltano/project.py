"""A Meltano project's taps, as connections say the same. Reads no file: documents in, drafts out.

What is written for a tap is what Meltano would have run it with: the definition that its lock file keeps, under what it
inherits from, under its own, under that of the chosen environment, under the variables of `.env`. A secret is never
written down, only where it comes from. Whatever a connection cannot say is named, with what to do about it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dagster_airbyte_proto.connection.filling import with_texts
from dagster_airbyte_proto.errors import ConfigError

_VARIABLE = re.compile(r"(?P<escape>\\)?\$(?:\{(?P<curly>\w+)\}|(?P<plain>[A-Z][A-Z0-9_]*))")
_SECRET_NAME = re.compile(r"passw|secret|token|api_?key|private_?key|access_?key|credential", re.IGNORECASE)
_KINDS = {"integer": int, "decimal": float, "array": list, "object": dict}
_DEEPEST = 10
_EXTRAS = ("catalog", "load_schema", "metadata", "schema", "select", "select_filter", "state", "use_cached_catalog")
_CARRIED = {"name", "inherit_from", "variant", "pip_url", "executable", "python", "namespace", "config", "settings"}
_FOR_PEOPLE = {"label", "description", "docs", "repo", "logo_url", "logo", "capabilities", "hidden", "keywords",
                   "maintenance_status", "quality", "settings_preamble", "next_steps", "usage", "definition",
                   "domain_url", "signup_url", "prereq", "ext_repo", "plugin_type", "settings_group_validation",
                   "use_cached_catalog", "requires_meltano", "supported_python_versions"}  # fmt: skip


class Tap(NamedTuple):
    """A tap with all that the project says of it. `settings` are the definitions of its config's, by dotted name.
    `heir_of` are the names of those that it inherits from, the nearest first."""

    name: str
    heir_of: tuple[str, ...] = ()
    pip_url: str = ""
    executable: str = ""
    python: str = ""
    config: Mapping[str, Any] = {}
    settings: Mapping[str, Mapping[str, Any]] = {}
    select: tuple[str, ...] = ()
    select_filter: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}
    load_schema: str = ""
    left: tuple[str, ...] = ()

    def variables(self, setting: str) -> list[str]:
        """Those that the setting may stand in: its own, and those of whom it inherits from."""
        return [re.sub("[^A-Z0-9]", "_", f"{name}_{setting}".upper()) for name in (self.name, *self.heir_of)]


class Project(NamedTuple):
    """`variables` are those that the project sets itself. `left` is what no connection is made of."""

    taps: tuple[Tap, ...]
    variables: Mapping[str, str]
    left: tuple[str, ...]


class Config(NamedTuple):
    """A tap's config as a connection file has it. `variables` have to be in the environment when it runs; `written`
    are those whose values the project held openly, by the setting that they were the value of."""

    values: Mapping[str, Any]
    variables: tuple[str, ...]
    written: Mapping[str, str]


def project_of(
    document: Mapping[str, Any], locks: Sequence[Mapping[str, Any]] = (), environment: str | None = None
) -> Project:
    """What a project's document says of its taps. Raises ConfigError."""
    chosen = _environment(document, environment)
    plugins = _mapping(document.get("plugins"))
    written = {str(each["name"]): each for each in _named(plugins.get("extractors"))}
    within = _mapping(_mapping(_mapping(chosen.get("config")).get("plugins")))
    changed = {str(each["name"]): each for each in _named(within.get("extractors"))}
    taps = tuple(_tap(name, written, changed, locks) for name in written)
    variables = {**_mapping(document.get("env")), **_mapping(chosen.get("env"))}
    return Project(taps, {key: str(value) for key, value in variables.items()}, tuple(_left(document, plugins)))


def joined(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A project's file and those that it includes, as one."""
    whole: dict[str, Any] = {}
    for document in documents:
        for key, value in document.items():
            before = whole.get(key)
            if isinstance(before, list) and isinstance(value, list):
                whole[key] = [*before, *value]
            elif isinstance(before, Mapping) and isinstance(value, Mapping):
                whole[key] = joined([before, value])
            else:
                whole.setdefault(key, value)
    return whole


def config_of(tap: Tap, project: Project, root: str, dotenv: Mapping[str, str]) -> Config:
    """Its config with every variable of the environment as a connection names it. `root` is the project's folder."""
    references: dict[str, None] = {}
    written: dict[str, str] = {}

    def referred(text: str, depth: int = 0) -> str:
        escaped = text.replace("${env:", "$${env:") if depth == 0 else text

        def replaced(match: re.Match[str]) -> str:
            name = match["curly"] or match["plain"]
            if match["escape"]:
                return match[0][1:]
            if name == "MELTANO_PROJECT_ROOT":
                return root
            if name in project.variables and name not in dotenv and depth < _DEEPEST:
                return referred(project.variables[name], depth + 1)
            references[name] = None
            return f"${{env:{name}}}"

        return _VARIABLE.sub(replaced, escaped)

    values: dict[str, Any] = {}
    for name, value in {**_flat(tap.config), **_from_dotenv(tap, dotenv)}.items():
        variable = tap.variables(name)[0]
        if isinstance(value, _Reference):
            references[value.name] = None
            value = f"${{env:{value.name}}}"
        elif _is_secret(name, tap) and isinstance(value, str) and value and not _VARIABLE.search(value):
            references[variable], written[name] = None, variable
            value = f"${{env:{variable}}}"
        else:
            value = with_texts(value, (), lambda text, _path: referred(text))
        _put(values, name.split("."), value)
    return Config(values, tuple(references), written)


class _Reference(NamedTuple):
    name: str


def _from_dotenv(tap: Tap, dotenv: Mapping[str, str]) -> dict[str, Any]:
    """Settings that stand in `.env`. What is no text is taken as it stands, for a reference is text."""
    found: dict[str, Any] = {}
    for name, setting in tap.settings.items():
        names = [setting.get("env"), *tap.variables(name)]
        variable = next((each for each in names if isinstance(each, str) and each in dotenv), None)
        if variable is not None:
            found[name] = _read(dotenv[variable], setting, variable)
    if not tap.settings:
        prefix = tap.variables("")[0]
        bare = {key.removeprefix(prefix): key for key in dotenv if key.startswith(prefix)}
        found |= {name.lower(): _Reference(key) for name, key in bare.items() if name and not name.startswith("_")}
    return found


def _read(text: str, setting: Mapping[str, Any], variable: str) -> Any:
    kind = str(setting.get("kind", "string"))
    if kind == "boolean":
        return text.strip().lower() in ("true", "1", "yes", "on", "t", "y")
    if kind in _KINDS:
        try:
            return json.loads(text)
        except ValueError:
            return _Reference(variable)
    return _Reference(variable)


def _is_secret(name: str, tap: Tap) -> bool:
    setting = tap.settings.get(name)
    if setting is not None and ("sensitive" in setting or setting.get("kind") == "password"):
        return bool(setting.get("sensitive", True))
    return bool(_SECRET_NAME.search(name))


def _tap(
    name: str,
    written: Mapping[str, Mapping[str, Any]],
    changed: Mapping[str, Mapping[str, Any]],
    locks: Sequence[Mapping[str, Any]],
) -> Tap:
    lineage = _lineage(name, written)
    oldest = lineage[0]
    origin, variant = str(oldest.get("inherit_from", oldest["name"])), oldest.get("variant")
    lock = next((each for each in locks if each.get("name") == origin and variant in (None, each.get("variant"))), {})
    layers = [lock, *(layer for each in lineage for layer in (each, changed.get(str(each["name"]), {})))]
    whole: dict[str, Any] = {}
    config: dict[str, Any] = {}
    settings: dict[str, Mapping[str, Any]] = {}
    for layer in layers:
        whole |= layer
        config |= _flat(_mapping(layer.get("config")))
        settings |= {str(each["name"]): each for each in _named(layer.get("settings"))}
    extras = {key: whole.get(key) for key in _EXTRAS} | {
        key: config[f"_{key}"] for key in _EXTRAS if f"_{key}" in config
    }
    inside = {path: value for path, value in config.items() if path.startswith("_metadata.")}
    metadata = _nested(_flat(_mapping(extras["metadata"])) | {path[10:]: value for path, value in inside.items()})
    return Tap(
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
        tuple(_left_of_tap(whole, extras)),
    )


def _lineage(name: str, written: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The tap's own words last, before them what it inherits."""
    lineage = [written[name]]
    while (parent := lineage[0].get("inherit_from")) in written and parent != lineage[0]["name"]:
        if len(lineage) > _DEEPEST:
            raise ConfigError(f"reading tap {name}", "it inherits from itself", remedy="Mend its inherit_from.")
        lineage.insert(0, written[str(parent)])
    return lineage


def _left_of_tap(whole: Mapping[str, Any], extras: Mapping[str, Any]) -> list[str]:
    known = _CARRIED | _FOR_PEOPLE | set(_EXTRAS)
    said = {
        "schema": "schema: types are changed by `types` of the stream, or where the table is read",
        "catalog": f"catalog {extras.get('catalog')}: the tap's own is discovered; save it with `discover --save`",
        "state": f"state {extras.get('state')}: take it over with --state",
        "env": f"env {', '.join(_mapping(whole.get('env')))}: set it where airbyte-proto runs",
        "mappings": "mappings: shape streams with select, exclude, hash, filter and rename_columns",
    }
    found = [said[key] for key in ("schema", "catalog", "state") if extras.get(key)]
    rest = sorted(key for key in set(whole) - known if whole[key])
    return found + [said.get(key, f"{key}: there is nothing like it") for key in rest]


def _left(document: Mapping[str, Any], plugins: Mapping[str, Any]) -> list[str]:
    """What a project is made of beside taps."""
    names = {kind: ", ".join(str(each["name"]) for each in _named(some)) for kind, some in plugins.items()}
    because = {
        "loaders": "tables are written by airbyte-proto itself",
        "mappers": "shape streams with select, exclude, hash, filter and rename_columns",
        "transformers": "run dbt as Dagster assets behind the tables",
    }
    found = [
        f"{kind} {names[kind]}: {because.get(kind, 'they are not connectors')}"
        for kind in names
        if kind != "extractors" and names[kind]
    ]
    found += [
        f"job {each['name']}: make it a Dagster job over its taps' assets" for each in _named(document.get("jobs"))
    ]
    found += [
        f"schedule {each['name']} ({each.get('interval', 'no interval')}): make it a Dagster schedule"
        for each in _named(document.get("schedules"))
    ]
    return found


def _environment(document: Mapping[str, Any], wanted: str | None) -> Mapping[str, Any]:
    known = {str(each["name"]): each for each in _named(document.get("environments"))}
    name = wanted or document.get("default_environment")
    if name is None or (wanted is None and name not in known):
        return {}
    if name not in known:
        listed = ", ".join(known) or "none"
        raise ConfigError("choosing the environment", f"there is no {name!r}", remedy=f"There are: {listed}.")
    return known[str(name)]


def _flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Members by dotted name, as Meltano knows settings; an empty mapping is a value."""
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


def _named(values: Any) -> list[Mapping[str, Any]]:
    return [each for each in values or () if isinstance(each, Mapping) and "name" in each]


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(str, values)) if isinstance(values, list) else ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
