"""Runs the contenders beside each other, in alternating order, and prints how far apart they are.

`python -m bench` is the full run of a million records; `--quick` takes a tenth. Everything it makes is under
`.bench/`: the peers' environments and the recordings, which are kept; each contender's folder, which is removed at its
end; and the results. A missed limit is reported and does not fail the run. A contender that fails, or lands another
number of rows than the recording has, fails it.
"""

import argparse
import json
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any, NamedTuple

from bench import environments, report
from bench.cases import Case, Contender, Figures, cases, cell
from bench.generate import Generated, generate
from bench.process_tree import Measured, run_measured

_ROOT = Path(__file__).parent.parent
_HOME = _ROOT / ".bench"


class Choice(NamedTuple):
    """The choices of the command line. `pythons` are existing environments, by name."""

    records: int
    rounds: int
    soak_bytes: int
    cases: tuple[str, ...]
    contenders: tuple[str, ...]
    pythons: dict[str, Path]

    def python(self, contender: Contender) -> Path:
        return self.environment(contender.environment) if contender.environment else Path(sys.executable)

    def environment(self, name: str) -> Path:
        return self.pythons.get(name) or environments.python_of(name, _HOME / "environments")


class Failed(Exception):
    """A contender failed, or landed another number of rows than it was given."""


def main() -> int:
    arguments = _parser().parse_args()
    choice = _choice(arguments)
    _ignored_by_git()
    figures, failures = _run(choice)
    facts = report.machine()
    text = report.page(figures, facts, _setting(choice))
    print(f"\n{text}")
    _keep(figures, facts, text)
    if arguments.write:
        report.put_into(arguments.write, text)
    for failure in failures:
        print(f"bench: FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100,000 records, one round, no soak")
    parser.add_argument("--records", type=int, help="of the normal case; the others follow")
    parser.add_argument("--rounds", type=int, help="how often each case is run through (3); the normal one thrice that")
    parser.add_argument("--soak-gigabytes", type=float, help="through one sync (10); 0 for none")
    parser.add_argument("--cases", help="only these, comma-separated")
    parser.add_argument("--contenders", help="only these, comma-separated")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="a peer's environment")
    parser.add_argument("--write", type=Path, help="put the tables into this document, between its marks")
    return parser


def _choice(arguments: argparse.Namespace) -> Choice:
    quick = arguments.quick
    gigabytes = arguments.soak_gigabytes if arguments.soak_gigabytes is not None else 0 if quick else 10
    return Choice(
        records=arguments.records or (100_000 if quick else 1_000_000),
        rounds=arguments.rounds or (1 if quick else 3),
        soak_bytes=int(gigabytes * 10**9),
        cases=tuple(arguments.cases.split(",")) if arguments.cases else (),
        contenders=tuple(arguments.contenders.split(",")) if arguments.contenders else (),
        pythons={name: Path(path) for name, path in (pair.split("=", 1) for pair in arguments.python)},
    )


def _setting(choice: Choice) -> str:
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    return f"{today}, {choice.records:,} records in the normal case; medians of rounds and runs, peaks the highest."


def _ignored_by_git() -> None:
    _HOME.mkdir(exist_ok=True)
    (_HOME / ".gitignore").write_text("*\n")


def _run(choice: Choice) -> tuple[Figures, list[str]]:
    figures: Figures = {}
    failures = []
    for case in cases(choice.records, choice.soak_bytes):
        contenders = [it for it in case.contenders if not choice.contenders or it.name in choice.contenders]
        if choice.cases and case.name not in choice.cases:
            continue
        runs: dict[str, list[tuple[Measured, dict[str, Any]]]] = {}
        # A B B A: a busy minute of the machine meets all of them, and none is always the last.
        for number in range(choice.rounds * case.times):
            for contender in contenders[:: -1 if number % 2 else 1]:
                try:
                    runs.setdefault(contender.name, []).append(_run_one(case, contender, choice))
                except (Failed, CalledProcessError) as failure:
                    failures.append(f"{case.name}, {contender.name}: {failure}")
                    contenders.remove(contender)
        for contender in contenders:
            measured, costs = zip(*runs[contender.name], strict=True)
            figures[case.name, contender.name] = cell(case, contender, list(measured), list(costs))
    return figures, failures


def _run_one(case: Case, contender: Contender, choice: Choice) -> tuple[Measured, dict[str, Any]]:
    python = choice.python(contender)
    recording = _recording(case, contender)
    folder = _HOME / "work" / f"{case.name}-{contender.name}".replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    task = _task(case, contender, choice, recording, folder / "landed")
    command = [str(python), "-m", f"bench.contenders.{contender.module}", json.dumps(task)]
    measured = run_measured(command, folder=folder, environment=_environment(folder))
    cost = _cost(measured, folder)
    if recording and cost["rows"] != recording.total_records * task["repeat"]:
        raise Failed(f"{cost['rows']} rows landed of {recording.total_records * task['repeat']}, see {folder}")
    shutil.rmtree(folder)
    if contender.counts_startup:
        cost |= {"cpu_seconds": measured.cpu_seconds, "wall_seconds": measured.wall_seconds}
    figures = (
        f"{cost['cpu_seconds']:8.2f} CPU s {cost['wall_seconds']:8.2f} s {cost['peak_bytes'] / (1 << 20):6.0f} MiB"
    )
    print(f"{case.name:>18} {contender.name:<24} {figures}", file=sys.stderr, flush=True)
    return measured, cost


def _task(
    case: Case, contender: Contender, choice: Choice, recording: Generated | None, landed: Path
) -> dict[str, Any]:
    """A `meter.Task` as the contender reads it. Makes its folder."""
    landed.mkdir(parents=True)
    repeat = max(1, round(case.played_bytes / recording.size_bytes)) if recording and case.played_bytes else 1
    return {
        "recording": str(recording.path) if recording else "",
        "catalog": str(recording.catalog_path) if recording else "",
        "connector": str(_connector(case, choice)),
        "folder": str(landed),
        "repeat": repeat,
        "options": contender.options,
    }


def _cost(measured: Measured, folder: Path) -> dict[str, Any]:
    lines = measured.output.splitlines()
    if measured.exit_code or not lines:
        raise Failed(f"exit code {measured.exit_code}, see {folder / 'stderr'}")
    cost: dict[str, Any] = json.loads(lines[-1])
    return cost


def _recording(case: Case, contender: Contender) -> Generated | None:
    recipe = contender.recipe or case.recipe
    if recipe is None:
        return None
    recipe = recipe._replace(dialect=contender.dialect or recipe.dialect)
    folder = _HOME / "data"
    folder.mkdir(parents=True, exist_ok=True)
    return generate(recipe, folder / f"{recipe.name}.jsonl")


def _connector(case: Case, choice: Choice) -> Path:
    """The program that the contenders start as their source: a real one, or a script around `replay_source`."""
    if case.source:
        return choice.environment(case.source).parent / case.source
    script = _HOME / "source-replay"
    # -I -S: no site packages to look through, half the start-up.
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{_ROOT}/bench/replay_source.py" "$@"\n')
    script.chmod(0o755)
    return script


def _environment(folder: Path) -> dict[str, str]:
    """The user's environment without variables that change Python's start. Contenders cache in their own folder.

    PYTHONDONTWRITEBYTECODE alone adds 3 s of CPU to the 5 s that importing PyAirbyte takes.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {name: str(folder) for name in ("TMPDIR", "DLT_DATA_DIR", "AIRBYTE_LOGGING_ROOT")}


def _keep(figures: Figures, facts: dict[str, str], text: str) -> None:
    results = _HOME / "results"
    results.mkdir(parents=True, exist_ok=True)
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    cells = [figure._asdict() for figure in figures.values()]
    (results / f"{name}.json").write_text(json.dumps({"machine": facts, "figures": cells}, indent=1))
    (results / f"{name}.md").write_text(text)
    print(f"kept as {results / name}.json and .md", file=sys.stderr)
