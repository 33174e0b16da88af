"""The tutorial, as printed: from an empty folder and an empty environment to tables and assets, and these in the UI. It
takes less than the ten minutes that it promises.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.browser.dagster_server import DagsterServer, Target, running_dagster
from tests.browser.dagster_ui import WINDOW, DagsterUI
from tests.test_docs import ROOT, TUTORIAL, Snippet, snippets

_MINUTES = 15
_PROMISED_SECONDS = 600
_TIMES = "seconds.txt"

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.spark,
    pytest.mark.connectors,
    pytest.mark.timeout(60 * _MINUTES),
]


def _tutorial() -> list[Snippet]:
    found: list[Snippet] = [each.values[0] for each in snippets("sh", "text", "yaml", "python")]
    return [each for each in found if each.page == TUTORIAL]


def _script() -> str:
    """What a reader does: writes the files and types the commands, from the top to the bottom, in one shell."""
    parts = ["set -euo pipefail"]
    for snippet in _tutorial():
        if snippet.title:
            name = shlex.quote(snippet.title)
            parts.append(f"mkdir -p $(dirname {name})\ncat > {name} <<'END OF FILE'\n{snippet.text}END OF FILE")
        elif snippet.language == "sh":
            parts.append(f"{snippet.text}echo $SECONDS {snippet.number} >> {_TIMES}")
    return "\n".join(parts)


def _squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


class Followed(NamedTuple):
    """The folder of a reader who is at the end of the page, and all that was printed there."""

    folder: Path
    returncode: int
    output: str

    @property
    def programs(self) -> Path:
        return self.folder / ".venv" / "bin"


def _environment() -> dict[str, str]:
    """That of somebody who has none of our programs."""
    left_out = ("VIRTUAL_ENV", "PYTHONPATH", "DAGSTER_HOME")
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if not folder.startswith(str(ROOT))]
    kept = {name: os.environ[name] for name in os.environ if name not in left_out}
    return {**kept, "PATH": os.pathsep.join(path), "COLUMNS": "160"}


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    """The page, followed once. Its web server runs until the last test."""
    folder = tmp_path_factory.mktemp("tutorial")
    left_out = shutil.ignore_patterns(".*", "build", "tests", "bench", "docs", "__pycache__")
    shutil.copytree(ROOT, folder / "dagster_airbyte_proto", ignore=left_out)
    log = folder / "printed.txt"
    with log.open("w") as printed_there:  # Not a pipe: the web server of the tutorial would keep it open.
        reader = subprocess.Popen(
            ["bash", "-c", _script()], cwd=folder, env=_environment(),
            stdout=printed_there, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        reader.wait(60 * _MINUTES - 30)
        yield Followed(folder, reader.returncode, log.read_text())
    finally:
        os.killpg(reader.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def server(followed: Followed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterServer]:
    """The command that the page ends with."""
    assert "`dg dev -f definitions.py`" in (ROOT / TUTORIAL).read_text()
    target = Target(["-f", "definitions.py"], followed.folder, followed.programs)
    with running_dagster(target, tmp_path_factory.mktemp("dagster"), {}) as started:
        yield started


def test_it_runs_as_printed(followed: Followed) -> None:
    output = followed.output
    assert followed.returncode == 0, output[-5000:]
    printed = _squeezed(re.sub("[─-]{5,}", "", output))
    for snippet in _tutorial():
        if snippet.language == "text" and not snippet.title:
            assert [line for line in _squeezed(snippet.text) if line not in printed] == [], output[-5000:]
    assert "best_customers" in output
    assert "RUN_SUCCESS" in output


def test_its_commands_take_less_than_ten_minutes(
    followed: Followed, record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """The sum of what a reader waits for, installation and downloads among it. It is printed, by snippets."""
    ends = [[int(number) for number in line.split()] for line in (followed.folder / _TIMES).read_text().splitlines()]
    assert len(ends) == sum(each.language == "sh" for each in _tutorial())
    took = {f"snippet {place}": end - begun for (begun, _), (end, place) in pairwise([[0, 0], *ends])}
    seconds = sum(took.values())
    record_property("tutorial_seconds", seconds)
    with capsys.disabled():
        sys.stdout.write(f"\nthe tutorial: {seconds} s {took}\n")
    assert seconds < _PROMISED_SECONDS, took


@pytest.mark.browser
def test_its_tables_are_seen_in_the_ui(followed: Followed, server: DagsterServer, ui: DagsterUI) -> None:
    with (followed.folder / "orders.csv").open("a") as orders:
        orders.write("5,ada,3.50,2026-11-04\n")
    run_id = ui.materialize_all()
    server.wait_for_run(run_id, "SUCCESS")
    for asset, rows in ((("orders", "orders"), 5), (("customers", "customers"), 2)):
        ui.sees_metadata(asset, "airbyte_proto/committed", f"{rows}")
    ui.open_asset(("orders", "orders"))
    for shown in ("lake.orders.orders", "placed_at", "primary key"):
        ui.sees(shown)
    ui.open_lineage(("orders", "customers", "best_customers"), selection="*", window=WINDOW)
    ui.take_picture("tutorial")


def test_a_component_is_scaffolded_as_the_start_page_prints_it(followed: Followed, tmp_path: Path) -> None:
    printed = [each.values[0] for each in snippets("sh") if each.values[0].page == "docs/index.md"]
    [script] = [each.text for each in printed if "dg scaffold defs" in each.text]
    path = f"{followed.programs}{os.pathsep}{_environment()['PATH']}"
    reader = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path,
        env={**_environment(), "PATH": path, "VIRTUAL_ENV": str(followed.programs.parent)},
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert reader.returncode == 0, (reader.stdout[-3000:], reader.stderr[-3000:])
    assert (tmp_path / "shop-lake" / "src" / "shop_lake" / "defs" / "shop" / "connection.yaml").is_file()
    for stream in ("users", "products", "purchases"):
        assert f"shop/{stream}" in reader.stdout
