"""The destination side of a protocol: how rows, states and removals are written, and how acknowledgements are read.

1. A destination reads lines from its stdin. Every so many rows we write a state of our own, with the position of the
   last row before it. When the destination sends that state back, all rows up to there are safe.
2. Which states are out, and what an echo proves, is the same for every protocol: `acknowledgements.py`.
3. As in the rest of this folder, nothing here reads, writes or asks the clock.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from dagster_airbyte_proto.masking import UnmaskedText
from dagster_airbyte_proto.model import PushMode, StreamId
from dagster_airbyte_proto.protocols.conversation import Conversation, Invocation, Verb
from dagster_airbyte_proto.protocols.events import Event, SpecEvent


class JsonDialect(StrEnum):
    """The words in which a protocol's JSON Schemas describe types beyond JSON's own."""

    AIRBYTE = "airbyte"
    PLAIN = "plain"


class HasCatalog(StrEnum):
    """Whether the destinations of a protocol list the objects that they write to."""

    NEVER = "never"
    SOME = "some"
    ALWAYS = "always"


class DestinationOperation(NamedTuple):
    """An object that a destination writes to in one of its modes, in the protocol's own word for it.

    `matching_keys` are the keys by which it finds a row; without them it does not say. `row_schema` and
    `options_schema` are the JSON Schemas of its rows and of the stream's options, if it has such.
    """

    object_name: str
    mode: str
    matching_keys: tuple[tuple[str, ...], ...] = ()
    row_schema: Mapping[str, Any] | None = None
    options_schema: Mapping[str, Any] | None = None


class StreamColumn(NamedTuple):
    """A column of the batches that a destination gets. `kind` is the protocol's own word for its type."""

    name: str
    kind: str
    is_nullable: bool = True


class PushedStream(NamedTuple):
    """A stream that a destination is to receive.

    `generation_id` counts the times that the destination's rows are replaced as a whole. `deletion_column` marks
    removed rows; it is part of the `json_schema` if there may be any. `has_object` is True if the destination's catalog
    has an object of the stream's name. `options` are those of the user for this stream. With `starts_over` nothing
    counts as delivered: the destination is to forget what it remembers. `columns` are those of its batches, for a
    destination that takes such. `cursor` is the field by which new rows are found. `version` is that of the rows, where
    versions remove those that are gone; the process that `activates` it gets no rows.
    """

    id: StreamId
    json_schema: Mapping[str, Any]
    mode: PushMode
    keys: tuple[str, ...] = ()
    generation_id: int = 0
    has_object: bool = False
    options: Mapping[str, Any] = {}
    starts_over: bool = False
    columns: tuple[StreamColumn, ...] = ()
    cursor: str | None = None
    version: int = 0
    activates: bool = False

    @property
    def declared_cursor(self) -> tuple[str, ...]:
        """The cursor, if the schema declares its field: a destination that orders rows by it looks it up there."""
        declared = self.json_schema.get("properties")
        is_declared = self.cursor is not None and isinstance(declared, Mapping) and self.cursor in declared
        return (self.cursor,) if self.cursor is not None and is_declared else ()


class WriteRequest(NamedTuple):
    """A request to write one stream.

    `sync_id` is the number of the run. `asset` names what is delivered; it stays the same from run to run. `on_error`
    says what becomes of a row that the destination does not take: `skip`, `fail` or `reject`. `kept` are the values
    that it kept, by their scopes.
    """

    config: Mapping[str, Any]
    stream: PushedStream
    sync_id: int
    asset: str = ""
    on_error: str = "reject"
    kept: Mapping[str, Mapping[str, str]] = {}


class SentPosition(NamedTuple):
    """A position as our states carry it: how many rows of which plan come before it.

    `records` is the number of those that were sent since the state before. No state has it when it comes back.
    """

    plan_id: str
    rows: int
    records: int | None = None


class Echo(NamedTuple):
    """A state that a destination sent back.

    `position` is None for a state that is none of ours, as each one `is_global` that covers all streams: we send a
    state for each stream. `records` and `rejected` are the numbers of records since the state before that the
    destination says it has read, and did not take; None if it does not say. `kept` are the values that it keeps as of
    then, by their scopes, and `is_end` says that its run came to a good end.
    """

    position: SentPosition | None
    records: float | None = None
    rejected: float | None = None
    kept: Mapping[str, Mapping[str, str]] = {}
    is_end: bool = False
    is_global: bool = False


class RejectedRecord(NamedTuple):
    """A record that the destination did not take, as it wrote it, and why. An empty record is one that it does not
    show."""

    record: str
    reason: UnmaskedText


class StreamResult(NamedTuple):
    """The destination's word on all rows of its process, once there are no more. It proves none if it does not say how
    many it `received` (None)."""

    received: int | None = None
    failed: int = 0
    skipped: int = 0


class DestinationProtocol(Conversation, Protocol):
    """The destination side: the short requests, the lines to write, and the lines that come back."""

    dialect: JsonDialect
    deletion_column: str
    """The column that marks a removed row: it holds the time of its removal."""

    def refusal(self, spec: SpecEvent, mode: PushMode) -> str | None:
        """Returns why the destination does not take this mode; None if it does, or nobody can tell."""
        ...

    has_catalog: HasCatalog

    keeps_values: bool
    """True if destinations may keep values between runs, by calls to our state server."""

    omits_nulls: bool
    """True if a row has no nulls, unless the user wants them."""

    proves_by_result: bool
    """True if a destination proves all rows of its process at once, by a StreamResult, and none before."""

    keeps_scopes: bool
    """True if destinations keep values by scope, with their checkpoints and at the end of a run."""

    takes_batches: bool
    """True if a destination takes Arrow batches in the place of record lines."""

    has_versions: bool
    """True if rows may have a version, and one that is activated removes the rows of those before."""

    def operations(self, message: bytes) -> tuple[DestinationOperation, ...]:
        """Parses the JSON of a destination's catalog. An operation that lacks what it needs is left out."""
        ...

    def mismatch(self, operations: Sequence[DestinationOperation], stream: PushedStream) -> str | None:
        """Returns why the stream fits no operation of the destination's catalog; None if it fits one."""
        ...

    def usage(self, verb: Verb, spec: SpecEvent) -> Invocation | None:
        """Returns the request for the usage text of another request. None where connectors have no such texts, or their
        spec already says that they are destinations."""
        ...

    def write(self, request: WriteRequest) -> Invocation: ...

    def opening_lines(self, request: WriteRequest) -> bytes:
        """Returns the lines before the first record."""
        ...

    def record_frame(self, stream: PushedStream, emitted_at_milliseconds: int) -> tuple[str, str]:
        """Returns the text before and after the JSON object of each record."""
        ...

    def batch_line(self, stream: PushedStream, path: str) -> bytes:
        """Returns the line that names a file of records, gzipped, one a line. Only where connections may ask for it."""
        ...

    def batch_head(self, stream: PushedStream, rows: int, size: int) -> bytes:
        """Returns what comes before so many bytes of Arrow. Only where destinations take batches."""
        ...

    def state_line(self, stream: PushedStream, position: SentPosition) -> bytes: ...

    def closing_lines(self, stream: PushedStream, emitted_at_milliseconds: int, *, is_end: bool) -> bytes:
        """Returns the lines after the last record that a process gets. `is_end` says that the stream ends with it."""
        ...

    def reply(self, line: bytes) -> Echo | StreamResult | RejectedRecord | Event:
        """Returns what one line of its output says. Never raises."""
        ...
