"""The hypothesis strategy for the days of a year."""

from typing import Any

from hypothesis import strategies as st

from dagster_airbyte_proto.points import POINTS
from tests.sync.crashes.year import COLUMNS, POLICIES, STREAMS, Day, Mistype, SendRecord, SetPolicy, TurnColumn

_KEYS = 5

_streams = st.sampled_from(sorted(STREAMS))
_columns = st.sampled_from(sorted(COLUMNS))
_tell = st.builds(
    SendRecord,
    _streams,
    st.sampled_from(("row", "row", "row", "deletion", "late")),
    st.integers(0, _KEYS),
    st.none() | st.integers(0, 9),
)


def _often(usual: st.SearchStrategy[Any], *rare: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draws `usual` nine times as often as each of `rare`; `one_of` would draw each equally often."""
    return st.sampled_from((*(usual,) * 9, *rare)).flatmap(lambda drawn: drawn)


_change = _often(
    _tell,
    st.builds(TurnColumn, _streams, _columns),
    st.builds(Mistype, _streams, _columns),
    st.builds(SetPolicy, _streams, st.sampled_from(("evolve", "evolve", *POLICIES))),
)
_kill = st.tuples(st.sampled_from(POINTS), st.integers(1, 3))
_day = st.builds(
    Day,
    st.lists(_change, min_size=2, max_size=6),
    st.sampled_from((False,) * 9 + (True,)),
    _often(st.just(()), *[st.lists(_kill, min_size=1, max_size=2)] * 3),
    st.sampled_from((1, 3, 1000)),
)


def year_strategy(days: int) -> st.SearchStrategy[list[Day | None]]:
    """Days with changes, or None for a day without a sync. The first example of hypothesis has only such days."""
    drawn = st.integers(0, 9).flatmap(lambda each: _day if each else st.none())
    return st.lists(drawn, min_size=days, max_size=days)
