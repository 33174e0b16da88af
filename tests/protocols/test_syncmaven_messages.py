"""The counts with which a Syncmaven destination answers for its rows."""

import math
from typing import Any

import pytest

from dagster_airbyte_proto.protocols.destination import StreamResult
from dagster_airbyte_proto.protocols.events import ErrorEvent, PlainLine
from dagster_airbyte_proto.protocols.syncmaven import enrichment
from dagster_airbyte_proto.protocols.syncmaven.messages import EnrichedRow, UntypedOk, line, reply

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
