"""The format of Singer's record lines, and the stream that a record belongs to.

A *run* is a sequence of whole lines of one stream that begin with exactly the same bytes, up to the brace of their
data. The lines of all tap libraries form runs, compact or with a space after `:` and `,`, the type in any case:

    {"type":"RECORD","stream":"s","record":{        singer-python, meltano's SDK with either of its writers

`stream_of_message` reads every other record (an escape in the name, other keys first). If a line fits a run, the run
decides the stream: `run_stream` reads the same group of the head as the demultiplexer, so the two cannot disagree.

Records have no namespace. The time of extraction is optional (`time_extracted`, RFC 3339).
"""

import re
from collections.abc import Mapping

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.raw_json import PLAIN_STRING, MemberError, value
from dagster_airbyte_proto.protocols.wire import RecordWire

_HEAD = rb'\{"type": ?"(?i:record)", ?"stream": ?(?P<stream>' + PLAIN_STRING + rb'), ?"record": ?\{'

RECORD_WIRE = RecordWire(
    head=re.compile(_HEAD),
    known_members=re.compile(rb'"(?:type|stream)": ?' + PLAIN_STRING + rb", ?"),
    type=("type",),
    data=("record",),
    emitted_at=("time_extracted",),
    namespace=(),
    stream=("stream",),
    changes=(),
    emitted_at_is_text=True,
    version=("version",),
)


def run_stream(line: bytes) -> StreamId | None:
    """The stream of a line that fits a run; None for any other line. `line` ends with its newline."""
    head = RECORD_WIRE.match_head(line, 0, len(line))
    return StreamId.of(head["stream"][1:-1].decode()) if head else None


def stream_of_message(parts: Mapping[str, bytes]) -> StreamId:
    """The stream that the message with these members names. Raises MemberError if it names none."""
    name = value(parts.get("stream", b"null"))
    if not isinstance(name, str) or not name:
        raise MemberError("the message names no stream")
    return StreamId.of(name)
