"""A connector registry: the connectors that exist, and the ways to start each of them.

The format is Airbyte's `oss_registry.json`: an object with `sources` and `destinations`, most of it specs. Entries are
decoded one by one, so that an invalid entry does not cost the others.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.errors import ConfigError

_MAX_SUGGESTIONS = 5
_LOW_CODE_LANGUAGE = "manifest-only"
_SUPPORT_LEVELS = ("certified", "community", "archived")


class _WireRegistry(msgspec.Struct):
    sources: list[msgspec.Raw] = []
    destinations: list[msgspec.Raw] = []


class _Hosts(msgspec.Struct):
    hosts: list[str] | None = None


class _Streams(msgspec.Struct):
    streams: list[str] | None = None


class _Pypi(msgspec.Struct, rename="camel"):
    enabled: bool = False
    package_name: str = ""


class _Remote(msgspec.Struct):
    pypi: _Pypi | None = None


class _PackageInfo(msgspec.Struct):
    cdk_version: str | None = None


class _WireEntry(msgspec.Struct, rename="camel"):
    """The part of an entry that we use. Members that may be absent may also be null."""

    name: str
    docker_repository: str
    docker_image_tag: str
    documentation_url: str | None = None
    support_level: str | None = None
    release_stage: str | None = None
    release_date: str | None = None
    language: str | None = None
    tags: list[str] | None = None
    tombstone: bool | None = None
    allowed_hosts: _Hosts | None = None
    suggested_streams: _Streams | None = None
    resource_requirements: dict[str, Any] | None = None
    remote_registries: _Remote | None = None
    package_info: _PackageInfo | None = None
    spec: dict[str, Any] | None = None


_REGISTRY_DECODER, _ENTRY_DECODER = msgspec.json.Decoder(_WireRegistry), msgspec.json.Decoder(_WireEntry)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class RegistryEntry(NamedTuple):
    """A connector of the registry. The command line prints its fields as JSON.

    `launches` are the ways to start it, the easiest first. `spec` is its specification, if the registry has it.
    """

    name: str
    title: str
    role: str
    image: str
    version: str
    language: str
    launches: tuple[dict[str, str], ...]
    support_level: str
    release_date: str
    documentation_url: str
    allowed_hosts: tuple[str, ...]
    suggested_streams: tuple[str, ...]
    resources: dict[str, Any]
    cdk_version: str
    retired: bool
    spec: dict[str, Any] | None


class ConnectorRegistry(NamedTuple):
    """The connectors of a registry, and the number of entries that could not be read."""

    connectors: tuple[RegistryEntry, ...]
    unreadable: int

    def search(self, text: str) -> list[RegistryEntry]:
        """Finds connectors with every word of the text in their name or title, the best match first.

        Omits retired ones.
        """
        words = text.lower().split()
        found = [each for each in self.connectors if not each.retired and _matches(each, words)]
        return sorted(found, key=lambda each: _search_rank(each, text.lower()))

    def named(self, name: str, *, role: str = "source") -> RegistryEntry:
        """The connector named `source-faker`, by its image, or by `faker` (those of the `role` first).

        Raises ConfigError if none is.
        """
        wanted = name.lower().partition(":")[0]
        for names in (_names, _loose_names):
            found = [each for each in self.connectors if wanted in names(each)]
            if found:
                return min(found, key=lambda each: (each.retired, each.role != role))
        near = self.nearest(name)
        remedy = f"Did you mean {' or '.join(near)}?" if near else "`airbyte-proto connectors search` looks for words."
        raise ConfigError(f"looking up connector {name}", "the registry has none of that name", remedy=remedy)

    def nearest(self, name: str) -> list[str]:
        """The names that are closest to a misspelled one."""
        lower = name.lower()
        role = next((role for role in ("source", "destination") if lower.startswith(f"{role}-")), "")
        alive = [each for each in self.connectors if not each.retired and role in ("", each.role)]
        # Compares names without their prefix, which is common to all. `reversed`: a source replaces the destination of
        # its name.
        by_word = {word: each.name for each in reversed(alive) for word in _loose_names(each)}
        close = get_close_matches(_bare_name(lower), by_word, n=2 * _MAX_SUGGESTIONS, cutoff=0.6)
        return list(dict.fromkeys(by_word[word] for word in close))[:_MAX_SUGGESTIONS]


def read_registry(content: bytes, *, where: str) -> ConnectorRegistry:
    """Parses a registry. Raises ConfigError if the content is none; single invalid entries are counted."""
    try:
        file = _REGISTRY_DECODER.decode(content)
    except _UNREADABLE as error:
        raise _format_error(where, str(error)) from None
    entries = [("source", raw) for raw in file.sources] + [("destination", raw) for raw in file.destinations]
    if not entries:
        raise _format_error(where, "it has neither sources nor destinations")
    listed = tuple(each for role, raw in entries if (each := _read_entry(role, raw)) is not None)
    if not listed:
        raise _format_error(where, "none of its entries has a name, a dockerRepository and a dockerImageTag")
    return ConnectorRegistry(listed, len(entries) - len(listed))


def _format_error(where: str, found: str) -> ConfigError:
    remedy = "It must be of the format of Airbyte's oss_registry.json: an object of `sources` and `destinations`."
    return ConfigError(f"reading the connector registry {where}", found, remedy=remedy)


def _read_entry(role: str, raw: msgspec.Raw) -> RegistryEntry | None:
    try:
        entry = _ENTRY_DECODER.decode(raw)
    except _UNREADABLE:
        return None
    image = f"{entry.docker_repository}:{entry.docker_image_tag}"
    language = entry.language or next((tag[9:] for tag in entry.tags or () if tag.startswith("language:")), "")
    schema = (entry.spec or {}).get("connectionSpecification")
    return RegistryEntry(
        name=entry.docker_repository.rpartition("/")[2],
        title=entry.name,
        role=role,
        image=image,
        version=entry.docker_image_tag,
        language=language,
        launches=tuple(_launches(entry, image, language)),
        support_level=entry.support_level or entry.release_stage or "",
        release_date=entry.release_date or "",
        documentation_url=entry.documentation_url or "",
        allowed_hosts=tuple((entry.allowed_hosts and entry.allowed_hosts.hosts) or ()),
        suggested_streams=tuple((entry.suggested_streams and entry.suggested_streams.streams) or ()),
        resources=entry.resource_requirements or {},
        cdk_version=(entry.package_info and entry.package_info.cdk_version) or "",
        retired=bool(entry.tombstone),
        spec=entry.spec if isinstance(schema, dict) else None,
    )


def _launches(entry: _WireEntry, image: str, language: str) -> Iterator[dict[str, str]]:
    if language == _LOW_CODE_LANGUAGE:
        yield {"kind": "manifest", "path": "manifest.yaml"}
    pypi = entry.remote_registries and entry.remote_registries.pypi
    if pypi and pypi.enabled and pypi.package_name:
        yield {"kind": "pypi", "package": f"{pypi.package_name}=={entry.docker_image_tag}"}
    memory = _memory(entry.resource_requirements or {})
    yield {"kind": "docker", "image": image} | ({"memory": memory} if memory else {})


def _memory(requirements: Mapping[str, Any]) -> str | None:
    """The memory limit of a sync, as Docker writes it; None if the registry states none that we understand."""
    jobs = requirements.get("jobSpecific")
    specific = [each for each in jobs if isinstance(each, dict)] if isinstance(jobs, list) else []
    resources_of_sync = [each.get("resourceRequirements") for each in specific if each.get("jobType") == "sync"]
    needs = [each for each in (*resources_of_sync, requirements.get("default")) if isinstance(each, dict)]
    limits = (re.fullmatch(r"([0-9]+)([KMG])i", str(each.get("memory_limit"))) for each in needs)
    return next((f"{found[1]}{found[2].lower()}" for found in limits if found), None)


def _bare_name(name: str) -> str:
    return re.sub("^(source|destination)-", "", name)


def _matches(listed: RegistryEntry, words: list[str]) -> bool:
    text = f"{listed.name} {listed.title.lower()}"
    return all(word in text for word in words)


def _names(listed: RegistryEntry) -> tuple[str, str]:
    return (listed.name, listed.image.rpartition(":")[0])


def _loose_names(listed: RegistryEntry) -> tuple[str, str]:
    return (_bare_name(listed.name), listed.title.lower())


def _search_rank(listed: RegistryEntry, text: str) -> tuple[bool, bool, int, str]:
    level = (
        _SUPPORT_LEVELS.index(listed.support_level) if listed.support_level in _SUPPORT_LEVELS else len(_SUPPORT_LEVELS)
    )
    return (text not in _names(listed) + _loose_names(listed), listed.role != "source", level, listed.name)
