"""Chunks in, runs and lines out: the same ones wherever the chunks are cut."""

import itertools
import re
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.staging.lines.demux import Demux, RecordLines
from tests.staging.conftest import SHAPE

_USERS = b'{"type":"RECORD","record":{"stream":"users","data":{"id":1},"emitted_at":1}}\n'
_SPACED = b'{"type": "RECORD", "record": {"stream": "users", "data": {"id": 1}, "emitted_at": 1}}\n'
_ORDERS = b'{"type":"RECORD","record":{"stream":"orders","data":{"x":"a"},"emitted_at":1}}\r\n'
_OTHER_ORDER = b'{"record":{"data":{"id":1},"stream":"users","emitted_at":1},"type":"RECORD"}\n'
_STATE = b'{"type":"STATE","state":{}}\n'
_CHATTER = b"hello\n\r\n\n"
_TRANSCRIPT = _USERS * 3 + _SPACED * 2 + _STATE + _ORDERS + _OTHER_ORDER + _USERS + _CHATTER + _ORDERS * 2


def _lines(items: Iterable[RecordLines | bytes]) -> Iterator[tuple[bytes | None, bytes]]:
    for item in items:
        if isinstance(item, RecordLines):
            yield from ((item.stream, line + b"\n") for line in bytes(item.lines).split(b"\n")[:-1])
        else:
            yield None, item


def _fed(chunks: Iterable[bytes]) -> list[tuple[bytes | None, bytes]]:
    demux = Demux(SHAPE)
    items = [item for chunk in chunks for item in demux.feed(chunk)]
    return list(_lines([*items, *demux.finish()]))


def _blanked(line: bytes) -> bytes:
    head = SHAPE.head.match(line)
    return SHAPE.blank_known_members(head[0]) + line[head.end() :] if head else line


_WHOLE = _fed([_TRANSCRIPT])


def test_runs_hold_whole_lines_of_one_stream() -> None:
    items = list(Demux(SHAPE).feed(_TRANSCRIPT))
    assert items[:4] == [
        RecordLines(b'"users"', None, _blanked(_USERS) * 3, 3),
        RecordLines(b'"users"', None, _blanked(_SPACED) * 2, 2),
        _STATE,
        RecordLines(b'"orders"', None, _blanked(_ORDERS), 1),
    ]


def test_the_members_that_the_head_made_known_are_blanked() -> None:
    (run,) = Demux(SHAPE).feed(_USERS * 2)
    assert isinstance(run, RecordLines)
    assert run.lines == b'{                "record":{                 "data":{"id":1},"emitted_at":1}}\n' * 2


def test_another_key_order_comes_as_a_line_of_its_own() -> None:
    assert (None, _OTHER_ORDER) in _WHOLE


def test_every_line_comes_out_once_and_in_order() -> None:
    assert b"".join(line for _, line in _WHOLE) == b"".join(map(_blanked, _TRANSCRIPT.splitlines(keepends=True)))


@pytest.mark.parametrize("size", [1, 2, 7, 80, 81, 1000])
def test_chunks_of_any_size_give_the_same_lines(size: int) -> None:
    assert _fed(_TRANSCRIPT[at : at + size] for at in range(0, len(_TRANSCRIPT), size)) == _WHOLE


@given(st.lists(st.integers(0, len(_TRANSCRIPT)), max_size=12))
def test_chunks_cut_anywhere_give_the_same_lines(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(_TRANSCRIPT)]
    assert _fed(_TRANSCRIPT[start:end] for start, end in itertools.pairwise(edges)) == _WHOLE


@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_bytes_come_out_as_they_went_in(junk: bytes, size: int) -> None:
    out = b"".join(line for _, line in _fed(junk[at : at + size] for at in range(0, len(junk), size)))
    assert out == (junk if not junk or junk.endswith(b"\n") else junk + b"\n")


def test_a_last_line_without_newline_gets_one() -> None:
    assert _fed([_USERS + _USERS.rstrip(b"\n")]) == [(b'"users"', _blanked(_USERS))] * 2


def test_a_run_has_the_namespace_of_its_head() -> None:
    head = re.compile(rb'\{"namespace":(?P<namespace>"[^"]*"|null),"stream":(?P<stream>"[^"]*")')
    assert [
        type(item) is RecordLines and item.namespace
        for item in Demux(SHAPE._replace(head=head)).feed(
            b'{"namespace":"a","stream":"s"}\n{"namespace":null,"stream":"s"}\n'
        )
    ] == [b'"a"', b"null"]


def test_a_record_of_many_chunks_comes_whole() -> None:
    value = b"x" * (30 << 20)
    line = _USERS.replace(b'"id":1', b'"id":"' + value + b'"')
    chunks = [line[at : at + (1 << 16)] for at in range(0, len(line), 1 << 16)]
    assert _fed([*chunks, _USERS]) == [(b'"users"', _blanked(line)), (b'"users"', _blanked(_USERS))]


def test_an_endless_line_is_refused_and_its_stream_named() -> None:
    demux = Demux(SHAPE, max_line_bytes=1000)
    with pytest.raises(ProtocolViolation) as caught:
        for _ in range(100):
            list(demux.feed(_USERS.rstrip(b"}\n") + b"x" * 50))
    assert caught.value.stream == "users"
    assert "1000 bytes" in caught.value.found


def test_an_endless_line_of_no_stream_is_refused_too() -> None:
    with pytest.raises(ProtocolViolation) as caught:
        list(Demux(SHAPE, max_line_bytes=10).feed(b"garbage without an end"))
    assert caught.value.stream is None


@given(
    st.lists(
        st.tuples(st.sampled_from([b"a", b"ab", b"b" * 70, b"b" * 71, b"c" * 2000]), st.integers(0, 90)), max_size=31
    ),
    st.integers(1, 400),
)
def test_a_run_is_as_long_as_its_lines_begin_alike(told: list[tuple[bytes, int]], size: int) -> None:
    lines = [b'{"type":"RECORD","record":{"stream":"%b","data":%d}}\n' % (name, 10**digits) for name, digits in told]
    text = b"".join(lines)
    out = b"".join(line for _, line in _fed(text[at : at + size] for at in range(0, len(text), size)))
    assert out == b"".join(map(_blanked, lines))

    expected: list[tuple[bytes, int]] = []
    for name, group in itertools.groupby(name for name, _ in told):
        alike = len(list(group))
        expected += [(b'"%b"' % name, alike)] if len(name) < 1000 else [(b'"%b"' % name, 1)] * alike
    assert [(run.stream, run.records) for run in Demux(SHAPE).feed(text) if isinstance(run, RecordLines)] == expected


def _by_stream(lines: Iterable[tuple[bytes | None, bytes]]) -> list[dict[bytes, list[bytes]] | bytes]:
    """What came of each stream before, between and behind the lines that are no records."""
    told: list[dict[bytes, list[bytes]] | bytes] = [{}]
    for stream, line in lines:
        if stream is None:
            told += [line, {}]
        else:
            told[-1].setdefault(stream, []).append(line)  # type: ignore[union-attr]  # the last one is such
    return told


_INTERLEAVED = {
    b"compact": (b'"users"', b'{"type":"RECORD","record":{"stream":"users","data":{"id":%d}}}\n'),
    b"spaced": (b'"users"', b'{"type": "RECORD", "record": {"stream": "users", "data": {"id": %d}}}\n'),
    b"long": (b'"%b"' % (b"n" * 90), b'{"type":"RECORD","record":{"stream":"%b","data":{"id":%%d}}}\n' % (b"n" * 90)),
    b"orders": (b'"orders"', b'{"type":"RECORD","record":{"stream":"orders","data":{"id":%d}}}\n'),
    b"state": (None, b'{"type":"STATE","state":%d}\n'),
}


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(sorted(_INTERLEAVED)), min_size=1, max_size=4), st.integers(1, 60)),
        max_size=6,
    ),
    st.integers(1, 20_000),
)
def test_interleaved_streams_keep_their_order_and_their_place_between_other_lines(
    told: list[tuple[list[bytes], int]], size: int
) -> None:
    kinds = [kind for pattern, times in told for kind in pattern * times]
    lines = [(_INTERLEAVED[kind][0], _INTERLEAVED[kind][1] % number) for number, kind in enumerate(kinds)]
    text = b"".join(line for _, line in lines)
    out = _fed(text[at : at + size] for at in range(0, len(text), size))
    assert _by_stream(out) == _by_stream((stream, _blanked(line)) for stream, line in lines)


def test_interleaved_streams_come_in_few_runs() -> None:
    turns = b"".join(
        b"".join(_INTERLEAVED[kind][1] % at for kind in (b"compact", b"orders", b"spaced")) for at in range(200)
    )
    assert sum(1 for _ in Demux(SHAPE).feed(turns)) < 10


def test_lines_whose_stream_is_not_certain_stay_where_they_came() -> None:
    turns = [_INTERLEAVED[kind][1] % at for at in range(100) for kind in (b"compact", b"orders")]
    uncertain = Demux(SHAPE, lambda stream, _: None if stream == b'"orders"' else stream)
    assert [line for _, line in _lines(uncertain.feed(b"".join(turns)))] == list(map(_blanked, turns))
