"""The command and the folder that a container starts with, by what its image says of them, and the code that it ends
with."""

from pathlib import Path
from typing import Any, cast

import docker
import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.docker.fifo import create_with_fifo
from dagster_airbyte_proto.launchers.docker.files import FOLDER, start_folder
from dagster_airbyte_proto.launchers.docker.images import Image, image_entrypoint
from dagster_airbyte_proto.launchers.docker.running_container import _signal_of, _was_out_of_memory

_ENTRY = {"Entrypoint": ["node", "main.js"]}
_SHELL = {"Entrypoint": ["docker-entrypoint.sh"], "Cmd": ["node", "main.js"]}
_BARE = {"Entrypoint": None, "Cmd": ["node", "main.js"]}
_AIRBYTE = {"Env": ["AIRBYTE_ENTRYPOINT=python main.py"]}


@pytest.mark.parametrize(
    ("config", "with_arguments", "without"),
    [
        (_ENTRY, ["node", "main.js"], ["node", "main.js"]),
        (_SHELL, ["docker-entrypoint.sh"], ["docker-entrypoint.sh", "node", "main.js"]),
        (_BARE, None, ["node", "main.js"]),
        (_AIRBYTE, ["python", "main.py"], ["python", "main.py"]),
    ],
)
def test_what_an_image_runs_by_itself_is_run_where_it_gets_no_arguments(
    config: dict[str, Any], with_arguments: list[str] | None, without: list[str]
) -> None:
    image, found = Image("acme/crm:1"), {"Config": config}
    assert image_entrypoint(image, found, has_arguments=False) == without
    if with_arguments is None:
        with pytest.raises(ConfigError, match="declares no command"):
            image_entrypoint(image, found, has_arguments=True)
    else:
        assert image_entrypoint(image, found, has_arguments=True) == with_arguments
    named = image._replace(command=("sh", "run.sh"))
    assert image_entrypoint(named, found, has_arguments=False) == ["sh", "run.sh"]


def test_it_starts_in_the_folder_of_its_image_where_it_gets_no_arguments() -> None:
    assert start_folder({"Config": {"WorkingDir": "/app"}}, has_arguments=False) == "/app"
    assert start_folder({"Config": {"WorkingDir": "/app"}}, has_arguments=True) == FOLDER
    assert start_folder({"Config": {"WorkingDir": ""}}, has_arguments=False) == FOLDER


@pytest.mark.parametrize(("code", "number"), [(1, None), (128, None), (137, 9), (139, 11), (255, None)])
def test_a_code_that_is_that_of_no_signal_is_a_code(code: int, number: int | None) -> None:
    """As the 255 of `System.exit(-1)`, which is no signal 127."""
    assert _signal_of(code) == number


@pytest.mark.parametrize(("is_noted", "code", "ended_for_it"), [(True, 137, True), (True, 0, False), (False, 1, False)])
def test_one_that_ends_well_has_not_ended_for_its_memory(is_noted: bool, code: int, ended_for_it: bool) -> None:
    """A process that it had started may have. An error that it reports then would be taken for that of the limit."""
    assert _was_out_of_memory({"OOMKilled": is_noted, "ExitCode": code}) is ended_for_it


def test_where_no_pipe_can_be_made_the_output_passes_through_the_daemon(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    daemon = cast("docker.APIClient", None)  # Nothing is created.
    assert create_with_fifo(daemon, "ours", lambda _: None, tmp_path / "file") is None
