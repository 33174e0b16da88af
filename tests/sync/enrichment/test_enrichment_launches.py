"""Enrichments in plain Node, on Syncmaven's own kit and in plain Python: local programs, packages of npm, images."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto import enrich
from dagster_airbyte_proto.sync.enrichment.row_enrichment import RowEnrichment, check_enrichment
from dagster_airbyte_proto.testing import fake_enrichment
from tests.support.containers.images import node_image, python_image
from tests.support.needs import require_npm
from tests.support.npm_registry import running_registry, use_registry
from tests.sync.enrichment.kept_tally import numbering
from tests.sync.enrichment.test_row_enrichment import connection_of
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.push.syncmaven.people import KIT, installed

_SCRIPT = Path(__file__).with_name("cities_enrichment.js")
_ON_KIT = Path(__file__).with_name("cities_on_kit.js")
_CONTAINER = [pytest.mark.docker, pytest.mark.nightly, pytest.mark.timeout(300)]
_ROWS = pa.RecordBatch.from_pylist([{"id": number, "cost": number / 4} for number in range(1, 201)])
_SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("cost", pa.float64())])


@pytest.fixture(
    params=[
        "local",
        pytest.param("npm", marks=pytest.mark.nightly),
        pytest.param("docker", marks=_CONTAINER),
    ]
)
def launch(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    require_npm()
    if request.param == "local":
        yield {"kind": "local", "command": ["node", str(_SCRIPT)]}
    elif request.param == "npm":
        with running_registry() as registry:
            use_registry(registry, tmp_path, monkeypatch)
            registry.add("@acme/cities", "1.0.0", {"index.js": _SCRIPT.read_text()}, main="index.js")
            yield {"kind": "npm", "package": "@acme/cities@1.0.0"}
    else:
        with node_image({"/cities.js": _SCRIPT}, ["/cities.js"]) as image:
            yield {"kind": "docker", "image": image.name}


@pytest.fixture(params=["local", "npm", pytest.param("docker", marks=_CONTAINER)])
def launch_on_kit(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    require_npm()
    if request.param == "npm":
        files = {"index.js": _ON_KIT.read_text(), _SCRIPT.name: _SCRIPT.read_text()}
        kit, _, version = KIT[0].rpartition("@")
        with running_registry() as registry:
            monkeypatch.setenv("npm_config_@acme:registry", registry.url)
            monkeypatch.setenv("npm_config_noproxy", "127.0.0.1")
            registry.add("@acme/cities", "1.0.0", files, main="index.js", dependencies={kit: version})
            yield {"kind": "npm", "package": "@acme/cities@1.0.0"}
        return
    folder = tmp_path / "kit"
    folder.mkdir()
    script = installed(folder, KIT[0], script=_ON_KIT)
    shutil.copy(_SCRIPT, folder)
    if request.param == "local":
        yield {"kind": "local", "command": ["node", str(script)]}
        return
    placed = {f"/app/{each}": folder / each for each in (_ON_KIT.name, _SCRIPT.name, "node_modules")}
    with node_image(placed, [f"/app/{_ON_KIT.name}"]) as image:
        yield {"kind": "docker", "image": image.name}


def _expected() -> list[tuple[int, str]]:
    odd = range(1, 201, 2)
    return [(number, f"c{number % 10}") for number in odd for _ in range(2 if number % 10 == 5 else 1)]


def test_it_makes_new_rows_however_it_is_launched(launch: dict[str, Any], tmp_path: Path) -> None:
    _check_rows(launch, tmp_path)


@pytest.mark.connectors
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_one_on_the_kit_makes_the_same_rows_however_it_is_launched(
    launch_on_kit: dict[str, Any], tmp_path: Path
) -> None:
    _check_rows(launch_on_kit, tmp_path)


def _check_rows(launch: dict[str, Any], tmp_path: Path) -> None:
    connection = connection_of({}, launch=launch)
    check_enrichment(RowEnrichment(connection, {}, tmp_path, None))
    made = RowEnrichment(connection, {"prefix": "c"}, tmp_path, None)
    rows = [row for batch in made(iter([_ROWS.slice(0, 70), _ROWS.slice(70)]), _SCHEMA) for row in batch.to_pylist()]
    assert [(row["id"], row["city"]) for row in rows] == _expected()
    assert all(row["cost"] == row["id"] / 4 for row in rows)


@pytest.mark.spark
@pytest.mark.nightly
def test_it_makes_the_rows_of_a_frame(launch: dict[str, Any], spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(1, 201, numPartitions=2)
    made = enrich(
        frame,
        connection_of({}, launch=launch),
        options={"prefix": "c"},
        schema="id bigint, city string",
        home=tmp_path,
    )
    assert sorted((row.id, row.city) for row in made.collect()) == _expected()


@pytest.mark.docker
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_one_in_plain_python_keeps_its_count_as_an_image(quick_folder: Path) -> None:
    """Each of its containers goes on with what the one before has kept."""
    table = PushedTable(quick_folder)
    with python_image({"/enrichment.py": Path(fake_enrichment.__file__)}, ["/enrichment.py"]) as image:
        counting = numbering()
        counting["connector"]["launch"] = {"kind": "docker", "image": image.name}
        table.options["transforms"] = [{**counting, "checkpoint_rows": 2}]
        for rows in (5, 7):
            table.fill([person(number) for number in range(1, rows + 1)])
            report = table.contacts()
            assert (report.status, report.error, table.tally()) == ("complete", None, rows)
    assert {row["id"]: row["city"] for row in table.received()} == {number: str(number) for number in range(1, 8)}
