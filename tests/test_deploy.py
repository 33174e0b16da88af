"""Dagster, Spark and PostgreSQL take what `deploy/` says. Whether its services come up is tried by hand."""

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config
from dagster._core.workspace.config_schema import process_workspace_config

from tests.support.postgres import PostgresServer
from tests.sync.shop import until

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


def test_each_service_has_the_secrets_that_it_needs_and_no_other() -> None:
    services = written("docker-compose.yml")["services"]
    holders: dict[str, set[str]] = {}
    for name, service in services.items():
        for secret in re.findall(r"\$\{(\w+)", str(service.get("environment"))):
            holders.setdefault(secret, set()).add(name)
    assert holders == {
        "POSTGRES_PASSWORD": {"database"},
        "DAGSTER_PASSWORD": {"database", "code", "web", "daemon"},
        "STATE_PASSWORD": {"database", "code"},
        "SPARK_SECRET": {"code", "spark", "worker"},
    }
    assert {name for name, service in services.items() if "cluster" in service["networks"]} == {
        "code",
        "spark",
        "worker",
    }


@pytest.mark.postgres
def test_the_roles_of_the_database_reach_their_own_and_make_nothing_else(postgres_server: PostgresServer) -> None:
    superuser = postgres_server.conninfo()
    passwords = {"DAGSTER_PASSWORD": 'it\'s a "secret"', "STATE_PASSWORD": "other"}
    place = dict(zip(("PGHOST", "PGPORT"), re.findall(r"(?:host|port)=(\S+)", superuser), strict=True))
    environment = {"PATH": os.environ["PATH"], "POSTGRES_USER": "tester", **place, **passwords}
    try:
        subprocess.run(["sh", DEPLOY / "roles.sh"], env=environment, check=True, capture_output=True)
        for role, other in (("dagster", "state"), ("state", "dagster")):
            mine = superuser.replace("user=tester dbname=postgres", f"user={role} dbname={role}")
            with psycopg.connect(mine, autocommit=True) as connection:
                connection.execute("CREATE TABLE t (a int)")
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute("CREATE ROLE stranger SUPERUSER")
            with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
                psycopg.connect(mine.replace(f"dbname={role}", f"dbname={other}"))
    finally:
        with psycopg.connect(superuser, autocommit=True) as connection:
            for role in ("dagster", "state"):
                connection.execute(f"DROP DATABASE IF EXISTS {role}".encode())
                connection.execute(f"DROP ROLE IF EXISTS {role}".encode())


_COUNT = """
import subprocess, sys
from pathlib import Path
from dagster_airbyte_proto.tables.spark.session import start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
_, master, secret = sys.stdin.read().split()
config = {"spark.master": master, "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m",
          "spark.executor.cores": "1", "spark.cores.max": "1"}
if secret != "none":
    config |= {"spark.authenticate": "true", "spark.authenticate.secret": secret}
session = start_session(SparkSettings(sys.argv[1], format="parquet", config=config, jvm_log=Path(sys.argv[1], "jvm")))
print("rows", session.range(100).repartition(2).count())
print("seen", secret in subprocess.run(["ps", "axww"], capture_output=True, text=True, check=True).stdout)
"""


def _says(log: Path, text: str) -> bool:
    return text in log.read_text()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The cluster of the compose file on this machine, with the secret `right-one`."""
    services, found = written("docker-compose.yml")["services"], socket.create_server(("127.0.0.1", 0))
    address = f"spark://127.0.0.1:{found.getsockname()[1]}"
    found.close()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # its scripts look for a Python with Spark
    with ExitStack() as stack:
        for name, is_up in (("spark", "I have been elected leader"), ("worker", "Successfully registered")):
            words = services[name]["command"].replace("spark://spark:7077", address).replace("--host spark", "")
            words = words.replace("--work-dir /tmp", f"--work-dir {tmp_path}").replace("--port 7077", "")
            if name == "spark":
                words += f" --host 127.0.0.1 --port {address.rpartition(':')[2]}"
            environment = {**services[name]["environment"], "_SPARK_AUTH_SECRET": "right-one"}
            program, *arguments = shlex.split(f"{words} --webui-port 0")
            log = tmp_path / name
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [Path(sys.executable).with_name(program), *arguments], stderr=output, stdout=output,
                    env={**os.environ, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
                )  # fmt: skip
            stack.callback(_end, process)
            until(partial(_says, log, is_up), f"{is_up} ({name})")
        assert "REST server" not in (tmp_path / "spark").read_text()
        yield address


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:  # Seen on a busy machine: the JVM's shutdown waits for ever.
        process.kill()
        process.wait()


@pytest.mark.nightly
@pytest.mark.spark
def test_the_cluster_works_for_who_has_its_secret_only(cluster: str, tmp_path: Path) -> None:
    def count(secret: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", _COUNT, str(tmp_path)]
        told = f"with {cluster} {secret}"
        return subprocess.run(command, input=told, capture_output=True, text=True, timeout=120, check=False)

    assert count("right-one").stdout == "rows 100\nseen False\n"
    for secret in ("none", "wrong-one"):
        refused = count(secret)
        assert (refused.returncode, refused.stdout) == (1, "")
