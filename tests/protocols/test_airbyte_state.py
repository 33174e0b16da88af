import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.model import PlannedStream, ReadMode, State, StateScope, StreamId, TableName, WriteMode
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.conversation import ReadRequest
from dagster_airbyte_proto.protocols.events import SpecEvent, StateEvent
from dagster_airbyte_proto.protocols.raw_json import MemberError
from dagster_airbyte_proto.protocols.state_codec import check_scope

_source = AirbyteSource()


def _state(message: bytes) -> State:
    event = _source.event(b'{"type":"STATE","state":' + message + b"}\n")
    assert isinstance(event, StateEvent)
    return event.state


def _of(stream: str, cursor: object) -> State:
    return _source.states.from_value(StreamId.of(stream), {"cursor": cursor})


def _global(shared: object, **streams: object) -> State:
    parts = [{"stream_descriptor": {"name": name}, "stream_state": part} for name, part in streams.items()]
    return _source.states.from_value(None, {"shared_state": shared, "stream_states": parts})


def _streams(state: State) -> dict[str, Any]:
    return {
        part["stream_descriptor"]["name"]: part["stream_state"] for part in _source.states.value(state)["stream_states"]
    }


def _handed_back(*states: State) -> bytes | None:
    return _source.read(ReadRequest(config={}, streams=(), states=states, sync_id=1)).files.get("state.json")


def test_a_state_keeps_the_bytes_of_its_message() -> None:
    message = (
        b'{"type" : "STREAM","stream":{"stream_descriptor":{"name":"users"},"stream_state":{"a":1.50}},"id":7,"zz":[ ]}'
    )
    assert _state(message).message == message


def test_a_stream_keeps_its_last_state_and_its_place() -> None:
    states: tuple[State, ...] = ()
    for state in (_of("users", 1), _of("orders", 1), _of("users", 2)):
        states = _source.states.merge(states, state)
    assert states == (_of("users", 2), _of("orders", 1))


def test_null_and_empty_namespaces_are_one_stream() -> None:
    template = b'{"type":"STREAM","stream":{"stream_descriptor":{"name":"users"%s},"stream_state":{}}}'
    absent, empty = _state(template % b""), _state(template % b',"namespace":""')
    assert _source.states.merge((absent,), empty) == (empty,)


def test_a_legacy_state_replaces_the_one_before() -> None:
    old, new = _state(b'{"data":{"users":1}}'), _state(b'{"type":"LEGACY","data":{"orders":1}}')
    assert _source.states.merge((old,), new) == (new,)


def test_a_global_state_keeps_streams_that_it_does_not_name() -> None:
    merged = _source.states.merge(
        (_global({"lsn": 1}, users={"a": 1}, orders={"a": 1}),), _global({"lsn": 2}, users={"a": 2})
    )
    assert len(merged) == 1
    assert merged[0].scope is StateScope.GLOBAL
    assert _source.states.value(merged[0])["shared_state"] == {"lsn": 2}
    assert _streams(merged[0]) == {"users": {"a": 2}, "orders": {"a": 1}}


def test_a_global_state_that_names_every_stream_keeps_its_bytes() -> None:
    new = _state(
        b'{ "type":"GLOBAL", "global":{"shared_state":{"lsn":2.0},'
        b'"stream_states":[{"stream_descriptor":{"name":"users"}}]}}'
    )
    assert _source.states.merge((_global({"lsn": 1}, users={"a": 1}),), new) == (new,)


def test_a_stream_that_a_global_state_resets_stays_reset() -> None:
    merged = _source.states.merge((_global({"lsn": 1}, users={"a": 1}),), _global({"lsn": 2}, users=None))
    assert _streams(merged[0]) == {"users": None}


def test_a_stream_is_reset_by_leaving_it_out_of_a_global_state() -> None:
    whole = _state(
        b'{"type":"GLOBAL","id":9,"global":{"z":1.0,"shared_state":{"lsn":2.0},"stream_states":['
        b'{"stream_descriptor":{"name":"a","namespace":"eu"},"stream_state":{"n":1}},'
        b'{"stream_descriptor":{"name":"a"},"stream_state":{"n": 2.50}}]}}'
    )
    rest = _source.states.without_stream(whole, StreamId.of("a", "eu"))
    assert rest is not None
    assert rest.message == (
        b'{"type":"GLOBAL","id":9,"global":{"z":1.0,"shared_state":{"lsn":2.0},"stream_states":['
        b'{"stream_descriptor":{"name":"a"},"stream_state":{"n": 2.50}}]}}'
    )
    assert _source.states.without_stream(rest, StreamId.of("a", "eu")) is None
    last = _source.states.without_stream(_global(None, a={"n": 1}), StreamId.of("a"))
    assert last is not None
    assert last.is_reset
    assert _source.states.without_stream(_state(b'{"data":{"a":1}}'), StreamId.of("a")) is None


def _planned(name: str, read: ReadMode) -> PlannedStream:
    (stream,) = _source.catalog(b'{"streams":[{"name":"' + name.encode() + b'","json_schema":{}}]}').streams
    return PlannedStream(stream, TableName("shop", name), read, WriteMode.OVERWRITE)


def test_a_stream_that_is_read_whole_gets_no_part_of_a_global_state() -> None:
    state = _state(
        b'{"type":"GLOBAL","id":9,"global":{"shared_state":{"lsn":2.0},"stream_states":['
        b'{"stream_descriptor":{"name":"users"},"stream_state":{"state_type":"ctid","ctid":"(7,1)"}},'
        b'{"stream_descriptor":{"name":"users","namespace":"eu"},"stream_state":{"n":1}},'
        b'{"stream_descriptor":{"name":"orders"},"stream_state":{"n": 2.50}}]}}'
    )

    def handed_back(users: ReadMode) -> bytes | None:
        streams = (_planned("users", users), _planned("orders", ReadMode.INCREMENTAL))
        return _source.read(ReadRequest(config={}, streams=streams, states=(state,), sync_id=1)).files["state.json"]

    assert handed_back(ReadMode.INCREMENTAL) == b"[" + state.message + b"]"
    assert handed_back(ReadMode.FULL_REFRESH) == (
        b'[{"type":"GLOBAL","id":9,"global":{"shared_state":{"lsn":2.0},"stream_states":['
        b'{"stream_descriptor":{"name":"users","namespace":"eu"},"stream_state":{"n":1}},'
        b'{"stream_descriptor":{"name":"orders"},"stream_state":{"n": 2.50}}]}}]'
    )


def test_a_global_state_of_streams_that_are_read_whole_is_not_sent() -> None:
    streams = (_planned("users", ReadMode.FULL_REFRESH), _planned("orders", ReadMode.INCREMENTAL))
    request = ReadRequest(config={}, streams=streams, states=(_global(None, users={"n": 1}),), sync_id=1)
    assert "--state" not in _source.read(request).arguments


@pytest.mark.parametrize("message", [b"{}", b'{"type":null}', b'{"sourceStats":{"recordCount":1.0}}'])
def test_a_state_of_nothing_is_a_legacy_reset(message: bytes) -> None:
    state = _state(message)
    assert (state.scope, state.is_reset, _handed_back(state)) == (StateScope.LEGACY, True, None)


def test_a_global_state_of_null_forgets_every_stream() -> None:
    reset = _state(b'{"type":"GLOBAL","global":null}')
    assert _source.states.merge((_global({"lsn": 1}, users={"a": 1}),), reset) == (reset,)


def test_unknown_fields_survive_the_merge() -> None:
    old = _state(
        b'{"type":"GLOBAL","global":{"shared_state":{},"stream_states":'
        b'[{"stream_descriptor":{"name":"orders","x":1},"stream_state":{"n":1.50},"y":2}]}}'
    )
    new = _state(b'{"type":"GLOBAL","id":9,"global":{"shared_state":{"f":2.50},"stream_states":[],"z":3}}')
    (merged,) = _source.states.merge((old,), new)
    assert b'"id":9' in merged.message
    assert b'"z":3' in merged.message
    assert b'{"f":2.50}' in merged.message
    assert b'{"stream_descriptor":{"name":"orders","x":1},"stream_state":{"n":1.50},"y":2}' in merged.message


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers()), min_size=1, max_size=8))
def test_merging_states_one_by_one_keeps_the_last_of_each_stream(told: list[tuple[str, int]]) -> None:
    states: tuple[State, ...] = ()
    whole: tuple[State, ...] = ()
    for name, cursor in told:
        states = _source.states.merge(states, _of(name, cursor))
        whole = _source.states.merge(whole, _global({"lsn": 1}, **{name: {"cursor": cursor}}))
    last = {name: {"cursor": cursor} for name, cursor in told}
    assert {state.stream.name: _source.states.value(state) for state in states if state.stream} == last
    assert _streams(whole[0]) == last


def test_a_connector_may_move_to_another_scope_between_syncs() -> None:
    legacy = _state(b'{"data":{"users":1}}')
    assert _source.states.merge((legacy,), _of("users", 1)) == (_of("users", 1),)


def test_a_sync_that_mixes_scopes_is_refused_by_name() -> None:
    scope = check_scope(None, _of("users", 1))
    assert check_scope(scope, _of("orders", 1)) is StateScope.STREAM
    with pytest.raises(ProtocolViolation, match="a GLOBAL state after STREAM states in one sync"):
        check_scope(scope, _global({"lsn": 1}))


def test_states_are_handed_back_as_a_list_of_the_messages_that_came() -> None:
    users = b'{"type":"STREAM","stream":{"stream_descriptor":{"name":"users"},"stream_state":{"a": 1.50}},"id":7}'
    orders = b'{"type":"STREAM","stream":{"stream_descriptor":{"name":"orders"},"stream_state":{"a":NaN}}}'
    assert _handed_back(_state(users), _state(orders)) == b"[" + users + b"," + orders + b"]"


@pytest.mark.parametrize(
    "message",
    [
        b'{"data":null}',
        b'{"data":{}}',
        b'{"type":"LEGACY","data":{}}',
        b'{"type":"STREAM","stream":{"stream_descriptor":{"name":"users"},"stream_state":null}}',
        b'{"type":"GLOBAL","global":{"shared_state":null,"stream_states":[]}}',
    ],
)
def test_a_state_with_nothing_in_it_is_not_handed_back(message: bytes) -> None:
    assert _handed_back(_state(message)) is None


def test_a_state_without_a_type_is_handed_back_as_its_bare_data() -> None:
    assert _handed_back(_state(b'{"data":{"users":{"a":1.50}}}')) == b'{"users":{"a":1.50}}'
    assert _handed_back(_source.states.from_value(None, {"users": 1})) == b'{"users":1}'


@pytest.mark.parametrize(
    ("protocol_version", "handed_back"),
    [
        ("0.2.0", b'{"users":1}'),
        ("1.0", b'{"users":1}'),
        ("2.1.0", b'[{"type":"LEGACY","data":{"users":1}}]'),
        (None, b'[{"type":"LEGACY","data":{"users":1}}]'),
    ],
)
def test_a_typed_legacy_state_is_handed_back_bare_to_the_first_version_alone(
    protocol_version: str | None, handed_back: bytes
) -> None:
    source = _source.adapted_to(SpecEvent({}, {"protocol_version": protocol_version}))
    legacy, of_stream = _state(b'{"type":"LEGACY","data":{"users":1}}'), _of("users", 1)
    for state, expected in ((legacy, handed_back), (of_stream, b"[" + of_stream.message + b"]")):
        files = source.read(ReadRequest(config={}, streams=(), states=(state,), sync_id=1)).files
        assert files["state.json"] == expected


def test_a_state_spelt_the_old_way_is_handed_back_with_both_spellings() -> None:
    stream = b'{"stream_descriptor":{"name":"users"},"stream_state":{"a":1}}'
    handed = _handed_back(_state(b'{"state_type":"STREAM","stream":' + stream + b"}"))
    assert handed == b'[{"state_type":"STREAM","stream":' + stream + b',"type":"STREAM"}]'


_values = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.none(), max_size=4)


@given(st.none() | st.builds(StreamId.of, st.text(max_size=5), st.none() | st.text(max_size=5)), st.none() | _values)
def test_a_value_that_is_set_is_the_value_that_is_shown(stream: StreamId | None, value: object) -> None:
    state = _source.states.from_value(stream, value)
    assert _source.states.value(state) == value
    assert state.stream == stream
    assert state.is_reset == (value is None)


def test_a_global_value_that_is_set_is_the_value_that_is_shown() -> None:
    value = {
        "shared_state": {"lsn": 2**80},
        "stream_states": [{"stream_descriptor": {"name": "a"}, "stream_state": {}}],
    }
    state = _source.states.from_value(None, value)
    assert state.scope is StateScope.GLOBAL
    assert _source.states.value(state) == value
    assert json.loads(state.message)["type"] == "GLOBAL"


def test_the_position_of_a_stream_in_a_global_state_is_its_part_and_what_is_shared() -> None:
    def position(shared: object, **streams: object) -> object:
        parts = [{"stream_descriptor": {"name": name}, "stream_state": part} for name, part in streams.items()]
        state = _source.states.from_value(None, {"shared_state": shared, "stream_states": parts})
        return _source.states.position(state, StreamId.of("users"))

    assert position(None, users={"at": 1}, orders={"at": 2}) == position(None, users={"at": 1})
    assert position(None, users={"at": 1}) != position(None, users={"at": 2})
    assert position({"lsn": 1}, users={"at": 1}) != position({"lsn": 2}, users={"at": 1})
    assert position(None, orders={"at": 2}) == (None, None)


@pytest.mark.parametrize("stream", [None, StreamId.of("users")])
@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"type": "STREAM", "stream": {"stream_descriptor": {"name": "users"}, "stream_state": {}}}, "stream_state"),
        ({"type": "GLOBAL", "global": {"shared_state": None, "stream_states": []}}, "global"),
        ({"type": "LEGACY", "data": {"users": 1}}, "data"),
        ({"stream_descriptor": {"name": "users"}, "stream_state": {"cursor": 1}}, "stream_state"),
        ([{"streamDescriptor": {"name": name}, "streamState": {}} for name in "ab"], "each has as its streamState"),
        (
            {"sharedState": {"lsn": 1}, "streamStates": [{"streamDescriptor": {"name": "a"}, "streamState": {}}]},
            "words of Airbyte's API",
        ),
        ({"stateType": "stream", "connectionId": "c", "streamState": []}, "words of Airbyte's API"),
    ],
)
def test_a_message_is_no_value_of_the_state_in_it(stream: StreamId | None, value: object, found: str) -> None:
    with pytest.raises(MemberError, match=found):
        _source.states.from_value(stream, value)


@pytest.mark.parametrize("value", [{"type": "STREAM"}, {"type": ["STREAM"], "stream": 1}, [], [1, {"data": 1}], 1])
def test_what_only_looks_a_little_like_a_message_is_a_state(value: object) -> None:
    assert _source.states.value(_source.states.from_value(None, value)) == value
