"""Decides which containers of connectors still have an owner, so that orphans can be removed.

The labels of a container name the process that started it, its connection and its run.

- If the process belongs to this machine, it is alive or it is not.
- Else (another machine, or another container) a query, such as a check, is an orphan once no caller can still be
  waiting for its answer.
- A read belongs to the holder of the connection's lease. The state store says who holds it, if the run began in that
  store. On an executor the store answers for the connection of its own sync alone.
- Of all others nothing is known, and they are left alone.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.protocols.conversation import Verb
from dagster_airbyte_proto.sync.connector.queries import QUERY_TIMEOUT_SECONDS
from dagster_airbyte_proto.sync.process_identity import is_alive, this_process

if TYPE_CHECKING:  # Docker's client takes a while to import.
    from dagster_airbyte_proto.launchers.docker.containers import Container

_QUERY_VERBS = (Verb.SPEC, Verb.CHECK, Verb.DISCOVER, Verb.USAGE)
_LONGEST_QUERY = timedelta(seconds=6 * QUERY_TIMEOUT_SECONDS)  # Six times the timeout, for clocks differ.


class Ownership(StrEnum):
    """The knowledge about a container's owner: alive, dead or unknown."""

    OWNED = "owned"
    ORPHAN = "orphan"
    UNKNOWN = "unknown"


def container_labels(connection: str, run_id: str) -> dict[str, str]:
    """The labels of the containers that this process starts for a run."""
    return {"connection": connection, "run": run_id, "owner": this_process()}


def ownership(container: "Container", store: Callable[[], StateStore]) -> Ownership:
    """The ownership of a container, by its labels. `store` is called only if its process is not of this machine."""
    labels = container.labels
    owner, connection = labels.get("owner", ""), labels.get("connection", "")
    if (alive := is_alive(owner)) is not None:
        return Ownership.OWNED if alive else Ownership.ORPHAN
    if labels.get("verb") in _QUERY_VERBS and datetime.now(UTC) - container.created_at > _LONGEST_QUERY:
        return Ownership.ORPHAN
    if labels.get("verb") not in (Verb.READ, Verb.WRITE):
        return Ownership.UNKNOWN
    try:
        if owner not in store().run_holders(connection, labels.get("run", "")):
            return Ownership.UNKNOWN
        holders = [lease.holder for lease in store().current_leases(connection, only_live=True)]
        return Ownership.OWNED if owner in holders else Ownership.ORPHAN
    except ConfigError:  # on an executor, about a container of another connection
        return Ownership.UNKNOWN
