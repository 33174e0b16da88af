"""How Airbyte's records look on the wire, and whose they are.

A *run* is whole lines of one stream that begin with the very same bytes, up to the name of the key behind their stream.
These spellings make runs, each compact or with a space behind `:` and `,`:

    {"type":"RECORD","record":{"stream":"s","data":{        CDK 6; the namespace, if any, stands behind the data
    {"type":"RECORD","record":{"namespace":null,"stream":"s","data":{       older CDKs, Java
    {"type":"RECORD","record":{"stream":"s","namespace":"n","data":{
    {"record":{ any of these },"type":"RECORD"}             a run only where the line ends so: then the type is sure

Whatever else a record may look like (an escape in its name, other keys first) is told by `record_stream`. Where a
run matches, its word goes: `record_stream` reads the same groups, so the two cannot disagree.
"""

import re

import msgspec

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.raw_json import PLAIN_STRING, PLAIN_TEXT, PartError, members, value
from dagster_airbyte_proto.protocols.wire import RecordShape

_NAMESPACE = rb'"namespace": ?(?:null|' + PLAIN_STRING + rb")"

# The look-ahead finds the namespace on either side of the stream, so that one group holds it. The next key's name
# belongs to the head: else a line with no namespace would begin as a line with one behind the stream does.
_HEAD = (
    rb'\{(?P<typed>"type": ?"RECORD", ?)?+"record": ?\{'
    rb'(?=(?:"stream": ?' + PLAIN_STRING + rb', ?)?+(?:"namespace": ?(?P<namespace>null|' + PLAIN_STRING + rb"))?+)"
    rb"(?:" + _NAMESPACE + rb', ?)?+"stream": ?(?P<stream>' + PLAIN_STRING + rb")(?:, ?" + _NAMESPACE + rb")?+"
    rb', ?"(?!namespace")' + PLAIN_TEXT + rb'"'
)

SHAPE = RecordShape(
    head=re.compile(_HEAD),
    told=re.compile(rb'"type": ?"RECORD", ?|"stream": ?' + PLAIN_STRING + rb", ?"),
    type=("type",),
    tails=(b'"type":"RECORD"}\n', b'"type": "RECORD"}\n'),
    data=("record", "data"),
    emitted_at=("record", "emitted_at"),
    namespace=("record", "namespace"),
    stream=("record", "stream"),
    changes=("record", "meta", "changes"),
)


class _Record(msgspec.Struct):
    stream: str
    namespace: str | None = None


_decoder = msgspec.json.Decoder(_Record)


def run_stream(line: bytes, record: bytes | None) -> StreamId | None:
    """Whose record the line is when a run would take it; `line` has its newline. `record` tells a late namespace."""
    head = SHAPE.head_of(line, 0, len(line))
    if head is None:
        return None
    name = head["stream"][1:-1].decode()
    if head["namespace"] is None:
        named = record_stream(record) if record is not None else None
        return StreamId.of(name, named.namespace if named else None)
    return StreamId.of(name, None if head["namespace"] == b"null" else head["namespace"][1:-1].decode())


def record_stream(record: bytes) -> StreamId | None:
    """Whose record the value of `record` is; None when it does not say."""
    try:
        named = _decoder.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _scanned_stream(record)
    return StreamId.of(named.stream, named.namespace)


def _scanned_stream(record: bytes) -> StreamId | None:
    parts = members(record) or {}
    try:
        name, namespace = value(parts.get("stream", b"null")), value(parts.get("namespace", b"null"))
    except PartError:
        return None
    if not isinstance(name, str):
        return None
    return StreamId.of(name, namespace if isinstance(namespace, str) else None)
