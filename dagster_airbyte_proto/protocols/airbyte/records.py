"""The format of Airbyte's record lines, and the stream that a record belongs to.

A *run* is a sequence of whole lines of one stream that begin with exactly the same bytes, up to the name of the key
after the stream. These spellings form runs, each compact or with a space after `:` and `,`:

    {"type":"RECORD","record":{"stream":"s","data":{        CDK 6; the namespace, if any, comes after the data
    {"type":"RECORD","record":{"namespace":null,"stream":"s","data":{       older CDKs, Java
    {"type":"RECORD","record":{"stream":"s","namespace":"n","data":{
    {"record":{ any of these },"type":"RECORD"}             a run only if the line ends like this: it proves the type

`record_stream` reads every other record (an escape in the name, other keys first). If a line fits a run, the run
decides the stream: `run_stream` reads the same groups of the head as the demultiplexer, so the two cannot disagree.
"""

import re

import msgspec

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.raw_json import PLAIN_STRING, PLAIN_TEXT, MemberError, members, value
from dagster_airbyte_proto.protocols.wire import RecordWire

_NAMESPACE = rb'"namespace": ?(?:null|' + PLAIN_STRING + rb")"

# The look-ahead finds the namespace on either side of the stream, so that one group holds it. The head includes the
# name of the next key: otherwise a line without a namespace would begin like a line with the namespace after the
# stream.
_HEAD = (
    rb'\{(?P<typed>"type": ?"RECORD", ?)?+"record": ?\{'
    rb'(?=(?:"stream": ?' + PLAIN_STRING + rb', ?)?+(?:"namespace": ?(?P<namespace>null|' + PLAIN_STRING + rb"))?+)"
    rb"(?:" + _NAMESPACE + rb', ?)?+"stream": ?(?P<stream>' + PLAIN_STRING + rb")(?:, ?" + _NAMESPACE + rb")?+"
    rb', ?"(?!namespace")' + PLAIN_TEXT + rb'"'
)

RECORD_WIRE = RecordWire(
    head=re.compile(_HEAD),
    known_members=re.compile(rb'"type": ?"RECORD", ?|"stream": ?' + PLAIN_STRING + rb", ?"),
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
    """The stream of a line that fits a run; None for any other line.

    `line` ends with its newline. `record` is the value of its `record` member: it holds a namespace after the data.
    """
    head = RECORD_WIRE.match_head(line, 0, len(line))
    if head is None:
        return None
    name = head["stream"][1:-1].decode()
    if head["namespace"] is None:
        named = record_stream(record) if record is not None else None
        return StreamId.of(name, named.namespace if named else None)
    return StreamId.of(name, None if head["namespace"] == b"null" else head["namespace"][1:-1].decode())


def record_stream(record: bytes) -> StreamId | None:
    """The stream that the value of `record` names; None if it names none."""
    try:
        named = _decoder.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _scanned_stream(record)
    return StreamId.of(named.stream, named.namespace)


def _scanned_stream(record: bytes) -> StreamId | None:
    parts = members(record) or {}
    try:
        name, namespace = value(parts.get("stream", b"null")), value(parts.get("namespace", b"null"))
    except MemberError:
        return None
    if not isinstance(name, str):
        return None
    return StreamId.of(name, namespace if isinstance(namespace, str) else None)
