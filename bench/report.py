"""Turns figures into a Markdown page of tables, with the machine that they were measured on."""

import os
import platform
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.cases import LIMITS, Estimate, Figures

_PACKAGES = ("pyarrow", "pyspark", "msgspec", "dagster_airbyte_proto")


class Figure(NamedTuple):
    """One line of the page. Without `at_most` or `at_least` it has no limit."""

    says: str
    value: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def row(self) -> tuple[str, ...]:
        limit, is_kept = "", True
        if self.at_most is not None:
            limit, is_kept = _rounded(self.at_most), self.value <= self.at_most
        elif self.at_least is not None:
            limit, is_kept = f"≥ {_rounded(self.at_least)}", self.value >= self.at_least
        return self.says, _rounded(self.value), limit, ("ok" if is_kept else "**MISSED**") if limit else ""


def _rounded(value: float) -> str:
    """A number with three digits that count: 0.107, 327, 1,140,000."""
    rounded = f"{value:.3g}"
    return f"{float(rounded):,.0f}" if "e+" in rounded else rounded


def shown(figure: Figure) -> Figure:
    """Prints a figure at once, beside the table that is printed at the end."""
    print("  ".join(figure.row), file=sys.stderr, flush=True)
    return figure


def publish(text: str, document: Path | None, mark: str) -> None:
    """Prints a table, and puts it between the marks of a document, if there is one."""
    print(text)
    if document is not None:
        put_into(document, text, mark=mark)


def publish_figures(figures: Iterable[Figure], document: Path | None, mark: str) -> None:
    publish(table(["what", "figure", "limit", ""], [figure.row for figure in figures]), document, mark)


def machine() -> dict[str, str]:
    """The facts about this machine that a reader needs for a comparison."""
    facts = {line.split(":")[0].strip(): line.split(":", 1)[-1].strip() for line in _lines("/proc/cpuinfo")}
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "CPU": f"{facts.get('model name', platform.machine())}, {os.cpu_count()} cores",
        "memory": f"{memory / (1 << 20):.0f} GiB",
        "kernel": platform.release(),
        "Python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
    }


def page(figures: Figures, facts: dict[str, str], setting: str) -> str:
    """The page: limits first, then every figure, then the machine."""
    parts = [setting, _limits(figures), _cells(figures), _soak(figures), table(["machine", ""], [*facts.items()])]
    return "\n\n".join(part for part in parts if part) + "\n"


def put_into(document: Path, text: str, *, mark: str = "figures") -> None:
    """Replaces the text between the document's two marks. Raises ValueError if they are missing."""
    whole, begin = document.read_text(), f"<!-- {mark}: begin -->"
    before, after = whole.index(begin) + len(begin), whole.index(f"<!-- {mark}: end -->")
    document.write_text(f"{whole[:before]}\n\n{text}\n{whole[after:]}")


def _limits(figures: Figures) -> str:
    rows = []
    for limit in LIMITS:
        figure = limit.figure(figures)
        rows.append((limit.says, _told(figure), f"{limit.at_most:g}", _verdict(figure, limit.at_most)))
    return table(["what", "figure", "at most", ""], rows)


def _told(figure: Estimate | None) -> str:
    if figure is None:
        return ""
    return f"{figure.value:.3g} ± {figure.error:.1g}" if figure.error else f"{figure.value:.3g}"


def _verdict(figure: Estimate | None, at_most: float) -> str:
    if figure is None:
        return "not measured"
    if figure.value <= at_most:
        return "ok"
    return "ok within its error" if figure.value - 2 * figure.error <= at_most else "**MISSED**"


def _cells(figures: Figures) -> str:
    rows = []
    for cell in figures.values():
        versions = ", ".join(f"{name} {number}" for name, number in cell.versions.items())
        peaks = f"{cell.peak_bytes / (1 << 20):.0f}", f"{cell.tree_peak_bytes / (1 << 20):.0f}"
        runs = str(len(cell.cpu_of_runs)), f"{min(cell.cpu_of_runs):.2f} to {max(cell.cpu_of_runs):.2f}"
        medians = median(cell.cpu_of_runs), median(cell.wall_of_runs), cell.whole_cpu_seconds
        seconds = [f"{each:.2f}" for each in medians]
        rows.append((cell.case, cell.contender, f"{cell.rows:,}", *runs, *seconds, *peaks, versions))
    heads = ["case", "contender", "rows", "runs", "their CPU s", "CPU s", "wall s", "CPU s with start-up", "peak MiB",
             "peak MiB, tree", "of"]  # fmt: skip
    return table(heads, rows)


def _soak(figures: Figures) -> str:
    cell = figures.get(("soak", "sync"))
    runs = cell.gigabyte_peaks if cell else ()
    heads = ["gigabyte", *(f"peak MiB, run {number}" for number in range(1, len(runs) + 1))]
    rows = [
        (str(at), *(f"{peak / (1 << 20):.0f}" for peak in peaks)) for at, peaks in enumerate(zip(*runs, strict=True), 1)
    ]
    return table(heads, rows)


def table(heads: list[str], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table with aligned columns; empty if there are no rows."""
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in [tuple(heads), *rows]) for i in range(len(heads))]
    lines = ("| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) + " |"
             for row in [tuple(heads), tuple("-" * width for width in widths), *rows])  # fmt: skip
    return "\n".join(lines)


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
