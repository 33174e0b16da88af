"""The sections of a WebAssembly binary: a core module, or a component with modules within. Reads no code.

The bytes come from a stranger. Whatever they are, reading them ends, with what was found or with a WasmFormatError.
"""

from collections.abc import Iterator
from typing import NamedTuple

COMPONENT = b"\0asm\x0d\0\x01\0"
MODULE = b"\0asm\x01\0\0\0"
_MAX_NUMBER_BYTES = 5
_MAX_DEPTH = 8
CUSTOM, CORE_MODULE, NESTED_COMPONENT = 0, 1, 4
"""The ids of sections. CORE_MODULE and NESTED_COMPONENT are those of a component."""


class WasmFormatError(ValueError):
    """The bytes are no WebAssembly, or are cut off."""


class WasmSection(NamedTuple):
    """A section. `start` is where it begins with its id, `body` where its content does, `end` where it ends."""

    id: int
    start: int
    body: int
    end: int


class WasmReader:
    """Reads numbers and names at a position of a binary."""

    def __init__(self, binary: bytes, position: int = 0, end: int | None = None) -> None:
        self._binary = binary
        self._end = len(binary) if end is None else end
        self.position = position

    @property
    def has_ended(self) -> bool:
        return self.position >= self._end

    def number(self) -> int:
        """An unsigned number in LEB128, of 32 bits."""
        found = 0
        for place in range(_MAX_NUMBER_BYTES):
            byte = self.raw(1)[0]
            found |= (byte & 127) << 7 * place
            if byte < 128:
                return found
        raise WasmFormatError("a number does not end")

    def raw(self, count: int) -> bytes:
        self.position += count
        if self.position > self._end:
            raise WasmFormatError("it is cut off")
        return self._binary[self.position - count : self.position]

    def byte(self) -> int:
        return self.raw(1)[0]

    def name(self) -> str:
        try:
            return self.raw(self.number()).decode()
        except UnicodeDecodeError:
            raise WasmFormatError("a name is no UTF-8") from None


def leb128(number: int) -> bytes:
    """The number as WebAssembly writes it."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def section(section_id: int, body: bytes) -> bytes:
    return bytes([section_id]) + leb128(len(body)) + body


def is_component(binary: bytes) -> bool:
    return binary[:8] == COMPONENT


def sections(binary: bytes, start: int = 0, end: int | None = None) -> Iterator[WasmSection]:
    """The sections of the module or the component that begins at `start`, in their order. Raises WasmFormatError."""
    end = len(binary) if end is None else end
    if binary[start : start + 8] not in (COMPONENT, MODULE):
        raise WasmFormatError("it does not begin as WebAssembly does")
    reader = WasmReader(binary, start + 8, end)
    while not reader.has_ended:
        begin, section_id = reader.position, reader.byte()
        size = reader.number()
        body = reader.position
        reader.raw(size)
        yield WasmSection(section_id, begin, body, reader.position)


def custom_sections(binary: bytes, names: frozenset[str]) -> dict[str, bytes]:
    """The contents of the custom sections of these names, wherever they are; of several, the outermost and first.

    A toolchain that wraps a core module as a component leaves the module's own sections where they were: within it.
    """
    found: dict[str, bytes] = {}
    inner = [(0, len(binary))]
    for _ in range(_MAX_DEPTH):
        outer, inner = inner, []
        for start, end in outer:
            of_component = binary[start : start + 8] == COMPONENT
            for each in sections(binary, start, end):
                if each.id == CUSTOM:
                    reader = WasmReader(binary, each.body, each.end)
                    name = reader.name()
                    if name in names:
                        found.setdefault(name, binary[reader.position : each.end])
                elif of_component and each.id in (CORE_MODULE, NESTED_COMPONENT):
                    inner.append((each.body, each.end))
    return found
