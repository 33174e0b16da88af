"""What several threads may use at once is ready before they do."""

import ast
from pathlib import Path

import dagster_airbyte_proto

PACKAGE = Path(dagster_airbyte_proto.__file__).parent
PLAIN = {"str", "int", "float", "bool", "bytes", "None", "Raw", "Any"}


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
