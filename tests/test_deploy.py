"""Dagster, Spark and PostgreSQL take what `deploy/` says. Whether its services come up is tried by hand."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

import psycopg
import pyspark
import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config
from dagster._core.workspace.config_schema import process_workspace_config

from dagster_airbyte_proto.tables.spark.session import spark_config
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.support.network.ports import free_port
from tests.support.postgres import PostgresServer
from tests.sync.shop import until
from tests.test_example import copied_example, home_with_connectors

DEPLOY = Path(__file__).parents[1] / "deploy"
TOKEN = "r1ght;t=ken"  # Of characters that mean something in a URL of Spark Connect.
_TOKEN_SETTING = "spark.connect.authenticate.token"


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


def test_the_connect_server_has_its_token_and_nothing_of_the_database() -> None:
    override = written("docker-compose.connect.yml")["services"]
    secrets = {name: set(re.findall(r"\$\{(\w+)", str(service["environment"]))) for name, service in override.items()}
    assert secrets == {"connect": {"SPARK_SECRET", "SPARK_TOKEN"}, "code": {"SPARK_TOKEN"}}
    assert override["connect"]["networks"] == ["cluster"]
    first = written("docker-compose.yml")["services"]
    assert {key: override["connect"][key] for key in ("image", "build")} == {
        key: first["code"][key] for key in ("image", "build")
    }
    # Runs are clients, so they lose what they needed to submit to the cluster.
    assert [override["code"]["environment"][name] for name in ("SPARK_MASTER", "SPARK_SECRET")] == ["", ""]


@pytest.mark.skipif(not pyspark.__version__.startswith("4.1."), reason="the image has Spark 4.1")
def test_the_connect_server_has_the_jars_and_the_catalog_of_our_own_sessions() -> None:
    lines = (DEPLOY / "connect.conf").read_text().splitlines()
    server = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    ours = spark_config(SparkSettings("/var/lib/airbyte-proto/warehouse"))
    assert set(ours["spark.jars.packages"].split(",")) < set(server["spark.jars.packages"].split(","))
    same = [key for key in ours if key.startswith("spark.sql.") and not key.endswith(".type")]
    assert {key: server[key] for key in same} == {key: ours[key] for key in same}
    # Java's form of such files has a second backslash before each.
    assert server["spark.redaction.regex"].replace("\\\\", "\\") == ours["spark.redaction.regex"]


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


class LocalCluster:
    """Services of the compose files as processes of this machine, with the secret `right-one`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._running = folder, ExitStack()
        self.home = folder / "home"
        master, connect = free_port(), free_port()
        self.master, self.connect = f"spark://127.0.0.1:{master}", f"sc://127.0.0.1:{connect}"
        # In the place of what there is in containers alone: names, ports, and the volume.
        self._replaced = {
            "spark://spark:7077": self.master,
            "--host spark --port 7077": f"--host 127.0.0.1 --port {master}",
            "sc://connect:15002": self.connect,
            "port         15002": f"port {connect}",
            "('connect', 15002)": f"('127.0.0.1', {connect})",
            "--work-dir /tmp": f"--work-dir {folder}",
            "/var/lib/airbyte-proto": str(self.home),
            "deploy/connect.conf": str(folder / "connect.conf"),
        }
        (folder / "connect.conf").write_text(self.here((DEPLOY / "connect.conf").read_text()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def here(self, text: str) -> str:
        for there, place in self._replaced.items():
            text = text.replace(there, place)
        return text

    def environment(self, service: Mapping[str, Any]) -> dict[str, str]:
        secrets = {"SPARK_SECRET": "right-one", "SPARK_TOKEN": TOKEN}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # its scripts look for a Python with Spark
        given = {
            key: re.sub(r"\$\{(\w+)[^}]*\}", lambda found: secrets.get(found[1], "none"), self.here(value))
            for key, value in service["environment"].items()
        }
        return {**os.environ, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", **given}

    def start(self, name: str, service: Mapping[str, Any], is_up: Callable[[], bool], *more: str) -> None:
        program, *arguments = shlex.split(self.here(service["command"]))
        with self.log(name).open("wb") as output:
            process = subprocess.Popen(
                [Path(sys.executable).with_name(program), *arguments, *more],
                stderr=output, stdout=output, env=self.environment(service),
            )  # fmt: skip
        self._running.callback(_end, process)
        until(is_up, f"the service {name} is up")

    def log(self, service: str) -> Path:
        return self._folder / service

    def is_healthy(self, service: Mapping[str, Any]) -> bool:
        check = subprocess.run(
            ["sh", "-c", self.here(service["healthcheck"]["test"])], capture_output=True, check=False
        )
        return check.returncode == 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """The cluster of the compose file."""
    services = written("docker-compose.yml")["services"]
    with LocalCluster(tmp_path) as running:
        for name, words in (("spark", "I have been elected leader"), ("worker", "Successfully registered")):
            running.start(name, services[name], partial(_says, running.log(name), words), "--webui-port", "0")
        assert "REST server" not in running.log("spark").read_text()
        yield running


def _says(log: Path, words: str) -> bool:
    return words in log.read_text()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:  # Seen on a busy machine: the JVM's shutdown waits for ever.
        process.kill()
        process.wait()


@pytest.mark.nightly
@pytest.mark.spark
def test_the_cluster_works_for_who_has_its_secret_only(cluster: LocalCluster, tmp_path: Path) -> None:
    def count(secret: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", _COUNT, str(tmp_path)]
        told = f"with {cluster.master} {secret}"
        return subprocess.run(command, input=told, capture_output=True, text=True, timeout=120, check=False)

    assert count("right-one").stdout == "rows 100\nseen False\n"
    for secret in ("none", "wrong-one"):
        refused = count(secret)
        assert (refused.returncode, refused.stdout) == (1, "")


class ConnectedRuns:
    """Runs of a service `code` that is a client of the Connect server of the compose files. No Java is found there, and
    so no run can have a JVM."""

    def __init__(self, cluster: LocalCluster, folder: Path, project: Path) -> None:
        override = written("docker-compose.connect.yml")["services"]
        code = written("docker-compose.yml")["services"]["code"]
        self._environment = {**cluster.environment(code), **cluster.environment(override["code"])}
        del self._environment["DAGSTER_POSTGRES_URL"], self._environment["STATE_URL"]
        self._environment |= {"AIRBYTE_PROTO_HOME": str(cluster.home), "JAVA_HOME": "/nowhere"}
        self._environment["DAGSTER_HOME"] = str(folder)
        self._folder, self._project, self._connect = folder, project, cluster.connect
        cluster.home.mkdir(exist_ok=True)
        (folder / "dagster.yaml").write_text("telemetry: {enabled: false}")
        cluster.start("connect", override["connect"], partial(cluster.is_healthy, override["connect"]))

    def run(self, program: str, *words: str | Path) -> "subprocess.CompletedProcess[str]":
        command = [Path(sys.executable).with_name(program), *words]
        return subprocess.run(
            command, env=self._environment, cwd=self._project, capture_output=True, text=True, check=False
        )

    def materialize(self, *assets: str, day: str | None = None) -> None:
        partition = ("--partition", day) if day else ()
        wanted = ("-f", "example_project/definitions.py", "--select", ",".join(assets), *partition)
        done = self.run("dagster", "asset", "materialize", *wanted)
        assert done.returncode == 0, done.stderr

    def query(self, sql: str, **token: str) -> "subprocess.CompletedProcess[str]":
        settings = self._folder / "settings.yaml"
        settings.write_text(json.dumps({"spark": {"spark.remote": self._connect, **token}}))
        return self.run("airbyte-proto", "--settings", settings, "query", sql, "--json")

    def rows(self, sql: str) -> list[list[Any]]:
        answered = self.query(sql, **{_TOKEN_SETTING: TOKEN})
        assert answered.returncode == 0, answered.stderr
        return list(json.loads(answered.stdout)["rows"])


@pytest.mark.nightly
@pytest.mark.spark
def test_runs_share_a_connect_server_which_takes_who_has_its_token_only(cluster: LocalCluster, tmp_path: Path) -> None:
    runs = ConnectedRuns(cluster, tmp_path, DEPLOY.parent)
    runs.materialize("customers/customers")
    counted = "select count(*) from lake.orders.customers"
    assert runs.rows(counted) == [[20]]
    for token in ({}, {_TOKEN_SETTING: "another"}):
        refused = runs.query(counted, **token)
        assert refused.returncode == 2, refused
        assert "UNAUTHENTICATED" in refused.stderr and _TOKEN_SETTING in refused.stderr


_ORDERS_BY_COUNTRY = """
select c.country, round(sum(o.amount), 2) from lake.orders.orders o join lake.orders.customers c on o.customer_id = c.id
where to_date(o.ordered_at) = date '{day}' group by c.country order by c.country
"""


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.connectors
@pytest.mark.timeout(1200)
def test_the_example_runs_on_a_connect_server(
    cluster: LocalCluster, tmp_path: Path, connector_environments: Path
) -> None:
    """Days as partitions, joins of tables as frames, and a push that sends each row once."""
    example = copied_example(tmp_path)
    home_with_connectors(cluster.home, connector_environments)
    runs = ConnectedRuns(cluster, tmp_path, example.parent)
    days = ("2026-11-01", "2026-11-02")
    runs.materialize("customers/customers")
    for day in (*days, days[0]):  # A day that is made again replaces its rows.
        runs.materialize("orders/orders", "orders_by_country", day=day)
    made = "select country, round(amount, 2) from lake.default.orders_by_country order by 1, 2"
    expected = [row for day in days for row in runs.rows(_ORDERS_BY_COUNTRY.format(day=day))]
    assert expected
    assert runs.rows(made) == sorted(expected, key=lambda row: (row[0], float(row[1])))
    runs.materialize("sales")
    assert [row[0] for row in runs.rows("select day from lake.default.sales order by day")] == list(days)

    runs.materialize("shop/users", "shop/products", "shop/purchases", "top_buyers", "crm/leads")
    sent = example / "out" / "leads.jsonl"
    buyers = runs.rows("select id, name, purchases from lake.default.top_buyers order by id")
    leads = [json.loads(line) for line in sent.read_text().splitlines()]
    found = sorted([lead["id"], lead["full_name"], lead["purchases"]] for lead in leads)
    assert buyers and found == buyers
    runs.materialize("top_buyers", "crm/leads")
    assert len(sent.read_text().splitlines()) == len(buyers)
