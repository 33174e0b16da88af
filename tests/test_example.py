"""The example as a user finds it: it loads without a warning, in Python and as a `dg` project, with its columns."""

import json
import os
import runpy
import shutil
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import dagster as dg
import pyarrow as pa
import pytest
import yaml

from dagster_airbyte_proto import ConnectorResource, SparkSessionResource, SparkTableIOManager
from dagster_airbyte_proto.testing import fake_source, fake_tap
from tests.sync.push.pushed_table import PushedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dagster_airbyte_proto.tables.spark.settings import SparkSettings

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "example_project"
_STREAMS = {
    "customers/customers": {"id", "name", "country"},
    "orders/orders": {"id", "customer_id", "amount", "ordered_at"},
    "reviews/reviews": {"id", "order_id", "stars", "text", "written_at", "tags"},
    "shop/products": {"id", "make", "model", "price"},
    "shop/purchases": {"id", "user_id", "product_id"},
    "shop/users": {"id", "name", "occupation"},
}
_MADE_OF_THEM = {"orders_by_country", "sales", "top_buyers", "crm/leads"}
_LOADED = """
import json, sys
sys.path.insert(0, "example_project")
from definitions import defs
specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
schemas = {name: spec.metadata.get("dagster/column_schema") for name, spec in specs.items()}
columns = {name: [c.name for c in schema.columns] if schema else [] for name, schema in schemas.items()}
kinds = {name: sorted(spec.kinds) for name, spec in specs.items()}
print(json.dumps([columns, kinds, [dep.asset_key.to_user_string() for dep in specs["crm/leads"].deps]]))
"""


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def warnings(self) -> list[str]:
        """Those of Python. That a command of Dagster has a newer name, and that a component of another package is new,
        is not ours to mend."""
        lines = (self.out + self.err).splitlines()
        foreign = ("SupersessionWarning", "SparkDeclarativePipelineScaffolder")
        return [line for line in lines if "Warning" in line and not any(word in line for word in foreign)]


def _called(home: Path, program: str, *words: str, folder: Path = ROOT, **environment: str) -> Said:
    """A program of the virtual environment, with homes of its own."""
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    ours = {"DAGSTER_HOME": str(home), "AIRBYTE_PROTO_HOME": str(home / "ours"), "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [Path(sys.executable).with_name(program), *words],
        cwd=folder,
        env={**os.environ, **ours, **environment},
        capture_output=True,
        text=True,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def test_the_workspace_is_valid(tmp_path: Path) -> None:
    said = _called(tmp_path, "dagster", "definitions", "validate", "-w", "workspace.yaml")

    assert (said.code, said.warnings) == (0, []), said
    assert "Validation successful for code location example_project." in said.out + said.err


def test_its_definitions_load_without_a_warning_and_every_stream_tells_its_columns(tmp_path: Path) -> None:
    copied_example(tmp_path)
    said = _called(tmp_path, "python", "-W", "error", "-c", _LOADED, folder=tmp_path)

    assert said.code == 0, said.err
    columns, kinds, pushed = json.loads(said.out)
    assert columns.keys() == _STREAMS.keys() | _MADE_OF_THEM
    assert kinds["reviews/reviews"] == ["iceberg", "singer", "spark"]
    assert (kinds["crm/leads"], pushed) == (["singer"], ["top_buyers"])
    for name, some in _STREAMS.items():
        assert some < set(columns[name]), name
    assert not (tmp_path / "ours").exists()


def test_buyers_are_on_the_mailing_list_each_with_a_number_of_its_own(quick_folder: Path) -> None:
    """One connector is the destination and the enrichment of the push."""
    example = copied_example(quick_folder)
    file = example / "connections" / "newsletter.yaml"
    file.write_text(file.read_text().replace("lake.default.top_buyers", "shop.people"))
    bought = pa.schema([("id", pa.int64()), ("name", pa.string()), ("purchases", pa.int64())])
    table = PushedTable(quick_folder, schema=bought)
    buyers = {7: "Ann", 5: "Ben", 9: "Zoë"}
    for changed in ({}, {5: "Benjamin", 11: "Dan"}):
        buyers |= changed
        table.fill([{"id": number, "name": name, "purchases": 3} for number, name in buyers.items()])
        report = table.run(file=file).streams["people"]
        assert (report.status, report.error, report.acknowledged) == ("complete", None, len(changed) or len(buyers))
        people = json.loads((example / "out" / "people.json").read_text())
        assert {person["id"]: person["name"] for person in people} == buyers
        assert {person["member"] for person in people} == set(range(1, len(buyers) + 1))


@pytest.mark.connectors
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_what_a_tap_reads_is_in_its_table_and_each_row_once_when_it_is_read_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    connector_environments: Path,
    spark: "SparkSession",
    spark_settings: "SparkSettings",
) -> None:
    example, namespace = copied_example(tmp_path), f"n{uuid.uuid4().hex[:8]}"
    _rewrite(example / "connections" / "reviews.yaml", destination={"namespace": namespace})
    home = home_with_connectors(tmp_path / "home", connector_environments)
    monkeypatch.setenv("AIRBYTE_PROTO_HOME", str(home))
    assets = runpy.run_path(str(example / "definitions.py"))["reviews_assets"]
    session = SparkSessionResource(warehouse=spark_settings.warehouse, spark_config=dict(spark_settings.config))
    resources = {"connector": ConnectorResource(home=str(home)), "io_manager": SparkTableIOManager(spark=session)}
    file = example / "data" / "reviews.jsonl"
    written = [json.loads(line) for line in file.read_text().splitlines()]
    before: Any = None
    for run, new in enumerate([[], [{**written[-1], "id": len(written) + 1, "text": "Zürich 🏔", "tags": ["price"]}]]):
        written += new
        file.write_text("".join(json.dumps(row) + "\n" for row in written))
        read_at = datetime.fromtimestamp(1_700_000_000 + 60 * run, UTC)
        os.utime(file, (read_at.timestamp(),) * 2)
        with dg.DagsterInstance.ephemeral() as instance:
            done = dg.materialize([assets], resources=resources, instance=instance)
        [event] = done.get_asset_materialization_events()
        told: dict[str, Any] = {name: value.value for name, value in event.materialization.metadata.items()}
        assert [told[f"airbyte_proto/{name}"] for name in ("emitted", "committed")] == [len(written)] * 2
        assert told.get("airbyte_proto/state_before") == before
        before = told["airbyte_proto/state_after"]
        [of_file] = before["partitions"]
        assert of_file["replication_key_value"] == read_at.isoformat()
        assert all(check.passed for check in done.get_asset_check_evaluations())
        table = spark.table(f"lake.{namespace}.reviews")
        rows = [row.asDict() for row in table.select(*written[0]).orderBy("id").collect()]
        assert [_as_written(row) for row in rows] == written
        assert not {"_sdc_filename", "_sdc_stream"} & set(table.columns)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_component_is_an_asset_once_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: "SparkSession", spark_settings: "SparkSettings"
) -> None:
    example, namespace = copied_example(tmp_path), f"n{uuid.uuid4().hex[:8]}"
    _rewrite(example / "connections" / "stock.yaml", destination={"namespace": namespace})
    monkeypatch.setenv("AIRBYTE_PROTO_HOME", str(tmp_path / "home"))
    assert runpy.run_path(str(example / "definitions.py"))["stock_assets"] == []
    build = str(example / "connectors" / "stock" / "build.py")
    built = subprocess.run([sys.executable, build], capture_output=True, text=True, timeout=240)
    assert built.returncode == 0, built.stdout + built.stderr

    assets = runpy.run_path(str(example / "definitions.py"))["stock_assets"]
    session = SparkSessionResource(warehouse=spark_settings.warehouse, spark_config=dict(spark_settings.config))
    resources = {
        "connector": ConnectorResource(home=str(tmp_path / "home")),
        "io_manager": SparkTableIOManager(spark=session),
    }
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(assets, resources=resources, instance=instance)

    [event] = done.get_asset_materialization_events()
    assert event.asset_key == dg.AssetKey(["stock", "stock"])
    assert all(check.passed for check in done.get_asset_check_evaluations())
    [counts] = spark.sql(f"SELECT count(*), count(DISTINCT id), count(pieces) FROM lake.{namespace}.stock").collect()
    assert tuple(counts) == (300, 300, 288)


def _as_written(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "tags": json.loads(row["tags"]),
        "written_at": f"{row['written_at'].astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }


def home_with_connectors(folder: Path, environments: Path) -> Path:
    """A home folder in which connectors are installed already, where they ever were."""
    folder.mkdir(parents=True)
    (folder / "venvs").symlink_to(environments)
    return folder


def copied_example(folder: Path) -> Path:
    """The example as in the repository."""
    left_behind = shutil.ignore_patterns(".airbyte-proto", ".local_defs_state", "__pycache__", "*.wasm")
    return shutil.copytree(EXAMPLE, folder / "example_project", ignore=left_behind)


def _rewrite(file: Path, **changed: Any) -> None:
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | changed))


@pytest.mark.nightly
@pytest.mark.connectors
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_the_demo_reads_what_is_new_and_sends_nothing_twice(tmp_path: Path, connector_environments: Path) -> None:
    example = copied_example(tmp_path)
    home_with_connectors(example / ".airbyte-proto", connector_environments)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([example / "demo"], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    counts: dict[str, list[list[str]]] = {"users": [], "purchases": [], "products": [], "leads": []}
    for stream, status, _, *numbers in (line.split() for line in done.stdout.splitlines() if " complete " in line):
        if stream in counts:
            assert status == "complete"
            counts[stream].append(numbers)
    [first, second] = counts.pop("leads")
    assert (first[0], first[-2:], second[:-1]) == (second[-1], [second[-1]] * 2, ["0"] * 4)
    assert counts == {
        "users": [["1,000", "1,000"], ["0", "0"]],
        "purchases": [["1,000", "1,000"], ["0", "0"]],
        "products": [["100", "100"], ["0", "0"]],
    }
    assert len((example / "out" / "leads.jsonl").read_text().splitlines()) == int(first[0])


class DgProject:
    """A copy of the component project, with its connections beside it as in the repository."""

    def __init__(self, folder: Path, environments: Path) -> None:
        self._home = home_with_connectors(folder / "home" / "ours", environments).parent
        self.example = copied_example(folder)
        self._project = self.example / "components"

    def replace_packages(self) -> None:
        """The connectors that come from the package index, by some that offer streams of the same names."""
        for name, protocol, fake, streams in (
            ("shop", "airbyte", fake_source, ("users", "products", "purchases")),
            ("reviews", "singer", fake_tap, ("reviews",)),
        ):
            connector = {"protocol": protocol, "launch": {"kind": "local", "command": fake.command()}}
            config = {"scenario": {"streams": {stream: {"records": 1} for stream in streams}}}
            file = self.example / "connections" / f"{name}.yaml"
            _rewrite(file, connector=connector, config=config, streams=list(streams))

    def dg(self, *words: str) -> Said:
        return _called(self._home, "dg", *words, folder=self._project, PYTHONPATH=str(self._project / "src"))

    def assets(self) -> dict[str, Any]:
        said = self.dg("list", "defs", "--json")
        assert (said.code, said.warnings) == (0, []), said
        return {asset["asset_key"]: asset for asset in json.loads(said.out)["assets"]}


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_offline", [True, pytest.param(False, marks=pytest.mark.connectors)])
def test_the_component_project_is_clean(tmp_path: Path, connector_environments: Path, is_offline: bool) -> None:
    project = DgProject(tmp_path, connector_environments)
    if is_offline:
        project.replace_packages()

    refreshed = project.dg("utils", "refresh-defs-state")
    assert (refreshed.code, refreshed.warnings) == (0, []), refreshed

    checked = project.dg("check", "defs")
    assert (checked.code, checked.warnings) == (0, []), checked
    assert "All component YAML validated successfully." in checked.out
    assert "All definitions loaded successfully." in checked.out
    assets = project.assets()
    assert assets.keys() == _STREAMS.keys() | _MADE_OF_THEM | {"_pushes/crm__leads"}
    assert assets["shop/users"]["owners"] == [{"team": "shop"}]
