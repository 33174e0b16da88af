"""What several threads may use at once is ready before they do."""

import ast
from collections.abc import Iterator
from pathlib import Path

import dagster_airbyte_proto

PACKAGE = Path(dagster_airbyte_proto.__file__).parent
PLAIN = {"str", "int", "float", "bool", "bytes", "None", "Raw", "Any"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def test_no_struct_is_decoded_but_by_a_decoder_that_its_module_made() -> None:
    """msgspec makes what it knows of a struct at its first use, and two threads at that can crash the process: seen as
    a segmentation fault in one sync of some hundreds. A decoder at module level is made under the import's lock."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("msgspec.json.decode", "msgspec.convert"):
                types = [keyword.value for keyword in node.keywords if keyword.arg == "type"]
                named = {name.id for type_ in types for name in ast.walk(type_) if isinstance(name, ast.Name)}
                found += [f"{path.name}:{node.lineno}"] if named - PLAIN else []
    assert found == []


def test_every_decoder_is_made_at_module_level() -> None:
    """Except those of structs that are made for a stream: no other thread has their types."""
    files = [path for path in PACKAGE.rglob("*.py") if any(_decoders_of_functions(path))]
    assert {path.parent for path in files} == {PACKAGE / "staging" / "lines"}


def _decoders_of_functions(path: Path) -> Iterator[ast.Call]:
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, FUNCTIONS):
            calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
            yield from (call for call in calls if ast.unparse(call.func) == "msgspec.json.Decoder")
