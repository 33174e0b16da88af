"""What a destination has proved, by the states that it sent back."""

import json

import pytest

from dagster_airbyte_proto.model import PushMode, StreamId
from dagster_airbyte_proto.protocols.acknowledgements import Acknowledgements
from dagster_airbyte_proto.protocols.destination import (
    DestinationProtocol,
    Echo,
    PushedStream,
    SentPosition,
    StreamResult,
)
from dagster_airbyte_proto.protocols.events import ErrorEvent, LogEvent, PlainLine, StateEvent, UnknownEvent
from dagster_airbyte_proto.protocols.lookup import destination_protocol

STREAM = PushedStream(StreamId.of("people", "shop"), {"type": "object"}, PushMode.UPSERT, ("id",))


def _echo(rows: int, plan: str = "p") -> Echo:
    return Echo(SentPosition(plan, rows))


def test_the_rows_among_which_rejected_ones_are_only_counted_are_known() -> None:
    acks = Acknowledgements("p", 0)
    for rows in (2, 5, 7, 9):
        acks.sent(rows, 2)
    acks.received(_echo(2))
    acks.received(_echo(5)._replace(rejected=1))
    assert acks.unsure == [(2, 5)]
    acks.received(_echo(7))
    acks.ended(StreamResult(received=2, skipped=1))
    assert (acks.unsure, acks.rows) == ([(2, 5), (7, 9)], 9)


def test_an_echo_proves_all_before_it() -> None:
    acks = Acknowledgements("p", 0)
    for rows in (5, 10, 15):
        acks.sent(rows, 5)
    assert acks.received(_echo(10))
    assert (acks.rows, acks.waiting) == (10, 1)


def test_repeats_and_strangers_are_no_progress() -> None:
    acks = Acknowledgements("p", 0)
    acks.sent(5, 5)
    assert acks.received(_echo(5))
    assert not acks.received(_echo(5))
    assert not acks.received(_echo(99))
    assert not acks.received(_echo(5, "another"))
    assert not acks.received(Echo(None))
    assert not acks.received(Echo(None, is_global=True))
    assert (acks.rows, acks.repeats, acks.strangers, acks.globals) == (5, 1, 4, 1)


@pytest.mark.parametrize("name", ["airbyte", "singer"])
def test_a_state_is_known_again_in_each_form(name: str) -> None:
    protocol: DestinationProtocol = destination_protocol(name)
    sent = json.loads(protocol.state_line(STREAM, SentPosition("p", 7)))
    bare = sent["state"] if name == "airbyte" else sent["value"]
    without_type = {key: value for key, value in bare.items() if key != "type"}
    for form in (sent, bare, without_type, {**bare, "id": 3}):
        assert protocol.reply(json.dumps(form).encode()) == Echo(SentPosition("p", 7)), form


def test_a_state_says_how_many_records_come_before_it() -> None:
    protocol = destination_protocol("airbyte")
    sent = protocol.state_line(STREAM, SentPosition("p", 7, 3))
    assert json.loads(sent)["state"]["sourceStats"] == {"recordCount": 3.0}
    assert protocol.reply(sent) == Echo(SentPosition("p", 7))


@pytest.mark.parametrize(
    ("line", "is_state"),
    [
        ('{"bookmarks":{"other":{"at":1}}}', True),
        ('{"value":{"bookmarks":{"other":{"at":1}}}}', True),
        ('{"type":"STATE","value":{"at":1}}', True),
        ('{"type":"STATE","value":{}}', False),
        ('{"bookmarks":{}}', False),
        ("{}", False),
        ('{"level":"info","message":"3 rows","value":3}', False),
    ],
)
def test_a_target_may_print_objects_that_are_no_states(line: str, is_state: bool) -> None:
    found = destination_protocol("singer").reply(line.encode())
    assert found == (Echo(None) if is_state else PlainLine(line.encode()))


_GLOBAL = Echo(None, is_global=True)
_OURS = '{"stream_descriptor":{"name":"people"},"stream_state":{"plan":"p","rows":7}}'


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"type":"STREAM","stream":{"stream_descriptor":{"name":"a"}}}', Echo(None)),
        ('{"type":"GLOBAL","global":{"stream_states":[]},"id":3}', _GLOBAL),
        (f'{{"type":"STATE","state":{{"type":"GLOBAL","global":{{"stream_states":[{_OURS}]}}}}}}', _GLOBAL),
        (f'{{"type":"STATE","state":{{"type":"GLOBAL","global":{{}},"stream":{_OURS}}}}}', _GLOBAL),
        ('{"type":"LEGACY","data":{"at":1}}', Echo(None)),
        ('{"type":"STATE","state":{"data":{"at":1}}}', Echo(None)),
        (f'{{"type":"STATE","state":{{"state_type":"STREAM","stream":{_OURS}}}}}', Echo(SentPosition("p", 7))),
        ('{"level":"info","message":"3 rows","stream":"people"}', PlainLine),
        ('{"level":"info","stream":{"name":"people"},"data":{"rows":3}}', PlainLine),
        ('{"global":{"rows":3}}', PlainLine),
        ('{"type":"STREAM","stream":"people"}', UnknownEvent),
        ('{"type":["STREAM"],"stream":{}}', PlainLine),
        ('{"type":"STATE","state":{"type":"GLOBAL","stream":{}}}', StateEvent),
        ('{"type":"LOG","log":{"level":"INFO","message":"3 rows"},"stream":"people"}', LogEvent),
        (f'{{"type":"LOG","log":{{"level":"INFO","message":"got a state"}},"stream":{_OURS}}}', LogEvent),
        ('{"type":"TRACE","trace":{"type":"ERROR","error":{"message":"full"}},"data":{}}', ErrorEvent),
    ],
)
def test_json_of_an_airbyte_destination_is_a_state_by_its_form(line: str, found: Echo | type[object]) -> None:
    reply = destination_protocol("airbyte").reply(line.encode())
    assert reply == found if isinstance(found, Echo) else type(reply) is found


def test_rejected_records_are_counted() -> None:
    protocol = destination_protocol("airbyte")
    sent = json.loads(protocol.state_line(STREAM, SentPosition("p", 7)))
    sent["state"]["destinationStats"] = {"recordCount": 5.0, "rejectedRecordCount": 2.0}
    found = protocol.reply(json.dumps(sent).encode())
    assert found == Echo(SentPosition("p", 7), 5.0, 2.0)


def test_counts_are_taken_once_and_hold_the_rejected_records_or_not() -> None:
    acks = Acknowledgements("p", 0)
    for rows, counted, rejected in ((5, 5.0, 2.0), (10, 4.0, 1.0), (15, 5.0, 0.0)):
        acks.sent(rows, 5)
        echo = Echo(SentPosition("p", rows), counted, rejected)
        assert [acks.received(echo), acks.received(echo)] == [True, False]
    assert (acks.rejected, acks.miscount) == (3, "")
    acks.sent(20, 5)
    assert acks.received(Echo(SentPosition("p", 20), 20.0))  # Since the start.
    assert (acks.miscount, acks.shortfall) == ("it counted 20 records where 5 were sent", "")
    acks.sent(25, 5)
    acks.received(Echo(SentPosition("p", 25), 5.0, -5.0))
    assert (acks.rejected, acks.rows) == (3, 25)


@pytest.mark.parametrize(("counted", "rejected"), [(1.0, None), (0.0, 0.0), (3.0, 1.0), (4.0, 2.0), (-5.0, None)])
def test_a_count_that_is_too_small_proves_nothing_and_nothing_after_it_does(
    counted: float, rejected: float | None
) -> None:
    acks = Acknowledgements("p", 0)
    for rows in (5, 10, 15):
        acks.sent(rows, 5)
    assert acks.received(Echo(SentPosition("p", 5), 5.0))
    short = Echo(SentPosition("p", 10), counted, rejected)
    assert [acks.received(short), acks.received(short)] == [False, False]
    assert not acks.received(Echo(SentPosition("p", 15), 5.0, 1.0))
    assert (acks.rows, acks.rejected, acks.repeats) == (5, 0, 1)
    assert acks.shortfall == f"it counted {counted:g} records and rejected {int(rejected or 0)}, of 5 that were sent"
    acks.take_exit(15)
    assert (acks.rows, acks.rejected) == (15, int(rejected or 0) + 1)
    assert acks.unsure == [(5, 15)]


@pytest.mark.parametrize(("counted", "is_proof"), [(3, True), (7, True), (12, True), (5, True), (2, False)])
def test_a_count_for_several_states_may_be_one_since_any_of_them(counted: float, is_proof: bool) -> None:
    acks = Acknowledgements("p", 0)
    for rows, lines in ((5, 5), (9, 4), (12, 3)):
        acks.sent(rows, lines)
    assert acks.received(Echo(SentPosition("p", 12), counted)) is is_proof
    assert bool(acks.shortfall) is not is_proof


@pytest.mark.parametrize("name", ["airbyte", "singer"])
@pytest.mark.parametrize(
    "line", [b"", b"text", b"{", b"[]", b"7", b"\xff", b'{"type":"STATE"}', b'{"stream":3}', b"null"]
)
def test_no_line_is_too_strange(name: str, line: bytes) -> None:
    found = destination_protocol(name).reply(line)
    assert not isinstance(found, Echo) or found.position is None
