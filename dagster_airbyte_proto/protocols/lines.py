"""Helpers for message lines that all protocols share."""

import re
from collections.abc import Mapping

from dagster_airbyte_proto.protocols.events import PlainLine, UnknownEvent
from dagster_airbyte_proto.protocols.raw_json import MemberError, value

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Within a string the quotes would have escapes. So it is the end of one message and the beginning of another.
_RECORD_BEHIND = re.compile(rb'\}\s*+\{\s*+"type"\s*+:\s*+"(?i:record)"')
_MAX_TYPE_CHARACTERS = 64


def complete_line(line: bytes) -> bytes:
    """Returns the line with a newline and without a byte order mark."""
    whole = line.removeprefix(BYTE_ORDER_MARK)
    return whole if whole.endswith(b"\n") else whole + b"\n"


def message_type(parts: Mapping[str, bytes]) -> str | None:
    """The `type` of the message with these members; None if it has none or it is no string."""
    try:
        kind = value(parts.get("type", b"null"))
    except MemberError:
        return None
    return kind if isinstance(kind, str) else None


def event_of_no_object(line: bytes, message_start: re.Pattern[bytes]) -> UnknownEvent | PlainLine:
    """The event of a line that is no JSON object.

    A line that begins with `message_start` was a message: a kill cuts lines off, and two threads that print without a
    lock run lines together. It must not pass as plain text; nor must a record behind it, which counts as unreadable.
    """
    begun = message_start.match(complete_line(line))
    if begun is None:
        return PlainLine(line)
    if _RECORD_BEHIND.search(line):
        return UnknownEvent("RECORD", "it came behind another message on one line")
    return UnknownEvent(begun[1].decode(), "the message is broken")


def unreadable_message(kind: str, error: Exception) -> UnknownEvent:
    """The event of a message that could not be read. A type may be any text, so it is cut."""
    return UnknownEvent(kind[:_MAX_TYPE_CHARACTERS], str(error))
