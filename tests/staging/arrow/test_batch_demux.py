"""Lines and Arrow batches in one output: fed whole, in pieces, cut off, and broken."""

import io
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.rapidbyte.messages import line
from dagster_airbyte_proto.staging.arrow.batch_demux import ArrowContent, BatchDemux
from dagster_airbyte_proto.staging.arrow.ipc_messages import record_batches

_ROWS = pa.record_batch({"id": [1, 2, 3], "name": ["a", None, "c\n"]})
_WORDS = pa.record_batch({"word": pa.array(["x", "y", "x"]).dictionary_encode()})
_TWICE = pa.record_batch([pa.array([1]), pa.array([2])], ["id", "id"])
_NO_COLUMNS = pa.record_batch([pa.nulls(1 << 28)], ["v"]).select([])


def _ipc(*batches: pa.RecordBatch, **options: Any) -> bytes:
    written = io.BytesIO()
    with pa.ipc.new_stream(written, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return written.getvalue()


def _sent(content: bytes, stream: str = "users") -> bytes:
    return line("batch", stream=stream, bytes=len(content)) + content


_LOG = line("log", message="before {\n}")
_OUTPUT = _LOG + _sent(_ipc(_ROWS, _ROWS)) + _sent(_ipc(_WORDS), "words") + _LOG + b"last"


def _demuxed(output: bytes, size: int) -> list[Any]:
    demux = BatchDemux()
    found = [item for start in range(0, len(output), size) for item in demux.feed(output[start : start + size])]
    return [_read(item) for item in (*found, *demux.finish())]


def _read(item: ArrowContent | bytes) -> Any:
    return item if isinstance(item, bytes) else (item.stream, record_batches(item.content, item.stream))


@pytest.mark.parametrize("size", [1, 7, 1000, len(_OUTPUT)])
def test_lines_and_batches_are_the_same_however_they_are_cut(size: int) -> None:
    first, rows, words, second, last = _demuxed(_OUTPUT, size)
    assert (first, second, last) == (_LOG, _LOG, b"last")
    assert rows == (StreamId.of("users"), (_ROWS, _ROWS))
    assert words == (StreamId.of("words"), (_WORDS,))


@pytest.mark.parametrize("end", [b"", bytes(16)], ids=["ends", "padded"])
def test_streams_one_behind_the_other_have_all_their_batches(end: bytes) -> None:
    ((_, batches),) = _demuxed(_sent(_ipc(_ROWS, _ROWS) + _ipc(_ROWS.slice(0, 1)) + _ipc(_WORDS) + end), 1 << 20)
    assert batches == (_ROWS, _ROWS, _ROWS.slice(0, 1), _WORDS)


def test_a_batch_that_comes_as_one_chunk_is_not_copied() -> None:
    content = _ipc(_ROWS)
    demux = BatchDemux()
    assert list(demux.feed(line("batch", stream="users", bytes=len(content)))) == []
    (rows,) = demux.feed(content)
    _, (batch,) = _read(rows)
    begin = pa.py_buffer(content).address
    assert begin <= batch["id"].buffers()[1].address < begin + len(content)


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (_sent(_ipc(_ROWS))[:-1], "a batch ends after"),
        (line("batch", stream="users", bytes=-1), "a batch of -1 bytes"),
        (line("batch", stream="users", bytes=0), "a batch of 0 bytes"),
        (line("batch", stream="users", bytes=1 << 40), "a batch of 1099511627776 bytes"),
        (_sent(b"no arrow at all"), "reading an Arrow batch"),
        (_sent(_ipc(_ROWS)[:-200]), "reading an Arrow batch"),
        (_sent(_ipc(_ROWS, compression="zstd")), "its buffers are compressed"),
        (_sent(_ipc(_WORDS, compression="lz4")), "its buffers are compressed"),
        (_sent(_ipc(_ROWS, metadata_version=pa.ipc.MetadataVersion.V4)), "its metadata is of before Arrow 1.0"),
        (_sent(_ipc(_ROWS) + b"no arrow at all"), "reading an Arrow batch"),
        (_sent(_ipc(_TWICE)), "several columns of one name: id"),
        (_sent(_ipc(_NO_COLUMNS)), "rows unpack to"),
    ],
)
def test_what_is_no_batch_is_a_violation(output: bytes, found: str) -> None:
    with pytest.raises(ProtocolViolation, match=found):
        _demuxed(output, 1 << 20)


def test_an_offset_behind_the_bytes_that_came_reads_nothing_of_our_memory() -> None:
    days = pa.array([0, 1, 2]).view(pa.date64())
    content = _ipc(pa.record_batch({"name": ["sixteen letters.", "", ""], "day": days}))
    sent, broken = (struct.pack("<iiii", 0, *offsets) for offsets in ((16, 16, 16), (3_000_000, 3_000_000, 16)))
    assert content.count(sent) == 1
    with pytest.raises(ProtocolViolation, match="reading an Arrow batch"):
        _demuxed(_sent(content.replace(sent, broken)), 1 << 20)


_OFF_MIDNIGHT = pa.array([0, 1]).view(pa.date64())
_NO_TEXT = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())


@pytest.mark.parametrize(
    "array",
    [
        _OFF_MIDNIGHT,
        pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), _OFF_MIDNIGHT),
        pa.LargeListArray.from_arrays(pa.array([0, 2], pa.int64()), _OFF_MIDNIGHT),
        pa.StructArray.from_arrays([_OFF_MIDNIGHT], ["at"]),
        pa.DictionaryArray.from_arrays(pa.array([1, 0]), _OFF_MIDNIGHT),
        pa.array([86_400], pa.int32()).view(pa.time32("s")),
        pa.array([-1]).view(pa.time64("ns")),
        pa.FixedSizeListArray.from_arrays(_OFF_MIDNIGHT, 2),
        pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), _NO_TEXT, _NO_TEXT),
        pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([b"\xff"])).view(
            pa.run_end_encoded(pa.int32(), pa.string())
        ),
        pa.ListViewArray.from_arrays(pa.array([0], pa.int32()), pa.array([1], pa.int32()), _NO_TEXT),
        pa.StructArray.from_arrays([pa.ExtensionArray.from_storage(pa.json_(), _NO_TEXT)], ["json"]),
        pa.array([10**9]).view(pa.decimal64(5, 2)),
    ],
    ids=lambda array: str(array.type)[:20],
)
def test_a_value_that_arrow_calls_invalid_is_no_fault_of_its_batch(array: pa.Array) -> None:
    sent = pa.record_batch([array, pa.array(["a"] * len(array))], ["day", "name"])
    [(_, batches)] = [each for each in _demuxed(_sent(_ipc(sent)), 1 << 20) if isinstance(each, tuple)]
    assert [batch.schema for batch in batches] == [sent.schema]
    with pytest.raises(ProtocolViolation):
        record_batches(_ipc(sent), StreamId.of("s"), with_valid_values=True)


_MANY = 1 << 21
_TEXT = pa.array(["x" * 1000])
_, _VIEW, _VIEWED = _TEXT.cast(pa.string_view()).buffers()


@pytest.mark.parametrize(
    "array",
    [
        pa.nulls(2**31 - 1),
        pa.nulls(_MANY, pa.list_(pa.null(), 100)),
        pa.DictionaryArray.from_arrays(np.zeros(_MANY, np.int8), _TEXT),
        pa.RunEndEncodedArray.from_arrays(pa.array([_MANY], pa.int32()), _TEXT),
        pa.Array.from_buffers(pa.string_view(), _MANY, [None, pa.py_buffer(_VIEW.to_pybytes() * _MANY), _VIEWED]),
        pa.StructArray.from_arrays([pa.nulls(_MANY)], ["x" * 1000]),
    ],
    ids=lambda array: str(array.type)[:20],
)
def test_a_batch_whose_values_would_fill_the_memory_is_a_violation(array: pa.Array) -> None:
    assert _demuxed(_sent(_ipc(pa.record_batch([array.slice(0, 1000)], ["v"]))), 1 << 20)
    with pytest.raises(ProtocolViolation, match="rows unpack to"):
        _demuxed(_sent(_ipc(pa.record_batch([array], ["v"]))), 1 << 28)


@given(st.binary(max_size=60), st.integers(0, 900))
def test_any_bytes_are_items_or_a_violation(junk: bytes, place: int) -> None:
    content = _ipc(_ROWS)
    broken = content[:place] + junk + content[place + len(junk) :]
    for output in (junk, _OUTPUT + junk, _sent(broken)):
        try:
            for item in _demuxed(output, 100):
                assert isinstance(item, bytes | tuple)
        except ProtocolViolation:
            pass
