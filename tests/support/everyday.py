"""`@pytest.mark.everyday("append", "upsert")`: of the tests below it, those that are not named are nightly.

A name is that of a test, where the mark is on a class or a module; or the id of its parameters, as pytest shows it.
"""

import re
from collections.abc import Sequence, Set
from pathlib import Path

import pytest

_MARKS_OF_MODULE = re.compile(r"^pytestmark = (?:\[\n.*?^\]|.*?$)", re.M | re.S)


def has_mark_of_module(file: Path, marks: Set[str]) -> bool:
    """True if a `pytestmark` of the file gives one of these marks to all of its tests. Nothing is imported to find out:
    pyspark alone takes a second of each worker."""
    found = _MARKS_OF_MODULE.search(file.read_text())
    return found is not None and not marks.isdisjoint(re.findall(r"pytest\.mark\.(\w+)", found[0]))


def mark_nightly_unless_everyday(items: Sequence[pytest.Item], *, is_whole: bool) -> None:
    """Marks as nightly what an `everyday` mark leaves out. A name of nothing is an error where whole files are run."""
    found: dict[int, set[str]] = {}
    marks: dict[int, tuple[pytest.Mark, pytest.Item]] = {}
    for item in items:
        for mark in item.iter_markers("everyday"):
            named = _names(item) & set(mark.args)
            found.setdefault(id(mark), set()).update(named)
            marks[id(mark)] = mark, item
            if not named:
                item.add_marker(pytest.mark.nightly)
    for key, (mark, item) in marks.items():
        if is_whole and (unknown := set(mark.args) - found[key]):
            raise pytest.UsageError(f"everyday names what is not there: {sorted(unknown)}, above {item.nodeid}")


def _names(item: pytest.Item) -> set[str]:
    test, _, parameters = item.name.partition("[")
    return {item.name, test, parameters.removesuffix("]")}
