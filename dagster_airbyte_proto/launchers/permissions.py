"""The permissions of a connector: what an untrusted program may have of this machine, whichever launcher starts it.

The environment of a sync holds the keys of the cloud, the URL of the state store, the tokens of Dagster. A connector
needs none of them, so it is denied all variables but those below and those that its connection names.

- A login may stand in a proxy's URL. The proxies pass all the same: behind one, nothing works without them.
- The certificate variables name files with public certificates. Without them a connector behind a proxy that has its
  own certificate authority trusts nobody.
- A container has its own PATH, HOME and time zone. Its proxies are those of its deployment and of Docker's own
  settings: a proxy on this machine's `localhost` is nobody's in a container. So it gets only what its connection names.
- The settings of package indexes, which may hold logins, go to the installer that reads them (uv and pip theirs, npm
  its own) and not to the connector. The
  variables of a connection do not go to the build: it is shared by all connections.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from dagster_airbyte_proto.errors import ConfigError

PROXY_VARIABLES = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
"""The variables of proxies, in small letters. Programs read them in capitals too."""
_ALLOWED = frozenset({"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR"})
CERTIFICATES = frozenset(
    {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"}
)
"""The variables that name files, or folders, of public certificates."""
_COMPILERS = frozenset({"CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "PKG_CONFIG_PATH"})
_INSTALLER_PREFIXES = ("UV_", "PIP_", "XDG_")
"""uv and pip find their caches and their files of settings by the folders of XDG."""

_NPM_LOGINS = frozenset({"NPM_TOKEN", "NODE_AUTH_TOKEN"})
"""The names by which an .npmrc refers to a login, by custom: `${NPM_TOKEN}`."""


class Permissions(NamedTuple):
    """The permissions of one connector, as its connection grants them.

    - `variables` are written as `NAME`, for the value in our own environment, or as `NAME=VALUE`.
    - `sandbox`: a program on this machine is confined, see `local/sandbox.py`; the others matter only then.
    - `network`: it may use this machine's network.
    - `memory_bytes`: the most memory that all its processes may hold together. `seconds`: how long one run of it may
      take, by the clock. None is no limit of ours.
    - `hidden`: folders that it cannot see, such as our home folder. `hidden_files`: files that no sandboxed program and
      no component may see or write, such as the state store and settings with a password, with those beside them whose
      names begin with theirs (SQLite has `-wal`, `-shm`, `-journal`). `writable`: folders that it writes to, beside
      those of its run, if they exist.
    """

    variables: tuple[str, ...] = ()
    sandbox: bool = False
    network: bool = False
    memory_bytes: int | None = None
    seconds: float | None = None
    hidden: tuple[Path, ...] = ()
    hidden_files: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()

    def hidden_places(self) -> set[Path]:
        """The places of the hidden files: where their names are, and where links of these names lead. Whoever replaces
        such a link has the file."""
        places = ((file.parent.resolve() / file.name, file.resolve()) for file in self.hidden_files)
        return {place for pair in places for place in pair}

    def over_memory(self, held: str = "") -> str:
        """The reason why a connector was ended that took more memory than it may have. `held` follows "it held"."""
        limit = shown_size(self.memory_bytes or 0)
        found = f"it held {held} of memory and may have {limit}" if held else f"it took more memory than {limit}"
        return f"{found} (limits: max_memory; raise that, or have it read less at once)"

    def over_time(self) -> str:
        """The reason why a connector was ended that ran for too long."""
        return f"it ran for more than {self.seconds:g} s (limits: timeout_seconds; raise that if it needs longer)"

    def named_variables(self, host: Mapping[str, str]) -> dict[str, str]:
        """The variables that the connection names. Raises ConfigError if our environment, `host`, lacks one."""
        found, missing = _parsed(self.variables, host)
        if missing:
            raise ConfigError(
                "starting the connector",
                f"env_vars names {', '.join(missing)}, and our own environment has no such variable",
                remedy="Set it where the sync runs, write NAME=VALUE, or remove it from env_vars.",
            )
        return found

    def program_environment(self, host: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of a program on this machine. Raises ConfigError as `named_variables` does."""
        allowed = {name: value for name, value in host.items() if _is_allowed(name)}
        return {**allowed, **self.named_variables(host)}


def shown_size(size: int) -> str:
    """A size of memory for a person."""
    return f"{size / (1 << 20):,.0f} MiB" if size >= 1 << 20 else f"{size / (1 << 10):,.0f} KiB"


def joined_variables(own: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that a connector has, with those that we set for it.

    A `NO_PROXY` of ours names where the connector reaches us: no proxy has to do with that. It is added to the
    connector's own, in both spellings, since some programs read only one of them.
    """
    joined = {**own, **ours}
    direct = ours.get("NO_PROXY")
    if direct:
        for name, other in (("NO_PROXY", "no_proxy"), ("no_proxy", "NO_PROXY")):
            joined[name] = ",".join(filter(None, (own.get(name) or own.get(other), direct)))
    return joined


def build_environment(host: Mapping[str, str]) -> dict[str, str]:
    """The environment of uv and pip, and so of the code of packages that runs while they are installed."""
    return {
        name: value
        for name, value in host.items()
        if _is_allowed(name) or name in _COMPILERS or name == "NETRC" or name.startswith(_INSTALLER_PREFIXES)
    }


def npm_environment(host: Mapping[str, str]) -> dict[str, str]:
    """The environment of npm, and so of install scripts, where they are allowed."""
    return {
        name: value
        for name, value in host.items()
        if _is_allowed(name)
        or name in _COMPILERS
        or name in _NPM_LOGINS
        or name.lower().startswith("npm_config_")
        or name.startswith("XDG_")
    }


def parse_variables(written: Iterable[str], host: Mapping[str, str]) -> dict[str, str]:
    """Parses variables written as NAME=VALUE, or as NAME for the value in `host`; one that it lacks is left out."""
    return _parsed(written, host)[0]


def _parsed(written: Iterable[str], host: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    pairs = [each.partition("=") for each in written]
    missing = [name for name, equals, _ in pairs if not equals and name not in host]
    return {name: value if equals else host[name] for name, equals, value in pairs if equals or name in host}, missing


def _is_allowed(name: str) -> bool:
    return name in _ALLOWED or name in CERTIFICATES or name.startswith("LC_") or name.lower() in PROXY_VARIABLES
