"""Reads as much of the IPC format of Arrow as the guests need: the bodies of messages, and their rows."""
# mypy: ignore-errors

import struct


def messages(stream):
    """The messages of a stream: begin and end of the body of each, and its rows; -1 for a schema."""
    at = 0
    while at + 8 <= len(stream):
        mark, size = struct.unpack_from("<II", stream, at)
        if mark != 0xFFFFFFFF or not size:
            return
        message = at + 8 + struct.unpack_from("<I", stream, at + 8)[0]
        kind = _number(stream, message, 1, "B")
        begin = at + 8 + size
        end = begin + _number(stream, message, 3, "q")
        yield begin, end, _number(stream, _inner(stream, message, 2), 0, "q") if kind == 3 else -1
        at = end


def _place(stream, table, field):
    vtable = table - struct.unpack_from("<i", stream, table)[0]
    entry = 4 + 2 * field
    if entry >= struct.unpack_from("<H", stream, vtable)[0]:
        return 0
    return struct.unpack_from("<H", stream, vtable + entry)[0]


def _number(stream, table, field, code):
    place = _place(stream, table, field)
    return struct.unpack_from("<" + code, stream, table + place)[0] if place else 0


def _inner(stream, table, field):
    place = table + _place(stream, table, field)
    return place + struct.unpack_from("<I", stream, place)[0]
