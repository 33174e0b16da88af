"""Ranges of versions, as the `engines` of a package of npm have them: `>=18`, `^20.9 || 22.x`, `16 - 20`.

Each comparator is an interval of versions, its end not included. A partial version stands for all that begin with it.
What stands behind a `-` or a `+` in a version is passed over: releases of Node have none.
"""

import re
from typing import NamedTuple

_Version = tuple[float, float, float]
_LOWEST, _END = (0.0, 0.0, 0.0), (float("inf"), 0.0, 0.0)
_PARTIAL = r"v?=?\s*(?P<major>\d+|[xX*])(\.(?P<minor>\d+|[xX*]))?(\.(?P<patch>\d+|[xX*]))?([-+][0-9A-Za-z.+-]*)?"
_COMPARATOR = re.compile(rf"(?P<operator>>=|<=|>|<|=|~>|~|\^|)\s*{_PARTIAL}(?=\s|$)\s*")
_HYPHEN = re.compile(r"\s+-\s+")


class _Interval(NamedTuple):
    first: _Version
    end: _Version


def is_in_range(version: str, wanted: str) -> bool | None:
    """True if the range has the version. None if either cannot be understood."""
    found = re.match(_PARTIAL, version)
    if found is None:
        return None
    ours = _interval(found).first
    answers = [_holds_all(ours, each.strip()) for each in wanted.split("||")]
    return None if None in answers else any(answers)


def _holds_all(version: _Version, comparators: str) -> bool | None:
    ends = _HYPHEN.split(comparators)
    if len(ends) == 2:
        found = [re.fullmatch(_PARTIAL, each) for each in ends]
        intervals = [_interval(each) for each in found if each is not None]
        return intervals[0].first <= version < intervals[1].end if len(intervals) == len(ends) else None
    position, is_in = 0, True
    while position < len(comparators):
        comparator = _COMPARATOR.match(comparators, position)
        if comparator is None:
            return None
        first, end = _allowed(comparator)
        is_in = is_in and first <= version < end
        position = comparator.end()
    return is_in


def _allowed(comparator: re.Match[str]) -> _Interval:
    first, end = _interval(comparator)
    match comparator["operator"]:
        case ">=":
            return _Interval(first, _END)
        case ">":
            return _Interval(end, _END)
        case "<":
            return _Interval(_LOWEST, first)
        case "<=":
            return _Interval(_LOWEST, end)
        case "~" | "~>":
            return _Interval(first, _up_to(first, min(len(_numbers(comparator)), 2)))
        case "^":
            return _Interval(first, _up_to(first, _leading(comparator)))
        case _:
            return _Interval(first, end)


def _leading(comparator: re.Match[str]) -> int:
    """The count of numbers that a `^` keeps: up to the first that is not zero."""
    numbers = _numbers(comparator)
    return next((place for place, number in enumerate(numbers, 1) if number), len(numbers))


def _interval(partial: re.Match[str]) -> _Interval:
    numbers = _numbers(partial)
    padded = [*map(float, numbers), 0.0, 0.0, 0.0]
    first = padded[0], padded[1], padded[2]
    return _Interval(first, _up_to(first, len(numbers)))


def _numbers(partial: re.Match[str]) -> list[int]:
    """The numbers of a version, up to the first that is left open."""
    numbers = []
    for part in (partial["major"], partial["minor"], partial["patch"]):
        if part is None or not part.isdigit():
            break
        numbers.append(int(part))
    return numbers


def _up_to(version: _Version, kept: int) -> _Version:
    """The first version above all that share the first `kept` numbers."""
    if kept == 0:
        return _END
    numbers = [*version[: kept - 1], version[kept - 1] + 1, 0.0, 0.0]
    return numbers[0], numbers[1], numbers[2]
