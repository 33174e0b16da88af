"""The events that a connector sends, at most one per line: the same types for every protocol.

A text that a run may keep, report or show is an `UnmaskedText`. The others are for the log alone, which masks them.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from dagster_airbyte_proto.masking import UnmaskedText, cut_text
from dagster_airbyte_proto.model import Catalog, FieldPath, State, StreamId
from dagster_airbyte_proto.stack_traces import first_words, without_stack_traces

_MAX_LOGGED_CHARACTERS = 128 << 10


class LogLevel(StrEnum):
    FATAL = "FATAL"
    ERROR = "ERROR"
    WARN = "WARN"
    INFO = "INFO"
    DEBUG = "DEBUG"
    TRACE = "TRACE"


class RecordLine(NamedTuple):
    """A record that cannot go to the columnar parser, because its line does not begin like the lines of a run.

    `line` is the whole line with its newline.
    """

    stream: StreamId
    line: bytes


class StateEvent(NamedTuple):
    """A checkpoint of the source.

    `record_count` is the number of records the source says it sent since the previous state; None if it did not say.
    A source cannot resume from a provisional state: it would send again what it sent since the state before.
    """

    state: State
    record_count: float | None = None
    is_provisional: bool = False


class SchemaEvent(NamedTuple):
    """The schema of a stream's next records, sent while the connector reads.

    `bookmarks` are the properties whose values its states have.
    """

    stream: StreamId
    json_schema: Mapping[str, Any]
    primary_key: tuple[FieldPath, ...] = ()
    bookmarks: tuple[str, ...] = ()


class VersionEvent(NamedTuple):
    """This version of the stream is complete: rows of other versions are to be removed (Singer's ACTIVATE_VERSION)."""

    stream: StreamId
    version: int


class BatchEvent(NamedTuple):
    """Records of a stream in files that the connector wrote.

    `files` are URLs. `frame` holds the bytes to put before and after each record to make it a record line.
    """

    stream: StreamId
    files: tuple[str, ...]
    format: str
    compression: str = ""
    frame: tuple[bytes, bytes] = (b"", b"")


class LogEvent(NamedTuple):
    level: LogLevel
    message: str


class RejectedRecordEvent(NamedTuple):
    """A record that the connector could not read, and why. `kind` is one of a few reasons, by which it is counted."""

    stream: StreamId
    record: str
    reason: UnmaskedText
    kind: str


class FailureKind(StrEnum):
    SYSTEM = "system_error"
    CONFIG = "config_error"
    TRANSIENT = "transient_error"


class ErrorEvent(NamedTuple):
    """The connector reports that it failed, or that one of its streams did.

    `pauses_seconds` are the pauses before each further try, where it says more of them than the kind does.
    """

    message: UnmaskedText
    kind: FailureKind = FailureKind.SYSTEM
    stream: StreamId | None = None
    internal_message: UnmaskedText = UnmaskedText()
    stack_trace: UnmaskedText = UnmaskedText()
    emitted_at_milliseconds: float = 0.0
    pauses_seconds: tuple[float, ...] = ()

    @property
    def summary(self) -> UnmaskedText:
        """The messages without stack traces. The CDK's message for users is mostly one that tells to read the logs."""
        shown = without_stack_traces(self.message.unmasked)
        internal = first_words(self.internal_message.unmasked)
        has_both = shown and internal and internal not in shown
        return UnmaskedText(f"{shown} ({internal})" if has_both else shown or internal)

    @property
    def whole(self) -> UnmaskedText:
        """All that it says, for the log."""
        texts = (each.unmasked for each in (self.message, self.internal_message, self.stack_trace))
        return UnmaskedText("\n".join(filter(None, texts)))


class EstimateEvent(NamedTuple):
    """An estimate of how much the source will send. `stream` is None for an estimate of the whole sync."""

    stream: StreamId | None
    rows: int | None = None
    size_bytes: int | None = None


class StreamStatus(StrEnum):
    STARTED = "STARTED"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    INCOMPLETE = "INCOMPLETE"


class StatusEvent(NamedTuple):
    """The status of one stream.

    `limited_until_milliseconds` is when the quota resets, if the source waits for a rate limit.
    """

    stream: StreamId
    status: StreamStatus
    limited_until_milliseconds: float | None = None


class AnalyticsEvent(NamedTuple):
    kind: str
    value: str


class MetricEvent(NamedTuple):
    """A number that the connector measured, in the run of a stream or in none. A total adds up over the events of its
    name."""

    name: str
    value: float
    is_total: bool = False
    stream: StreamId | None = None


class KeptValuesEvent(NamedTuple):
    """The values that the connector keeps and that belong to no stream, by their scopes. It ended well."""

    values: Mapping[str, Mapping[str, str]]


class ConfigEvent(NamedTuple):
    """The connector changed its config, for example a rotated token.

    It must be saved at once: the old token may be dead.
    """

    config: Mapping[str, Any]


class SpecEvent(NamedTuple):
    """The connector's specification.

    `config_schema` is the JSON Schema of the config; `message` the whole specification.
    """

    config_schema: Mapping[str, Any]
    message: Mapping[str, Any]


class CheckEvent(NamedTuple):
    succeeded: bool
    message: UnmaskedText = UnmaskedText()


class CatalogEvent(NamedTuple):
    catalog: Catalog


class OperationsEvent(NamedTuple):
    """The catalog of a destination, as JSON. A source that is named as one lists the streams that it reads instead."""

    message: bytes
    read_streams: tuple[str, ...] = ()


class UsageEvent(NamedTuple):
    """The usage text of a request. A connector that does not know the request has none."""

    text: str


class UnknownEvent(NamedTuple):
    """A message of an unknown type, or one that lacks what its type needs. The sync counts and logs it."""

    kind: str
    reason: str


class PlainLine(NamedTuple):
    """A line that is no message, such as a print of the connector. It may hold personal data."""

    line: bytes

    def shown(self, max_characters: int = _MAX_LOGGED_CHARACTERS) -> str:
        """The beginning of the line as text: by default more than a log keeps, which cuts its lines once more when they
        are masked."""
        begun = self.line[: 4 * max_characters + 4]  # A letter has four bytes at most, and a line perhaps 256 MiB.
        return cut_text(begun.decode(errors="replace").rstrip("\r\n"), max_characters)


Event = (
    RecordLine | StateEvent | SchemaEvent | VersionEvent | BatchEvent | LogEvent | ErrorEvent | EstimateEvent
    | StatusEvent | AnalyticsEvent | ConfigEvent | SpecEvent | CheckEvent | CatalogEvent | OperationsEvent
    | UsageEvent | KeptValuesEvent | MetricEvent | RejectedRecordEvent | UnknownEvent | PlainLine
)  # fmt: skip
