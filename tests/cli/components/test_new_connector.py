"""`init --new-connector`: a folder with a small connector, which builds, runs, and lands its rows."""

import datetime
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.cli.conftest import Place
from tests.support.needs import lacks

pytestmark = pytest.mark.everyday(
    "c",
    "test_what_cannot_be_written_is_refused",
    "test_a_compiler_that_fails_is_shown",
    "test_the_example_is_built_and_its_rows_land",
)

_BEGAN = datetime.datetime(2026, 1, 1)
_COLUMNS = ("id", "sensor", "celsius", "read_at")
_EXAMPLE = Path(__file__).parents[3] / "example_project"


def _rows(first: int, last: int) -> list[dict[str, Any]]:
    """The rows that a skeleton makes up."""
    return [
        {
            "id": number,
            "sensor": f"sensor-{number % 8}",
            "celsius": None if number % 10 == 0 else number % 40 + 0.5,
            "read_at": _BEGAN + datetime.timedelta(seconds=number),
        }
        for number in range(first, last + 1)
    ]


def _needs(language: str) -> None:
    """Skips the test where the language's compiler cannot be had."""
    if language == "python" and find_spec("componentize_py") is None:
        lacks("componentize-py", "no componentize-py (pip install componentize-py)")
    if language == "rust":
        if shutil.which("cargo") is None:
            lacks("rust", "no cargo (rustup.rs)")
        found = subprocess.run(
            ["rustc", "--print", "target-libdir", "--target", "wasm32-wasip2"], capture_output=True, text=True
        )  # fmt: skip
        if not Path(found.stdout.strip()).is_dir():
            lacks("rust", "this Rust has no target wasm32-wasip2 (rustup target add wasm32-wasip2)")


def _landed(place: Place) -> list[dict[str, Any]]:
    tables = FolderTables(place.folder / ".airbyte-proto" / "warehouse")
    rows = tables.rows(TableName("weather", "readings")).select(list(_COLUMNS)).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def _built(place: Place) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "build.py"], cwd=place.folder / "weather", capture_output=True, text=True, timeout=900
    )  # fmt: skip


def _configure(place: Place, **config: Any) -> str:
    file = place.folder / "weather" / "connection.yaml"
    text = file.read_text()
    before, _, after = text.partition("config: ")
    file.write_text(f"{before}config: {json.dumps(config)}\n{after.partition(chr(10))[2]}")
    return str(file)


@pytest.mark.parametrize("language", ["c", "python", "rust"])
def test_a_new_connector_builds_and_its_rows_land(place: Place, language: str) -> None:
    _needs(language)
    written = place.json("init", "--new-connector", "rapidbyte", "--language", language, "weather")
    assert {"build.py", "README.md", "connection.yaml", "wit/rapidbyte-connector.wit"} <= set(written["files"])
    assert written["then"][-2:] == ["python build.py", "airbyte-proto sync connection.yaml"]
    built = _built(place)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "# weather" in (place.folder / "weather" / "README.md").read_text()

    connection = _configure(place, rows=25_000)
    assert Connection.from_file(Path(connection)).name == "weather"
    assert place.json("check", connection)["status"] == "succeeded"
    assert place.json("sync", connection)["streams"]["readings"]["committed"] == 25_000
    assert _landed(place) == _rows(1, 25_000)

    _configure(place, rows=25_010)
    assert place.json("sync", connection)["streams"]["readings"]["committed"] == 10
    assert _landed(place) == _rows(1, 25_010)

    _configure(place, rows=-1)
    refused = place.run("sync", connection)
    assert (refused.code, "rows" in refused.err) == (2, True), refused.err


def test_the_example_is_built_and_its_rows_land(place: Place) -> None:
    for part in ("connectors/stock", "connections"):
        shutil.copytree(_EXAMPLE / part, place.folder / part, ignore=shutil.ignore_patterns("*.wasm"))
    file = place.folder / "connections" / "stock.yaml"
    unbuilt = place.run("check", str(file))
    assert (unbuilt.code, "source.wasm" in unbuilt.err) == (2, True), unbuilt.err
    built = subprocess.run(
        [sys.executable, "connectors/stock/build.py"], cwd=place.folder, capture_output=True, text=True, timeout=900
    )
    assert built.returncode == 0, built.stdout + built.stderr

    assert place.json("check", str(file))["status"] == "succeeded"
    stock = place.json("sync", str(file))["streams"]["stock"]
    assert (stock["committed"], stock["metrics"]) == (300, {"source": {"counts": 300.0}})
    file.write_text(file.read_text().replace("counts: 300", "counts: 305"))
    assert place.json("sync", str(file))["streams"]["stock"]["committed"] == 5
    rows = FolderTables(place.folder / ".airbyte-proto" / "warehouse").rows(TableName("shop", "stock")).to_pylist()
    columns = ("id", "warehouse", "product_id", "pieces")
    found = sorted(tuple(row[name] for name in columns) for row in rows)
    cities = ("Bremen", "Lyon", "Porto")
    assert found == [
        (number, cities[number % 3], number % 100 + 1, None if number % 25 == 0 else number * 7 % 50)
        for number in range(1, 306)
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--new-connector", "rapidbyte", "--language", "cobol", "new"), "Choose c, python, rust."),
        (("--new-connector", "rapidbyte", "new"), "--new-connector needs --language: c, python, rust."),
        (("--new-connector", "airbyte", "--language", "c"), "is not 'rapidbyte'"),
        (("--language", "c", "new"), "--new-connector takes --language and NAME"),
        (("--new-connector", "rapidbyte", "--language", "c", "--force"), "and no other option of init"),
        (("--new-connector", "rapidbyte", "--language", "c", "taken"), "taken is there already"),
        (("--new-connector", "rapidbyte", "--language", "c", "taken/mine.c/new"), "using a file: taken/mine.c/new"),
        (("--no-check",), "Missing argument 'NAME'"),
    ],
)
def test_what_cannot_be_written_is_refused(place: Place, words: tuple[str, ...], says: str) -> None:
    (place.folder / "taken").mkdir()
    (place.folder / "taken" / "mine.c").write_text("")
    refused = place.run("init", *words)
    assert (refused.code, says in refused.err) == (2, True), refused.err
    assert [*(place.folder / "taken").iterdir()] == [place.folder / "taken" / "mine.c"]
    assert not (place.folder / "new").exists()


def test_a_compiler_that_fails_is_shown(place: Place) -> None:
    place.json("init", "--new-connector", "rapidbyte", "--language", "c", "weather")
    source = place.folder / "weather" / "source.c"
    source.write_text(source.read_text().replace("text context = ", "text contest = "))
    failed = _built(place)
    assert (failed.returncode, "use of undeclared identifier 'context'" in failed.stderr) == (1, True), failed.stderr
    manifest = place.folder / "weather" / "manifest.json"
    manifest.write_text('{"roles": {"source": {}, "sink": {}}}')
    failed = _built(place)
    assert (failed.returncode, "names 2 roles (source, sink) and not one" in failed.stderr) == (2, True)


@pytest.mark.parametrize(
    ("language", "says"),
    [("c", "pip install 'ziglang'"), ("python", "pip install 'componentize-py'"), ("rust", "rustup target add")],
)
def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str, says: str) -> None:
    from dagster_airbyte_proto.connector_kit import build
    from dagster_airbyte_proto.errors import ConfigError

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])
    sys.path_importer_cache.clear()
    with pytest.raises(ConfigError, match=says):
        getattr(build, f"component_of_{language}")(tmp_path, "source")
