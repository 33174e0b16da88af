"""The example project with Delta tables of a Connect server: partitions, joins of tables as frames, and a push."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.connect_server import Connect, ConnectServer, without_spark
from tests.test_example import copied_example, home_with_connectors

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.connectors, pytest.mark.timeout(1800)]

_DAYS = ("2026-11-01", "2026-11-02")
_ORDERS_BY_COUNTRY = """
select country, sum(amount) as amount from spark_catalog.orders.orders o join spark_catalog.orders.customers c
on o.customer_id = c.id where to_date(ordered_at) = date '{day}' group by country
"""


class _Example:
    """A copy of the example, with another catalog and format in its definitions."""

    def __init__(self, folder: Path, server: ConnectServer, environments: Path) -> None:
        self._folder = copied_example(folder)
        warehouse = str(server.warehouse.parent / "example")
        delta = f'catalog="spark_catalog", format="delta", warehouse={warehouse!r}'
        self._replace("definitions.py", 'warehouse=str(HOME / "warehouse")', delta)
        self._replace("connections/crm.yaml", "from: lake.", "from: spark_catalog.")
        home = folder / "dagster"
        home.mkdir()
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        ours = {
            "AIRBYTE_PROTO_HOME": str(home_with_connectors(folder / "home", environments)),
            "CONNECT_URL": server.url,
            "SPARK_TOKEN": "of-no-meaning-here",
            "DAGSTER_HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        self._environment = {**without_spark(), **ours}

    def materialize(self, *assets: str, day: str | None = None) -> None:
        partition = ("--partition", day) if day else ()
        wanted = ("-f", "definitions.py", "--select", ",".join(assets), *partition)
        command = [Path(sys.executable).with_name("dagster"), "asset", "materialize", *wanted]
        done = subprocess.run(command, env=self._environment, cwd=self._folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]

    def sent(self) -> list[tuple[int, str, int]]:
        lines = map(json.loads, (self._folder / "out" / "leads.jsonl").read_text().splitlines())
        return sorted((line["id"], line["full_name"], line["purchases"]) for line in lines)

    def _replace(self, name: str, old: str, new: str) -> None:
        file = self._folder / name
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))


def test_days_frames_and_a_push(
    connect: Connect, connect_server: ConnectServer, connector_environments: Path, tmp_path: Path
) -> None:
    example, session = _Example(tmp_path, connect_server, connector_environments), connect()
    example.materialize("customers/customers")
    for day in (*_DAYS, _DAYS[0]):  # A day that is made again replaces its rows.
        example.materialize("orders/orders", "orders_by_country", day=day)
    expected = [tuple(row) for day in _DAYS for row in session.sql(_ORDERS_BY_COUNTRY.format(day=day)).collect()]
    made = session.sql("select country, amount from spark_catalog.default.orders_by_country").collect()
    assert expected and sorted(map(tuple, made)) == sorted(expected)

    example.materialize("shop/users", "shop/products", "shop/purchases", "top_buyers", "crm/leads")
    buyers = session.sql("select id, name, purchases from spark_catalog.default.top_buyers order by id").collect()
    assert buyers and example.sent() == [tuple(row) for row in buyers]
    example.materialize("top_buyers", "crm/leads")
    assert len(example.sent()) == len(buyers)
    [described] = session.sql("describe detail spark_catalog.default.top_buyers").collect()
    assert described["format"] == "delta"
