"""The canonical ABI: values of WIT as they lie in the memory of WebAssembly, and as its functions take them.

Only what Rapidbyte's interface needs: no resources, no more than 256 cases, no lists but of bytes and strings among the
arguments. All numbers are little-endian.

The memory that we read is a copy of a part of the guest's, which begins at the address `base`. It came from an
untrusted program: whatever does not lie within it, or is no value of its type, is a ProtocolViolation.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import (
    BOOL,
    U8,
    Tagged,
    WitField,
    WitList,
    WitRecord,
    WitScalar,
    WitType,
    WitVariant,
)

_POINTER_BYTES, _POINTER_ALIGNMENT = 8, 4
_DOING = "reading a value of the component"


class Layout(NamedTuple):
    size: int
    alignment: int


def aligned(offset: int, alignment: int) -> int:
    """The next offset that is a multiple of the alignment."""
    return (offset + alignment - 1) & -alignment


# Of the interface's few types. Counted anew for each reply it took a tenth of what a batch costs this process.
@cache
def layout(kind: WitType) -> Layout:
    """The size and the alignment of a value in memory."""
    if isinstance(kind, WitScalar):
        return Layout(kind.size, kind.size)
    if isinstance(kind, WitList):
        return Layout(_POINTER_BYTES, _POINTER_ALIGNMENT)
    if isinstance(kind, WitRecord):
        size, alignment = 0, 1
        for field in kind.fields:
            inside = layout(field.type)
            size = aligned(size, inside.alignment) + inside.size
            alignment = max(alignment, inside.alignment)
        return Layout(aligned(size, alignment), alignment)
    inside_cases = [layout(case.payload) for case in kind.cases if case.payload]
    alignment = max([1, *(each.alignment for each in inside_cases)])
    size = aligned(1, alignment) + max([0, *(each.size for each in inside_cases)])
    return Layout(aligned(size, alignment), alignment)


def _payload_offset(kind: WitVariant) -> int:
    return aligned(1, max([1, *(layout(case.payload).alignment for case in kind.cases if case.payload)]))


def flattened(kind: WitType) -> tuple[str, ...]:
    """The types of the core values that a value becomes as an argument: `i32` or `i64` each."""
    if isinstance(kind, WitScalar):
        return ("i64" if kind.size == 8 else "i32",)
    if isinstance(kind, WitList):
        return ("i32", "i32")
    if isinstance(kind, WitRecord):
        return tuple(core for field in kind.fields for core in flattened(field.type))
    joined: list[str] = []
    for case in kind.cases:
        for place, core in enumerate(flattened(case.payload) if case.payload else ()):
            if place == len(joined):
                joined.append(core)
            elif joined[place] != core:
                joined[place] = "i64"
    return ("i32", *joined)


def flattened_parameters(parameters: Iterable[WitField]) -> tuple[str, ...]:
    return tuple(core for parameter in parameters for core in flattened(parameter.type))


class GuestMemory(NamedTuple):
    """A copy of a part of the guest's memory, which begins there at the address `base`."""

    content: bytes
    base: int = 0

    def value(self, kind: WitType, offset: int) -> Any:
        """The value that lies at the offset. Raises ProtocolViolation."""
        if isinstance(kind, WitScalar):
            return _scalar(kind, self._unpacked(kind.code, offset, kind.size)[0])
        if isinstance(kind, WitList):
            pointer, length = self._unpacked("II", offset, _POINTER_BYTES)
            return self.sequence(kind, pointer, length)
        if isinstance(kind, WitRecord):
            return dict(self._members(kind, offset))
        (number,) = self._unpacked("B", offset, 1)
        case = _case(kind, number)
        inside = None if case.payload is None else self.value(case.payload, offset + _payload_offset(kind))
        return _chosen(kind, case.name, inside)

    def sequence(self, kind: WitList, pointer: int, length: int) -> Any:
        """The string or the list of this length at the address. Raises ProtocolViolation."""
        item = kind.item or U8
        size, start = layout(item).size, pointer - self.base
        if length and not 0 <= start <= len(self.content) - length * size:
            raise ProtocolViolation(_DOING, f"a list of {length:,} items lies outside of its memory")
        if kind.item is None:
            return _text(self.content[start : start + length] if length else b"")
        if item == U8:
            return self.content[start : start + length] if length else b""
        return [self.value(item, start + place * size) for place in range(length)]

    def _members(self, kind: WitRecord, offset: int) -> Iterator[tuple[str, Any]]:
        for field in kind.fields:
            inside = layout(field.type)
            offset = aligned(offset, inside.alignment)
            yield field.name, self.value(field.type, offset)
            offset += inside.size

    def _unpacked(self, code: str, offset: int, size: int) -> tuple[Any, ...]:
        if not 0 <= offset <= len(self.content) - size:
            raise ProtocolViolation(_DOING, "a value lies outside of its memory")
        return struct.unpack_from("<" + code, self.content, offset)


def lifted(parameters: Sequence[WitField], flat: Sequence[int], memory: GuestMemory) -> list[Any]:
    """The arguments of a call, from its core values. Raises ProtocolViolation."""
    values = iter(flat)
    return [_lifted(parameter.type, values, memory) for parameter in parameters]


def _lifted(kind: WitType, values: Iterator[int], memory: GuestMemory) -> Any:
    if isinstance(kind, WitScalar):
        return _scalar(kind, next(values))
    if isinstance(kind, WitList):
        return memory.sequence(kind, next(values), next(values))
    if isinstance(kind, WitRecord):
        return {field.name: _lifted(field.type, values, memory) for field in kind.fields}
    case = _case(kind, next(values))
    rest = [next(values) for _ in flattened(kind)[1:]]
    inside = None if case.payload is None else _lifted(case.payload, iter(rest), memory)
    return _chosen(kind, case.name, inside)


def _scalar(kind: WitScalar, number: int) -> int | bool:
    if kind == BOOL:
        return bool(number)
    if number >= 1 << 8 * kind.size:
        raise ProtocolViolation(_DOING, f"{number} is no {kind.name}")
    return number


def _case(kind: WitVariant, number: int) -> Any:
    if number >= len(kind.cases):
        raise ProtocolViolation(_DOING, f"a {kind.name or kind.form} has no case {number}")
    return kind.cases[number]


def _chosen(kind: WitVariant, name: str, payload: Any) -> Any:
    if kind.form == "enum":
        return name
    return payload if kind.form == "option" else Tagged(name, payload)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ProtocolViolation(_DOING, f"a string is no UTF-8: {error.reason}") from None


class LoweredBlock:
    """A block of memory that will lie at the address `base`: a head of fixed size, and behind it lists and strings.

    Long lists of bytes are kept as they are, for a write that gathers: `pieces` are the block in order.
    """

    def __init__(self, base: int, head_bytes: int) -> None:
        self._base = base
        self._head = bytearray(head_bytes)
        self._tail: list[bytes] = []
        self._size = head_bytes

    @property
    def pieces(self) -> list[bytes]:
        return [bytes(self._head), *self._tail]

    def store(self, kind: WitType, value: Any, offset: int = 0) -> None:
        """Writes the value into the head."""
        if isinstance(kind, WitScalar):
            struct.pack_into("<" + kind.code, self._head, offset, value)
        elif isinstance(kind, WitList):
            struct.pack_into("<II", self._head, offset, *self._appended(kind, value))
        elif isinstance(kind, WitRecord):
            self._store_record(kind, value, offset)
        else:
            number, inside = _split(kind, value)
            self._head[offset] = number
            payload = kind.cases[number].payload
            if payload is not None:
                self.store(payload, inside, offset + _payload_offset(kind))

    def lower(self, kind: WitType, value: Any) -> list[int]:
        """The core values of an argument; its lists and strings go behind the head."""
        if isinstance(kind, WitScalar):
            return [int(value)]
        if isinstance(kind, WitList):
            return list(self._appended(kind, value))
        if isinstance(kind, WitRecord):
            return [core for field in kind.fields for core in self.lower(field.type, value[field.name])]
        number, inside = _split(kind, value)
        payload = kind.cases[number].payload
        lowered = [] if payload is None else self.lower(payload, inside)
        return [number, *lowered, *[0] * (len(flattened(kind)) - 1 - len(lowered))]

    def put_numbers(self, code: str, offset: int, *numbers: int) -> None:
        """Writes numbers into the head, in the format of `struct`."""
        struct.pack_into(f"<{code}", self._head, offset, *numbers)

    def _store_record(self, kind: WitRecord, value: Mapping[str, Any], offset: int) -> None:
        for field in kind.fields:
            inside = layout(field.type)
            offset = aligned(offset, inside.alignment)
            self.store(field.type, value[field.name], offset)
            offset += inside.size

    def _appended(self, kind: WitList, value: str | bytes) -> tuple[int, int]:
        assert kind.item in (None, U8), "only bytes and strings go to a component"
        content = value.encode() if isinstance(value, str) else value
        place = self._base + self._size
        self._tail.append(content)
        self._size += len(content)
        return place, len(content)


def _split(kind: WitVariant, value: Any) -> tuple[int, Any]:
    """The number of the value's case, and what it holds."""
    if kind.form == "option":
        return (0, None) if value is None else (1, value)
    name, inside = (value, None) if kind.form == "enum" else value
    return [case.name for case in kind.cases].index(name), inside
