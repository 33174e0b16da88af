"""What `everyday` leaves out is nightly, and a name of nothing is an error where whole files are run."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.everyday import has_mark_of_module

_TESTS = """
import pytest

@pytest.mark.everyday("b")
@pytest.mark.parametrize("case", ["a", "b"])
def test_one(case): pass

@pytest.mark.everyday("test_two", "test_three[a]")
class TestThem:
    def test_two(self): pass

    @pytest.mark.parametrize("case", ["a", "b"])
    def test_three(self, case): pass

    def test_four(self): pass
"""
_MARKS = "-o", "markers=nightly\neveryday(*names)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_them.py").write_text(_TESTS)
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "from tests.support.everyday import mark_nightly_unless_everyday\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_collection_modifyitems(config, items):\n"
        "    mark_nightly_unless_everyday(items, is_whole=not any('::' in each for each in config.args))\n"
    )
    return tmp_path


def _collected(folder: Path, *words: str) -> tuple[list[str], str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *_MARKS, *words]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return [line.partition("::")[2] for line in ended.stdout.splitlines() if "::" in line], ended.stdout + ended.stderr


def test_what_is_not_named_is_nightly(folder: Path) -> None:
    by_day, _ = _collected(folder, "-m", "not nightly")
    at_night, _ = _collected(folder, "-m", "nightly")
    assert by_day == ["test_one[b]", "TestThem::test_two", "TestThem::test_three[a]"]
    assert at_night == ["test_one[a]", "TestThem::test_three[b]", "TestThem::test_four"]


def test_a_name_of_nothing_is_an_error(folder: Path) -> None:
    file = folder / "test_them.py"
    file.write_text(_TESTS.replace('everyday("b")', 'everyday("c")'))
    _, said = _collected(folder)
    assert "everyday names what is not there: ['c'], above test_them.py::test_one[b]" in said
    found, _ = _collected(folder, "test_them.py::test_one")
    assert found == ["test_one[a]", "test_one[b]"]


@pytest.mark.parametrize(
    ("written", "has_it"),
    [
        ("pytestmark = pytest.mark.spark", True),
        ("pytestmark = [pytest.mark.timeout(60), pytest.mark.spark]", True),
        ("pytestmark = [\n    pytest.mark.timeout(60),\n    pytest.mark.spark,\n]", True),
        ("pytestmark = pytest.mark.docker\n\n@pytest.mark.spark\ndef test_one(): pass", False),
        ('pytestmark = pytest.mark.everyday(\n    "test_one",\n)\n\n@pytest.mark.spark\ndef test_one(): pass', False),
        ("class TestThem:\n    pytestmark = pytest.mark.spark", False),
        ("", False),
    ],
)
def test_a_mark_of_a_whole_file_is_known_without_its_import(tmp_path: Path, written: str, has_it: bool) -> None:
    file = tmp_path / "test_them.py"
    file.write_text(f"import a_module_that_is_not_there\n\n{written}\n")
    assert has_mark_of_module(file, {"nightly", "spark"}) is has_it
