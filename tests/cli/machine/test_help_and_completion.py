"""The help has an example of each command and is not cut off; shells complete commands, files and connections."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import dagster_airbyte_proto.cli.main  # registers the commands  # noqa: F401
from dagster_airbyte_proto.cli.examples import EXAMPLES
from dagster_airbyte_proto.cli.help_pages import TASKS
from dagster_airbyte_proto.cli.program import program
from tests.cli.conftest import USERS, Place
from tests.sync.read.test_failures import mounted

PROGRAMS = Path(sys.executable).parent


def commands(group: click.Group, words: tuple[str, ...] = ()) -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, each in group.commands.items():
        path = (*words, name)
        found |= commands(each, path) if isinstance(each, click.Group) else {" ".join(path): each}
    return found


COMMANDS = commands(program)


def complete(place: Place, line: str, **environment: str) -> list[str]:
    """The completions of a line whose last word is being typed."""
    ended = subprocess.run(
        [PROGRAMS / "airbyte-proto"],
        env={**os.environ, "_AIRBYTE_PROTO_COMPLETE": "bash_complete", "COMP_WORDS": line,
             "COMP_CWORD": str(line.count(" ")), **environment},
        cwd=place.folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ended.stderr == ""
    return [each.partition(",")[2] for each in ended.stdout.split()]


@pytest.mark.parametrize("words", sorted(COMMANDS))
def test_the_help_of_each_command_has_an_example_that_runs(place: Place, words: str) -> None:
    shown = place.run(*words.split(), "--help").out
    example = shown.partition("\nExample:\n  ")[2].rstrip("\n")
    called, *arguments = shlex.split(example.removeprefix('eval "$(').removesuffix(')"'))
    assert (called, arguments[: words.count(" ") + 1]) == ("airbyte-proto", words.split())
    command = COMMANDS[words]
    context = click.Context(command)
    command.parse_args(context, arguments[words.count(" ") + 1 :])


def test_no_example_is_of_a_command_that_is_not_there() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("columns", ["40", "80", "160"])
@pytest.mark.parametrize("words", [[], ["state"], ["table"], ["envs"]])
def test_no_help_is_cut_off(place: Place, words: list[str], columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = " ".join(place.run(*words, "--help").out.split())
    group: click.Command = program
    for word in words:
        assert isinstance(group, click.Group)
        group = group.commands[word]
    assert isinstance(group, click.Group)
    for command in group.commands.values():
        first = re.split(r"\n\n|(?<=\.)\s", str(command.help))[0]
        assert " ".join(first.split()).removesuffix(".") in shown
    assert "..." not in shown.partition(" COMMAND [ARGS]... ")[2]


def test_what_is_a_commands_own_comes_before_what_all_commands_have(place: Place) -> None:
    shown = place.run("sync", "--help").out
    own, shared = (shown.index(f"\n{title}:\n") for title in ("Options", "Options of every command"))
    assert own < shown.index("  --refresh ") < shared < shown.index("  --home DIR") < shown.index("\nExample:\n")
    shown = place.run("state", "--help").out
    assert shown.index("  rollback ") < shown.index("  --home DIR")


def test_the_help_of_the_program_lists_each_command_under_one_task() -> None:
    assert sorted(name for names in TASKS.values() for name in names) == sorted(program.commands)


def test_the_version_is_an_option_too(place: Place) -> None:
    shown = place.run("--version")
    assert shown.code == 0 and re.fullmatch(r"airbyte-proto \d+\.\d+\.\d+\S*\n", shown.out)
    assert place.json("version")["airbyte_proto"] in shown.out


class TestCompletion:
    def test_files_and_stored_names_complete(self, place: Place) -> None:
        place.run("sync", place.connect(USERS))
        (place.folder / "connections").mkdir()
        (place.folder / place.connect(USERS, "orders")).rename(place.folder / "connections" / "orders.yaml")
        (place.folder / "other.yaml").write_text("streams: {}\n")
        assert complete(place, "airbyte-proto sync ") == ["shop.yaml", "connections/orders.yaml"]
        assert complete(place, "airbyte-proto state show sh") == ["shop.yaml", "shop"]
        assert complete(place, "airbyte-proto state show connections/o") == ["connections/orders.yaml"]
        assert complete(place, f"airbyte-proto check {place.folder}/sh") == [f"{place.folder}/shop.yaml"]
        assert complete(place, "airbyte-proto table show sho") == ["shop.yaml", "shop"]
        assert complete(place, "airbyte-proto status sh") == ["shop.yaml", "shop"]
        assert complete(place, "airbyte-proto sync nothing") == []
        for words in ("sync-all shop.yaml", "push rejected", "push"):
            assert complete(place, f"airbyte-proto {words} conn") == ["connections/orders.yaml"], words
        assert complete(place, "airbyte-proto push rej") == ["rejected"]
        home = place.folder / ".airbyte-proto"
        assert complete(place, "airbyte-proto state show sh", AIRBYTE_PROTO_HOME=str(home)) == ["shop.yaml", "shop"]

    def test_a_store_on_a_read_only_disk_is_read(self, place: Place) -> None:
        place.run("sync", place.connect(USERS))
        home = place.folder / ".airbyte-proto"
        with mounted(home, "--bind", "-o", "ro", str(home)):
            assert complete(place, "airbyte-proto state show sh") == ["shop.yaml", "shop"]
            schema = place.json("version")["state_store_schema"]
        assert schema == place.json("version")["state_store_schema"] > 0

    def test_commands_and_options_complete(self, place: Place) -> None:
        assert complete(place, "airbyte-proto con") == ["config", "connectors", "containers"]
        assert "--refresh" in complete(place, "airbyte-proto sync shop.yaml --re")

    def test_completing_makes_nothing_and_says_nothing_of_a_broken_file(self, place: Place) -> None:
        (place.folder / "airbyte-proto.yaml").write_text("no: [such")
        (place.folder / "broken.yaml").write_bytes(b"connector: \xff{")
        assert complete(place, "airbyte-proto state show ") == ["broken.yaml"]
        assert not (place.folder / ".airbyte-proto").exists()

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_the_script_of_each_shell_is_printed(self, place: Place, shell: str) -> None:
        script = place.run("completion", shell).out
        assert f"_AIRBYTE_PROTO_COMPLETE={shell}_complete" in script and "airbyte-proto" in script
        assert place.json("completion", shell)["script"].strip() == script.strip()

    def test_a_real_bash_completes_with_it(self, place: Place) -> None:
        place.connect(USERS)
        program = (
            'eval "$(airbyte-proto completion bash)"; COMP_WORDS=(airbyte-proto sync sh); COMP_CWORD=2;'
            " _airbyte_proto_completion airbyte-proto; echo ${COMPREPLY[@]}"
        )
        environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
        ended = subprocess.run(
            ["bash", "-c", program], env=environment, cwd=place.folder, capture_output=True, text=True, check=False
        )
        assert ended.stdout == "shop.yaml\n", ended.stderr
