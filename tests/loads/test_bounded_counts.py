"""Names that a connector chooses are counted by a bounded number of entries."""

from collections import Counter

from dagster_airbyte_proto.loads.bounded_counts import (
    MAX_NAMES,
    OTHER_FIELDS,
    OTHER_STREAMS,
    add_field_counts,
    add_stream_counts,
)
from dagster_airbyte_proto.model import StreamId


def test_the_first_fields_have_entries_and_the_others_one() -> None:
    counts: Counter[str] = Counter()
    for start in range(0, 1000, 10):
        add_field_counts(counts, {f"f{number}": 2 for number in range(start, start + 10)})
        add_field_counts(counts, {"f0": 1})
    assert len(counts) == MAX_NAMES + 1
    assert (counts["f0"], counts["f99"], counts[OTHER_FIELDS]) == (102, 2, 2 * (1000 - MAX_NAMES))


def test_long_names_are_cut() -> None:
    counts: Counter[str] = Counter()
    add_field_counts(counts, {"x" * 1_000_000: 3})
    assert counts == {"x" * 200 + "…": 3}


def test_streams_are_bounded_too() -> None:
    counts: Counter[StreamId] = Counter()
    for number in range(1000):
        add_stream_counts(counts, {StreamId.of(f"s{number}"): 1})
    assert len(counts) == MAX_NAMES + 1
    assert counts[OTHER_STREAMS] == 1000 - MAX_NAMES
