"""States as table rows and as JSON. Slow modules are imported when they are used; see call.py."""

import os
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from dagster_airbyte_proto.cli.call import Target
from dagster_airbyte_proto.cli.connection_names import file_of_connection
from dagster_airbyte_proto.cli.output import Answer, Grid, plain, short, time_text
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
    from dagster_airbyte_proto.checkpoints.kept_values import KeptSize
    from dagster_airbyte_proto.checkpoints.store import StateChange, StateStore, StoredState
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.masking import Mask
    from dagster_airbyte_proto.model import State, StreamId
    from dagster_airbyte_proto.protocols.state_codec import StateCodec

HISTORY_COLUMNS = ("version", "stream", "state", "changed", "who", "why", "run")
HISTORY_TEXTS = ("state", "why")
_WHOLE = "(whole)"
_MAX_VALUES = 1000


class StateView:
    """Shows states to people: the connector's own value, without the protocol's envelope, secrets masked."""

    def __init__(self, target: Target, store: "DeliveryStore") -> None:
        self._target = target
        self._store = store

    @cached_property
    def _mask(self) -> "Mask":
        """Filled when the first state is shown: nothing that needs no secret waits for a store of secrets."""
        return _mask(self._target)

    @cached_property
    def _codec(self) -> "StateCodec":
        return states_of(self._target, self._store)

    def row(self, stored: "StoredState", *, max_characters: int = 60) -> tuple[Any, ...]:
        name = stream_text(stored.state.stream, stored.partition)
        return self._row(name, self._value(stored.state), stored, max_characters)

    def part_rows(self, stored: "StoredState", *, max_characters: int = 60) -> list[tuple[Any, ...]]:
        """A row for each stream that a shared state names."""
        return [
            self._row(stream_text(stream, stored.partition), value, stored, max_characters)
            for stream, value in self.parts(stored).items()
        ]

    def parts(self, stored: "StoredState") -> "dict[StreamId, Any]":
        """The parts of a shared state that belong to single streams. One may mean nothing without the rest."""
        found = {} if stored.state.stream else self._codec.values_by_stream(stored.state, exact=True)
        return {stream: self._mask.value(value) for stream, value in found.items()}

    def value(self, stored: "StoredState", part: "StreamId | None" = None) -> dict[str, Any]:
        """A state by JSON's names; of the parts of a shared one all, or that of a stream."""
        parts = {stream: value for stream, value in self.parts(stored).items() if part in (None, stream)}
        whole = {"streams": {str(stream): value for stream, value in parts.items()}} if parts else {}
        return {
            **whole,
            "stream": str(stored.state.stream) if stored.state.stream else None,
            "scope": stored.state.scope.value,
            "state": self._value(stored.state),
            "version": stored.version,
            "changed_at": stored.changed_at.isoformat(),
            "run_id": stored.run_id,
            "partition": stored.partition,
        }

    def kept(self, size: "KeptSize", *, with_values: bool) -> dict[str, Any]:
        """The values that a connector keeps for an asset, by JSON's names."""
        from dagster_airbyte_proto.protocols.raw_json import exact_value

        first = islice(self._store.kept_values(size.asset), _MAX_VALUES if with_values else 0)
        values = [{"key": list(each.key), "value": self._mask.value(exact_value(each.value))} for each in first]
        return {"count": size.values, "bytes": size.size_bytes, **({"values": values} if with_values else {})}

    def change_row(self, change: "StateChange") -> tuple[Any, ...]:
        from dagster_airbyte_proto.checkpoints.kept_values import is_of_values
        from dagster_airbyte_proto.checkpoints.sql.leases import process_text

        value = short(self._value(change.state)) if change.state else "(none)" if is_of_values(change) else "(reset)"
        name = stream_text(change.stream, change.partition)
        return (
            change.version,
            name,
            value,
            time_text(change.changed_at),
            process_text(change.who),
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
        return self._mask.value(self._codec.value(state, exact=True))

    @staticmethod
    def _row(name: str, value: Any, stored: "StoredState", max_characters: int) -> tuple[Any, ...]:
        return (name, short(value, max_characters), stored.version, time_text(stored.changed_at), stored.run_id)


def states_of(target: Target, store: "StateStore") -> "StateCodec":
    """The codec of the connection's states: of its file's protocol, or of the one that its last run spoke."""
    from dagster_airbyte_proto.protocols.lookup import PUSH, state_codec_named
    from dagster_airbyte_proto.sync.maintenance.stored_protocol import state_codec

    if target.connection is not None:
        return state_codec_named(PUSH if target.connection.push else target.connection.connector.protocol)
    return state_codec(store, target.name)


def state_change_answer(target: Target, store: "DeliveryStore", changes: "Sequence[StateChange]") -> Answer:
    """The answer of a command that changed states: the changes."""
    shown = StateView(target, store)
    value = {
        "connection": target.name,
        "status": "complete",
        "changes": [shown.change_value(change) for change in changes],
    }
    return Answer(
        value, (Grid(HISTORY_COLUMNS, [shown.change_row(change) for change in changes], texts=HISTORY_TEXTS),)
    )


def _mask(target: Target) -> "Mask":
    """A mask for the secrets in the config. A secret that is missing has no value to hide, and neither has a connection
    whose file is not here.

    A store of secrets that is down may have one, and the state is what somebody wants to see just then: it is shown,
    with a warning. So it is where the file cannot be read.
    """
    from dagster_airbyte_proto.masking import Mask

    warning = f"warning: secrets in states of {target.name} are not masked"
    try:
        connection = target.connection or _connection_named(target.name)
        if connection is None:
            return Mask(())
        known = connection.known_secrets(os.environ)
    except ConfigError as error:
        click.echo(f"{warning}: {plain(str(error))}", err=True)
        return Mask(())
    for down in known.down:
        click.echo(f"{warning}: {plain(down)}", err=True)
    return Mask(known.values)


def _connection_named(name: str) -> "Connection | None":
    """The connection of a name, if its file is found."""
    from dagster_airbyte_proto.connection import Connection

    file = file_of_connection(name)
    return None if file is None else Connection.from_file(file)


def stream_text(stream: "StreamId | None", partition: str) -> str:
    name = str(stream) if stream else _WHOLE
    return f"{name} [{partition}]" if partition else name
