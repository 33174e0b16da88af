"""What is kept of a tap's states, and what it is handed back."""

import json
from typing import Any

import pytest

from dagster_airbyte_proto.model import PlannedStream, ReadMode, State, StateScope, StreamId, TableName, WriteMode
from dagster_airbyte_proto.protocols.raw_json import MemberError
from dagster_airbyte_proto.protocols.singer.source import SingerSource
from dagster_airbyte_proto.protocols.singer.states import SingerStates, is_provisional, parse_state, state_file

_source = SingerSource()


def _state(value: Any) -> State:
    return parse_state(json.dumps({"type": "STATE", "value": value}).encode())


def _merged(old: Any, new: Any) -> Any:
    [state] = SingerStates().merge((_state(old),), _state(new))
    return _source.states.value(state)


def _handed(value: Any, *, whole: set[str] = frozenset(), going_on: set[str] = frozenset()) -> Any:  # type: ignore[assignment]  # frozen, and no more than read
    handed = state_file((_state(value),), whole, going_on)
    return None if handed is None else json.loads(handed)


def test_a_state_is_kept_byte_for_byte() -> None:
    line = b'{"value" : {"at":1.50, "b":[ ]}, "type":"State"}'
    state = parse_state(line)
    assert (state.message, state.scope) == (line, StateScope.GLOBAL)
    assert state_file((state,), (), ()) == b'{"at":1.50, "b":[ ]}'


def test_a_state_without_a_value_is_none() -> None:
    with pytest.raises(MemberError):
        parse_state(b'{"type":"STATE"}')


@pytest.mark.parametrize("nothing", [{}, None])
def test_what_says_nothing_erases_nothing(nothing: Any) -> None:
    assert _merged({"bookmarks": {"a": 1}}, nothing) == {"bookmarks": {"a": 1}}
    assert state_file((_state(nothing),), (), ()) is None


def test_bookmarks_of_streams_that_are_not_named_are_kept() -> None:
    old = {"bookmarks": {"a": {"at": 1}, "b": {"at": 2.50}}, "currently_syncing": "a"}
    assert _merged(old, {"bookmarks": {"a": {"at": 9}}}) == {"bookmarks": {"a": {"at": 9}, "b": {"at": 2.5}}}
    [state] = SingerStates().merge(
        (parse_state(b'{"type":"STATE","value":{"bookmarks":{"b":2.50}}}'),), _state({"bookmarks": {}})
    )
    assert b'"b":2.50' in state.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"users": 1, "orders": 2}, {"users": 3}),
        ({"bookmarks": {"a": 1}}, {"users": 3}),
        ({"users": 1}, {"bookmarks": {"a": 1}}),
        ({"bookmarks": ["a"]}, [1, 2]),
    ],
)
def test_a_state_of_unknown_form_takes_the_place_of_the_one_before(old: Any, new: Any) -> None:
    assert _merged(old, new) == new


def test_a_stream_that_is_read_whole_has_no_bookmark_to_go_on_from() -> None:
    value = {"bookmarks": {"a": {"xmin": 7}, "b": {"at": 2}}}
    assert _handed(value, whole={"a"}, going_on={"b"}) == {"bookmarks": {"b": {"at": 2}}}


@pytest.mark.parametrize(
    ("whole", "going_on", "is_handed"),
    [
        (set(), {"a", "b"}, True),
        # What it had sent of "a", which it would pass by, has not landed.
        ({"a"}, {"b"}, False),
        # A tap looks for the stream among the selected ones, and may find none to send.
        (set(), {"a"}, False),
    ],
)
def test_currently_syncing_is_handed_back_where_it_is_of_use(
    whole: set[str], going_on: set[str], *, is_handed: bool
) -> None:
    value = {"bookmarks": {}, "currently_syncing": "b"}
    handed = _handed(value, whole=whole, going_on=going_on)
    assert handed == (value if is_handed else {**value, "currently_syncing": None})


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"bookmarks": {"a": {"progress_markers": {"Note": "…"}}}}, True),
        ({"bookmarks": {"a": {"partitions": [{"context": {}}, {"progress_markers": {"replication_key": "x"}}]}}}, True),
        ({"bookmarks": {"a": {"progress_markers": {}, "partitions": None}, "b": 7}}, False),
        ({"bookmarks": {"a": {"replication_key_signpost": "2024"}}}, False),
        ({"progress_markers": {"a": 1}}, False),
        (None, False),
    ],
)
def test_progress_markers_make_a_state_provisional(value: Any, *, told: bool) -> None:
    assert is_provisional(value) is told


def test_each_stream_has_its_part() -> None:
    assert _source.states.parts(_state({"bookmarks": {"a": 1, "b": {"x": 2}}})) == {
        StreamId.of("a"): 1,
        StreamId.of("b"): {"x": 2},
    }
    assert _source.states.parts(_state({})) == {}
    assert _source.states.parts(_state({"users": 1})) is None


def test_one_bookmark_can_be_taken_out() -> None:
    rest = _source.states.without_stream(
        _state({"bookmarks": {"a": 1, "b": 2}, "currently_syncing": None}), StreamId.of("a")
    )
    assert rest is not None
    assert _source.states.value(rest) == {"bookmarks": {"b": 2}, "currently_syncing": None}
    assert _source.states.without_stream(_state({"bookmarks": {"b": 2}}), StreamId.of("a")) is None
    assert _source.states.without_stream(_state({"a": 1}), StreamId.of("a")) is None


def test_one_bookmark_can_be_set_and_all_else_stays() -> None:
    before = {"bookmarks": {"a": 1, "b": 2}, "currently_syncing": None, "lsn": 12345}
    after = _source.states.with_stream(_state(before), StreamId.of("a"), 9)
    assert after is not None
    assert _source.states.value(after) == {**before, "bookmarks": {"a": 9, "b": 2}}
    first = _source.states.with_stream(_state({}), StreamId.of("a"), 9)
    assert first is not None
    assert _source.states.value(first) == {"bookmarks": {"a": 9}}


def test_a_value_that_is_shown_can_be_set() -> None:
    whole = _source.states.from_value(None, {"bookmarks": {"é": 1}})
    assert _source.states.value(whole) == {"bookmarks": {"é": 1}}
    assert _source.states.value(_source.states.from_value(StreamId.of("a"), 7)) == {"bookmarks": {"a": 7}}


@pytest.mark.parametrize("value", [{"type": "STATE", "value": {"bookmarks": {}}}, {"singer_state": {"bookmarks": {}}}])
def test_a_message_and_what_meltano_prints_are_no_value_of_the_state_in_it(value: object) -> None:
    for stream in (None, StreamId.of("a")):
        with pytest.raises(MemberError, match=r"write what it has as its (value|singer_state)"):
            _source.states.from_value(stream, value)


def test_streams_that_follow_the_log_go_on_together() -> None:
    def planned(name: str, cursor: str = "", **root: str) -> PlannedStream:
        entry = {"tap_stream_id": name, "schema": {}, "metadata": [{"breadcrumb": [], "metadata": root}]}
        [stream] = _source.catalog(json.dumps({"streams": [entry]}).encode()).streams
        place = TableName("shop", name)
        read, write = ReadMode.INCREMENTAL, WriteMode.APPEND
        return PlannedStream(stream, place, read, write, cursor=(cursor,) if cursor else ())

    log, other = planned("a", **{"replication-method": "LOG_BASED"}), planned("b", **{"schema-name": "public"})
    by_key = planned("c", "at", **{"schema-name": "public"})
    offered = [log, other, by_key]
    state = _state({"bookmarks": {"a": {"lsn": 1}}})
    assert _source.states.streams_sharing_position(state, [by_key], offered) == frozenset()
    assert _source.states.streams_sharing_position(state, [log], offered) == frozenset({log.id, other.id})
    assert _source.states.streams_sharing_position(_state({"users": 1}), [by_key], offered) is None


def test_the_position_of_a_stream_is_its_bookmark() -> None:
    def position(value: Any) -> Any:
        return _source.states.position(_state(value), StreamId.of("users"))

    both = {"bookmarks": {"users": {"at": 1}, "orders": {"at": 2}}, "currently_syncing": "users"}
    assert position(both) == position({"bookmarks": {"users": {"at": 1}}})
    assert position(both) != position({"bookmarks": {"users": {"at": 2}, "orders": {"at": 2}}})
    assert position({"bookmarks": {"orders": {"at": 2}}}) == (None, None) == position({})
    assert position({"users": 1}) != position({"users": 2})  # Of an unknown form: all of it counts.
