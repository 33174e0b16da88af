"""The messages between us and the adapter that is composed with a connector: bytes in, messages out.

The adapter is ours and has no types of its own: it passes on arguments, and the memory that they point to, as the
canonical ABI laid them. So all meaning stays here.

- From the component: a header of 128 bytes (magic, number of the function, length of the body; at 16, fourteen core
  arguments of 8 bytes each), then the body: memory of the adapter, from the address BASE up. The number of a host
  function is its place in HOST_FUNCTIONS. The answer to a command has the command's number and 256, and its body lies
  from the address up that is its first argument. READY comes once, from the child program, before the component starts.
- To the component: magic and length (4 bytes each), then the body, which the adapter puts at BASE. For a host call that
  is the ready result; for a command its number (from 1), 4 bytes of nothing, its core arguments and their data. The
  command 0 ends the component.
- Some calls expect no reply: those that cannot fail, and writes to the frame that was made last. The adapter knows that
  one and how long it is, so a connector waits for us once per batch and not once per chunk. Where such a call does
  expect a reply (the frame is another, or full), the ninth argument is 1.
"""

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.protocols.rapidbyte.component.canonical_abi import (
    GuestMemory,
    LoweredBlock,
    flattened_parameters,
    layout,
    lifted,
)
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import HOST_FUNCTIONS
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import BYTES, Tagged, WitFunction

MAGIC = 0x34574252
"""`RBW4`."""
BASE = 65536
"""The address in the adapter's memory from which bodies lie."""
HEADER_BYTES = 128
ARGUMENTS_AT = 16
REPLY_EXPECTED_AT = 8
"""The place among the arguments that says that a call of ONE_WAY_AT_TIMES expects a reply."""
ANSWER = 256
READY = 1 << 16
MAX_FRAME_BYTES = 512 << 20
_MAX_BODY_BYTES = MAX_FRAME_BYTES + (64 << 20)
_MAX_TEXT_BYTES, _MAX_ANSWER_BYTES = 64 << 20, 256 << 20
"""The limits of a body that becomes text: that may take four times as much of our memory."""

ONE_WAY = frozenset(function.name for function in HOST_FUNCTIONS if function.result is None)
ONE_WAY_AT_TIMES = frozenset(("frame-write", "frame-seal"))
_WITH_BYTES = frozenset(
    number for number, each in enumerate(HOST_FUNCTIONS) if any(part.type == BYTES for part in each.parameters)
)

_HEADER = struct.Struct("<IIII14Q")
_REPLY_HEADER = struct.Struct("<II")
_DOING = "reading the messages of the component"


class HostCall(NamedTuple):
    """A call of one of the host's functions. A reply is `reply_to` it."""

    function: WitFunction
    arguments: tuple[Any, ...]
    expects_reply: bool


class CommandAnswer(NamedTuple):
    """The answer to a command, not yet read: its `value` needs the function that was called."""

    command: int
    memory: GuestMemory

    def value(self, function: WitFunction) -> Any:
        """The value of the answer. Raises ProtocolViolation."""
        assert function.result is not None, "all functions of roles answer"
        return self.memory.value(function.result, 0)


class Ready(NamedTuple):
    """The component is loaded and about to start."""

    was_compiled: bool


class MessageReader:
    """Splits what a component writes into messages. A body is joined once, when it is whole."""

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self._size = 0
        self._header: tuple[int, ...] | None = None

    def feed(self, chunk: bytes) -> Iterator[HostCall | CommandAnswer | Ready]:
        """The messages that this chunk ends. Raises ProtocolViolation."""
        if chunk:
            self._pieces.append(memoryview(chunk))
            self._size += len(chunk)
        while True:
            if self._header is None:
                if self._size < HEADER_BYTES:
                    return
                self._header = _checked_header(self._take_bytes(HEADER_BYTES))
            if self._size < self._header[2]:
                return
            header, self._header = self._header, None
            yield _message(header, self._take_bytes(header[2]))

    def _take_bytes(self, count: int) -> bytes:
        taken: list[memoryview] = []
        rest = count
        while rest:
            piece = self._pieces.popleft()
            if len(piece) > rest:
                self._pieces.appendleft(piece[rest:])
                piece = piece[:rest]
            taken.append(piece)
            rest -= len(piece)
        self._size -= count
        return b"".join(taken)


def _checked_header(content: bytes) -> tuple[int, ...]:
    header: tuple[int, ...] = _HEADER.unpack(content)
    magic, number, size, *_ = header
    is_known = number < len(HOST_FUNCTIONS) or ANSWER < number < 2 * ANSWER or number == READY
    if magic != MAGIC or not is_known:
        raise ProtocolViolation(_DOING, "it wrote what its adapter never writes")
    if size > (most := _most_bytes(number)):
        what = f"its call {HOST_FUNCTIONS[number].name}" if number < len(HOST_FUNCTIONS) else "its answer"
        raise ProtocolViolation(_DOING, f"{what} has {size:,} bytes, and may have {most:,}")
    return header


def _most_bytes(number: int) -> int:
    if number > ANSWER:
        return _MAX_ANSWER_BYTES
    return _MAX_BODY_BYTES if number in _WITH_BYTES else _MAX_TEXT_BYTES


def _message(header: tuple[int, ...], body: bytes) -> HostCall | CommandAnswer | Ready:
    _, number, _, _, *flat = header
    if number == READY:
        return Ready(bool(flat[0]))
    if number > ANSWER:
        return CommandAnswer(number - ANSWER, GuestMemory(body, flat[0]))
    memory = GuestMemory(body, BASE)
    function = HOST_FUNCTIONS[number]
    arguments = tuple(lifted(function.parameters, flat, memory))
    expects_reply = function.name not in ONE_WAY
    if function.name in ONE_WAY_AT_TIMES:
        expects_reply = flat[REPLY_EXPECTED_AT] == 1
    return HostCall(function, arguments, expects_reply)


def reply_to(function: WitFunction, value: Tagged) -> list[bytes]:
    """The reply to a call of a host function, in pieces."""
    assert function.result is not None, "a function without a result gets no reply"
    block = LoweredBlock(BASE, layout(function.result).size)
    block.store(function.result, value)
    return _framed(block.pieces)


def command(number: int, function: WitFunction, arguments: Sequence[Any]) -> list[bytes]:
    """The command that calls a function of the connector, in pieces. `number` is its place among its role's, from 1."""
    head_bytes = 8 + 8 * len(flattened_parameters(function.parameters))
    block = LoweredBlock(BASE, head_bytes)
    flat = [
        core
        for parameter, value in zip(function.parameters, arguments, strict=True)
        for core in block.lower(parameter.type, value)
    ]
    block.put_numbers(f"II{len(flat)}Q", 0, number, 0, *flat)
    return _framed(block.pieces)


def end_command() -> list[bytes]:
    """The command that ends the component."""
    return _framed([bytes(8)])


def _framed(pieces: list[bytes]) -> list[bytes]:
    return [_REPLY_HEADER.pack(MAGIC, sum(map(len, pieces))), *pieces]
