"""The messages of Syncmaven connectors: the counts of their rows, halts, replies and descriptions."""

import math
from typing import Any

import pytest

from dagster_airbyte_proto.protocols.destination import StreamResult
from dagster_airbyte_proto.protocols.events import (
    ErrorEvent,
    LogEvent,
    LogLevel,
    PlainLine,
    SpecEvent,
    UnknownEvent,
)
from dagster_airbyte_proto.protocols.syncmaven import enrichment
from dagster_airbyte_proto.protocols.syncmaven.messages import EnrichedRow, UntypedOk, line, reply
from dagster_airbyte_proto.protocols.syncmaven.state_calls import speaks_as_specified

_COUNTED = {"received": 10, "success": 8, "failed": 2}


@pytest.mark.parametrize(
    ("payload", "result"),
    [
        (_COUNTED, StreamResult(received=10, failed=2)),
        ({**_COUNTED, "errors": {"E1": 2}}, StreamResult(received=10, failed=2)),
        ({"users": _COUNTED, "teams": {**_COUNTED, "skipped": 1}}, StreamResult(received=20, failed=4, skipped=1)),
        ({"received": 10, "success": 8}, StreamResult(received=10, failed=2)),
        ({"received": 10, "success": 7, "skipped": 1}, StreamResult(received=10, failed=2, skipped=1)),
        ({"received": 10}, StreamResult(received=10)),
        ({"success": 8}, StreamResult(received=8)),
        ({"users": {"success": 7, "failed": 2, "skipped": 1}}, StreamResult(received=10, failed=2, skipped=1)),
        ({"received": math.inf, "failed": math.nan}, StreamResult(received=None)),
        ({"received": 10, "success": 7, "skipped": 0, "failed": 0}, StreamResult(received=10, failed=3)),
        ({"skipped": 0, "users": _COUNTED}, StreamResult(received=10, failed=2)),
        ({"received": 10, "users": _COUNTED}, StreamResult(received=10, failed=2)),
    ],
)
def test_rows_that_failed_are_counted_wherever_a_result_says_so(payload: dict[str, Any], result: StreamResult) -> None:
    assert reply(line("stream-result", payload)) == result


def test_a_word_without_a_type_is_a_halt_of_an_enrichment_if_it_is_an_error_and_may_be_one_if_not() -> None:
    ready, broken = b'{"status":"ok","message":"ready"}', b'{"status":"error","message":"broken"}'
    assert reply(ready, may_halt=False) == UntypedOk("ready")
    assert isinstance(reply(broken, may_halt=False), ErrorEvent)


def test_a_message_is_read_though_its_json_is_not_strict() -> None:
    halt = reply(b'{"type":"halt","payload":{"status":"error","message":"no \\ud83d"}}')
    assert isinstance(halt, ErrorEvent)
    assert halt.message.unmasked == "no ?"
    row = b'{"id":1,"score":NaN,"text":"\\ud83d"}'
    assert enrichment.reply(b'{"type":"enrichment-response","payload":{"row":' + row + b"}}") == EnrichedRow(row)
    assert enrichment.reply(b'{"payload": {"row": ' + row + b'}, "type": "enrichment-reply"}') == EnrichedRow(row)
    assert isinstance(enrichment.reply(b'{"type":"enrichment-response","payload":{"row":{"id'), ErrorEvent)
    assert isinstance(enrichment.reply(b"[info] 3 rows"), PlainLine)


@pytest.mark.parametrize(
    "body", ['"payload":{"row":[{"id":1}]}', '"payload":{"id":1}', '"payload":[{"id":1}]', '"row":"{}"']
)
def test_a_reply_without_a_row_is_an_error_of_an_enrichment(body: str) -> None:
    """Its row would be dropped, and in a table with keys it would leave the table."""
    text = f'{{"type":"enrichment-response",{body}}}'.encode()
    assert isinstance(enrichment.reply(text), ErrorEvent)
    assert isinstance(reply(text), UnknownEvent)  # Nobody asked a destination for it.


def test_a_reply_may_say_that_no_row_came_of_one() -> None:
    assert isinstance(enrichment.reply(b'{"type":"enrichment-response","payload":{"row":null}}'), UnknownEvent)


@pytest.mark.parametrize(
    ("text", "is_as_specified"),
    [
        (b'{"type":"connection-spec"}', True),
        (b'{"type":"connection-spec","payload":{"roles":["enrichment"]}}', True),
        (b'{"type":"connection-spec","payload":{"connectionCredentials":{"type":"object"}}}', False),
        (b'{"type":"spec","payload":{"credentialsSchema":{"type":"object"}}}', True),
        (b'{"type":"spec","payload":{"roles":["destination"]}}', False),
    ],
)
def test_a_description_tells_its_dialect_also_without_credentials(text: bytes, is_as_specified: bool) -> None:
    found = reply(text)
    assert isinstance(found, SpecEvent)
    assert speaks_as_specified(found.message) is is_as_specified


def test_no_part_of_a_value_is_cut_before_it_is_masked() -> None:
    """The kit logs each message that it gets, credentials too. Those of a service account have two thousand letters."""
    secret = "s3cret" * 1000
    found = reply(line("log", {"level": "debug", "message": "Received", "params": [{"key": secret}]}))
    assert found == LogEvent(LogLevel.DEBUG, f'Received {{"key":"{secret}"}}')
    halt = reply(line("halt", {"status": "error", "message": "refused", "data": {"key": secret}}))
    assert isinstance(halt, ErrorEvent)
    assert halt.summary.unmasked == "refused"
    assert halt.whole.unmasked == f'refused\nrefused\n{{"key":"{secret}"}}'
