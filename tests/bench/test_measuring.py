"""What the runner measures is what was spent, and what it says of it is what was measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import report
from bench.cases import SYNC, Case, Cell, Figures, cases, cell, growth, ratio
from bench.process_tree import Measured

_BURN = "import time\nwhile time.process_time() < 0.5: pass"
_ORPHAN = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {_BURN!r}])"
_MEASURE = """
import json, os, sys
from pathlib import Path
from bench.process_tree import run_measured
command, folder = [sys.executable, "-c", sys.argv[1]], Path(sys.argv[2])
print(json.dumps(run_measured(command, folder=folder, environment=dict(os.environ))))
"""


def _cell(case: str, contender: str, *cpu_seconds: float) -> Cell:
    walls = tuple(1.0 for _ in cpu_seconds)
    return Cell(case, contender, cpu_seconds, walls, 1.0, 1 << 20, 1 << 20, 10, (), {"it": "1"})


def _figures(*cells: Cell) -> Figures:
    return {(cell.case, cell.contender): cell for cell in cells}


@pytest.mark.parametrize("program", [_BURN, _ORPHAN])
def test_the_cpu_of_a_tree_counts_orphans_too(tmp_path: Path, program: str) -> None:
    # In a process of its own: the measuring one waits for every child it has, which here are others' too.
    out = subprocess.check_output([sys.executable, "-c", _MEASURE, program, str(tmp_path)], text=True)
    exit_code, cpu_seconds, *_ = json.loads(out)
    assert exit_code == 0
    assert cpu_seconds >= 0.5


def test_a_limit_is_kept_missed_or_not_measured() -> None:
    figures = _figures(_cell("normal", "bare", 2.0), _cell("normal", "staging", 2.2), _cell("normal", "sync", 3.0))
    verdicts = {row[0]: row[-1] for row in _rows(report.page(figures, {"CPU": "slow"}, "a run"))}
    assert verdicts["staging / bare, CPU"] == "ok"
    assert verdicts["warm sync / bare, CPU"] == "**MISSED**"
    assert verdicts["warm sync / dlt, CPU"] == "not measured"


def test_what_ran_in_the_same_minutes_is_held_against_each_other() -> None:
    figures = _figures(_cell("normal", "bare", 4.0, 8.0, 4.0), _cell("normal", "sync", 4.8, 9.6, 6.0))
    told = ratio(("normal", "sync"), ("normal", "bare"))(figures)
    assert told is not None
    assert told.value == 1.2  # 1.5 is what the medians make of it.


@pytest.mark.parametrize(
    ("seconds", "told", "verdict"),
    [
        ((2.0, 2.08), "2.04", "**MISSED**"),  # Too few to tell how they scatter.
        ((2.0, 2.08, 2.04), "2.04 ± 0.03", "ok within its error"),
        ((2.03, 2.05, 2.04), "2.04 ± 0.007", "**MISSED**"),
        ((1.9, 2.0, 1.98), "1.98 ± 0.04", "ok"),
    ],
)
def test_a_ratio_has_the_error_of_its_rounds(seconds: tuple[float, ...], told: str, verdict: str) -> None:
    once = _cell("500 columns", "staging of 250 columns", *(1.0 for _ in seconds))
    rows = _rows(report.page(_figures(_cell("500 columns", "staging", *seconds), once), {}, "a run"))
    assert next(row for row in rows if row[0].startswith("staging: 500"))[1:] == [told, "2", verdict]


def test_a_whole_run_measures_every_limit() -> None:
    whole = _figures(*(_cell(case.name, each.name, 1.0) for case in cases(1_000_000, 0) for each in case.contenders))
    verdicts = {row[0]: row[-1] for row in _rows(report.page(whole, {}, "a run"))}
    assert {says.split(":")[0] for says, verdict in verdicts.items() if verdict == "not measured"} == {"soak"}


@pytest.mark.parametrize(
    ("peaks", "verdict"),
    [
        # The first gigabyte, in which everything begins, is not asked.
        (((90, 103, 100, 101, 99, 102, 101, 100),), "ok"),
        (((90, 100, 102, 99, 101, 100, 103, 101),), "ok within its error"),
        (((90, 100, 103, 101, 104, 103, 106, 105),), "**MISSED**"),
        # What one run leaves open, nine tell that grow by as little.
        (((90, 100, 101, 99, 101, 100, 102, 101),), "ok within its error"),
        (((90, 100, 101, 99, 101, 100, 102, 101),) * 9, "**MISSED**"),
        (((90, 100),), "not measured"),
    ],
)
def test_memory_that_grows_is_told_from_memory_that_scatters(peaks: tuple[tuple[int, ...], ...], verdict: str) -> None:
    soak = _cell("soak", "sync", 1.0)._replace(gigabyte_peaks=peaks)
    verdicts = {row[0]: row[-1] for row in _rows(report.page(_figures(soak), {}, "a run"))}
    assert verdicts["soak: peak in the last GB / in the second"] == verdict


@pytest.mark.parametrize(
    ("played_bytes", "gigabytes", "peak", "kept"),
    [(0, (0,), 70, ()), (10**10, (60, 90, 80, 85), 90, ((60, 90, 85),))],
)
def test_one_round_has_its_peaks(
    played_bytes: int, gigabytes: tuple[int, ...], peak: int, kept: tuple[tuple[int, ...], ...]
) -> None:
    cost = {"cpu_seconds": 1.0, "wall_seconds": 1.0, "peak_bytes": 70, "rows": 1, "versions": {}}
    measured = Measured(0, 1.0, 1.0, 100, gigabytes, "")
    told = cell(Case("soak", (SYNC,), played_bytes=played_bytes), SYNC, [measured], [cost])
    assert (told.peak_bytes, told.gigabyte_peaks) == (peak, kept)


def test_growth_is_the_last_over_the_second() -> None:
    grown = growth([(0, 99, 100, 101), (0, 198, 200, 202)])
    assert grown is not None
    assert grown.value == pytest.approx(1.02)
    assert grown.error == pytest.approx(0)


def test_figures_replace_what_stood_between_the_marks(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("before\n<!-- figures: begin -->\nold\n<!-- figures: end -->\nafter\n")
    report.put_into(document, "new")
    report.put_into(document, "newer")
    assert document.read_text() == "before\n<!-- figures: begin -->\n\nnewer\n<!-- figures: end -->\nafter\n"


def _rows(page: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
