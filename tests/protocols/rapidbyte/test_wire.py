"""The messages of the adapter: fed whole, one byte at a time, and with anything at all."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import HOST_FUNCTIONS, ROLE_FUNCTIONS
from dagster_airbyte_proto.protocols.rapidbyte.component.wire import (
    BASE,
    MAGIC,
    READY,
    CommandAnswer,
    HostCall,
    MessageReader,
    Ready,
    command,
    end_command,
    reply_to,
)
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import Tagged

_NUMBERS = {function.name: number for number, function in enumerate(HOST_FUNCTIONS)}
_OPEN = ROLE_FUNCTIONS["source"][0]


def _sent(number: int, arguments: list[int], body: bytes = b"") -> bytes:
    padded = [*arguments, *[0] * (14 - len(arguments))]
    return struct.pack("<IIII14Q", MAGIC, number, len(body), 0, *padded) + body


_TRANSCRIPT = (
    _sent(READY, [1])
    + _sent(_NUMBERS["log"], [2, BASE, 5], b"hello")
    + _sent(_NUMBERS["frame-write"], [7, BASE, 3], b"abc")
    + _sent(_NUMBERS["frame-write"], [7, BASE, 3, 0, 0, 0, 0, 0, 1], b"abc")
    + _sent(_NUMBERS["next-batch"], [])
    + _sent(256 + 1, [BASE], struct.pack("<B7xQ", 0, 7))
)


@pytest.mark.parametrize("size", [1, 100, len(_TRANSCRIPT)])
def test_messages_are_the_same_however_they_are_cut(size: int) -> None:
    reader = MessageReader()
    chunks = [_TRANSCRIPT[start : start + size] for start in range(0, len(_TRANSCRIPT), size)]
    ready, *calls, answer = [message for chunk in chunks for message in reader.feed(chunk)]
    assert ready == Ready(was_compiled=True)
    found = [(call.function.name, call.arguments, call.expects_reply) for call in calls if isinstance(call, HostCall)]
    assert found == [
        ("log", (2, "hello"), False),
        ("frame-write", (7, b"abc"), False),
        ("frame-write", (7, b"abc"), True),
        ("next-batch", (), True),
    ]
    assert isinstance(answer, CommandAnswer)
    assert (answer.command, answer.value(_OPEN)) == (1, Tagged("ok", 7))


def test_a_message_that_is_cut_off_is_none() -> None:
    reader = MessageReader()
    assert list(reader.feed(_TRANSCRIPT[:130])) == [Ready(was_compiled=True)]
    assert list(reader.feed(b"")) == []
    assert len(list(reader.feed(_TRANSCRIPT[130:]))) == 5


@pytest.mark.parametrize(
    "forged",
    [
        bytes(128),
        _sent(19, []),
        _sent(256, []),
        struct.pack("<IIII112x", MAGIC, 0, (1 << 32) - 1, 0),
        _sent(_NUMBERS["log"], [2, BASE + 3, 5], b"hello"),
        _sent(_NUMBERS["log"], [2, BASE, 2], b"\xff\xff"),
        struct.pack("<IIII112x", MAGIC, _NUMBERS["emit-dlq-record"], (64 << 20) + 1, 0),
        struct.pack("<IIII112x", MAGIC, 256 + 1, (256 << 20) + 1, 0),
    ],
    ids=["magic", "number", "answer", "size", "outside", "utf8", "text", "catalog"],
)
def test_what_the_adapter_never_writes_is_a_violation(forged: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        list(MessageReader().feed(forged))


def test_bytes_may_be_more_than_text() -> None:
    """A text is decoded, and may take four times as much of our memory."""
    for name in ("frame-write", "socket-write"):
        head = struct.pack("<IIII112x", MAGIC, _NUMBERS[name], 512 << 20, 0)
        assert list(MessageReader().feed(head)) == []


def test_a_command_is_what_the_driver_reads() -> None:
    framed = b"".join(command(1, _OPEN, ['{"a":1}']))
    head = struct.pack("<IIQQ", 1, 0, BASE + 24, 7)
    assert framed == struct.pack("<II", MAGIC, 31) + head + b'{"a":1}'
    assert b"".join(end_command()) == struct.pack("<II", MAGIC, 8) + bytes(8)


def test_a_reply_is_the_ready_result() -> None:
    read = HOST_FUNCTIONS[_NUMBERS["frame-read"]]
    pieces = reply_to(read, Tagged("ok", b"x" * 9))
    assert pieces[0] == struct.pack("<II", MAGIC, 73)
    assert pieces[1][:16] == struct.pack("<B7xII", 0, BASE + 64, 9)
    assert pieces[2] == b"x" * 9


@given(st.binary(max_size=400))
def test_any_bytes_are_messages_or_a_violation(junk: bytes) -> None:
    for start in (b"", _TRANSCRIPT):
        with contextlib.suppress(ProtocolViolation):
            list(MessageReader().feed(start + junk))
