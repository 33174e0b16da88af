"""The documents say what is so: their connection files are valid, and every command and option is written down."""

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import dagster_airbyte_proto.cli.main  # noqa: F401 - it is what gathers the commands
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.settings import Settings

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = (ROOT / "docs" / "command-line.md").read_text()


def snippets(language: str) -> list[tuple[str, str]]:
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [(page.name, text) for page in PAGES for text in fence.findall(page.read_text())]


def commands(group: click.Group, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name, command in group.commands.items():
        inside = commands(command, (*words, name)) if isinstance(command, click.Group) else []
        found += inside or [((*words, name), command)]
    return found


@pytest.mark.parametrize(("page", "text"), snippets("yaml"))
def test_a_connection_file_in_the_docs_is_a_valid_one(page: str, text: str, tmp_path: Path) -> None:
    written: dict[str, Any] = yaml.safe_load(text)
    path = tmp_path / "shop.yaml"
    path.write_text(text)
    assert Connection.from_file(path).connector.protocol == written["connector"]["protocol"], page


@pytest.mark.parametrize(("page", "text"), snippets("yaml settings"))
def test_a_settings_file_in_the_docs_is_a_valid_one(page: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "airbyte-proto.yaml"
    path.write_text(text)
    assert Settings.load(tmp_path, path).lease_seconds == yaml.safe_load(text)["lease_seconds"], page


@pytest.mark.parametrize(("words", "command"), commands(program), ids=lambda value: str(value))
def test_every_command_is_documented_with_its_options(words: tuple[str, ...], command: click.Command) -> None:
    row = next((line for line in COMMANDS.splitlines() if f"`{' '.join(words)}" in line), None)
    assert row is not None, words
    shared = {"--json", "--home", "--settings", "--help"}
    for parameter in command.params:
        for option in parameter.opts:
            assert not option.startswith("--") or option in shared or option in row, (words, option)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)


def test_the_example_connection_is_a_valid_one() -> None:
    assert Connection.from_file(ROOT / "example_project" / "connections" / "shop.yaml").name == "shop"
