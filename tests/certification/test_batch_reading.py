"""What is found in the Arrow batches of a read."""

import io

import pyarrow as pa

from dagster_airbyte_proto.certification.reads.batch_reading import BatchCollector
from dagster_airbyte_proto.certification.watching.secret_watch import SecretWatch
from dagster_airbyte_proto.protocols.conversation import ReadRequest
from dagster_airbyte_proto.protocols.rapidbyte.messages import line
from dagster_airbyte_proto.protocols.rapidbyte.source import RapidbyteSource
from tests.staging.conftest import plan


def test_a_column_with_values_that_arrow_calls_invalid_is_named() -> None:
    no_text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    batch = pa.record_batch({"name": no_text, "at": pa.array([86_400], pa.int32()).view(pa.time32("s")), "id": [1]})
    written = io.BytesIO()
    with pa.ipc.new_stream(written, batch.schema) as stream:
        stream.write_batch(batch)
    planned = plan({})
    request = ReadRequest({}, (planned,), (), 1)
    collector = BatchCollector(RapidbyteSource(), request, SecretWatch(), lambda _: None, {})
    sent = line("batch", stream=planned.id.name, bytes=len(written.getvalue())) + written.getvalue()
    assert len(list(collector.feed(sent))) == 1
    assert [fault.partition(":")[0] for fault in collector.streams[planned.id].misfits] == ["name", "at"]
