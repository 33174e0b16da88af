"""Rows as a stream of Arrow's IPC format, without any package: a component has none that is compiled for it.

The format's metadata are flatbuffers. Each field of a table gets eight bytes here, also a small one: so all of them are
aligned, and a table needs no thought.
"""

import struct
from array import array
from itertools import accumulate

INT64, FLOAT64, TIMESTAMP_MICROS, UTF8 = "Int64", "Float64", "TimestampMicros", "Utf8"
"""The kinds of columns, by the names that `discover` gives them."""

_TYPES = {INT64: (2, (64, 1)), FLOAT64: (3, (2,)), TIMESTAMP_MICROS: (10, (2,)), UTF8: (5, ())}
_SCHEMA, _BATCH = 1, 3
_CONTINUES = b"\xff\xff\xff\xff"


def arrow_stream(columns, rows):
    """The schema, one batch and the end. `columns` are names and kinds, `rows` tuples of their values; None is NULL."""
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    nodes, buffers, body = [], [], bytearray()
    for (_, kind), column in zip(columns, values, strict=True):
        nodes.append((len(rows), column.count(None)))
        for part in _buffers(kind, column):
            buffers.append((len(body), len(part)))
            body += part + bytes(-len(part) % 8)
    return b"".join(
        (_schema_message(columns), _batch_message(len(rows), nodes, buffers, len(body)), body, _CONTINUES, bytes(4))
    )


def _buffers(kind, column):
    is_valid = [value is not None for value in column]
    yield b"" if all(is_valid) else _bits(is_valid)
    if kind == UTF8:
        texts = [b"" if value is None else value.encode() for value in column]
        yield array("i", accumulate(map(len, texts), initial=0)).tobytes()
        yield b"".join(texts)
    else:
        yield array("d" if kind == FLOAT64 else "q", [0 if value is None else value for value in column]).tobytes()


def _bits(flags):
    return sum(1 << place for place, flag in enumerate(flags) if flag).to_bytes((len(flags) + 7) // 8, "little")


def _schema_message(columns):
    fields = []
    for name, kind in columns:
        number, parameters = _TYPES[kind]
        fields.append(_table(_text(name), 1, number, _table(*parameters), None, _vector([])))
    return _message(_SCHEMA, _table(0, _vector(fields)), 0)


def _batch_message(rows, nodes, buffers, size):
    return _message(_BATCH, _table(rows, _structs(nodes), _structs(buffers)), size)


def _message(kind, header, body_size):
    metadata = struct.pack("<II", 8 + _vtable_size(4), 0) + _table(4, kind, header, body_size).placed()
    return _CONTINUES + struct.pack("<I", len(metadata)) + metadata


class _Node:
    """A part of a flatbuffer. `entry` is where in its bytes a reference to it leads."""

    def __init__(self, content, entry, children=()):
        self.content, self.entry, self.children = content, entry, children

    def placed(self):
        """Its bytes with those of its children behind them, in multiples of eight."""
        out = bytearray(self.content)
        out += bytes(-len(out) % 8)
        for place, child in self.children:
            struct.pack_into("<I", out, place, len(out) + child.entry - place)
            out += child.placed()
        return bytes(out)


def _vtable_size(fields):
    return (4 + 2 * fields + 7) // 8 * 8


def _table(*fields):
    """A table of numbers and nodes; None leaves a field out."""
    before, size = _vtable_size(len(fields)), 8 + 8 * len(fields)
    places = [0 if field is None else 8 + 8 * number for number, field in enumerate(fields)]
    content = bytearray(struct.pack(f"<HH{len(fields)}H", 4 + 2 * len(fields), size, *places))
    content += bytes(before - len(content)) + struct.pack("<iI", before, 0)
    content += b"".join(struct.pack("<q", field if isinstance(field, int) else 0) for field in fields)
    children = [(before + 8 + 8 * number, field) for number, field in enumerate(fields) if isinstance(field, _Node)]
    return _Node(content, before, children)


def _vector(nodes):
    content = struct.pack("<II", 0, len(nodes)) + bytes(4 * len(nodes))
    return _Node(content, 4, [(8 + 4 * number, node) for number, node in enumerate(nodes)])


def _structs(pairs):
    return _Node(struct.pack("<II", 0, len(pairs)) + b"".join(struct.pack("<qq", *pair) for pair in pairs), 4)


def _text(text):
    content = text.encode()
    return _Node(struct.pack("<II", 0, len(content)) + content + b"\0", 4)
