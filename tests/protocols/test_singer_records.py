"""Both parsers give the same rows for a tap's records."""

import json

from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.protocols.events import RecordLine
from dagster_airbyte_proto.protocols.singer.source import SingerSource
from dagster_airbyte_proto.staging.lines.demux import Demux, RecordLines

_source = SingerSource()
_spacings = st.sampled_from([(",", ":"), (", ", ": "), (",", ": ")])
_kinds = st.sampled_from(["RECORD", "record", "Record"])


@given(name=st.text(min_size=1, max_size=8), kind=_kinds, spacing=_spacings, escaped=st.booleans(), data=st.data())
def test_both_parsers_name_the_same_stream_however_a_line_is_spelt(
    name: str, kind: str, spacing: tuple[str, str], escaped: bool, data: st.DataObject
) -> None:
    parts = data.draw(
        st.permutations([("type", kind), ("stream", name), ("record", {"stream": "x"}), ("time_extracted", "t")])
    )
    text = json.dumps(dict(parts), separators=spacing, ensure_ascii=escaped)
    try:
        line = text.encode() + b"\n"
    except UnicodeEncodeError:
        line = json.dumps(dict(parts), separators=spacing).encode() + b"\n"
    event = _source.event(line)
    assert isinstance(event, RecordLine)
    for item in Demux(_source.record_wire).feed(line):
        if isinstance(item, RecordLines):
            assert json.loads(item.stream) == event.stream.name == name
        else:
            assert item == line


def test_what_libraries_write_comes_in_runs() -> None:
    lines = b""
    for separators in ((",", ":"), (", ", ": ")):
        for stream in ("users", "orders"):
            for number in range(3):
                record = {"type": "RECORD", "stream": stream, "record": {"id": number}, "time_extracted": f"{number}"}
                lines += json.dumps(record, separators=separators).encode() + b"\n"
    runs = [
        (json.loads(item.stream), item.records)
        for item in Demux(_source.record_wire).feed(lines)
        if isinstance(item, RecordLines)
    ]
    assert runs == [("users", 3), ("orders", 3)] * 2
