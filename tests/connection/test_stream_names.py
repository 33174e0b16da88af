"""A stream is found by its full name, by its name in quotes, or by its bare name where that is enough."""

import shlex

import pytest

from dagster_airbyte_proto.connection.stream_names import parsed_name, shell_word, streams_named, unmistakable_name
from dagster_airbyte_proto.model import StreamId

_FIRST, _SECOND, _BARE = StreamId("a", "b.c"), StreamId("a.b", "c"), StreamId(None, "a.b.c")
_STREAMS = (_FIRST, _SECOND, StreamId(None, 'say "x"'), StreamId("eu", "users"))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('a."b.c"', [_FIRST]),
        ('"a"."b.c"', [_FIRST]),
        ('"a.b".c', [_SECOND]),
        ("a.b.c", [_FIRST, _SECOND]),
        ("b.c", [_FIRST, _SECOND]),
        ("c", [_FIRST, _SECOND]),  # Both full names end so.
        ("users", [StreamId("eu", "users")]),
        ('say "x"', [StreamId(None, 'say "x"')]),
        ('"say ""x"""', [StreamId(None, 'say "x"')]),
        ("nothing", []),
    ],
)
def test_a_name_means_these_streams(written: str, meant: list[StreamId]) -> None:
    assert list(streams_named(written, _STREAMS)) == meant


@pytest.mark.parametrize("stream", [*_STREAMS, _BARE])
def test_the_name_in_quotes_means_one_stream_whatever_the_others_are(stream: StreamId) -> None:
    assert list(streams_named(unmistakable_name(stream), (*_STREAMS, _BARE))) == [stream]
    assert parsed_name(unmistakable_name(stream)) == stream


def test_a_name_with_two_bare_dots_means_no_stream_by_itself() -> None:
    assert parsed_name("a.b.c") is None
    assert parsed_name("a.b") == StreamId("a", "b")


@pytest.mark.parametrize("stream", [*_STREAMS, StreamId(None, "order items"), StreamId("eu", "today's")])
def test_a_name_is_one_word_of_the_command_that_an_error_names(stream: StreamId) -> None:
    assert shlex.split(f"sync --streams {shell_word(stream)}") == ["sync", "--streams", str(stream)]
