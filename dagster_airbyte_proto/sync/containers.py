"""Whose the containers of connectors are, and which of them nobody owns any more.

Each says by its labels which process it is of, for which connection, and in which state store that one keeps its state.
A process of this machine lives or does not. Of any other, also one in another container, the lease tells: a connection
is read by whoever holds it, and by nobody else. What was asked by a stranger (a check, a discover) nobody can tell of.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.sync.holder import lives, this_process

_READ = "read"


class Ownership(StrEnum):
    OWNED = "owned"
    ORPHAN = "orphan"
    UNKNOWN = "unknown"


def labels_of(connection: str, state_url: str) -> dict[str, str]:
    """Those of the containers that this process starts for a connection."""
    return {"connection": connection, "owner": this_process(), "store": _mark(state_url)}


def ownership(labels: Mapping[str, str], state_url: str, store: Callable[[], StateStore]) -> Ownership:
    """By a container's labels. Asks the store only where the process is none of this machine's."""
    owner = labels.get("owner", "")
    if (alive := lives(owner)) is not None:
        return Ownership.OWNED if alive else Ownership.ORPHAN
    if labels.get("verb") != _READ or labels.get("store") != _mark(state_url):
        return Ownership.UNKNOWN
    lease = store().holder(labels.get("connection", ""))
    holds = lease is not None and lease.holder == owner and lease.expires_at > datetime.now(UTC)
    return Ownership.OWNED if holds else Ownership.ORPHAN


def _mark(state_url: str) -> str:
    """Tells one store from another, and nothing of where it is."""
    return sha256(state_url.encode()).hexdigest()[:16]
