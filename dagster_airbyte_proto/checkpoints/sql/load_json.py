"""Encodes a load as JSON for the loads table, readable for a person: paths, counts, and states as text.

The names in this JSON are stored: a database that an older version wrote must still be read.
"""

from collections.abc import Iterable

import msgspec

from dagster_airbyte_proto.loads.load import (
    RELAY_ID_PREFIX,
    CommittedRows,
    Load,
    ResumePoint,
    StagedRows,
    TransformedStream,
)
from dagster_airbyte_proto.model import State, StateScope, StreamId, TableName


class _StateText(msgspec.Struct, frozen=True, omit_defaults=True):
    """A state whose message is text, or base64 where it is not UTF-8.

    JSON has no bytes, and the message must come back byte for byte.
    """

    scope: StateScope
    message: str | None = None
    message_base64: bytes | None = None
    stream: StreamId | None = None
    is_reset: bool = False


class _ResumePointText(msgspec.Struct, frozen=True):
    generation_id: int
    state: _StateText


class _LoadText(msgspec.Struct, frozen=True):
    load_id: str
    connection: str
    run_id: str
    parts: tuple[StagedRows, ...]
    states: tuple[_StateText, ...]
    resume_points: tuple[_ResumePointText, ...] = ()
    transformed: tuple[TransformedStream, ...] = ()


class _PlacedPart(msgspec.Struct, frozen=True):
    """The place of a part: all that is read of it where a whole log is gone through."""

    table: TableName
    table_id: str = ""


class _PlacedLoad(msgspec.Struct, frozen=True):
    parts: tuple[_PlacedPart, ...]


_LOAD, _COMMITTED = msgspec.json.Decoder(_LoadText), msgspec.json.Decoder(tuple[CommittedRows, ...])
_PLACED = msgspec.json.Decoder(_PlacedLoad)


def load_to_json(load: Load) -> str:
    states = tuple(_to_text(state) for state in load.states)
    points = tuple(_ResumePointText(point.generation_id, _to_text(point.state)) for point in load.resume_points)
    text = _LoadText(load.load_id, load.connection, load.run_id, load.parts, states, points, load.transformed)
    return _json(text)


def load_from_json(text: str) -> Load:
    read = _LOAD.decode(text)
    states = tuple(map(_from_text, read.states))
    points = tuple(ResumePoint(point.generation_id, _from_text(point.state)) for point in read.resume_points)
    return Load(read.load_id, read.connection, read.run_id, read.parts, states, points, read.transformed)


def tables_from_json(text: str) -> set[TableName]:
    """The tables of a load. The records of a relay are in none."""
    return {part.table for part in _PLACED.decode(text).parts if not part.table_id.startswith(RELAY_ID_PREFIX)}


def committed_to_json(committed: Iterable[CommittedRows]) -> str:
    return _json(tuple(committed))


def committed_from_json(text: str) -> tuple[CommittedRows, ...]:
    return _COMMITTED.decode(text)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _to_text(state: State) -> _StateText:
    try:
        message, message_base64 = state.message.decode(), None
    except UnicodeDecodeError:
        message, message_base64 = None, state.message
    return _StateText(state.scope, message, message_base64, state.stream, state.is_reset)


def _from_text(text: _StateText) -> State:
    message = text.message.encode() if text.message is not None else text.message_base64
    return State(text.scope, message or b"", text.stream, text.is_reset)
