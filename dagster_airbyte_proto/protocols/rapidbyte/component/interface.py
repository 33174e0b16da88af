"""The interface of Rapidbyte v4 (`rapidbyte:connector@4.0.0`) as data: its types, the host's functions, each role's.

This is the one place that says what crosses between a connector and us: the codec, the adapter that is composed with a
connector, and the WIT that a connector's author builds against (`wit_text`) are all made from it.
"""

from collections.abc import Mapping
from types import MappingProxyType

from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import (
    BOOL,
    BYTES,
    STRING,
    U16,
    U32,
    U64,
    WitFunction,
    WitList,
    WitRecord,
    WitType,
    WitVariant,
    enum,
    option,
    parameters,
    record,
    result,
    variant,
)

PACKAGE = "rapidbyte:connector"
VERSION = "4.0.0"
PROTOCOL_VERSION = "4"
"""The version as manifests and checkpoints write it."""

ROLES = ("source", "destination", "transform")

_CONNECTOR_ROLE = enum("connector-role", *ROLES)
_RUN_PHASE = enum("run-phase", "read", "write", "transform")
_VALIDATION_STATUS = enum("validation-status", "success", "failed", "warning")
_ERROR_CATEGORY = enum(
    "error-category",
    "config",
    "auth",
    "permission",
    "rate-limit",
    "transient-network",
    "transient-db",
    "data",
    "schema",
    "internal",
    "frame",
)
_ERROR_SCOPE = enum("error-scope", "per-stream", "per-batch", "per-record")
_BACKOFF_CLASS = enum("backoff-class", "fast", "normal", "slow")
_COMMIT_STATE = enum("commit-state", "before-commit", "after-commit-unknown", "after-commit-confirmed")
CONNECTOR_ERROR = record(
    "connector-error",
    category=_ERROR_CATEGORY,
    scope=_ERROR_SCOPE,
    code=STRING,
    message=STRING,
    retryable=BOOL,
    retry_after_ms=option(U64),
    backoff_class=_BACKOFF_CLASS,
    safe_to_retry=BOOL,
    commit_state=option(_COMMIT_STATE),
    details_json=option(STRING),
)
_READ_SUMMARY = record(
    "read-summary", records_read=U64, bytes_read=U64, batches_emitted=U64, checkpoint_count=U64, records_skipped=U64
)
_WRITE_SUMMARY = record(
    "write-summary",
    records_written=U64,
    bytes_written=U64,
    batches_written=U64,
    checkpoint_count=U64,
    records_failed=U64,
)
_TRANSFORM_SUMMARY = record(
    "transform-summary", records_in=U64, records_out=U64, bytes_in=U64, bytes_out=U64, batches_processed=U64
)
VALIDATION_REPORT = record("validation-report", status=_VALIDATION_STATUS, message=STRING, warnings=WitList(STRING))
RUN_REQUEST = record("run-request", phase=_RUN_PHASE, stream_context_json=STRING, dry_run=BOOL, max_records=option(U64))
RUN_SUMMARY = record(
    "run-summary",
    role=_CONNECTOR_ROLE,
    read=option(_READ_SUMMARY),
    write=option(_WRITE_SUMMARY),
    transform=option(_TRANSFORM_SUMMARY),
)
SOCKET_READ_RESULT = variant("socket-read-result", data=BYTES, eof=None, would_block=None)
SOCKET_WRITE_RESULT = variant("socket-write-result", written=U64, would_block=None)

NAMED_TYPES: tuple[WitRecord | WitVariant, ...] = (
    _CONNECTOR_ROLE,
    _RUN_PHASE,
    _VALIDATION_STATUS,
    _ERROR_CATEGORY,
    _ERROR_SCOPE,
    _BACKOFF_CLASS,
    _COMMIT_STATE,
    CONNECTOR_ERROR,
    _READ_SUMMARY,
    _WRITE_SUMMARY,
    _TRANSFORM_SUMMARY,
    VALIDATION_REPORT,
    RUN_REQUEST,
    RUN_SUMMARY,
    SOCKET_READ_RESULT,
    SOCKET_WRITE_RESULT,
)
"""The types that have names, each behind those that it uses."""


def _function(name: str, ok: WitType | None = None, **arguments: WitType) -> WitFunction:
    return WitFunction(name, parameters(**arguments), result(ok, CONNECTOR_ERROR))


def _infallible(name: str, **arguments: WitType) -> WitFunction:
    return WitFunction(name, parameters(**arguments), None)


HOST_FUNCTIONS: tuple[WitFunction, ...] = (
    _function("emit-batch", handle=U64),
    _function("next-batch", option(U64)),
    _infallible("log", level=U32, msg=STRING),
    _function("checkpoint", kind=U32, payload_json=STRING),
    _function("metric", payload_json=STRING),
    _function("emit-dlq-record", stream_name=STRING, record_json=STRING, error_message=STRING, error_category=STRING),
    _function("state-get", option(STRING), scope=U32, key=STRING),
    _function("state-put", scope=U32, key=STRING, val=STRING),
    _function("state-cas", BOOL, scope=U32, key=STRING, expected=option(STRING), new_val=STRING),
    _function("frame-new", U64, capacity=U64),
    _function("frame-write", U64, handle=U64, chunk=BYTES),
    _function("frame-seal", handle=U64),
    _function("frame-len", U64, handle=U64),
    _function("frame-read", BYTES, handle=U64, offset=U64, len=U64),
    _infallible("frame-drop", handle=U64),
    _function("connect-tcp", U64, host=STRING, port=U16),
    _function("socket-read", SOCKET_READ_RESULT, handle=U64, len=U64),
    _function("socket-write", SOCKET_WRITE_RESULT, handle=U64, data=BYTES),
    _infallible("socket-close", handle=U64),
)
"""The functions that a connector may call. Their order numbers the messages: see `wire.py`."""

_OPEN = _function("open", U64, config_json=STRING)
_DISCOVER = _function("discover", STRING, session=U64)
_COMMON = (
    _function("validate", VALIDATION_REPORT, session=U64),
    _function("run", RUN_SUMMARY, session=U64, request=RUN_REQUEST),
    _function("close", session=U64),
)
ROLE_FUNCTIONS: Mapping[str, tuple[WitFunction, ...]] = MappingProxyType(
    {"source": (_OPEN, _DISCOVER, *_COMMON), "destination": (_OPEN, *_COMMON), "transform": (_OPEN, *_COMMON)}
)
"""The functions that a connector of each role exports."""


def interface_name(name: str) -> str:
    """The full name of an interface of the package, such as that of the `host`."""
    return f"{PACKAGE}/{name}@{VERSION}"
