"""What `deploy/` says is what Dagster and Spark take. Whether its services come up is tried by hand."""

import shlex
import sys
from pathlib import Path
from typing import Any

import yaml
from dagster._core.instance.config import dagster_instance_config
from dagster._core.workspace.config_schema import process_workspace_config

DEPLOY = Path(__file__).parents[1] / "deploy"


def written(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / name).read_text()))


def test_each_service_runs_a_program_of_ours_on_the_image_of_ours() -> None:
    services = written("docker-compose.yml")["services"]
    ours = {name: service for name, service in services.items() if "command" in service}
    assert ours.keys() == {"code", "web", "daemon", "spark", "worker"}
    for service in ours.values():
        assert Path(sys.executable).with_name(shlex.split(service["command"])[0]).exists()
        context = DEPLOY / service["build"]["context"]
        assert (context / service["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert {"-f", "example_project/definitions.py"} <= set(shlex.split(ours["code"]["command"]))


def test_the_code_server_is_where_the_others_look_for_it() -> None:
    workspace = written("workspace.yaml")
    assert process_workspace_config(workspace).success
    [server] = workspace["load_from"]
    command = shlex.split(written("docker-compose.yml")["services"][server["grpc_server"]["host"]]["command"])
    assert command[command.index("-p") + 1] == str(server["grpc_server"]["port"])


def test_the_instance_is_one_that_dagster_knows() -> None:
    assert dagster_instance_config(str(DEPLOY))[0]["storage"]["postgres"]
