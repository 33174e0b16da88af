"""Grants: what a connector may have, out of what its manifest says it needs and what its connection allows.

| | manifest | connection | granted |
|---|---|---|---|
| hosts | `allowed_domains`, and those of the config if `allow_runtime_config_domains` | `allowed_hosts` | in both |
| variables | `allowed_vars` | `allowed_vars`, `env_vars` | in all |
| folders | `preopens` | `allowed_preopens` | in both |
| memory | `max_memory` | `max_memory` | the smaller; 1 GiB if neither says |
| seconds of a call | `timeout_seconds` | `timeout_seconds` | the smaller; 300 if neither says |

A connection only narrows. What it leaves out stays as the manifest has it, and an empty list blocks all.

A host is an exact name, `*.suffix` (which is not the suffix itself), or `*`. With a port behind it (`db.acme.com:5432`,
`[::1]:80`) it grants that port alone, else all. A config grants all ports of its host; but where the host is this
machine, and the config names a port, that one alone.

A name may lead anywhere, and who owns it may change that at any time. So the address counts too: one of this machine,
of its link, or of nobody is reached only under a name that the *user* wrote out, in the connection or in the config. A
manifest cannot grant it. Which addresses are this machine's own beside the loopback, only its kernel knows: whoever
connects has to ask it (`sockets.py`).
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.protocols.rapidbyte.manifest import ConnectorManifest, size_in_bytes

DEFAULT_MEMORY_BYTES = 1 << 30
DEFAULT_TIMEOUT_SECONDS = 300.0
_HOST_KEYS = frozenset(("host", "hostname", "server", "address"))
_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "fd20:ce::254", "192.0.0.192"),
    )
)
"""Addresses of clouds' metadata that are not link-local: of AWS, Alibaba, Azure, Google and Oracle."""
_HOST = re.compile(r"[A-Za-z0-9._:%\[\]-]+")
"""A host has no other characters. Resolvers end a name at a NUL, and make dots of other letters: they would look up
another name than the one that was matched."""
_PORT = re.compile(r"[0-9]{1,5}")
_MAX_CONFIG_DEPTH = 32


class Narrowing(NamedTuple):
    """The part of it that a connection allows. None leaves the manifest's word; an empty tuple blocks all."""

    hosts: tuple[str, ...] | None = None
    variables: tuple[str, ...] | None = None
    preopens: tuple[str, ...] | None = None
    memory_bytes: int | None = None
    timeout_seconds: float | None = None


class HostRule(NamedTuple):
    """The hosts that a connector may connect to: those of its own word, less what the connection does not allow.

    `of_config` are those that its config names, and it may use them. `allowed` is None if the connection says nothing.
    """

    declared: tuple[str, ...] = ()
    of_config: tuple[str, ...] = ()
    allowed: tuple[str, ...] | None = None

    def permits(self, host: str, port: int) -> bool:
        """True if it may connect to this port of a host of this name, wherever the name leads."""
        if not _HOST.fullmatch(host):
            return False
        is_declared = any(_matches(pattern, host, port) for pattern in self.declared) or any(
            _matches(_split_port(named)[0], host, port) for named in self.of_config
        )
        return is_declared and (self.allowed is None or any(_matches(each, host, port) for each in self.allowed))

    def permits_address(self, host: str, port: int, address: str) -> bool:
        """True if a permitted host may lead to this address."""
        return not _is_special(address) or self.is_written_by_user(host, port)

    def is_written_by_user(self, host: str, port: int) -> bool:
        """True if the user wrote out this name, for this port or for all: then it may lead to this machine."""
        written = (*self.of_config, *(self.allowed or ()))
        return any("*" not in each and _matches(each, host, port) for each in written)

    def __str__(self) -> str:
        named = ", ".join((*self.declared, *(f"{host} (of its config)" for host in self.of_config)))
        if self.allowed is None or not named:
            return named or "none"
        return f"those of {named} that are in {', '.join(self.allowed) or 'nothing'}"


class Grants(NamedTuple):
    """All that one connector gets of this machine. `memory_is_declared`: its manifest sets the limit of memory, and no
    connection can raise it."""

    hosts: HostRule = HostRule()
    variables: tuple[str, ...] = ()
    preopens: tuple[str, ...] = ()
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    memory_is_declared: bool = False

    def lines(self) -> Iterator[str]:
        """The grants for a person, a line each."""
        yield f"hosts: {self.hosts}"
        yield f"variables: {', '.join(self.variables) or 'none'}"
        yield f"folders: {', '.join(self.preopens) or 'none'}"
        yield f"memory: {self.memory_bytes / (1 << 20):,.0f} MiB"
        yield f"seconds of a call: {self.timeout_seconds:g}"


def granted(manifest: ConnectorManifest, narrowing: Narrowing, config: Mapping[str, Any] | None = None) -> Grants:
    """Returns what is granted. Without a config, no host of it is. Raises ConfigError for a limit that is none."""
    permissions, limits = manifest.permissions, manifest.limits
    if limits.timeout_seconds is not None and limits.timeout_seconds <= 0:
        doing = f"reading the manifest of {manifest.name}"
        raise ConfigError(doing, f"timeout_seconds is {limits.timeout_seconds:g}: no call could end in time")
    memory = None if limits.max_memory is None else size_in_bytes(limits.max_memory, manifest.name)
    of_config = config_hosts(config or {}) if permissions.network.allow_runtime_config_domains else ()
    return Grants(
        HostRule(permissions.network.allowed_domains or (), of_config, narrowing.hosts),
        _intersection(permissions.env.allowed_vars, narrowing.variables),
        _granted_folders(permissions.fs.preopens, narrowing.preopens),
        int(_smaller(memory, narrowing.memory_bytes, DEFAULT_MEMORY_BYTES)),
        float(_smaller(limits.timeout_seconds, narrowing.timeout_seconds, DEFAULT_TIMEOUT_SECONDS)),
        memory is not None and memory == _smaller(memory, narrowing.memory_bytes, DEFAULT_MEMORY_BYTES),
    )


def config_hosts(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The hosts that a config names: in `host`, `hostname`, `server`, `address`, and in keys with `url` in them. With
    their port, where the text has it or a `port` stands beside."""
    return tuple(dict.fromkeys(_hosts_within(config, 0)))


def _hosts_within(value: Any, depth: int) -> Iterator[str]:
    if depth > _MAX_CONFIG_DEPTH:
        return
    if isinstance(value, list | tuple):
        for each in value:
            yield from _hosts_within(each, depth + 1)
    if not isinstance(value, Mapping):
        return
    for key, inside in value.items():
        name = str(key).lower()
        is_host = name in _HOST_KEYS
        for each in inside if isinstance(inside, list | tuple) else [inside]:
            if isinstance(each, str) and (is_host or "url" in name):
                yield from _host_of(each, _port_beside(value) if is_host else None)
        yield from _hosts_within(inside, depth + 1)


def _port_beside(config: Mapping[str, Any]) -> int | None:
    found = next((each for name, each in config.items() if str(name).lower() == "port"), None)
    return int(found) or None if isinstance(found, int | str) and _PORT.fullmatch(str(found)) else None


def _host_of(text: str, port: int | None = None) -> Iterator[str]:
    """The host in a URL, or in a text such as `db.example.com:5432`. A pattern in a config is no grant."""
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host = parts.hostname
    except ValueError:
        return
    with suppress(ValueError):  # Several hosts, or a template: then all ports of the first are meant.
        port = parts.port or port
    if host and "*" not in host:
        yield host if port is None else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _matches(pattern: str, host: str, port: int) -> bool:
    pattern, only = _split_port(pattern)
    if only not in (None, port):
        return False
    pattern, host = plain_host(pattern), plain_host(host)
    if pattern == "*":
        return True
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def _split_port(pattern: str) -> tuple[str, int | None]:
    """The host and the port of a pattern. An address of IPv6 has its port behind brackets."""
    host, colon, port = pattern.strip().rpartition(":")
    is_split = colon and _PORT.fullmatch(port) and (":" not in host or host.endswith("]"))
    return (host, int(port)) if is_split else (pattern, None)


def plain_host(host: str) -> str:
    """The host as it is matched, and looked up."""
    return host.strip().lower().strip("[]").removesuffix(".")


def _is_special(address: str) -> bool:
    """True for an address of this machine, of its link, of many or of nobody, and for those of clouds' metadata."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    if isinstance(found, ipaddress.IPv6Address):
        within = found.ipv4_mapped or found.sixtofour or _nat64(found)
        if within is not None:
            return _is_special(str(within))
    return (
        found.is_loopback
        or found.is_link_local
        or found.is_multicast
        or found.is_unspecified
        or found.is_reserved
        or found in _METADATA
        or found in _THIS_NETWORK
    )


_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def _nat64(found: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    return ipaddress.IPv4Address(int(found) & 0xFFFFFFFF) if found in _NAT64 else None


def _intersection(declared: tuple[str, ...], allowed: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for each in declared if allowed is None or each in allowed))


def _granted_folders(declared: tuple[str, ...], allowed: tuple[str, ...] | None) -> tuple[str, ...]:
    """The same of folders: `/data/` is `/data`. No more than that: `/data/link/..` may be anywhere."""
    plain = None if allowed is None else {each.rstrip("/") for each in allowed}
    return tuple(dict.fromkeys(each for each in declared if plain is None or each.rstrip("/") in plain))


def _smaller(first: float | None, second: float | None, default: float) -> float:
    return min((each for each in (first, second) if each is not None), default=default)
