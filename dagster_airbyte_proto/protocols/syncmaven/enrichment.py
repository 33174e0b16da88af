"""The enrichment side of Syncmaven: rows on stdin, and rows on stdout.

Nothing in a reply says to which row it belongs, and a row may have none or several. So a process gets all of its rows
and the end of its input, and what it sends until its end are the rows that came of them.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from dagster_airbyte_proto.masking import UnmaskedText
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb
from dagster_airbyte_proto.protocols.destination import StreamResult
from dagster_airbyte_proto.protocols.events import ErrorEvent, Event, PlainLine
from dagster_airbyte_proto.protocols.lines import BYTE_ORDER_MARK
from dagster_airbyte_proto.protocols.syncmaven import messages

ROW_FRAME = '{"type":"enrichment-request","payload":{"row":', "}}"
"""The text before and after the JSON object of a row."""

_REPLY_START = re.compile(rb'\s*+\{\s*+"type"\s*+:\s*+"enrichment-re(?:sponse|ply)"')


def invocation() -> Invocation:
    return Invocation((), verb=Verb.WRITE, takes_input=True)


def opening_line(
    credentials: Mapping[str, Any], options: Mapping[str, Any], sync_id: str, *, is_as_specified: bool
) -> bytes:
    """Returns the line before the first row, in the words of the connector's dialect."""
    kind = "start-enrichment" if is_as_specified else "enrichment-connect"
    payload = {
        "credentials": msgspec.to_builtins(credentials),
        "options": msgspec.to_builtins(options),
        "syncId": sync_id,
    }
    return messages.line(kind, payload)


def reply(text: bytes) -> messages.EnrichmentReply | StreamResult | Event:
    """Returns what one line of its output says. Never raises.

    A halt is an error, for whatever reason: a row without a reply is dropped, and those that it did not get to have
    none. So is a reply that cannot be read, such as one into which another thread has printed.
    """
    found = messages.reply(text, may_halt=False)
    if isinstance(found, PlainLine) and _REPLY_START.match(text.removeprefix(BYTE_ORDER_MARK)):
        size = len(text.rstrip())
        return ErrorEvent(UnmaskedText(f"a reply of {size:,} bytes is no JSON: its line is cut off or broken"))
    return found


def refusal(description: Mapping[str, Any]) -> str | None:
    """Returns why a connector with this description is no enrichment; None if it may be one."""
    roles = description.get("roles")
    if isinstance(roles, list) and roles and "enrichment" not in roles:
        return f"its connector is no enrichment: its roles are {', '.join(map(str, roles))}"
    return None
