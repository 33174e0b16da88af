"""Turns a pipeline of Rapidbyte into a connection file: a relay from its source to its destination.

1. A pipeline names its connectors (`use: source-postgres`), and Rapidbyte finds their files. Here each is a file that
   the user puts into the folder `connectors`. A file has one role, so a name that stands for two has two files.
2. In configs its variables, `${NAME}`, become references to the environment, and secrets of Vault such of ours: its
   `${vault:mount/path#key}` is of a KV engine of version 2, whose API has `data/` behind the mount.
3. Its sizes are powers of 1,024, whether they end in `mb` or in `mib`. They become numbers of bytes.
4. A pipeline without `on_data_error` fails for a record that its destination rejects.
5. A query that groups or sorts, which Rapidbyte does batch by batch, is named (`query_words.py`): `sql` refuses it.
6. What else it says, such as the place of its state, is named, never guessed.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dagster_airbyte_proto.connection.faults import KeyPath
from dagster_airbyte_proto.connection.rapidbyte.component_options import SchemaEvolutionOptions
from dagster_airbyte_proto.connection.rapidbyte.query_words import beyond_rows
from dagster_airbyte_proto.connection.references import map_strings
from dagster_airbyte_proto.connection.secrets.secret_names import sounds_secret
from dagster_airbyte_proto.connection.sizes import binary_size
from dagster_airbyte_proto.errors import ConfigError

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SECRET = re.compile(r"\$\{(?P<store>[A-Za-z][\w-]*):(?P<mount>[^#}/]+)/(?P<path>[^#}]+)#(?P<key>[^}]+)\}")
_WRITES = {"append": "append", "upsert": "append_dedup", "replace": "overwrite"}
_READS = {"full_refresh": "full_refresh", "incremental": "incremental", "cdc": "incremental"}
_ON_ERROR = {"dlq": "reject", "skip": "skip", "fail": "fail"}
_PERMISSIONS = {"network": "allowed_hosts", "env": "allowed_vars", "fs": "allowed_preopens"}
_OF_PIPELINE = frozenset(("version", "pipeline", "source", "transforms", "destination", "resources"))
_OF_SOURCE = frozenset(("use", "config", "streams", "permissions", "limits"))
_OF_DESTINATION = frozenset(
    ("use", "config", "write_mode", "primary_key", "on_data_error", "schema_evolution", "permissions", "limits")
)
_OF_STREAM = frozenset(("name", "sync_mode", "cursor_field", "primary_key", "columns"))
_OF_TRANSFORM = frozenset(("use", "config", "permissions", "limits"))
_LIMITS = frozenset(("max_memory", "timeout_seconds"))
_ROLES = {"source": "source", "transforms": "transform", "destination": "dest"}
"""By which Rapidbyte looks for connectors: several may have the same name."""
_STEPS = {"transform-sql": "query", "transform-validate": "rules"}
"""Transforms that are steps of ours, and the one key of their config."""
_OF_AUTOTUNE = {
    "pin_parallelism": "effective_parallelism",
    "pin_source_partition_mode": "partition_strategy",
    "pin_copy_flush_bytes": "copy_flush_bytes_override",
}


class ImportedPipeline(NamedTuple):
    """A connection file to write: its parts by their key. `left` says what could not be carried over, `variables` are
    those that its configs name, and `components` the files that it needs."""

    name: str
    document: Mapping[str, Any]
    variables: tuple[str, ...]
    components: tuple[str, ...]
    left: tuple[str, ...]


def is_pipeline(document: Mapping[str, Any]) -> bool:
    """True for the content of a pipeline's file: both of its ends name a connector by `use`."""
    ends = (document.get("source"), document.get("destination"))
    return all(isinstance(end, Mapping) and "use" in end for end in ends)


def imported_pipeline(document: Mapping[str, Any], name: str) -> ImportedPipeline:
    """Returns the connection file of a pipeline. Raises ConfigError for a part that is not of its form."""
    return _Import(document, name).imported()


class _Import:
    def __init__(self, document: Mapping[str, Any], name: str) -> None:
        self._document, self._name = document, str(document.get("pipeline") or name)
        self._left: list[str] = []
        self._variables: list[str] = []
        self._components: list[str] = []
        self._roles: defaultdict[str, set[str]] = defaultdict(set)
        for role in _ROLES:
            for part in self._listed(role):
                if isinstance(part, Mapping):
                    self._roles[_stem(part)].add(role)

    def imported(self) -> ImportedPipeline:
        source, destination = self._document["source"], self._document["destination"]
        self._leave(self._document, _OF_PIPELINE, "")
        self._leave(source, _OF_SOURCE, "source.")
        self._leave(destination, _OF_DESTINATION, "destination.")
        overrides, load = self._resources()
        origin = {"connector": self._connector(source, "source"), "config": self._config(source, "source")}
        transforms = [self._transform(each, number) for number, each in enumerate(self._listed("transforms"))]
        on_error = self._word(_ON_ERROR, destination.get("on_data_error", "fail"), "destination.on_data_error")
        document = {
            **origin,
            "streams": dict(self._streams(source, destination)),
            **({"transforms": transforms} if transforms else {}),
            "to": {
                "connector": self._connector(destination, "destination"),
                "config": self._config(destination, "destination"),
            },
            "on_error": on_error,
            **self._evolution(destination),
            **overrides,
            **load,
        }
        self._left.append("its state: the first sync begins with the first row")
        self._left += [_variable_in(place) for place in _with_variables(self._document)]
        lists = (tuple(dict.fromkeys(each)) for each in (self._variables, self._components, self._left))
        return ImportedPipeline(self._name, document, *lists)

    def _connector(self, part: Mapping[str, Any], place: str) -> dict[str, Any]:
        file = self._file(part, place.partition(".")[0])
        self._components.append(f"connectors/{file}")
        narrowed = dict(self._permissions(part, f"{place}.permissions"))
        limits = dict(self._mapping(part.get("limits"), f"{place}.limits"))
        self._leave(limits, _LIMITS, f"{place}.limits.")
        limits = {name: each for name, each in limits.items() if name in _LIMITS and each is not None}
        if "max_memory" in limits:
            limits["max_memory"] = self._bytes(limits["max_memory"], f"{place}.limits.max_memory")
        return {
            "protocol": "rapidbyte",
            "launch": {"kind": "wasm", "path": f"connectors/{file}"},
            **({"permissions": narrowed} if narrowed else {}),
            **({"limits": limits} if limits else {}),
        }

    def _file(self, part: Mapping[str, Any], role: str) -> str:
        stem = _stem(part)
        return f"{_ROLES[role]}_{stem}.wasm" if len(self._roles[stem]) > 1 else f"{stem}.wasm"

    def _permissions(self, part: Mapping[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields what a connection knows of them. All else is named: it would be allowed without a word."""
        permissions = self._mapping(part.get("permissions"), place)
        self._leave(permissions, frozenset(_PERMISSIONS), f"{place}.")
        for room, word in _PERMISSIONS.items():
            given = self._mapping(permissions.get(room), f"{place}.{room}")
            self._leave(given, frozenset((word,)), f"{place}.{room}.")
            if given.get(word) is not None:
                yield room, {word: self._list(given[word], f"{place}.{room}.{word}")}

    def _streams(
        self, source: Mapping[str, Any], destination: Mapping[str, Any]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        write = self._word(_WRITES, destination.get("write_mode", "append"), "destination.write_mode")
        for number, stream in enumerate(self._list(source.get("streams") or None, "source.streams")):
            if not isinstance(stream, Mapping) or not stream.get("name"):
                raise self._fault(f"source.streams.{number} has no name", "Give it one.")
            place = f"source.streams.{stream['name']}"
            # Of changes the place in the log is the cursor: with one in the connection they would be read by that.
            cursor = None if stream.get("sync_mode") == "cdc" else stream.get("cursor_field")
            self._leave(stream, _OF_STREAM if cursor else _OF_STREAM - {"cursor_field"}, f"{place}.")
            read = self._word(_READS, stream.get("sync_mode", "full_refresh"), f"{place}.sync_mode")
            key = self._key(stream, destination, place)
            columns = self._list(stream.get("columns") or None, f"{place}.columns")
            yield (
                str(stream["name"]),
                {
                    "read": read,
                    "write": write,
                    **({"cursor": cursor} if cursor else {}),
                    **({"primary_key": key} if key else {}),
                    **({"select": columns} if columns else {}),
                },
            )

    def _key(self, stream: Mapping[str, Any], destination: Mapping[str, Any], place: str) -> list[Any]:
        """The key of a stream: its own, or else that of all streams of the destination."""
        place, of = (place, stream) if stream.get("primary_key") else ("destination", destination)
        key = of.get("primary_key") or None
        return [key] if isinstance(key, str) else self._list(key, f"{place}.primary_key")

    def _transform(self, part: Any, number: int) -> dict[str, Any]:
        place = f"transforms.{number}"
        if not isinstance(part, Mapping) or not part.get("use"):
            raise self._fault(f"{place} names no connector (`use`)", "Give it one.")
        self._leave(part, _OF_TRANSFORM, f"{place}.")
        name = str(part["use"])
        if name in _STEPS:
            step = self._mapping(part.get("config"), f"{place}.config")
            self._leave(step, frozenset({_STEPS[name]}), f"{place}.config.")
            self._leave(part, frozenset(("use", "config")), f"{place}.")
            # Not in a config of ours, so nothing fills its variables.
            self._left += [_variable_in(each) for each in _with_variables(step, f"{place}.config")]
        if name == "transform-sql":
            query = str(step.get("query", ""))
            if found := beyond_rows(query):
                self._left.append(
                    f"{', '.join(found)} in the query of {place}: `sql` selects and filters rows, and refuses it."
                    " Do the rest where rows are whole, in a query on the table"
                )
            return {"sql": query}
        if name == "transform-validate":
            return {"validate": self._list(step.get("rules") or None, f"{place}.config.rules")}
        self._left.append(f"the columns that {name} fills: add them to its step, as in columns: {{email: string}}")
        return {"connector": self._connector(part, place), "config": self._config(part, place)}

    def _evolution(self, destination: Mapping[str, Any]) -> dict[str, Any]:
        """The policies of schema evolution: here they are about what the source sends."""
        given = self._mapping(destination.get("schema_evolution"), "destination.schema_evolution")
        known = SchemaEvolutionOptions.model_fields
        self._left += [f"destination.schema_evolution.{name}" for name in given if name not in known]
        found = {name: str(each) for name, each in given.items() if name in known}
        return {"schema_evolution": found} if found else {}

    def _resources(self) -> tuple[dict[str, Any], dict[str, Any]]:
        resources = dict(self._mapping(self._document.get("resources"), "resources"))
        autotune = dict(self._mapping(resources.pop("autotune", None), "resources.autotune"))
        overrides = {ours: autotune.pop(theirs) for theirs, ours in _OF_AUTOTUNE.items() if autotune.get(theirs)}
        if isinstance(resources.get("parallelism"), int):
            overrides.setdefault("effective_parallelism", resources.pop("parallelism"))
        if "copy_flush_bytes_override" in overrides:
            size = overrides["copy_flush_bytes_override"]
            overrides["copy_flush_bytes_override"] = self._bytes(size, "resources.autotune.pin_copy_flush_bytes")
        interval = resources.pop("checkpoint_interval_bytes", None)
        size = None if interval is None else self._bytes(interval, "resources.checkpoint_interval_bytes")
        self._left += [f"resources.{name}" for name in resources]
        self._left += [f"resources.autotune.{name}" for name in autotune if name != "enabled"]
        return {"overrides": overrides} if overrides else {}, {"load": {"max_bytes": size}} if size else {}

    def _config(self, part: Mapping[str, Any], place: str) -> dict[str, Any]:
        config = self._mapping(part.get("config"), f"{place}.config")
        filled = map_strings(config, (place, "config"), self._filled_text)
        return {str(name): each for name, each in filled.items()}

    def _filled_text(self, text: str, path: KeyPath) -> str:
        self._variables += _VARIABLE.findall(text)
        if text and "${" not in text and sounds_secret(str(path[-1])):
            place = ".".join(map(str, path))
            self._left.append(f"{place} is written in the pipeline as it is: a reference keeps it out of files")
        return _SECRET.sub(self._secret, _VARIABLE.sub(r"${env:\1}", text))

    def _secret(self, found: re.Match[str]) -> str:
        if found["store"].lower() == "vault":
            return f"${{vault:{found['mount']}/data/{found['path']}#{found['key']}}}"
        self._left.append(f"the secret {found[0]}: put a reference of ours in its place")
        return found[0]

    def _word(self, words: Mapping[str, str], word: Any, place: str) -> str:
        if str(word) not in words:
            raise self._fault(f"{place} is {word!r}", f"It is one of {', '.join(words)}.")
        return words[str(word)]

    def _bytes(self, size: Any, place: str) -> int:
        found = binary_size(size)
        if found is None:
            raise self._fault(f"{place} is {str(size)[:40]!r}, and no size", "Write it as 128mb.")
        return found

    def _listed(self, name: str) -> list[Any]:
        found = self._document.get(name) or []
        return found if isinstance(found, list) else [found]

    def _mapping(self, found: Any, place: str) -> Mapping[str, Any]:
        if found is not None and not isinstance(found, Mapping):
            raise self._fault(f"{place} is no mapping of keys to values", "Look at the file.")
        return found or {}

    def _list(self, found: Any, place: str) -> list[Any]:
        if found is not None and not isinstance(found, list):
            raise self._fault(f"{place} is no list", "Write it as [one, two].")
        return found or []

    def _leave(self, part: Mapping[str, Any], known: frozenset[str], place: str) -> None:
        self._left += [f"{place}{name}" for name in part if name not in known]

    def _fault(self, found: str, remedy: str) -> ConfigError:
        return ConfigError(f"importing pipeline {self._name}", found, remedy=remedy)


def _stem(part: Mapping[str, Any]) -> str:
    return str(part.get("use")).rpartition("/")[2].partition("@")[0].replace("-", "_")


def _variable_in(place: str) -> str:
    return f"the variable in {place}: put its value there"


def _with_variables(value: Any, place: str = "") -> Iterator[str]:
    """Yields the places of texts with variables, outside of configs: only there a connection has references."""
    if isinstance(value, str) and "${" in value:
        yield place
    elif isinstance(value, Mapping):
        for name, each in value.items():
            if name != "config":
                yield from _with_variables(each, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _with_variables(each, f"{place}.{number}")
