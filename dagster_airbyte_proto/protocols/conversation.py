"""What a protocol is to the rest of the house: requests in, bytes out; bytes in, events out.

Nothing in this folder reads, writes, sleeps, starts a thread or asks the clock. A protocol makes an
`Invocation` for a launcher to carry out, and turns single lines of the connector's output into events; of a short
conversation, whose answer may be spread over lines or be no more than how it ended, all of it at once.
Records take a faster road: `RecordShape` says how a run of record lines begins and where in each line the
data stands, so that whole runs go to the parser as they are. Both roads must tell the same story.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.model import Catalog, PlannedStream, State, StateScope, Stream, StreamId
from dagster_airbyte_proto.protocols.events import ConfigEvent, Event, SpecEvent
from dagster_airbyte_proto.protocols.wire import RecordShape


class FileArgument(NamedTuple):
    """Stands in an argument list for the path of one of the invocation's files."""

    name: str


_VERBS_OF_OPTIONS = {"--about": "spec", "--help": "spec", "--test": "check", "--discover": "discover"}


class Invocation(NamedTuple):
    """A command line to carry out. `files` are made before the start, private to the run, and gone after it. In that
    which `may_change` the connector writes what is to be kept of its config."""

    arguments: tuple[str | FileArgument, ...]
    files: Mapping[str, bytes] = {}
    may_change: str | None = None

    @property
    def changeable(self) -> tuple[str, bytes] | None:
        """The name of that file, and what is handed over in it."""
        return None if self.may_change is None else (self.may_change, self.files[self.may_change])

    @property
    def verb(self) -> str:
        """What for: the first word, or what the options of a Singer tap say, which takes no words."""
        first = str(self.arguments[0])
        if not first.startswith("-"):
            return first
        return next((verb for flag, verb in _VERBS_OF_OPTIONS.items() if flag in self.arguments), "read")


class Verb(StrEnum):
    """The short conversations."""

    SPEC = "spec"
    CHECK = "check"
    DISCOVER = "discover"


class Heard(NamedTuple):
    """All of a short conversation: what the connector wrote to stdout, how it ended, and the end of its stderr."""

    output: bytes
    ended_cleanly: bool
    last_words: tuple[str, ...] = ()


class ReadRequest(NamedTuple):
    """`streams` of those that are `offered`. `fields` names those of a stream's records that are read; of a stream that
    is not in it, all are."""

    config: Mapping[str, Any]
    streams: tuple[PlannedStream, ...]
    states: tuple[State, ...]
    sync_id: int
    offered: tuple[Stream, ...] = ()
    fields: Mapping[StreamId, frozenset[str]] = {}


class SourceProtocol(Protocol):
    """A source's side of a protocol. Pure: see the top of this file."""

    name: str
    shape: RecordShape
    describes_streams: bool
    """Whether connectors tell of each stream what its records look like before they send any."""

    def spec(self) -> tuple[Invocation, ...]:
        """Tried one after the other, until one is answered."""
        ...

    def check(self, config: Mapping[str, Any]) -> Invocation: ...

    def discover(self, config: Mapping[str, Any]) -> Invocation: ...

    def read(self, request: ReadRequest) -> Invocation: ...

    def answer(self, verb: Verb, heard: Heard) -> Iterator[Event]:
        """The events of a short conversation, its answer among them if there is one. Never raises."""
        ...

    def kept_spec(self, message: Mapping[str, Any]) -> SpecEvent:
        """The specification whose message was kept."""
        ...

    def knowing(self, spec: SpecEvent) -> "SourceProtocol":
        """The protocol as a connector of this specification speaks it."""
        ...

    def other_names(self, request: ReadRequest) -> Mapping[StreamId, tuple[StreamId, ...]]:
        """What records may call streams otherwise than they are planned, each with those that it may be."""
        ...

    def event(self, line: bytes) -> Event:
        """The event of one line (without its newline, or with it). Never raises: what is no message is a PlainLine."""
        ...

    def catalog(self, message: bytes) -> Catalog:
        """A catalog from the JSON that `catalog_message` wrote; raises ProtocolViolation."""
        ...

    def catalog_message(self, catalog: Catalog) -> bytes:
        """The catalog as JSON, each stream in the connector's own words: what to keep of a discover."""
        ...

    def merged(self, old: tuple[State, ...], new: State) -> tuple[State, ...]:
        """The connection's states once `new` is in: one a stream, or one for all.

        A state of another scope takes the place of all that was there, for a connector may move on between two syncs.
        Within one sync that is a violation, which `one_scope` refuses.
        """
        ...

    def state_value(self, state: State) -> Any:
        """What the state says, for people: the connector's own value with the protocol's envelope taken off."""
        ...

    def state_parts(self, state: State) -> Mapping[StreamId, Any] | None:
        """What a state of the connection as a whole says of single streams; None where all of it is one position."""
        ...

    def without(self, state: State, stream: StreamId) -> State | None:
        """A state of the connection as a whole that says nothing more of the stream; None where it has no such part."""
        ...

    def sharing(
        self, state: State, asked: Sequence[PlannedStream], offered: Sequence[PlannedStream]
    ) -> frozenset[StreamId] | None:
        """The streams which would be left behind if a state of the connection as a whole moved on for those `asked`
        alone, themselves included; None where it does not tell."""
        ...

    def state_from_value(self, stream: StreamId | None, value: Any) -> State:
        """The state that `state_value` would show as `value`: of one stream, or of the connection as a whole."""
        ...


def one_scope(earlier: StateScope | None, new: State) -> StateScope:
    """The scope of a sync's states so far, once `new` is among them. Raises ProtocolViolation when it is another."""
    if earlier is not None and new.scope is not earlier:
        raise ProtocolViolation(
            "reading the connector's states",
            f"a {new.scope.name} state after {earlier.name} states in one sync",
            remedy="What was committed until here stays. The connector mixes ways to keep state: tell its author.",
            stream=str(new.stream) if new.stream else None,
        )
    return new.scope


def config_file(config: Mapping[str, Any]) -> bytes:
    """A config as connectors read it. Dates, which YAML makes of its own accord, become text; whole numbers may be of
    any size."""
    return json.dumps(msgspec.to_builtins(config)).encode()


def config_in(file: bytes) -> ConfigEvent | None:
    """What a connector made of its config's file; None where that is no JSON object."""
    try:
        found = json.loads(file)
    except (ValueError, RecursionError):
        return None
    return ConfigEvent(found) if isinstance(found, dict) else None
