"""Adds the logical type VARIANT to the footer of a Parquet file, because pyarrow cannot write it.

A footer is a Thrift struct in the compact protocol: one field after the other, without lengths or offsets. So a field
can be inserted at the end of a group's description, and nothing else changes. Only the schema is read, which is the
second field of the footer.
"""

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

_MAGIC = b"PAR1"
_STOP, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 3, 7, 8, 9, 10, 12
_TRUTHS, _NUMBERS = (1, 2), (4, 5, 6)
# Field numbers of Parquet's FileMetaData and SchemaElement.
_SCHEMA, _FIELD_ID, _LOGICAL_TYPE = 2, 9, 10
# A LogicalType whose field 16, VARIANT, has specification version 1. The header of the field itself comes before.
_VARIANT = bytes([_STRUCT, 16 << 1, 1 << 4 | _BYTE, 1, _STOP, _STOP])


class VariantFooterWriter:
    """A sink for pyarrow's Parquet writer that marks the groups with these field ids as VARIANTs in the footer.

    It passes all bytes on, except the footer: `finish` keeps it back, changes it and then writes it.
    """

    def __init__(self, sink: pa.NativeFile, variant_field_ids: Collection[int]) -> None:
        self._sink = sink
        self._variant_field_ids = variant_field_ids
        self._footer_buffer: bytearray | None = None
        self.closed = False

    def write(self, data: bytes) -> int:
        if self._footer_buffer is None:
            return int(self._sink.write(data))
        self._footer_buffer += data
        return len(data)

    def tell(self) -> int:
        return int(self._sink.tell()) + len(self._footer_buffer or b"")

    def flush(self) -> None:
        """Does nothing: the underlying sink flushes itself."""

    def close(self) -> None:
        """Does nothing: the caller closes the underlying sink."""

    def finish(self, writer: pq.ParquetWriter) -> None:
        """Closes the writer, which writes its footer, and writes the footer with the VARIANTs marked."""
        self._footer_buffer = bytearray()
        writer.close()
        footer_bytes, self._footer_buffer = bytes(self._footer_buffer), None
        start = len(footer_bytes) - 8 - int.from_bytes(footer_bytes[-8:-4], "little")
        footer = annotate_variants(footer_bytes[start:-8], self._variant_field_ids)
        self._sink.write(footer_bytes[:start] + footer + len(footer).to_bytes(4, "little") + _MAGIC)


def annotate_variants(footer: bytes, variant_field_ids: Collection[int]) -> bytes:
    """Returns the footer with the groups of these field ids marked as VARIANTs."""
    made, done = [], 0
    for at, last_field, field_id in _schema_elements(footer):
        if field_id in variant_field_ids:
            made += [footer[done:at], bytes([_LOGICAL_TYPE - last_field << 4 | _STRUCT]), _VARIANT]
            done = at
    return b"".join([*made, footer[done:]])


def _schema_elements(footer: bytes) -> Iterator[tuple[int, int, int]]:
    """Yields, for each column and group: the end of its description, the number of its last field, and its field id."""
    reader = _ThriftReader(footer)
    for field, kind in reader.fields():
        if field != _SCHEMA:
            reader.skip(kind)
            continue
        for _ in range(reader.list_header()[0]):
            last, field_id = 0, -1
            for last, inside in reader.fields():
                if last == _FIELD_ID:
                    field_id = reader.signed()
                else:
                    reader.skip(inside)
            yield reader.at - 1, last, field_id
        return


class _ThriftReader:
    """Reads Thrift's compact protocol, as far as a Parquet footer uses it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yields the number and type of each field of a struct. The caller must read or skip the value in between."""
        number = 0
        while (header := self._byte()) != _STOP:
            number = number + (header >> 4) if header >> 4 else self.signed()
            yield number, header & 0xF

    def list_header(self) -> tuple[int, int]:
        """Reads the header of a list: the number of elements and their type."""
        header = self._byte()
        return self._unsigned() if header >> 4 == 0xF else header >> 4, header & 0xF

    def signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)

    def skip(self, kind: int) -> None:
        if kind in _NUMBERS:
            self._unsigned()
        elif kind == _BINARY:
            size = self._unsigned()
            self.at += size
        elif kind == _STRUCT:
            for _, inside in self.fields():
                self.skip(inside)
        elif kind in (_LIST, _SET):
            count, inside = self.list_header()
            for _ in range(count):
                self.skip(_BYTE if inside in _TRUTHS else inside)
        elif kind not in _TRUTHS:
            self.at += {_BYTE: 1, _DOUBLE: 8}[kind]

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _unsigned(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value, shift = value | (byte & 0x7F) << shift, shift + 7
        return value | byte << shift
