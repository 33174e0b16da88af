"""Finds the stream that a person means by a name: in a connection file, in an option, in the config of a job.

A full name is the namespace, a dot and the name. Both may have dots themselves, so two streams can have the same full
name; quotes tell them apart: `"a.b".c` and `a."b.c"`. The bare name will do if only one stream ends so.
"""

import re
import shlex
from collections.abc import Collection, Sequence

from dagster_airbyte_proto.model import StreamId, double_quoted

_PART = r'"(?:[^"]|"")*"|[^".]+'
_PARTS = re.compile(rf"(?:({_PART})\.)?({_PART})")


def streams_named(written: str, streams: Collection[StreamId]) -> Sequence[StreamId]:
    """Returns the streams that the name may mean: one, none, or several if it does not decide between them."""
    meant = parsed_name(written) if '"' in written else None
    if meant is not None and meant in streams:
        return (meant,)
    found = [stream for stream in streams if written in (str(stream), full_name(stream))]
    return found or [
        stream for stream in streams if stream.name == written or full_name(stream).endswith(f".{written}")
    ]


def parsed_name(written: str) -> StreamId | None:
    """Returns the stream of a name with at most one dot outside quotes, whatever streams there are; else None."""
    match = _PARTS.fullmatch(written)
    return StreamId.of(_unquoted(match[2]), _unquoted(match[1] or "")) if match else None


def full_name(stream: StreamId) -> str:
    """The namespace, a dot and the name, without quotes. Other streams may have the same."""
    return f"{stream.namespace}.{stream.name}" if stream.namespace else stream.name


def unmistakable_name(stream: StreamId) -> str:
    """The name in quotes, which can mean no other stream."""
    parts = (stream.namespace, stream.name) if stream.namespace else (stream.name,)
    return ".".join(map(double_quoted, parts))


def shell_word(stream: StreamId | str) -> str:
    """The name as one word of a shell, for the command that an error names."""
    return shlex.quote(str(stream))


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part
