"""The parts of a query of `transform-sql` that ours refuse, found by its words.

Rapidbyte runs a query on each batch for itself: it groups, numbers and sorts what happens to be in one batch. Here a
query selects and filters rows, so such a query needs another place. What decides is its plan, once the columns of the
stream are known; an import has neither, and names what it sees.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

_NOT_WORDS = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \bis\s+(?:not\s+)?distinct\s+from\b""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
"""Texts, quoted names, comments, and a comparison."""
_AGGREGATES = "count|sum|avg|mean|median|min|max|array_agg|string_agg|first_value|last_value|stddev|var|approx_distinct"
_PARTS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        name: re.compile(words, re.IGNORECASE)
        for name, words in {
            "GROUP BY": r"\bgroup\s+by\b",
            "DISTINCT": r"\bdistinct\b",
            "a window": r"\bover\s*\(",
            "an aggregate": rf"\b(?:{_AGGREGATES})\s*\((?![^()]*\)\s*over\b)",
            "JOIN": r"\bjoin\b",
            "ORDER BY": r"\border\s+by\b",
            "LIMIT": r"\b(?:limit|offset|fetch)\s+\d",
            "UNION": r"\b(?:union|intersect|except)\b\s+(?:all\s+|distinct\s+)?(?:\(|select\b)",
            "a query within an expression": r"(?<!\bfrom )(?<!\bfrom)(?<!\bas )(?<!\bas)\( ?select\b",
        }.items()
    }
)


def beyond_rows(sql: str) -> tuple[str, ...]:
    """The parts of a query by which it does more than select and filter rows, as far as its words show them."""
    words = " ".join(_NOT_WORDS.sub(" ", sql).split())
    return tuple(name for name, part in _PARTS.items() if part.search(words))
