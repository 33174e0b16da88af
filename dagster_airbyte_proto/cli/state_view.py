"""States as people see them, in tables and as JSON. What takes long to import is imported when used; see call.py."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dagster_airbyte_proto.cli.call import Target
from dagster_airbyte_proto.cli.output import Answer, Grid, short, time_text
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from dagster_airbyte_proto.checkpoints.store import StateChange, StoredState
    from dagster_airbyte_proto.masking import Mask
    from dagster_airbyte_proto.model import State, StreamId
    from dagster_airbyte_proto.protocols.session import SourceProtocol

HISTORY_COLUMNS = ("version", "stream", "state", "changed", "who", "why", "run")
_WHOLE = "(whole)"


class Shown:
    """States as people see them: the connector's own value without the protocol's envelope, secrets masked."""

    def __init__(self, target: Target) -> None:
        self.protocol = _protocol(target)
        self._mask = _mask(target)

    def row(self, stored: "StoredState", *, max_characters: int = 60) -> tuple[Any, ...]:
        value = short(self._value(stored.state), max_characters)
        name = _stream_text(stored.state.stream, stored.partition)
        return (name, value, stored.version, time_text(stored.changed_at), stored.run_id)

    def value(self, stored: "StoredState") -> dict[str, Any]:
        return {
            "stream": str(stored.state.stream) if stored.state.stream else None,
            "scope": stored.state.scope.value,
            "state": self._value(stored.state),
            "version": stored.version,
            "changed_at": stored.changed_at.isoformat(),
            "run_id": stored.run_id,
            "partition": stored.partition,
        }

    def change_row(self, change: "StateChange") -> tuple[Any, ...]:
        value = short(self._value(change.state)) if change.state else "(reset)"
        name = _stream_text(change.stream, change.partition)
        return (
            change.version,
            name,
            value,
            time_text(change.changed_at),
            _who_text(change.who),
            change.why,
            change.run_id,
        )

    def change_value(self, change: "StateChange") -> dict[str, Any]:
        return {
            "version": change.version,
            "stream": str(change.stream) if change.stream else None,
            "state": self._value(change.state) if change.state else None,
            "changed_at": change.changed_at.isoformat(),
            "who": change.who,
            "why": change.why,
            "run_id": change.run_id,
            "partition": change.partition,
        }

    def _value(self, state: "State") -> Any:
        return self._mask.value(self.protocol.state_value(state))


def changed(target: Target, changes: "Sequence[StateChange]") -> Answer:
    """What a change by hand answers: what is different now."""
    shown = Shown(target)
    value = {
        "connection": target.name,
        "status": "complete",
        "changes": [shown.change_value(change) for change in changes],
    }
    return Answer(value, (Grid(HISTORY_COLUMNS, [shown.change_row(change) for change in changes]),))


def _protocol(target: Target) -> "SourceProtocol":
    """The connection's own; for a bare name Airbyte's, which all states of today are."""
    if target.connection is not None:
        from dagster_airbyte_proto.sync.source import protocol_of

        return protocol_of(target.connection)
    from dagster_airbyte_proto.protocols.airbyte import AirbyteSource

    return AirbyteSource()


def _mask(target: Target) -> "Mask":
    """What the config takes from the environment. A variable that is not set has no value to hide."""
    from dagster_airbyte_proto.masking import Mask

    if target.connection is None:
        return Mask(())
    try:
        return Mask(target.connection.filled_config(os.environ).secrets)
    except ConfigError:
        return Mask(())


def _who_text(who: str) -> str:
    """Without the marks by which a machine tells one process from a later one of the same number."""
    return who.partition(" (started ")[0]


def _stream_text(stream: "StreamId | None", partition: str) -> str:
    name = str(stream) if stream else _WHOLE
    return f"{name} [{partition}]" if partition else name
