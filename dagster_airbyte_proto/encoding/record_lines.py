"""The record lines of a batch: the object of each row within the protocol's own frame, as one run of bytes."""

import json
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.encoding.json_text import TEXT, joined, literal, object_texts
from dagster_airbyte_proto.protocols.raw_json import members


class RecordFrame(NamedTuple):
    """The text before and after the JSON object of a record, in a protocol's line for one stream."""

    before: str
    after: str


def record_lines(batch: pa.RecordBatch, frame: RecordFrame, *, omits_nulls: bool = False) -> memoryview:
    """Returns the lines of all rows of a batch, each with its newline."""
    if not batch.num_rows:
        return memoryview(b"")
    around = (frame.before, f"{frame.after}\n")
    return _bytes_of(
        object_texts(batch.schema.names, batch.columns, batch.num_rows, around=around, omits_nulls=omits_nulls)
    )


def record_objects(batch: pa.RecordBatch, *, omits_nulls: bool = False) -> pa.Array:
    """Returns the JSON object of each row."""
    return object_texts(batch.schema.names, batch.columns, batch.num_rows, omits_nulls=omits_nulls)


def framed_lines(objects: pa.Array, frame: RecordFrame) -> memoryview:
    """Returns the lines of records that are JSON text already."""
    return _bytes_of(joined(literal(frame.before), objects.cast(TEXT), literal(f"{frame.after}\n")))


def without_nulls(objects: pa.Array) -> pa.Array:
    """Returns JSON objects without those of their own members that are null. All others keep their bytes."""
    texts = objects.cast(pa.binary())
    may_have = pc.fill_null(pc.match_substring(texts, pattern="null"), False)
    if not pc.any(may_have).as_py():
        return objects
    pairs = zip(texts.to_pylist(), may_have.to_pylist(), strict=True)
    left = [_without_null_members(text) if is_candidate else text for text, is_candidate in pairs]
    return pa.array(left, pa.binary()).cast(objects.type, safe=False)  # What is no UTF-8 is found out later.


def _without_null_members(text: bytes) -> bytes:
    parts = members(text)
    if parts is None or b"null" not in parts.values():
        return text
    names = {name: json.dumps(name, ensure_ascii=False).encode("utf-8", "replace") for name in parts}
    return b"{" + b",".join(names[name] + b":" + part for name, part in parts.items() if part != b"null") + b"}"


def _bytes_of(texts: pa.Array) -> memoryview:
    """Returns the texts one after the other. They share Arrow's memory: nothing is copied."""
    if not len(texts):
        return memoryview(b"")
    _, offsets, data = texts.buffers()
    places = np.frombuffer(offsets, np.int64)
    return memoryview(data)[places[texts.offset] : places[texts.offset + len(texts)]]
