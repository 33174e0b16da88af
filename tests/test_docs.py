"""The documents say what is so: their snippets run, their files are valid, and every command and name is in them."""

import html
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import click
import dagster as dg
import pytest
import yaml
from dagster._annotations import is_superseded
from dagster._cli import create_dagster_cli
from dagster._core.instance.config import dagster_instance_config
from dagster_dg_cli.cli import create_dg_cli

import dagster_airbyte_proto
import dagster_airbyte_proto.cli.main  # it is what gathers the commands
from dagster_airbyte_proto import Connection, ConnectorComponent, build_connection_jobs
from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.testing.fake_source import command
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from docs import check_links, terminal

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "example_project"
TUTORIAL = "docs/tutorial.md"
_IN_ORDER = (TUTORIAL, "docs/write-a-connector.md")
"""Pages whose files and commands belong together: tests of their own run them in their order."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = (ROOT / "docs" / "command-line.md").read_text()
_FENCE = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)"| (?P<word>\w+))?\n(?P<text>.*?)^```', re.M | re.S
)


class Snippet(NamedTuple):
    """`title` is the file that it is to be written to, where the page says so. `number` is its place among those of the
    page: an id with its line would be another after each edit, and have no seconds on record."""

    page: str
    number: int
    language: str
    title: str
    text: str


@cache
def snippets(*languages: str) -> list[Any]:
    found = [
        Snippet(
            page.relative_to(ROOT).as_posix(),
            number,
            fence["language"],
            fence["title"] or fence["word"] or "",
            fence["text"],
        )
        for page in PAGES
        for number, fence in enumerate(_FENCE.finditer(page.read_text()), start=1)
    ]
    return [pytest.param(each, id=f"{each.page}-{each.number}") for each in found if each.language in languages]


def commands(group: click.Group, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name, each in group.commands.items():
        inside = commands(each, (*words, name)) if isinstance(each, click.Group) else []
        found += inside or [((*words, name), each)]
    return found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a reader stands: a folder with connections whose catalogs were saved."""
    shutil.copytree(EXAMPLE / "connections", tmp_path / "connections")
    shutil.copy(EXAMPLE / "connections" / "shop.yaml", tmp_path)
    pushed = next(each.values[0].text for each in snippets("yaml") if "push:" in each.values[0].text)
    (tmp_path / "crm.yaml").write_text(pushed)
    shutil.copytree(EXAMPLE / "catalogs", tmp_path / ".airbyte-proto" / "catalogs")
    monkeypatch.delenv("AIRBYTE_PROTO_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _python(kind: str) -> list[Any]:
    """The snippets of one kind: whole tests, which have a file name, syncs that need Spark, and all others."""

    def kind_of(snippet: Snippet) -> str:
        if snippet.title:
            return "tests"
        return "syncs" if "= sync(" in snippet.text else "others"

    found = [each for each in snippets("python") if each.values[0].page not in _IN_ORDER]
    return [each for each in found if kind_of(each.values[0]) == kind]


@pytest.mark.parametrize("snippet", _python("others"))
def test_python_in_the_docs_runs(snippet: Snippet, project: Path) -> None:
    made: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(snippet.text, snippet.page, "exec"), made)

    if "defs" in made:
        dg.Definitions.validate_loadable(made["defs"])


@pytest.mark.spark
@pytest.mark.parametrize("snippet", _python("syncs"))
def test_a_sync_in_the_docs_brings_rows(snippet: Snippet, project: Path) -> None:
    source = {"protocol": "airbyte", "launch": {"kind": "local", "command": command()}}
    config = {"scenario": {"streams": {"users": {"records": 3}}}}
    (project / "shop.yaml").write_text(yaml.safe_dump({"connector": source, "config": config}))

    done = subprocess.run([sys.executable, "-c", snippet.text], check=True, capture_output=True, text=True)

    assert done.stdout == "3\n"


@pytest.mark.parametrize("snippet", _python("tests"))
def test_a_test_in_the_docs_passes(snippet: Snippet, project: Path) -> None:
    (project / snippet.title).write_text(snippet.text)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", snippet.title]

    done = subprocess.run(words, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def _connection(snippet: Snippet, project: Path) -> None:
    path = project / "connections" / "written.yaml"
    path.write_text(snippet.text)
    written: dict[str, Any] = yaml.safe_load(snippet.text)
    assert Connection.from_file(path).connector.protocol == written["connector"]["protocol"]


def _component(snippet: Snippet, project: Path) -> None:
    folder = project / "components" / "src" / "shop_lake" / "defs" / "written"
    folder.mkdir(parents=True)
    os.chdir(folder)
    written = yaml.safe_load(snippet.text)
    assert written["type"] == "dagster_airbyte_proto.ConnectorComponent"
    component = ConnectorComponent.from_attributes_dict(attributes=written["attributes"])
    catalog = project / ".airbyte-proto" / "catalogs" / f"{component.connected.name}.json"
    made = component.build_defs_from_state(dg.ComponentTree.for_test().load_context, catalog)
    assets, *_ = made.assets or ()
    assert isinstance(assets, dg.AssetsDefinition)
    assert assets.keys


def _settings(snippet: Snippet, project: Path) -> None:
    path = project / "airbyte-proto.yaml"
    path.write_text(snippet.text)
    assert Settings.load(project, path).lease_seconds == yaml.safe_load(snippet.text)["lease_seconds"]


def _run_config(snippet: Snippet, project: Path) -> None:
    jobs = build_connection_jobs(Connection.from_file(project / "connections" / "shop.yaml"))
    [job] = [each for each in jobs if each.name == snippet.title]
    assert dg.validate_run_config(job, yaml.safe_load(snippet.text))


def _instance(snippet: Snippet, project: Path) -> None:
    (project / "dagster.yaml").write_text(snippet.text)
    assert dagster_instance_config(str(project))[0]


def _compose(snippet: Snippet, project: Path) -> None:
    services = yaml.safe_load((ROOT / "deploy" / "docker-compose.yml").read_text())["services"]
    assert yaml.safe_load(snippet.text)["services"].keys() <= services.keys()


_CHECKS: Mapping[str, Callable[[Snippet, Path], None]] = {
    "settings": _settings,
    "airbyte-proto.yaml": _settings,
    "rollback_shop": _run_config,
    "dagster.yaml": _instance,
    "deploy/docker-socket.yml": _compose,
}


def test_no_sample_has_the_setting_with_which_its_source_loses_rows() -> None:
    samples = [each.values[0] for each in snippets("yaml") if "always_updated" in each.values[0].text]
    assert [each.page for each in samples if yaml.safe_load(each.text)["config"]["always_updated"] is not True] == []
    assert {"README.md", "docs/relay.md"} <= {each.page for each in samples}


@pytest.mark.parametrize("snippet", [each for each in snippets("yaml") if each.values[0].page not in _IN_ORDER])
def test_yaml_in_the_docs_is_valid(snippet: Snippet, project: Path) -> None:
    if snippet.title:
        _CHECKS[snippet.title](snippet, project)
    elif "type" in yaml.safe_load(snippet.text):
        _component(snippet, project)
    else:
        _connection(snippet, project)


def test_the_picture_of_a_terminal_shows_commands_that_are_taken() -> None:
    shown = _lines_in_terminal(terminal.PICTURE)
    assert "docs/pictures/terminal.svg" in (ROOT / "README.md").read_text()
    for shown_command in terminal.COMMANDS:
        assert f"$ {shown_command}" in shown
        _accepts(program, shlex.split(shown_command)[1:])


def test_the_picture_of_a_terminal_has_the_forms_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands that need no JVM, on a fake source with as many records: each line is in the picture. `query` and
    the progress, which only a terminal gets, have the test by night."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", f"{terminal.WIDTH}")
    streams = {name: {"records": rows} for name, rows in (("products", 100), ("users", 1000), ("purchases", 1000))}
    source = {"protocol": "airbyte", "launch": {"kind": "local", "command": command()}}
    (tmp_path / "shop.yaml").write_text(
        yaml.safe_dump({"connector": source, "config": {"scenario": {"streams": streams}}})
    )
    (tmp_path / "airbyte-proto.yaml").write_text(yaml.safe_dump({"catalog": {"format": FOLDER_FORMAT}}))
    shown = _lines_in_terminal(terminal.PICTURE)
    for words in (terminal.BEFORE, *(each for each in terminal.COMMANDS if " query " not in each)):
        capsys.readouterr()
        assert main(shlex.split(words)[1:]) == 0
        printed = capsys.readouterr().out.replace(" shop.", " lake.shop.")  # Folder tables are in no catalog.
        lines = [_without_varying(line) for line in printed.splitlines()]
        if words != terminal.BEFORE:
            assert lines and [line for line in lines if line not in shown] == [], "make pictures"


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.connectors
def test_the_picture_of_a_terminal_is_what_its_commands_print_today(tmp_path: Path) -> None:
    """But for times, sizes, the rates of rows, and the widths of columns that follow from them."""
    terminal.take(tmp_path / "terminal.svg")
    assert _lines_in_terminal(tmp_path / "terminal.svg") == _lines_in_terminal(terminal.PICTURE), "make pictures"


_VARYING = (
    ("─+", "─"),
    (r"[\d.]+ (s|min|h)\b", "N s"),
    (r"[\d.]+ (B|KiB|MiB)\b", "N KiB"),
    (r"[\d,]+ (?=N KiB N s)", "N "),  # rows a second
)


def _lines_in_terminal(picture: Path) -> list[str]:
    """The text of a picture of a terminal, without what differs from run to run."""
    lines: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in re.findall(r'<text class="terminal-r[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>',
                                 picture.read_text(), re.S):  # fmt: skip
        lines.setdefault(float(y), []).append((float(x), html.unescape(text)))
    found = []
    for _, pieces in sorted(lines.items()):
        found.append(_without_varying(" ".join(text for _, text in sorted(pieces))))
    return found


def _without_varying(line: str) -> str:
    line = " ".join(line.split())
    for varying, mask in _VARYING:
        line = re.sub(varying, mask, line)
    return line


def test_the_screen_of_a_terminal_is_what_was_printed_last() -> None:
    progress = "\x1b[?25l users 1\r\n all 1\r\n\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K users 20\r\n all 20\r\n\x1b[?25h"
    assert terminal.screen(f"NOTE\r\n{progress}done\r\n") == ["NOTE", " users 20", " all 20", "done", ""]


def _lines(snippet: Snippet) -> Iterator[list[str]]:
    for line in snippet.text.splitlines():
        if words := shlex.split(line.removeprefix("$ "), comments=True):
            yield words


_PROGRAMS: Mapping[str, Callable[[], click.Group]] = {
    "dagster": create_dagster_cli,
    "airbyte-proto": lambda: program,
    "dg": create_dg_cli,
}


def _accepts(group: click.Command, words: list[str]) -> None:
    """The command is there, not superseded, with these options. What a component takes is known in a project only."""
    context = click.Context(group)
    while isinstance(group, click.Group) and words[:2] != ["defs", "dagster_airbyte_proto.ConnectorComponent"]:
        found = group.get_command(context, words.pop(0))
        assert found is not None
        group, context = found, click.Context(found, parent=context)
    if not isinstance(group, click.Group):
        assert not is_superseded(group.callback)
        _, too_many, _ = group.make_parser(context).parse_args(words)
        assert not too_many


@pytest.mark.parametrize("snippet", snippets("sh", "console"))
def test_commands_in_the_docs_are_taken(snippet: Snippet) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    for called, *words in _lines(snippet):
        if called == "make":
            assert words[0] in targets
        elif called not in (".", "cd", "echo", "pip", "python3", "uv", "uvx"):
            _accepts(_PROGRAMS[called](), words)


@pytest.mark.parametrize(("words", "command"), commands(program), ids=lambda value: str(value))
def test_every_command_is_documented_with_its_options(words: tuple[str, ...], command: click.Command) -> None:
    row = next((line for line in COMMANDS.splitlines() if f"`{' '.join(words)}" in line), None)
    assert row is not None, words
    options = COMMANDS.partition(f"\n### Options of `{' '.join(words)}`\n")[2].partition("\n#")[0]
    shared = {"--json", "--verbose", "--home", "--settings", "--help"}
    for parameter in command.params:
        for option in parameter.opts:
            assert not option.startswith("--") or option in shared or f"`{option}" in options or option in row, option


def test_every_public_name_is_in_the_reference() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    told = {path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", reference, re.M)}
    assert set(dagster_airbyte_proto.__all__) <= told


def test_every_attribute_of_the_component_is_documented() -> None:
    page = (ROOT / "docs" / "dagster" / "assets.md").read_text()
    rows = "".join(line for line in page.splitlines() if line.startswith("| `"))
    for field in fields(ConnectorComponent):
        assert f"`{field.name}`" in rows, field.name


def test_the_readme_is_short_and_says_what_the_package_takes() -> None:
    """Versions and extras as `pyproject.toml` declares them."""
    readme = (ROOT / "README.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(readme.splitlines()) < 200
    for page in (readme, (ROOT / "docs" / "index.md").read_text()):
        first, second, *_ = page.split("\n## ")[1:]
        assert first.startswith("Install\n") and "\npip install " in first and second
    assert project["requires-python"] == ">=3.11,<3.14" and "Python 3.11 to 3.13" in readme
    assert {"dagster>=1.13,<1.14", "pyspark>=4.0.1,<4.2"} <= set(project["dependencies"])
    assert "PySpark 4.0 or 4.1 and Dagster 1.13" in readme
    pythons = [each.rpartition(" ")[2] for each in project["classifiers"] if "Python :: 3" in each]
    assert pythons == ["3.11", "3.12", "3.13"]
    assert [extra for extra in project["optional-dependencies"] if extra != "dev" and f"`{extra}`" not in readme] == []
    assert project["license"] == "Apache-2.0" and "Apache License" in (ROOT / project["license-files"][0]).read_text()
    assert project["authors"] and all("Linux" in each for each in project["classifiers"] if "Operating System" in each)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)


def test_every_decision_is_in_the_list_of_them() -> None:
    """With its title, and the word where another has superseded it."""
    folder = ROOT / "docs" / "decisions"
    listed = [
        " ".join(entry.split()) for entry in re.split(r"^- |^#.*$", (folder / "README.md").read_text(), flags=re.M)
    ]
    entries = {entry.partition("](")[2].partition(")")[0]: entry for entry in listed if entry.startswith("[")}
    pages = {page.name: page.read_text() for page in folder.glob("[0-9]*.md")}
    assert entries.keys() == pages.keys()
    for name, text in pages.items():
        title = re.sub(r"^# (\d+[.:] )?", "", text.splitlines()[0])
        assert entries[name].startswith(f"[{name[:4]}: {title}]({name}): "), name
        assert ("**Superseded**" in text) == ("**Superseded**" in entries[name]), name


def test_the_pages_are_built_without_a_warning(tmp_path: Path) -> None:
    mkdocs = Path(sys.executable).with_name("mkdocs")
    built = subprocess.run(
        [mkdocs, "build", "--no-strict", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert built.stderr == ""
    assert "connector_assets" in (tmp_path / "site" / "reference" / "index.html").read_text()
    assert list(check_links.dead_links(tmp_path / "site")) == []


def test_a_dead_link_of_the_built_pages_is_found(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "index.html").write_text('<h1 id="here">x</h1><a href="../#top">x</a>')
    links = ("there/", "there/#here", "there/#gone", "gone/", "#gone", "https://example.org/gone")
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    (tmp_path / "index.html").write_text(f'<p id="top">{anchors}<img src="gone.png"></p>')
    dead = list(check_links.dead_links(tmp_path))
    assert [line.split(": ")[1] for line in dead] == ["there/#gone", "gone/", "#gone", "gone.png"]
