"""Whose the containers of connectors are, and which of them nobody owns any more.

Each says by its labels which process it is of, for which connection and which run. A process of this machine lives or
does not. Of any other, also one in another container, the state store tells, if the run is one that began there: a
connection is read by whoever holds its lease, and by nobody else. Of runs of another store nobody can tell. What a
stranger only asked (a check, a discover) is over when no answer is waited for any more.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.sync.connector.queries import PATIENCE_SECONDS
from dagster_airbyte_proto.sync.lease_holder import lives, this_process

if TYPE_CHECKING:  # Docker's client takes a while to import.
    from dagster_airbyte_proto.launchers.docker.containers import Container

_READ = "read"
_QUESTIONS = ("spec", "check", "discover")
_LONGEST_QUESTION = timedelta(seconds=6 * PATIENCE_SECONDS)  # Another machine's clock may be another.


class Ownership(StrEnum):
    OWNED = "owned"
    ORPHAN = "orphan"
    UNKNOWN = "unknown"


def labels_of(connection: str, run_id: str) -> dict[str, str]:
    """Those of the containers that this process starts for a run."""
    return {"connection": connection, "run": run_id, "owner": this_process()}


def ownership(found: "Container", store: Callable[[], StateStore]) -> Ownership:
    """By a container's labels. Asks the store only where the process is none of this machine's."""
    labels = found.labels
    owner, connection = labels.get("owner", ""), labels.get("connection", "")
    if (alive := lives(owner)) is not None:
        return Ownership.OWNED if alive else Ownership.ORPHAN
    if labels.get("verb") in _QUESTIONS and datetime.now(UTC) - found.created_at > _LONGEST_QUESTION:
        return Ownership.ORPHAN
    if labels.get("verb") != _READ or owner not in store().runners(connection, labels.get("run", "")):
        return Ownership.UNKNOWN
    lease = store().holder(connection)
    holds = lease is not None and lease.holder == owner and lease.expires_at > datetime.now(UTC)
    return Ownership.OWNED if holds else Ownership.ORPHAN
