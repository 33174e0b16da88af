"""The footer of a Parquet file, as it says which groups of columns are VARIANTs: pyarrow has no word for that.

A footer is a struct of Thrift's in its compact protocol, one field after the other without lengths or places. So what a
group lacks can be put in where its description ends, and nothing else changes. Only the description of the columns is
gone through, which is the second field of the footer.
"""

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

_MAGIC = b"PAR1"
_STOP, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 3, 7, 8, 9, 10, 12
_TRUTHS, _NUMBERS = (1, 2), (4, 5, 6)
# In Parquet's FileMetaData and SchemaElement.
_SCHEMA, _FIELD_ID, _LOGICAL_TYPE = 2, 9, 10
# The rest of a field whose number came before: a LogicalType whose field 16, VARIANT, has 1 for its version.
_VARIANT = bytes([_STRUCT, 16 << 1, 1 << 4 | _BYTE, 1, _STOP, _STOP])


class TellingFile:
    """A file that Parquet is written to, whose end is held back until it tells of the VARIANTs, by their field ids."""

    def __init__(self, sink: pa.NativeFile, ids: Collection[int]) -> None:
        self._sink = sink
        self._ids = ids
        self._held: bytearray | None = None
        self.closed = False

    def write(self, data: bytes) -> int:
        if self._held is None:
            return int(self._sink.write(data))
        self._held += data
        return len(data)

    def tell(self) -> int:
        return int(self._sink.tell()) + len(self._held or b"")

    def flush(self) -> None:
        """The sink does as it likes."""

    def close(self) -> None:
        """The sink is closed by itself."""

    def end(self, writer: pq.ParquetWriter) -> None:
        """Closes the writer, which leaves the footer."""
        self._held = bytearray()
        writer.close()
        held, self._held = bytes(self._held), None
        start = len(held) - 8 - int.from_bytes(held[-8:-4], "little")
        footer = annotated(held[start:-8], self._ids)
        self._sink.write(held[:start] + footer + len(footer).to_bytes(4, "little") + _MAGIC)


def annotated(footer: bytes, ids: Collection[int]) -> bytes:
    """With the groups of these field ids as VARIANTs."""
    made, done = [], 0
    for at, last_field, field_id in _elements(footer):
        if field_id in ids:
            made += [footer[done:at], bytes([_LOGICAL_TYPE - last_field << 4 | _STRUCT]), _VARIANT]
            done = at
    return b"".join([*made, footer[done:]])


def _elements(footer: bytes) -> Iterator[tuple[int, int, int]]:
    """Of each column and group: where its description ends, the last field in that, and its field id."""
    reader = _Reader(footer)
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


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Each field's number and type, up to the end of a struct. The value is to be read in between."""
        number = 0
        while (header := self._byte()) != _STOP:
            number = number + (header >> 4) if header >> 4 else self.signed()
            yield number, header & 0xF

    def list_header(self) -> tuple[int, int]:
        """How many there are, and of which type."""
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
