"""Lines and Arrow batches in one output: fed whole, in pieces, cut off, and broken."""

import io
from typing import Any

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
    ],
)
def test_what_is_no_batch_is_a_violation(output: bytes, found: str) -> None:
    with pytest.raises(ProtocolViolation, match=found):
        _demuxed(output, 1 << 20)


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
