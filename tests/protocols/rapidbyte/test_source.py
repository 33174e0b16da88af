"""The source side: contexts, catalogs, states, the lines of a launcher, errors."""

import json
from collections.abc import Mapping
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.masking import UnmaskedText
from dagster_airbyte_proto.model import (
    PlannedStream,
    ReadMode,
    State,
    StateScope,
    Stream,
    StreamId,
    TableName,
    WriteMode,
)
from dagster_airbyte_proto.protocols.conversation import ReadRequest, Transcript, Verb
from dagster_airbyte_proto.protocols.events import (
    AnalyticsEvent,
    CatalogEvent,
    CheckEvent,
    ErrorEvent,
    Event,
    FailureKind,
    LogEvent,
    LogLevel,
    PlainLine,
    SpecEvent,
    StateEvent,
    StatusEvent,
    StreamStatus,
    UnknownEvent,
)
from dagster_airbyte_proto.protocols.rapidbyte import messages
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import CONNECTOR_ERROR
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import WitVariant
from dagster_airbyte_proto.protocols.rapidbyte.reported_error import (
    BackoffClass,
    ErrorCategory,
    ErrorScope,
    ReportedCommit,
    ReportedError,
)
from dagster_airbyte_proto.protocols.rapidbyte.source import RUNS, RUNS_FILE, RapidbyteSource
from dagster_airbyte_proto.protocols.rapidbyte.stream_context import Overrides, SourceHints, lost_place
from dagster_airbyte_proto.protocols.raw_json import MemberError, exact_json

_USERS = StreamId.of("users")
_RAW = json.dumps(
    {
        "name": "users",
        "schema": {
            "format": "columns",
            "data": [
                {"name": "id", "data_type": "Int64", "nullable": False},
                {"name": "at", "data_type": "TimestampMicros", "nullable": True},
                {"name": "score", "data_type": "Decimal128", "nullable": True},
                {"name": "extra", "data_type": "Json", "nullable": True},
                {"name": "odd", "data_type": "Interval", "nullable": True},
            ],
        },
        "supported_sync_modes": ["full_refresh", "incremental", "cdc"],
        "source_defined_cursor": "at",
        "source_defined_primary_key": ["id"],
    }
).encode()


_NO_OVERRIDES = Overrides()


def _discovered() -> Stream:
    (stream,) = RapidbyteSource().catalog(b'{"streams":[' + _RAW + b"]}").streams
    return stream


def _planned(read: ReadMode = ReadMode.INCREMENTAL, cursor: tuple[str, ...] = ("at",)) -> PlannedStream:
    return PlannedStream(_discovered(), TableName("shop", "users"), read, WriteMode.APPEND, cursor=cursor)


def _context(planned: PlannedStream, *states: State, overrides: Overrides = _NO_OVERRIDES, **fields: Any) -> Any:
    request = ReadRequest({"a": 1}, (planned,), states, 1, **fields)
    invocation = RapidbyteSource(SourceHints(overrides)).read(request)
    (run,) = RUNS.decode(invocation.files["runs.json"])
    assert run.stream == "users"
    return run.context


def test_a_catalog_has_the_types_of_arrow() -> None:
    stream = _discovered()
    properties = stream.json_schema["properties"]
    assert properties["id"] == {"type": "integer"}
    assert properties["at"]["airbyte_type"] == "timestamp_without_timezone"
    assert properties["score"] == {"type": "number", "multipleOf": 1e-9}
    assert (properties["extra"], properties["odd"]) == ({}, {})
    assert (stream.primary_key, stream.cursor, stream.is_cursor_fixed) == ((("id",),), ("at",), True)
    assert stream.read_modes == (ReadMode.FULL_REFRESH, ReadMode.INCREMENTAL)
    assert stream.supports_log_replication
    message = RapidbyteSource().catalog_message(RapidbyteSource().catalog(b'{"streams":[' + _RAW + b"]}"))
    assert message == b'{"streams":[' + _RAW + b"]}"


def test_a_context_has_the_schema_the_limits_and_the_policies() -> None:
    context = _context(_planned(ReadMode.FULL_REFRESH))
    assert (context["stream_name"], context["sync_mode"]) == ("users", "full_refresh")
    assert context["schema"]["data"][0] == {"name": "id", "data_type": "Int64", "nullable": False}
    assert context["limits"]["max_batch_bytes"] == 64 << 20
    assert set(context["policies"]["schema_evolution"]) == {
        "new_column", "removed_column", "type_change", "nullability_change",
    }  # fmt: skip
    assert not {"cursor_info", "selected_columns", "effective_parallelism"} & context.keys()


def test_an_incremental_read_goes_on_from_its_checkpoint() -> None:
    payload = {"id": 3, "cursor_field": "at", "cursor_value": {"type": "timestamp_micros", "value": 7}}
    event = messages.event(messages.line("checkpoint", stream="users", checkpoint=json.dumps({"payload": payload})))
    assert isinstance(event, StateEvent)
    assert json.loads(event.state.message) == payload
    first = _context(_planned())["cursor_info"]
    assert first == {"cursor_field": "at", "cursor_type": "timestamp_micros"}
    assert _context(_planned(), event.state)["cursor_info"] == {**first, "last_value": payload["cursor_value"]}
    other = _context(_planned(cursor=("id",)), event.state)["cursor_info"]
    assert other == {"cursor_field": "id", "cursor_type": "int64"}


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("UInt8", "int64"),
        ("LargeUtf8", "utf8"),
        ("TimestampMillis", "timestamp_millis"),
        ("Decimal128", "decimal"),
        ("TimestampNanos", "utf8"),
        ("Date32", "utf8"),
        ("Date64", "utf8"),
        ("Float64", "utf8"),
        ("Interval", "utf8"),
    ],
)
def test_the_type_of_a_cursor_holds_all_values_of_its_column(column: str, kind: str) -> None:
    planned = _planned()
    raw = planned.stream.raw.replace(b'"TimestampMicros"', f'"{column}"'.encode())
    planned = msgspec.structs.replace(planned, stream=msgspec.structs.replace(planned.stream, raw=raw))
    assert _context(planned)["cursor_info"] == {"cursor_field": "at", "cursor_type": kind}
    # A component that has chosen a type itself knows it: its value comes back under that.
    last = {"type": "int64", "value": 19782}
    state = State(scope=StateScope.STREAM, message=_checkpoint("at", last), stream=_USERS)
    of_value = "int64" if kind == "utf8" and column != "LargeUtf8" else kind
    assert _context(planned, state)["cursor_info"] == {
        "cursor_field": "at", "cursor_type": of_value, "last_value": last,
    }  # fmt: skip
    other = State(scope=StateScope.STREAM, message=_checkpoint("id", last), stream=_USERS)
    assert _context(planned, other)["cursor_info"] == {"cursor_field": "at", "cursor_type": kind}


def test_a_cursor_that_is_no_column_has_the_type_of_its_value() -> None:
    payload = {"cursor_field": "lsn", "cursor_value": {"type": "lsn", "value": "0/16B3748"}}
    event = messages.event(messages.line("checkpoint", stream="users", checkpoint=json.dumps({"payload": payload})))
    assert isinstance(event, StateEvent)
    found = _context(_planned(cursor=()), event.state)["cursor_info"]
    assert found == {"cursor_field": "lsn", "cursor_type": "lsn", "last_value": payload["cursor_value"]}


@pytest.mark.parametrize(
    "digits", ["12345678901234567.89", "0.10", "1E+400", "0e99999999999999999999", "123456789012345678901234567890"]
)
def test_a_cursor_keeps_all_its_digits(digits: str) -> None:
    payload = f'{{"cursor_field":"at","cursor_value":{{"type":"decimal","value":{digits}}}}}'
    event = messages.event(messages.line("checkpoint", stream="users", checkpoint=payload))
    assert isinstance(event, StateEvent)
    files = RapidbyteSource().read(ReadRequest({}, (_planned(),), (event.state,), 1)).files
    (run,) = RUNS.decode(files[RUNS_FILE])
    for each in (run.context, run.checkpoint):
        assert f'"value":{digits}}}' in exact_json(each).decode()


def test_values_that_a_stream_keeps_go_with_its_checkpoint() -> None:
    payload = {"id": 3, "cursor_field": "at", "cursor_value": {"type": "int64", "value": 7}}
    line = messages.line("checkpoint", stream="users", checkpoint=json.dumps(payload), values={"page": "9"})
    event = messages.event(line)
    assert isinstance(event, StateEvent)
    assert RapidbyteSource().states.value(event.state) == {"checkpoint": payload, "values": {"page": "9"}}
    request = ReadRequest({}, (_planned(),), (event.state,), 1)
    (run,) = RUNS.decode(RapidbyteSource().read(request).files["runs.json"])
    assert run.values == {"page": "9"}
    assert run.context["cursor_info"]["last_value"] == payload["cursor_value"]


@pytest.mark.parametrize("message", [b"{", b"[1]", b'{"values":{}}', b'{"checkpoint":1,"values":{}}', b"null"])
def test_a_state_that_cannot_be_read_is_an_empty_one(message: bytes) -> None:
    state = State(scope=StateScope.STREAM, message=message, stream=_USERS)
    assert "last_value" not in _context(_planned(), state)["cursor_info"]


def test_a_read_without_a_cursor_follows_the_log() -> None:
    context = _context(_planned(cursor=()))
    assert context["sync_mode"] == "cdc"
    assert "cursor_info" not in context


def test_a_place_in_the_log_may_be_a_column_unless_the_stream_was_read_by_that_column() -> None:
    last = {"type": "timestamp_micros", "value": 7}
    state = State(scope=StateScope.STREAM, message=_checkpoint("at", last), stream=_USERS)
    for cursor in (("at",), ()):
        assert _context(_planned(cursor=cursor), state)["cursor_info"]["last_value"] == last
    assert [lost_place(_planned(cursor=()), state, before) for before in (("at",), ("id",), ())] == ["at", "", ""]
    place = State(scope=StateScope.STREAM, message=_checkpoint("at", {"type": "lsn", "value": "0/1"}), stream=_USERS)
    assert _context(_planned(cursor=()), place)["cursor_info"]["last_value"] == {"type": "lsn", "value": "0/1"}


def _checkpoint(field: str, last: Mapping[str, Any]) -> bytes:
    return json.dumps({"cursor_field": field, "cursor_value": last}).encode()


def test_selected_columns_and_overrides_are_passed_on() -> None:
    overrides = Overrides(effective_parallelism=4, partition_strategy="range")
    context = _context(_planned(), overrides=overrides, fields={_USERS: frozenset(("at", "id", "gone"))})
    assert context["selected_columns"] == ["id", "at"]
    assert (context["effective_parallelism"], context["partition_strategy"]) == (4, "range")
    assert "copy_flush_bytes_override" not in context
    flushing = _context(_planned(), overrides=Overrides(copy_flush_bytes_override=4 << 20))
    assert flushing["copy_flush_bytes_override"] == 4 << 20


def test_a_state_is_one_of_its_stream() -> None:
    codec = RapidbyteSource().states
    old = codec.from_value(_USERS, {"id": 1})
    new = codec.from_value(_USERS, {"id": 2})
    other = codec.from_value(StreamId.of("others"), {"id": 9})
    assert codec.merge((old, other), new) == (new, other)
    assert codec.value(new) == {"id": 2}
    assert codec.from_value(_USERS, None).is_reset
    assert new.scope is StateScope.STREAM


@pytest.mark.parametrize(("stream", "value"), [(None, {"id": 1}), (_USERS, 5), (_USERS, [{"id": 1}])])
def test_a_state_of_no_stream_or_that_is_no_object_is_refused(stream: StreamId | None, value: object) -> None:
    with pytest.raises(MemberError, match=r"none is named|no object"):
        RapidbyteSource().states.from_value(stream, value)


_ERROR = ReportedError(ErrorCategory.RATE_LIMIT, "SLOW_DOWN", "later", details_json='{"a":1}')


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (messages.line("log", level=0, message="m"), LogEvent(LogLevel.ERROR, "m")),
        (messages.line("log", level=9, message="m"), LogEvent(LogLevel.TRACE, "m")),
        (messages.line("started", stream="users"), StatusEvent(_USERS, StreamStatus.STARTED)),
        (messages.line("finished", stream="users", summary={}), StatusEvent(_USERS, StreamStatus.COMPLETE)),
        (
            messages.line("error", stream="users", error=_ERROR),
            ErrorEvent(
                UnmaskedText("rate-limit/SLOW_DOWN: later"), FailureKind.TRANSIENT, _USERS, UnmaskedText('{"a":1}')
            ),
        ),
        (messages.line("check", status="failed", message="no"), CheckEvent(False, UnmaskedText("no"))),
        (
            messages.line("check", status="warning", message="ok", warnings=["w"]),
            CheckEvent(True, UnmaskedText("ok Warning: w")),
        ),
        (messages.line("spec", spec={"config_schema": {"a": 1}}), SpecEvent({"a": 1}, {"config_schema": {"a": 1}})),
        (messages.line("catalog", catalog="[]"), UnknownEvent("catalog", "it has no list of streams")),
        (messages.line("other"), UnknownEvent("other", "no launcher writes such a line")),
        (b"print", PlainLine(b"print")),
    ],
)
def test_each_line_is_its_event(line: bytes, event: Event) -> None:
    assert messages.event(line) == event


def test_an_answer_is_among_the_lines_of_a_request() -> None:
    output = messages.line("log", message="m") + messages.line("catalog", catalog='{"streams":[' + _RAW.decode() + "]}")
    _, found = RapidbyteSource().events_of_answer(Verb.DISCOVER, Transcript(output, ended_cleanly=True))
    assert isinstance(found, CatalogEvent) and found.catalog.streams == (_discovered(),)


def test_a_batch_says_how_long_it_is() -> None:
    assert messages.batch_head(messages.line("batch", stream="users", bytes=9)) == (_USERS, 9)
    assert messages.batch_head(messages.line("log", message='{"type":"batch",')) is None
    assert messages.batch_head(b'{"type":"batch",') is None


@given(
    st.binary(max_size=80) | st.dictionaries(st.text(), st.none() | st.integers() | st.text()).map(msgspec.json.encode)
)
def test_any_line_is_an_event(line: bytes) -> None:
    for each in (line, line[:-1] + b',"type":"checkpoint","stream":"a"}'):
        assert isinstance(messages.event(each), get_args(Event))


def test_an_error_keeps_every_field_there_and_back() -> None:
    error = ReportedError(
        ErrorCategory.TRANSIENT_DB,
        "LOST",
        "gone",
        ErrorScope.PER_BATCH,
        is_retryable=True,
        retry_after_milliseconds=5,
        backoff=BackoffClass.SLOW,
        is_safe_to_retry=True,
        commit_outcome=ReportedCommit.AFTER_COMMIT_UNKNOWN,
        details_json="{}",
    )
    assert ReportedError.from_wit(error.to_wit()) == error
    assert set(error.to_wit()) == {field.name for field in CONNECTOR_ERROR.fields}


def test_the_words_of_errors_are_those_of_the_interface() -> None:
    cases = {
        field.type.name: tuple(case.name for case in field.type.cases)
        for field in CONNECTOR_ERROR.fields
        if isinstance(field.type, WitVariant) and field.type.name
    }
    assert cases == {
        "error-category": tuple(ErrorCategory),
        "error-scope": tuple(ErrorScope),
        "backoff-class": tuple(BackoffClass),
    }


@pytest.mark.parametrize("category", ErrorCategory)
def test_a_category_says_who_can_act(category: ErrorCategory) -> None:
    kind = ReportedError(category, "C", "m").kind
    if category in ("config", "auth", "permission"):
        assert kind is FailureKind.CONFIG
        assert ReportedError(category, "C", "m", is_retryable=True).kind is FailureKind.CONFIG
    else:
        is_transient = category in ("rate-limit", "transient-network", "transient-db")
        assert kind is (FailureKind.TRANSIENT if is_transient else FailureKind.SYSTEM)


def _retried(**parts: Any) -> ReportedError:
    return ReportedError(
        ErrorCategory.TRANSIENT_NETWORK, "C", "m", **{"is_retryable": True, "is_safe_to_retry": True, **parts}
    )


@pytest.mark.parametrize(
    ("error", "pauses"),
    [
        (_retried(), [1.0, 2.0, None]),
        (_retried(backoff=BackoffClass.FAST), [0.1, 0.2, None]),
        (_retried(backoff=BackoffClass.SLOW), [5.0, 10.0, None]),
        (_retried(retry_after_milliseconds=250), [0.25, 0.25, None]),
        (_retried(retry_after_milliseconds=10**9), [60.0, 60.0, None]),
        (_retried(is_safe_to_retry=False), [None, None, None]),
        (_retried(is_retryable=False), [None, None, None]),
        (_retried(commit_outcome=ReportedCommit.BEFORE_COMMIT), [1.0, 2.0, None]),
        (_retried(commit_outcome=ReportedCommit.AFTER_COMMIT_UNKNOWN), [None, None, None]),
        (_retried(commit_outcome=ReportedCommit.AFTER_COMMIT_CONFIRMED), [None, None, None]),
    ],
)
def test_only_a_safe_error_is_tried_again_and_not_for_ever(error: ReportedError, pauses: list[float | None]) -> None:
    assert [error.pause_seconds(tries) for tries in (1, 2, 3)] == pauses


def test_a_metric_of_more_digits_than_a_number_has_is_logged_and_not_counted() -> None:
    written = f'{{"name":"pages","value":{"9" * 400}}}'
    assert messages.event(messages.line("metric", message=written)) == AnalyticsEvent("metric", written)
