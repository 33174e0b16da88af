"""The queries of the Grafana dashboard, on a real Prometheus that scrapes two real syncs and a real push."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import prometheus_client
import pytest
import requests

from dagster_airbyte_proto.sync.telemetry import open_telemetry
from tests.support.needs import lacks
from tests.support.network.ports import free_port
from tests.sync.conftest import OpenShop
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.telemetry.conftest import Sdk

_DASHBOARD = Path(__file__).parents[3] / "deploy" / "grafana-dashboard.json"
_VARIABLES = {"$__range": "2m", "$__rate_interval": "2m", "$connection": "shop|crm"}
_DEADLINE_SECONDS = 60.0


class Prometheus(NamedTuple):
    """A running server."""

    address: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        answer = requests.get(f"{self.address}/api/v1/query", params={"query": expression}, timeout=10).json()
        assert answer["status"] == "success", f"{expression}: {answer.get('error')}"
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def has_scraped_since(self, moment: float) -> bool:
        times = [float(series["value"][1]) for series in self.query("timestamp(airbyte_proto_rows_total)")]
        return bool(times) and min(times) > moment


@pytest.fixture
def prometheus(tmp_path: Path, sdk: Sdk) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        lacks("prometheus", "no prometheus (Debian: apt-get install prometheus)")
    metrics, _ = prometheus_client.start_http_server(0, addr="127.0.0.1")
    job = {"job_name": "syncs", "static_configs": [{"targets": [f"127.0.0.1:{metrics.server_port}"]}]}
    config = {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}, "scrape_configs": [job]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [
                program,
                f"--config.file={tmp_path}/prometheus.yml",
                f"--storage.tsdb.path={tmp_path}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait(60)
        metrics.shutdown()


def _expressions() -> dict[str, str]:
    panels = json.loads(_DASHBOARD.read_text())["panels"]
    return {f"{panel['title']} {each['refId']}": each["expr"] for panel in panels for each in panel["targets"]}


def _filled(expression: str) -> str:
    for name, value in _VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while True:
        try:
            if is_so():
                return
        except requests.ConnectionError:
            pass
        assert time.monotonic() < deadline, "Prometheus has not got the metrics in time"
        time.sleep(0.1)


def test_every_query_of_the_dashboard_answers_for_real_syncs_and_pushes(
    prometheus: Prometheus, shop: OpenShop, tmp_path: Path
) -> None:
    (tmp_path / "pushed").mkdir()
    table = PushedTable(tmp_path / "pushed")
    table.fill([person(1)])
    table.run()
    place = shop()
    place.sync_of({"streams": {"users": {"records": 5}}, "state_every": 2})
    rows = _filled(_expressions()["Rows committed A"])

    def committed() -> float:
        return sum(
            float(series["value"][1])
            for series in prometheus.query(rows)
            if (series["metric"]["airbyte_proto_connection"], series["metric"]["airbyte_proto_stream"])
            == ("shop", "users")
        )

    # Not the first number that is there: it may be of the middle of the sync.
    ended = time.time()
    _wait_until(lambda: prometheus.has_scraped_since(ended))
    before = committed()
    place.sync_of({"streams": {"users": {"records": 9}}, "state_every": 2})
    _wait_until(lambda: committed() == before + 4)
    answers = {title: prometheus.query(_filled(expression)) for title, expression in _expressions().items()}
    assert [title for title, series in answers.items() if not series] == []
    for title, found in answers.items():
        connections = {series["metric"]["airbyte_proto_connection"] for series in found}
        assert connections <= {"shop", "crm"}, title
        assert ("crm" if "airbyte_proto_push" in _expressions()[title] else "shop") in connections, title
    ages = [float(series["value"][1]) for series in answers["Time since the last complete sync A"]]
    assert 0 <= min(ages) < _DEADLINE_SECONDS


def test_every_metric_is_on_the_page_and_all_of_a_push_in_the_dashboard() -> None:
    shown = " ".join(_expressions().values())
    page = (Path(__file__).parents[3] / "docs" / "dagster" / "monitoring.md").read_text()
    made = re.findall(r'create_\w+\(\s*"(airbyte_proto[\w.]+)"', Path(open_telemetry.__file__).read_text())
    assert len(made) > 12 and [name for name in made if f"| `{name}` |" not in page] == []
    names = [name.replace(".", "_") for name in made if ".push." in name]
    assert [name for name in names if name not in shown] == []


def test_no_variable_of_the_dashboard_is_unknown() -> None:
    used = {name for expression in _expressions().values() for name in re.findall(r"\$\w+", expression)}
    assert used == _VARIABLES.keys()
