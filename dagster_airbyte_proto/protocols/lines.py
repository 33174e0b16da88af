"""What lines of messages have in common, whichever protocol they are of."""

import re
from collections.abc import Mapping

from dagster_airbyte_proto.protocols.events import PlainLine, UnknownEvent
from dagster_airbyte_proto.protocols.raw_json import PartError, value

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_KIND_CHARACTERS = 64


def whole_line(line: bytes) -> bytes:
    """The line with its newline, and without a byte order mark."""
    whole = line.removeprefix(_BYTE_ORDER_MARK)
    return whole if whole.endswith(b"\n") else whole + b"\n"


def kind_of(parts: Mapping[str, bytes]) -> str | None:
    """The type that a message of these members says it is of."""
    try:
        kind = value(parts.get("type", b"null"))
    except PartError:
        return None
    return kind if isinstance(kind, str) else None


def no_object(line: bytes, meant: re.Pattern[bytes]) -> UnknownEvent | PlainLine:
    """The event of a line that is no object. Where it begins as `meant` it was a message, however it goes on: a kill
    cuts lines, two threads run them together."""
    begun = meant.match(whole_line(line))
    return UnknownEvent(begun[1].decode(), "the message is broken") if begun else PlainLine(line)


def passed_over(kind: str, error: Exception) -> UnknownEvent:
    """A message of that type which lacks what its type needs."""
    return UnknownEvent(kind[:_MAX_KIND_CHARACTERS], str(error))
