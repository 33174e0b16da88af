"""Reads the beginning of a connector: the types and the imports that stand before everything else.

A component that a toolchain made from WIT begins so: types, imports of instances, and aliases of the types in these.
That beginning is copied in front of our adapter byte for byte, so that what the connector imports from WASI is imported
under the same numbers. Only the import of the host becomes an empty instance, which keeps the numbering.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import PACKAGE, ROLES, VERSION, interface_name
from dagster_airbyte_proto.protocols.rapidbyte.component.wasm_binary import (
    CUSTOM,
    WasmFormatError,
    WasmReader,
    WasmSection,
    is_component,
    section,
    sections,
)

_INSTANCES, _ALIASES, _TYPES, _IMPORTS, _EXPORTS = 5, 6, 7, 10, 11
_SORT_CORE, _SORT_TYPE, _SORT_INSTANCE = 0, 3, 5
_EMPTY_INSTANCE = section(_INSTANCES, b"\x01\x01\x00")
_PLAIN_NAME_FORMS = (0, 1)


class ConnectorHeader(NamedTuple):
    """The beginning of a connector, with its host taken out.

    `imports` are the names of the imported instances, in order; `host` is the number of the host's. `types` counts the
    types. `type_numbers` has those that are aliases: of an instance's number and the name there.
    """

    role: str
    imports: tuple[str, ...]
    host: int
    types: int
    type_numbers: dict[tuple[int, str], int]
    content: bytes


def read_header(connector: bytes, name: str) -> ConnectorHeader:
    """Raises ConfigError if the component is none of Rapidbyte's, or not of the form that its toolchains make."""
    if not is_component(connector):
        raise _unsupported(name, "it is no component: a core module must be made one (wasm-tools component new)")
    try:
        found = list(sections(connector))
        last = max((place for place, each in enumerate(found) if each.id == _IMPORTS), default=-1)
        reading = _HeaderReading(connector, name)
        for each in found[: last + 1]:
            reading.take(each)
        role = _role(_exports(connector, found), name)
    except WasmFormatError as error:
        raise _unsupported(name, str(error)) from error
    if reading.host is None:
        raise _unsupported(name, f"it imports no {interface_name('host')}")
    return ConnectorHeader(
        role, tuple(reading.imports), reading.host, reading.types, reading.type_numbers, bytes(reading.content)
    )


class _HeaderReading:
    def __init__(self, connector: bytes, name: str) -> None:
        self._connector = connector
        self._name = name
        self.imports: list[str] = []
        self.host: int | None = None
        self.types = 0
        self.type_numbers: dict[tuple[int, str], int] = {}
        self.content = bytearray()

    def take(self, part: WasmSection) -> None:
        reader = WasmReader(self._connector, part.body, part.end)
        if part.id == CUSTOM:
            return
        if part.id == _IMPORTS:
            self._take_imports(reader)
            return
        if part.id == _TYPES:
            self.types += self._count_of_types(reader, part)
        elif part.id == _ALIASES:
            self._take_aliases(reader)
        else:
            raise _unsupported(self._name, "it is composed already, or of a form that no known toolchain makes")
        self.content += self._connector[part.start : part.end]

    def _count_of_types(self, reader: WasmReader, part: WasmSection) -> int:
        """They are never looked at. Each has a byte at least, and the adapter's text grows with their number."""
        count = reader.number()
        if count > part.end - reader.position:
            raise _unsupported(self._name, f"it names {count:,} types, and they are cut off")
        return count

    def _take_aliases(self, reader: WasmReader) -> None:
        for _ in range(reader.number()):
            if (reader.byte(), reader.byte()) != (_SORT_TYPE, 0):
                raise _unsupported(self._name, "among its imports there is an alias of something that is no type")
            instance = reader.number()
            self.type_numbers[instance, reader.name()] = self.types
            self.types += 1

    def _take_imports(self, reader: WasmReader) -> None:
        for _ in range(reader.number()):
            start = reader.position
            if reader.byte() not in _PLAIN_NAME_FORMS:
                raise _unsupported(self._name, "the name of an import is of a form that is not known")
            imported, sort = reader.name(), reader.byte()
            if sort != _SORT_INSTANCE:
                raise _unsupported(self._name, f"its import {imported[:80]} is no instance")
            reader.number()
            if imported == interface_name("host"):
                self.host = len(self.imports)
                self.content += _EMPTY_INSTANCE
            else:
                self.content += section(_IMPORTS, b"\x01" + self._connector[start : reader.position])
            self.imports.append(imported)


def _exports(connector: bytes, found: Sequence[WasmSection]) -> list[str]:
    names = []
    for each in found:
        if each.id != _EXPORTS:
            continue
        reader = WasmReader(connector, each.body, each.end)
        for _ in range(reader.number()):
            reader.byte()
            names.append(reader.name())
            if reader.byte() == _SORT_CORE:
                reader.byte()
            reader.number()
            if reader.byte():  # A type follows, whose form nothing here needs to know.
                break
    return names


def _role(exported: Sequence[str], name: str) -> str:
    roles = [role for role in ROLES if interface_name(role) in exported]
    if len(roles) == 1:
        return roles[0]
    found = ", ".join(each[:80] for each in exported[:5]) or "nothing"
    wanted = " or ".join(map(interface_name, ROLES))
    raise _unsupported(name, f"it must export one of {wanted}; it exports {found}")


def _unsupported(name: str, found: str) -> ConfigError:
    return ConfigError(
        f"reading the component {name}",
        found,
        remedy=f"A connector is a component of {PACKAGE}@{VERSION}, one role in a file.",
    )
