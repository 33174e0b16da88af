"""How Singer's records look on the wire, and whose they are.

A *run* is whole lines of one stream that begin with the very same bytes, up to the brace of their data. What all
libraries for taps write makes runs, each compact or with a space behind `:` and `,`, the type in any case:

    {"type":"RECORD","stream":"s","record":{        singer-python, meltano's SDK with either of its writers

Whatever else a record may look like (an escape in its name, other keys first) is told by `record_stream`. Where a run
matches, its word goes: `record_stream` reads the same group, so the two cannot disagree.

Records name no namespace. When they were extracted they may say or not (`time_extracted`, RFC 3339).
"""

import re
from collections.abc import Mapping

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.raw_json import PLAIN_STRING, PartError, value
from dagster_airbyte_proto.protocols.wire import RecordShape

_HEAD = rb'\{"type": ?"(?i:record)", ?"stream": ?(?P<stream>' + PLAIN_STRING + rb'), ?"record": ?\{'

SHAPE = RecordShape(
    head=re.compile(_HEAD),
    told=re.compile(rb'"(?:type|stream)": ?' + PLAIN_STRING + rb", ?"),
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
    """Whose record the line is when a run would take it; `line` has its newline."""
    head = SHAPE.head_of(line, 0, len(line))
    return StreamId.of(head["stream"][1:-1].decode()) if head else None


def named_stream(parts: Mapping[str, bytes]) -> StreamId:
    """Whose message it is of which these are the members. Raises PartError when it does not say."""
    name = value(parts.get("stream", b"null"))
    if not isinstance(name, str) or not name:
        raise PartError("the message names no stream")
    return StreamId.of(name)
