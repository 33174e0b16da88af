"""Syncs on the executors of a real cluster, into Iceberg tables, by the command line: whatever dies."""

import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import yaml

from dagster_airbyte_proto.launchers.docker import guardian
from dagster_airbyte_proto.launchers.docker.containers import connector_containers
from dagster_airbyte_proto.testing import fake_source
from tests.cli.components.test_component_syncs import CONFIG
from tests.support.containers.images import python_image
from tests.support.low_code import MANIFEST, running_api
from tests.support.low_code import SECRET as API_SECRET
from tests.support.needs import require_npm
from tests.support.npm_registry import running_registry
from tests.support.wasm import guests
from tests.sync.cluster.spark_cluster import SparkCluster, running_cluster
from tests.sync.shop import until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.everyday("test_a_sync_runs_on_executors_and_leaves_no_secret"),
    pytest.mark.timeout(600),
]
_ROWS = 30
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    # Else it is about records an hour, and a task that hangs has read its one.
    "spark.speculation.efficiency.enabled": "false",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


class Place:
    """A home whose connection `shop` runs on executors. Its source hangs once after 12 records, if it `hangs`."""

    def __init__(self, folder: Path, cluster: SparkCluster, *, hangs: bool) -> None:
        self.folder, self.mark = folder, folder / "hung"
        scenario: dict[str, Any] = {"streams": {"users": {"records": _ROWS}}, "state_every": 5}
        if hangs:
            scenario["failure"] = {"kind": "hang", "after": 12, "once": str(self.mark)}
        connection = {
            "connector": {
                "protocol": "airbyte",
                "launch": {"kind": "local", "command": [sys.executable, fake_source.__file__]},
            },
            "config": {"scenario": scenario, "password": "${env:SHOP_PASSWORD}"},
            "load": {"max_bytes": 1},
            "run_on": "executors",
        }
        (folder / "shop.yaml").write_text(yaml.safe_dump(connection))
        quick = {"scenario": {"streams": {"users": {"records": _ROWS}}}}
        (folder / "quick.yaml").write_text(yaml.safe_dump({**connection, "config": quick}))
        self.write_settings(cluster.settings)

    def write_settings(self, spark: Mapping[str, str]) -> None:
        (self.folder / "settings.yaml").write_text(yaml.safe_dump({"lease_seconds": 5, "spark": {**spark}}))

    def start(self, *words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "dagster_airbyte_proto", "--home", str(self.folder / "home")]
        return subprocess.Popen(
            [*command, "--settings", str(self.folder / "settings.yaml"), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "SHOP_PASSWORD": "correct-horse"},
        )

    def run(self, *words: str) -> dict[str, Any]:
        with self.start(*words, "--json") as process:
            output, errors = process.communicate(timeout=300)
        assert output, errors
        return dict(json.loads(output))

    @property
    def source(self) -> str:
        return fake_source.__file__

    def connect(self, name: str, **document: Any) -> None:
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump({**document, "run_on": "executors"}))

    def rows(self, query: str) -> list[list[Any]]:
        return list(self.run("query", query)["rows"])

    def ids(self) -> list[int]:
        return [row[0] for row in self.rows("select id from lake.shop.users order by id")]


@pytest.fixture
def place(cluster: SparkCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, cluster, hangs=getattr(request, "param", False))


def _sources() -> list[psutil.Process]:
    found = []
    for each in psutil.process_iter(["cmdline"]):
        if fake_source.__file__ in (each.info["cmdline"] or []):
            found.append(each)
    return found


def test_a_sync_runs_on_executors_and_leaves_no_secret(place: Place, cluster: SparkCluster) -> None:
    events = place.folder / "events"
    events.mkdir()
    # Compressed they could not be searched.
    kept = {"enabled": "true", "dir": events.as_uri(), "compress": "false"}
    place.write_settings({**cluster.settings, **{f"spark.eventLog.{name}": value for name, value in kept.items()}})
    report = place.run("sync", str(place.folder / "shop.yaml"))
    assert report.get("status") == "complete", report
    assert report["streams"]["users"]["committed"] == _ROWS
    assert place.ids() == list(range(_ROWS))
    logs = [*place.folder.rglob("*.log"), *(each for each in events.rglob("*") if each.is_file())]
    texts = [each.read_bytes() for each in (*logs, *_work(cluster))]
    assert any(b"SparkListenerTaskEnd" in text for text in texts)
    assert not any(b"correct-horse" in text for text in texts)


def test_the_next_sync_on_executors_goes_on_from_the_state(place: Place) -> None:
    for emitted in (_ROWS, 0):
        report = place.run("sync", str(place.folder / "shop.yaml"))
        assert report.get("status") == "complete", report
        assert report["streams"]["users"]["emitted"] == emitted
    assert place.ids() == list(range(_ROWS))


def _work(cluster: SparkCluster) -> list[Path]:
    """The files that Spark keeps of its executors."""
    folders = Path(cluster.settings["spark.executorEnv.AIRBYTE_PROTO_EXECUTOR_HOME"]).parent.glob("work-*")
    return [each for folder in folders for each in folder.rglob("*") if each.is_file()]


_CODE = """
from airbyte_cdk.sources.declarative.transformations import RecordTransformation


class Loud(RecordTransformation):
    def __init__(self, **_):
        pass

    def transform(self, record, **_):
        record["name"] = record["name"].upper()
"""


def _kept(cluster: SparkCluster) -> list[bytes]:
    """The files that executors keep of those that a driver had."""
    home = Path(cluster.settings["spark.executorEnv.AIRBYTE_PROTO_EXECUTOR_HOME"])
    return [each.read_bytes() for each in (home / "connector_files").iterdir()]


# The paths of these files start at the driver's working directory. Executors have another, without them.
def test_components_run_on_executors_that_have_no_file_of_them(place: Place, cluster: SparkCluster) -> None:
    contents = {role: guests.built(role).read_bytes() for role in ("source", "transform")}
    for role, content in contents.items():
        (place.folder / f"{role}.wasm").write_bytes(content)
    source, transform = (
        {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": f"{role}.wasm"}} for role in contents
    )
    step = {"connector": transform, "config": {"script": "upper"}, "columns": {"name": "string"}}
    streams = {"users": {"write": "append"}}
    place.connect("component", connector=source, config=CONFIG, streams=streams, transforms=[step])
    report = place.run("sync", "component.yaml")
    assert report.get("status") == "complete", report
    rows = place.rows("select id, name from lake.component.users order by id")
    assert rows == [[1, "NAME-1"], [2, None], [3, "NAME-3"]]
    assert {*contents.values()} <= {*_kept(cluster)}


@pytest.mark.connectors
def test_a_manifest_and_its_code_run_on_executors_that_have_no_file_of_them(
    place: Place, cluster: SparkCluster
) -> None:
    loud = "{type: CustomTransformation, class_name: source_declarative_manifest.components.Loud}"
    manifest = MANIFEST.replace("    name: cities\n", f"    name: cities\n    transformations: [{loud}]\n")
    (place.folder / "manifest.yaml").write_text(manifest)
    (place.folder / "components.py").write_text(_CODE)
    launch = {"kind": "manifest", "path": "manifest.yaml", "custom_components": True}
    with running_api() as api:
        api.rows["/cities"] = [{"name": name} for name in ("Ulm", "Bern")]
        place.connect("api", connector={"protocol": "airbyte", "launch": launch}, config=api.config, streams=["cities"])
        report = place.run("sync", "api.yaml")
    assert report.get("status") == "complete", report
    assert place.rows("select name from lake.api.cities order by name") == [["BERN"], ["ULM"]]
    assert {manifest.encode(), _CODE.encode()} <= {*_kept(cluster)}
    left = _work(cluster)
    assert left
    assert not any(API_SECRET.encode() in each.read_bytes() for each in left)


_NODE_SOURCE = """
const say = (message) => console.log(JSON.stringify(message));
const id = { type: "integer" };
const users = { name: "users", json_schema: { type: "object", properties: { id } } };
const status = { stream_descriptor: { name: "users" }, status: "COMPLETE" };
const verb = process.argv[2];
if (verb === "spec") say({ type: "SPEC", spec: { connectionSpecification: { type: "object" } } });
if (verb === "check") say({ type: "CONNECTION_STATUS", connectionStatus: { status: "SUCCEEDED" } });
if (verb === "discover")
  say({ type: "CATALOG", catalog: { streams: [{ ...users, supported_sync_modes: ["full_refresh"] }] } });
if (verb === "read") {
  for (const id of [0, 1, 2]) say({ type: "RECORD", record: { stream: "users", data: { id }, emitted_at: 1 } });
  say({ type: "TRACE", trace: { type: "STREAM_STATUS", emitted_at: 1, stream_status: status } });
}
"""


class _Packaged(NamedTuple):
    """A source as a package, and the variables by which a worker finds the index that has it."""

    launch: Mapping[str, str]
    variables: Mapping[str, str]


@contextmanager
def _package_index(kind: str, folder: Path) -> Iterator[_Packaged]:
    """An index that ends with the block."""
    if kind == "npm":
        require_npm()
        with running_registry() as registry:
            registry.add("@acme/source-acme", "1.0.0", {"index.js": _NODE_SOURCE}, main="index.js")
            npm = {"registry": registry.url, "noproxy": "127.0.0.1", "cache": str(folder / "npm"), "fetch_retries": "0"}
            variables = {f"npm_config_{name}": value for name, value in npm.items()}
            yield _Packaged({"kind": "npm", "package": "@acme/source-acme@1.0.0"}, variables)
        return
    wheels = folder / "wheels"
    wheels.mkdir()
    about = "airbyte_source_acme-1.0.dist-info"
    files = {
        "airbyte_source_acme.py": f"{Path(fake_source.__file__).read_text()}\n\ndef begin():\n    run(main)\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: airbyte-source-acme\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": "[console_scripts]\nsource-acme = airbyte_source_acme:begin\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(wheels / "airbyte_source_acme-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    yield _Packaged(
        {"kind": "pypi", "package": "airbyte-source-acme==1.0"},
        {"UV_FIND_LINKS": str(wheels), "UV_OFFLINE": "1", "UV_CACHE_DIR": str(folder / "uv")},
    )
    shutil.rmtree(wheels)


@pytest.mark.parametrize("kind", ["pypi", "npm"])
def test_executors_install_a_package_once(place: Place, cluster: SparkCluster, kind: str) -> None:
    scenario = {"streams": {"users": {"records": 3}}}
    with _package_index(kind, place.folder) as package:
        on_workers = {f"spark.executorEnv.{name}": value for name, value in package.variables.items()}
        place.write_settings({**cluster.settings, **on_workers})
        connector = {"protocol": "airbyte", "launch": package.launch}
        place.connect(kind, connector=connector, config={"scenario": scenario}, streams=["users"])
        first = place.run("sync", f"{kind}.yaml")
    assert first.get("status") == "complete", first
    again = place.run("sync", f"{kind}.yaml")  # Without an index.
    assert again.get("status") == "complete", again
    assert place.rows(f"select id from lake.{kind}.users order by id") == [[0], [1], [2]]
    installed = Path(cluster.settings["spark.executorEnv.AIRBYTE_PROTO_EXECUTOR_HOME"]).rglob("*source-acme*")
    assert [*installed]
    assert not [*(place.folder / "home" / "venvs").rglob("*source-acme*")]


def test_doctor_finds_executors_well_and_says_what_they_lack(place: Place, cluster: SparkCluster) -> None:
    def found() -> dict[str, dict[str, Any]]:
        findings = place.run("doctor", str(place.folder / "shop.yaml"))["findings"]
        return {each["part"]: each for each in findings if each["part"] in ("cluster", "Spark", "executors")}

    well = found()
    assert {part: each["verdict"] for part, each in well.items()} == dict.fromkeys(
        ("cluster", "Spark", "executors"), "ok"
    )
    bare = Path(sys.base_prefix) / "bin" / "python3"  # Without this package, or what it needs.
    place.write_settings({**cluster.settings, "spark.pyspark.python": str(bare)})
    executors = found()["executors"]
    assert (executors["verdict"], "No module named" in executors["found"]) == ("fails", True), executors
    assert "Install dagster_airbyte_proto" in executors["remedy"]


@pytest.mark.parametrize("place", [True], indirect=True, ids=["hangs"])
@pytest.mark.parametrize("victim", ["python worker", "executor"])
def test_a_killed_executor_is_replaced_and_every_row_is_there_once(
    place: Place, cluster: SparkCluster, victim: str
) -> None:
    with place.start("sync", str(place.folder / "shop.yaml"), "--json") as driver:
        until(lambda: place.mark.exists() and bool(cluster.python_workers_with(place.source)), "a source that hangs")
        [worker] = cluster.python_workers_with(place.source)
        doomed = (
            [worker]
            if victim == "python worker"
            else [each for each in cluster.executors() if each in worker.parents()]
        )
        for each in doomed:
            each.kill()
        output, errors = driver.communicate(timeout=300)
    assert driver.returncode == 0, errors
    assert json.loads(output)["status"] == "complete"
    assert place.ids() == list(range(_ROWS))
    assert _sources() == []


@pytest.mark.parametrize("place", [True], indirect=True, ids=["hangs"])
def test_a_speculative_attempt_supersedes_the_slow_one(place: Place, cluster: SparkCluster) -> None:
    place.write_settings({**cluster.settings, **_SPECULATION})
    ended = place.run("sync-all", *(str(place.folder / f"{name}.yaml") for name in ("shop", "quick")))
    # The first attempt of shop hangs for ever: only a second one can have ended it.
    assert place.mark.exists()
    assert {each["connection"]: each["status"] for each in ended["connections"]} == {
        "shop": "complete",
        "quick": "complete",
    }
    until(lambda: _sources() == [], "the end of the first attempt's source")
    assert place.ids() == list(range(_ROWS))


@pytest.mark.parametrize("place", [True], indirect=True, ids=["hangs"])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["cancelled", "killed"])
def test_executors_end_with_their_driver_and_the_next_sync_goes_on(place: Place, end: signal.Signals) -> None:
    with place.start("sync", str(place.folder / "shop.yaml"), "--json") as driver:
        until(lambda: place.mark.exists() and bool(_sources()), "a source that hangs")
        driver.send_signal(end)
        output, errors = driver.communicate(timeout=120)
    if end is signal.SIGINT:
        assert (driver.returncode, json.loads(output)["status"]) == (130, "cancelled"), errors
    until(lambda: _sources() == [], "the end of the source")
    until(lambda: place.run("sync", str(place.folder / "shop.yaml")).get("status") == "complete", "a free connection")
    assert place.ids() == list(range(_ROWS))


@pytest.mark.docker
@pytest.mark.parametrize("victim", ["python worker", "executor", "driver"])
def test_an_image_runs_on_executors_and_its_container_ends_with_whoever_dies(
    place: Place, cluster: SparkCluster, victim: str
) -> None:
    shared = place.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)  # The container has a user of its own.
    failure = {"kind": "hang", "after": 12, "once": "/shared/hung"}
    scenario = {"streams": {"users": {"records": _ROWS}}, "state_every": 5, "failure": failure}
    source = {"/fake_source.py": Path(fake_source.__file__)}
    with python_image(source, ["-S", "/fake_source.py"], ENV="OF=executors") as image:
        launch = {"kind": "docker", "image": image.name, "network": "none", "volumes": [f"{shared}:/shared"]}
        connector = {"protocol": "airbyte", "launch": launch}
        place.connect("boxed", connector=connector, config={"scenario": scenario}, load={"max_bytes": 1})
        with place.start("sync", "boxed.yaml", "--json") as driver:
            # Each container has a guardian, which its owner starts.
            until(lambda: (shared / "hung").exists(), "a source that hangs")
            [worker] = cluster.python_workers_with(guardian.__file__)
            executors = [each for each in cluster.executors() if each in worker.parents()]
            doomed: dict[str, list[Any]] = {"python worker": [worker], "executor": executors, "driver": [driver]}
            for each in doomed[victim]:
                each.kill()
            driver.communicate(timeout=300)
        assert (driver.returncode == 0) is (victim != "driver")
        until(
            lambda: not [each for each in connector_containers(image.daemon) if each.image == image.name],
            "no container",
        )
        until(lambda: place.run("sync", "boxed.yaml").get("status") == "complete", "a sync that is complete")
        assert place.rows("select id from lake.boxed.users order by id") == [[number] for number in range(_ROWS)]
        assert [each for each in connector_containers(image.daemon) if each.image == image.name] == []
