"""The Arrow batches that a component gets."""

import pyarrow as pa
import pytest

from dagster_airbyte_proto.encoding.arrow_frames import arrow_frame

_TABLE = pa.table(
    {
        "number": pa.array(range(1000), pa.int64()),
        "text": pa.array([None if number % 3 else "é" * (number % 50) for number in range(1000)], pa.string()),
        "flag": pa.array([number % 7 == 0 for number in range(1000)], pa.bool_()),
        "kind": pa.array([str(number % 4) for number in range(1000)]).dictionary_encode(),
        "none": pa.nulls(1000),
        "price": pa.array(range(1000), pa.int64()).cast(pa.decimal128(24, 2)),
    }
)


@pytest.mark.parametrize(("start", "rows"), [(0, 1000), (13, 101), (999, 1), (5, 0)])
def test_a_frame_is_a_whole_stream_of_its_rows_alone(start: int, rows: int) -> None:
    [batch] = _TABLE.slice(start, rows).to_batches() or [pa.RecordBatch.from_pylist([], _TABLE.schema)]
    frame = arrow_frame(batch)
    assert frame.readonly
    with pa.ipc.open_stream(frame) as stream:
        read = stream.read_all()
    read.validate(full=True)
    assert read.to_pylist() == batch.to_pylist()
    assert bytes(frame[-8:]) == b"\xff\xff\xff\xff\0\0\0\0"
    if rows < 200:
        assert len(frame) < 30_000
