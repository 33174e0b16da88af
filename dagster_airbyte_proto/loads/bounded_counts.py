"""Counts by names that a connector chooses. A hostile or broken one has no end of them, and reports are kept."""

from collections import Counter
from collections.abc import Collection, Mapping

from dagster_airbyte_proto.model import StreamId

MAX_NAMES = 100
OTHER_FIELDS = "(other fields)"
OTHER_STREAMS = StreamId.of("(other streams)")
_MAX_NAME_CHARACTERS = 200


def add_field_counts(counts: Counter[str], more: Mapping[str, int]) -> None:
    """Adds counts of fields. The first `MAX_NAMES` have entries, long names are cut; all others are counted as one."""
    for name, count in more.items():
        counts[bounded_name(name, counts, OTHER_FIELDS)] += count


def bounded_name(name: str, kept: Collection[str], others: str) -> str:
    """Returns the name under which something is kept, cut if it is long: `others` if there are too many already.

    A letter that is no Unicode (half a surrogate pair, a byte of another encoding) is shown by its code.
    """
    shown = name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[:_MAX_NAME_CHARACTERS]}…"
    shown = shown.encode(errors="backslashreplace").decode()
    return shown if shown in kept or len(kept) < MAX_NAMES else others


def add_stream_counts(counts: Counter[StreamId], more: Mapping[StreamId, int]) -> None:
    """Adds counts of streams in the same way."""
    for stream, count in more.items():
        counts[stream if stream in counts or len(counts) < MAX_NAMES else OTHER_STREAMS] += count
