from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.launchers.stderr_tail import StderrTail


@given(text=st.binary(max_size=200).map(lambda text: text.replace(b"\r", b"")), cuts=st.lists(st.integers(0, 200)))
def test_however_it_is_cut_the_lines_are_the_same(text: bytes, cuts: list[int]) -> None:
    told: list[bytes] = []
    tail = StderrTail(told.append)
    borders = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in pairwise(borders):
        tail.feed(text[start:end])
    tail.end()
    expected = text.split(b"\n")
    assert told == (expected if expected[-1] else expected[:-1])
    assert tail.lines() == tuple(line.decode(errors="replace") for line in told[-50:])


def test_only_the_last_fifty_lines_are_kept() -> None:
    tail = StderrTail()
    tail.feed(b"".join(b"%d\n" % number for number in range(200)))
    assert tail.lines() == tuple(map(str, range(150, 200)))


def test_a_long_line_is_cut_for_the_listener_too() -> None:
    told: list[bytes] = []
    tail = StderrTail(told.append)
    for _ in range(100):
        tail.feed(b"words " * 10_000)
    tail.feed(b"\nnext\r\n")
    assert [len(line) for line in told] == [16_379 + len(" (cut)"), 4]
    assert [len(line) for line in tail.lines()] == [1997 + len(" (cut)"), 4]


@pytest.mark.parametrize("before", [1995, 16 * 1024 - 5])
def test_no_part_of_a_word_is_left_where_a_line_is_cut(before: int) -> None:
    """It may be a secret, which is found whole alone."""
    told: list[bytes] = []
    tail = StderrTail(told.append)
    tail.feed(b"." * (before - 1) + b' "hunter22-of-the-shop"}\nnext\n')
    assert b"hunt" not in told[0] or b"hunter22-of-the-shop" in told[0]
    assert "hunt" not in tail.lines()[0]
    assert tail.lines()[0].endswith(" (cut)")
