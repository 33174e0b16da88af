"""The tutorial, as printed: from an empty folder and an empty environment to tables and assets."""

import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.test_docs import ROOT, TUTORIAL, Snippet, snippets

_MINUTES = 15


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
            parts.append(snippet.text)
    return "\n".join(parts)


def _squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.connectors
@pytest.mark.timeout(60 * _MINUTES)
def test_it_runs_as_printed(tmp_path: Path) -> None:
    clone = tmp_path / "dagster_airbyte_proto"
    left_out = shutil.ignore_patterns(".*", "build", "tests", "bench", "docs", "__pycache__")
    shutil.copytree(ROOT, clone, ignore=left_out)
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if not folder.startswith(str(ROOT))]
    kept = {name: os.environ[name] for name in os.environ if name not in ("VIRTUAL_ENV", "PYTHONPATH", "DAGSTER_HOME")}
    log = tmp_path / "printed.txt"
    with log.open("w") as printed_there:  # Not a pipe: the web server of the tutorial would keep it open.
        reader = subprocess.Popen(
            ["bash", "-c", _script()], cwd=tmp_path, env={**kept, "PATH": os.pathsep.join(path), "COLUMNS": "160"},
            stdout=printed_there, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            reader.wait(60 * _MINUTES - 30)
        finally:
            os.killpg(reader.pid, signal.SIGKILL)
            output = log.read_text()
    assert reader.returncode == 0, output[-5000:]
    printed = _squeezed(re.sub("[─-]{5,}", "", output))
    for snippet in _tutorial():
        if snippet.language == "text" and not snippet.title:
            assert [line for line in _squeezed(snippet.text) if line not in printed] == [], output[-5000:]
    assert "best_customers" in output
    assert "RUN_SUCCESS" in output
