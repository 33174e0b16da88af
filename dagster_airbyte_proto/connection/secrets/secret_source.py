"""The interface of a scheme of secrets, such as `vault` in `${vault:path#key}`.

A scheme is a factory that takes a `SecretContext`. Ours are `env` and `file`; others are entry points of the group
`dagster_airbyte_proto.secrets`, named as the scheme.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol


class SecretContext(NamedTuple):
    """The surroundings of a connection: environment variables, and the folder of its file if it has one.

    `known` are the secrets of a connection that another process has read, by `scheme:reference`: this process reads
    none then.
    """

    environment: Mapping[str, str]
    folder: Path | None
    known: Mapping[str, str] | None = None


class SecretSource(Protocol):
    """Looks up the secrets of one scheme while one config is filled; the next run makes a new one."""

    def secret(self, reference: str) -> str:
        """Returns the value of `${scheme:reference}`.

        Raises ConfigError where the user must change something, and SecretStoreError where a later try may succeed.
        Messages never hold a value. `doing` of a ConfigError may be empty: the place in the config is named with it.
        """
        ...


def whole_and_key(reference: str) -> tuple[str, str | None]:
    """Splits `name#key`. The key is None if there is none: a name may hold "#" only where a key follows."""
    name, mark, key = reference.rpartition("#")
    return (name, key) if mark else (reference, None)
