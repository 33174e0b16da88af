"""The configs that connectors wrote back, as the state store keeps them."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple


class ConfigOwner(StrEnum):
    """The program of a connection that a config belongs to: its connector, or the destination of a relay (`to`)."""

    CONNECTOR = "connector"
    DESTINATION = "to"


class StoredConfig(NamedTuple):
    """A config as the connector last rewrote it. `based_on` is the digest of the user's config at that time."""

    config: Mapping[str, Any]
    based_on: str


class ConfigChange(NamedTuple):
    """One change of the config that a connector wrote back. `config` is None where it was dropped."""

    version: int
    config: Mapping[str, Any] | None
    changed_at: datetime
    who: str
    run_id: str
    owner: ConfigOwner = ConfigOwner.CONNECTOR
