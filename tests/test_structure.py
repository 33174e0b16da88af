"""The layout of the package: small rooms, small modules, no circles, one name for one thing."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

import dagster_airbyte_proto
from docs import rooms

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "dagster_airbyte_proto"
GLOSSARY = ROOT / "docs" / "glossary.md"

MAX_FILES = 15
MAX_LINES = 400
MAX_ARGUMENTS = 5

_A_LEASE = "who wants it, of what, and for how long: a call gives two of the six only where it needs them"
_MORE_ARGUMENTS = {
    "dagster_airbyte_proto/checkpoints/sql/sql_store.py: acquire": _A_LEASE,
    "dagster_airbyte_proto/checkpoints/store.py: acquire": _A_LEASE,
    "dagster_airbyte_proto/sync/lease.py: acquire_lease": _A_LEASE,
}
"""Functions with more arguments, and why no type of several would make them clearer."""


def _modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


# Skeletons are programs of others: they are copied, and run in components.
@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in _modules(PACKAGE.name) if "skeletons" not in path.parts}


def test_no_folder_has_more_files_than_a_reader_can_hold() -> None:
    files: defaultdict[Path, int] = defaultdict(int)
    for path in _modules(PACKAGE.name, "tests", "bench"):
        files[path.parent] += 1
    assert {_name(folder): count for folder, count in files.items() if count > MAX_FILES} == {}


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    lines = {_name(path): len(path.read_text().splitlines()) for path in _modules(PACKAGE.name, "tests", "bench")}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def test_no_function_takes_more_arguments_than_a_reader_can_hold(trees: dict[Path, ast.Module]) -> None:
    """Counts the arguments of every function and method, with `*args` and `**kwargs`, and these rules:

    - `self` and `cls` do not count. Nor do fields of dataclasses, tuples and models: they have a name each wherever
      they are used, and are what loose arguments become.
    - The function of a command does not count: click calls it, by the names of its options.
    - Of a public function those that can be given by name alone do not count. A user writes them as options, like those
      of Dagster's own decorators.
    """
    found = {
        f"{_name(path)}: {node.name}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and _arguments(path, tree, node) > MAX_ARGUMENTS
    }
    assert found == _MORE_ARGUMENTS.keys()


def _arguments(path: Path, tree: ast.Module, node: ast.FunctionDef) -> int:
    if path.is_relative_to(PACKAGE / "cli") and node.decorator_list:
        return 0
    is_public = node in tree.body and node.name in dagster_airbyte_proto.__all__
    given = node.args.posonlyargs + node.args.args + ([] if is_public else node.args.kwonlyargs)
    rest = [each for each in (node.args.vararg, node.args.kwarg) if each]
    return len([each for each in (*given, *rest) if each.arg not in ("self", "cls")])


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph(PACKAGE.name)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while leaves := {module for module, others in imported.items() if not others & imported.keys()}:
        for module in leaves:
            del imported[module]
    # What is left is a circle, or imports one.
    users = {other for others in imported.values() for other in others}
    assert sorted(imported.keys() & users) == []


def test_no_two_public_classes_share_a_name(trees: dict[Path, ast.Module]) -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(_name(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_every_module_says_what_it_is(trees: dict[Path, ast.Module]) -> None:
    assert [_name(path) for path, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


def test_no_docstring_begins_with_a_noun_clause(trees: dict[Path, ast.Module]) -> None:
    """ "What a table is to the rest" says less than "The interface that every table format implements"."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    found = [
        f"{_name(path)}: {text.splitlines()[0]}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, kinds) and (text := ast.get_docstring(node)) and re.match(r"(What|How|Who|Whose) ", text)
    ]
    assert found == []


def test_pyspark_is_imported_whole_before_its_parts(trees: dict[Path, ast.Module]) -> None:
    """Only `import pyspark` waits for another thread that imports it. With `from pyspark.sql import …`, both threads
    fail at what the other has imported by halves."""
    wrong = []
    for path, tree in trees.items():
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        found = [ast.unparse(node) for node in imports if ast.unparse(node).split()[1].split(".")[0] == "pyspark"]
        if found and found[0] != "import pyspark":
            wrong.append(_name(path))
    assert wrong == []


def test_crash_points_are_armed_by_testing_alone(trees: dict[Path, ast.Module]) -> None:
    """No setting and no variable of the environment kills a sync: only a program that imports `testing` does."""
    armed = {
        _name(path)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.ImportFrom)
        and ("arm" in {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else node.attr == "arm")
    }
    assert armed == {"dagster_airbyte_proto/testing/crash_points.py"}
    points = trees[PACKAGE / "points.py"]
    imported = {node.module for node in ast.walk(points) if isinstance(node, ast.ImportFrom)}
    assert imported == {"collections.abc"} and not any(isinstance(node, ast.Import) for node in ast.walk(points))


def test_the_picture_of_the_rooms_is_that_of_the_code() -> None:
    assert rooms.PICTURE.read_text() == rooms.drawing(), "make docs draws it anew"


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg


def _glossary_section(title: str) -> list[list[str]]:
    """The rows of the table under a heading of the glossary."""
    section = GLOSSARY.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_the_words_of_the_glossary_are_those_of_the_code(trees: dict[Path, ast.Module]) -> None:
    known = {name for tree in trees.values() for name in _names(tree)}
    known |= {part for path in trees for part in path.relative_to(ROOT).with_suffix("").parts}
    rows = _glossary_section("Words")
    assert rows
    listed = {name for *_, code in rows for name in re.findall(r"`([A-Za-z_.]+)`", code)}
    assert sorted(name for name in listed if not set(name.split(".")) <= known) == []


def test_no_name_uses_a_word_that_the_glossary_replaced(trees: dict[Path, ast.Module]) -> None:
    replaced = {word for old, _ in _glossary_section("Words not used") for word in re.findall(r"`(\w+)`", old)}
    assert replaced
    found = {
        f"{_name(path)}: {name}"
        for path, tree in trees.items()
        for name in _names(tree)
        if replaced & set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))
    }
    assert sorted(found) == []
