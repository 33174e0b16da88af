"""dagster-openlineage and openlineage-spark, as docs/dagster/openlineage.md sets them up, name a table alike."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.packaging.installed import Installed, interpreter, write_files_of_page

_PAGE = Path(__file__).parents[3] / "docs" / "dagster" / "openlineage.md"
_DEFINITIONS = """
import dagster as dg
from pyspark.sql import DataFrame
from dagster_airbyte_proto import Connection, ConnectorResource, SparkSessionResource, SparkTableIOManager
from dagster_airbyte_proto import build_connector_assets

@dg.asset(key_prefix="shop", ins={{"users": dg.AssetIn(["shop", "users"])}})
def names(users: DataFrame) -> DataFrame:
    return users.groupBy("name").count()

defs = dg.Definitions(
    assets=[build_connector_assets(Connection.from_file("shop.yaml"), include_metadata=("column_metadata",)), names],
    resources={{"connector": ConnectorResource(), "io_manager": SparkTableIOManager(spark=SparkSessionResource(
        spark_config={spark}))}},
    executor=dg.in_process_executor,
)
"""


class _Server(ThreadingHTTPServer):
    """Takes OpenLineage's events."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Events)
        self.events: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def datasets(self, role: str, *, namespace: str) -> dict[str, Any]:
        """The facets of all inputs or outputs of what is complete, by their names."""
        complete = [event for event in self.events if event.get("eventType") == "COMPLETE"]
        found = [dataset for event in complete for dataset in event.get(role, [])]
        return {each["name"]: each["facets"] for each in found if each["namespace"] == namespace}


class _Events(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        self.server.events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _running() -> Iterator[_Server]:
    server = _Server()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _spark_config_of_the_page(url: str) -> str:
    [found] = re.findall(r"spark_config=(\{.*?\n    \})", _PAGE.read_text(), re.S)
    return str(found).replace("http://marquez:5000", url)


@pytest.mark.nightly
@pytest.mark.connectors
@pytest.mark.spark
def test_dagster_and_spark_name_a_table_alike(tmp_path: Path, wheel: Path) -> None:
    home = Installed(tmp_path, interpreter("3.11"))
    home.install(str(wheel), "dagster-openlineage==0.2.1")
    warehouse = f"{tmp_path / '.airbyte-proto' / 'warehouse'}"
    with _running() as server:
        changed = {
            "http://marquez:5000": server.url,
            "/data/warehouse": warehouse,
            "base_dir: events": f"base_dir: {tmp_path / 'events'}",
        }
        write_files_of_page("dagster/openlineage.md", tmp_path, changed)
        home.variables = {
            "DAGSTER_HOME": str(tmp_path),
            "OPENLINEAGE_CONFIG": str(tmp_path / "openlineage.yml"),
            "PYTHONPATH": str(tmp_path),
        }
        source = ["venv/bin/python", "-m", "dagster_airbyte_proto.testing.fake_source"]
        launch = {"kind": "local", "command": source}
        config = {"scenario": {"streams": {"users": {"records": 20}}}}
        connection = {"connector": {"protocol": "airbyte", "launch": launch}, "config": config}
        (tmp_path / "shop.yaml").write_text(json.dumps(connection))
        (tmp_path / "definitions.py").write_text(_DEFINITIONS.format(spark=_spark_config_of_the_page(server.url)))
        home.json("discover", "shop.yaml", "--save")
        home.run("dagster", "asset", "materialize", "--select", "*", "-f", "definitions.py")
    by_dagster = server.datasets("outputs", namespace="dagster")
    places = {name: facets["symlinks"]["identifiers"][0] for name, facets in by_dagster.items()}
    assert {name: place["name"] for name, place in places.items()} == {
        "shop/users": f"{warehouse}/shop/users",
        "shop/names": f"{warehouse}/shop/names",
    }
    assert {field["name"] for field in by_dagster["shop/users"]["schema"]["fields"]} >= {"id", "name", "_airbyte_meta"}
    assert {place["namespace"] for place in places.values()} == {"file"}
    assert list(server.datasets("inputs", namespace="file")) == [places["shop/users"]["name"]]
    assert list(server.datasets("outputs", namespace="file")) == [places["shop/names"]["name"]]
