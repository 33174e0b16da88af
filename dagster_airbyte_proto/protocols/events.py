"""What a connector sends, one event a line: the same types for every protocol."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from dagster_airbyte_proto.model import Catalog, FieldPath, State, StreamId


class LogLevel(StrEnum):
    FATAL = "FATAL"
    ERROR = "ERROR"
    WARN = "WARN"
    INFO = "INFO"
    DEBUG = "DEBUG"
    TRACE = "TRACE"


class RecordLine(NamedTuple):
    """A record whose line does not begin as its run should. `line` is the whole line, newline included."""

    stream: StreamId
    line: bytes


class StateEvent(NamedTuple):
    """`record_count` is what the source counted since the previous state: None when it did not say. From a
    `provisional` state the source could not go on: it would send again what it sent since the state before."""

    state: State
    record_count: float | None = None
    is_provisional: bool = False


class SchemaEvent(NamedTuple):
    """What a stream's next records look like, as the connector tells it while it reads."""

    stream: StreamId
    json_schema: Mapping[str, Any]
    primary_key: tuple[FieldPath, ...] = ()


class VersionEvent(NamedTuple):
    """Of the stream's rows only those of this version are to be there, which is now whole."""

    stream: StreamId
    version: int


class BatchEvent(NamedTuple):
    """Records of a stream that stand in files of the connector's, whose names are URLs. `frame` is what has to stand
    before and behind each to make it a record line."""

    stream: StreamId
    files: tuple[str, ...]
    format: str
    compression: str = ""
    frame: tuple[bytes, bytes] = (b"", b"")


class LogEvent(NamedTuple):
    level: LogLevel
    message: str


class FailureKind(StrEnum):
    SYSTEM = "system_error"
    CONFIG = "config_error"
    TRANSIENT = "transient_error"


class ErrorEvent(NamedTuple):
    """The connector says that it, or one of its streams, failed."""

    message: str
    kind: FailureKind = FailureKind.SYSTEM
    stream: StreamId | None = None
    internal_message: str = ""
    stack_trace: str = ""
    emitted_at_milliseconds: float = 0.0


class EstimateEvent(NamedTuple):
    """`stream` is None for an estimate of the whole sync."""

    stream: StreamId | None
    rows: int | None = None
    size_bytes: int | None = None


class StreamStatus(StrEnum):
    STARTED = "STARTED"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    INCOMPLETE = "INCOMPLETE"


class StatusEvent(NamedTuple):
    """`limited_until_milliseconds` is the quota's reset, when the source waits for a rate limit."""

    stream: StreamId
    status: StreamStatus
    limited_until_milliseconds: float | None = None


class AnalyticsEvent(NamedTuple):
    kind: str
    value: str


class ConfigEvent(NamedTuple):
    """The connector changed its config (a rotated token): keep it at once."""

    config: Mapping[str, Any]


class SpecEvent(NamedTuple):
    """`config_schema` is the JSON Schema of the config; `message` the whole specification."""

    config_schema: Mapping[str, Any]
    message: Mapping[str, Any]


class CheckEvent(NamedTuple):
    succeeded: bool
    message: str


class CatalogEvent(NamedTuple):
    catalog: Catalog


class UnknownEvent(NamedTuple):
    """A message of a type we do not know, or one that lacks what its type needs: counted, kept in the log."""

    kind: str
    reason: str


class PlainLine(NamedTuple):
    """A line that is no message: the connector's own chatter. May hold personal data."""

    line: bytes


Event = (
    RecordLine | StateEvent | SchemaEvent | VersionEvent | BatchEvent | LogEvent | ErrorEvent | EstimateEvent
    | StatusEvent | AnalyticsEvent | ConfigEvent | SpecEvent | CheckEvent | CatalogEvent | UnknownEvent | PlainLine
)  # fmt: skip
