"""The interface of every protocol: requests in, command lines out; bytes in, events out.

1. Nothing in this folder reads, writes, sleeps, starts a thread or asks the clock.
2. A protocol turns each request into an `Invocation`, which a launcher carries out.
3. During a read, the protocol turns the connector's output into events line by line. The short requests (spec, check,
   discover) are parsed as a whole: their answer may span many lines, or be no more than the exit code.
4. Most record lines never become events. `RecordWire` describes how such a line begins and where its data is, so that
   runs of them go to the columnar parser as they are. Both ways must give the same rows.
"""

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, Self

import msgspec

from dagster_airbyte_proto.model import Catalog, PlannedStream, State, Stream, StreamId
from dagster_airbyte_proto.protocols.events import ConfigEvent, Event, SpecEvent
from dagster_airbyte_proto.protocols.state_codec import StateCodec
from dagster_airbyte_proto.protocols.wire import RecordWire


class FileArgument(NamedTuple):
    """A placeholder in an argument list: the launcher puts the path of that file of the invocation here."""

    name: str


class Verb(StrEnum):
    """The requests to a connector. All but READ, WRITE and TRANSFORM are short: they are answered as a whole. USAGE is
    for the usage text of another request."""

    SPEC = "spec"
    USAGE = "usage"
    CHECK = "check"
    DISCOVER = "discover"
    READ = "read"
    WRITE = "write"
    TRANSFORM = "transform"


class Invocation(NamedTuple):
    """A command line for a launcher to carry out.

    The launcher writes the `files` before the start, private to the run, and removes them after it. `rewritable_file`
    names the file that the connector may rewrite (a tap stores a rotated token in its config file). With `takes_input`
    we write to its stdin; otherwise that is empty. A short request writes its `input` there, and closes it. With
    `keeps_lines_with`, the answer to a short request is in the lines of its output that contain these bytes: the others
    are not kept.
    """

    arguments: tuple[str | FileArgument, ...]
    files: Mapping[str, bytes] = {}
    rewritable_file: str | None = None
    verb: Verb = Verb.READ
    takes_input: bool = False
    input: bytes = b""
    keeps_lines_with: bytes = b""

    @property
    def rewritable_content(self) -> tuple[str, bytes] | None:
        """The name and the original content of the rewritable file; None if there is no such file."""
        return None if self.rewritable_file is None else (self.rewritable_file, self.files[self.rewritable_file])


class Transcript(NamedTuple):
    """The whole result of a short request: stdout, how the connector ended, and the last lines of stderr."""

    output: bytes
    ended_cleanly: bool
    stderr_tail: tuple[str, ...] = ()


class ReadRequest(NamedTuple):
    """A request to read some `streams` of the `available` ones.

    `fields` names the fields to read of a stream. A stream that is missing from it is read with all its fields. `kept`
    are the values that the connector kept and that belong to no stream, by their scopes. With `dry_run_records` nothing
    of what comes will land: a connector that can do so sends no more than so many records of each stream.
    """

    config: Mapping[str, Any]
    streams: tuple[PlannedStream, ...]
    states: tuple[State, ...]
    sync_id: int
    available: tuple[Stream, ...] = ()
    fields: Mapping[StreamId, frozenset[str]] = {}
    kept: Mapping[str, Mapping[str, str]] = {}
    dry_run_records: int | None = None


class Conversation(Protocol):
    """The short requests that every connector answers, sources and destinations alike."""

    name: str

    def adapted_to(self, spec: SpecEvent) -> Self:
        """The protocol as a connector with this specification speaks it."""
        ...

    def spec(self) -> tuple[Invocation, ...]:
        """The invocations that ask for the spec. The caller tries one after the other until one is answered."""
        ...

    def check(self, config: Mapping[str, Any]) -> Invocation: ...

    def discover(self, config: Mapping[str, Any]) -> Invocation: ...

    def events_of_answer(self, verb: Verb, transcript: Transcript) -> Iterator[Event]:
        """The events of a short request. The answer is among them if the connector gave one. Never raises."""
        ...

    def spec_from_message(self, message: Mapping[str, Any]) -> SpecEvent:
        """The specification in a message that was saved earlier."""
        ...

    def catalog(self, message: bytes) -> Catalog:
        """Parses the JSON that `catalog_message` wrote. Raises ProtocolViolation."""
        ...

    def catalog_message(self, catalog: Catalog) -> bytes:
        """The catalog as JSON, with each stream as the connector sent it. This is what to save after a discover."""
        ...


class SourceProtocol(Conversation, Protocol):
    """The source side of a protocol: the short requests, how its records look, its states, and the read."""

    record_wire: RecordWire
    states: StateCodec
    sends_schemas: bool
    """True if connectors send the schema of each stream before its first record."""
    keeps_scopes: bool
    """True if connectors keep values that belong to no stream, and send them at the end of a run."""
    sends_batches: bool
    """True if records come in Arrow batches, between the lines: no line is a record then."""
    can_divide_streams: bool
    """True if several processes of a connector may read some of the streams each, at once: its states may be those of
    streams, and it does not do so itself."""

    def read(self, request: ReadRequest) -> Invocation: ...

    def stream_aliases(self, request: ReadRequest) -> Mapping[StreamId, tuple[StreamId, ...]]:
        """The other names that records may use for planned streams, each with the streams that it may mean."""
        ...

    def event(self, line: bytes) -> Event:
        """The event of one line, with or without its newline.

        Never raises: a line that is no message is a PlainLine.
        """
        ...


def encode_config(config: Mapping[str, Any]) -> bytes:
    """The content of a config file.

    YAML turns unquoted dates into date objects: `to_builtins` makes them text again. `json` writes the file because
    msgspec refuses half a surrogate pair, which a text may have.
    """
    return json.dumps(msgspec.to_builtins(config)).encode()


def parse_config_file(file: bytes) -> ConfigEvent | None:
    """The config that a connector wrote into its config file; None if the file holds no JSON object."""
    try:
        found = json.loads(file)
    except (ValueError, RecursionError):
        return None
    return ConfigEvent(found) if isinstance(found, dict) else None
