"""dagster-dbt and dbt-spark, as docs/dagster/dbt.md sets them up: models between streams and pushes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.packaging.installed import Installed, interpreter, write_files_of_page

_USERS = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Ada"}, {"id": 3, "name": "Bob"}]
_KEYED = """{{ config(meta={'dagster': {'asset_key': ['team', 'totals']}}) }}
select count(*) as users from {{ source('shop', 'users') }}
"""
_GRAPH = """
import json
from definitions import defs
graph = defs.resolve_asset_graph()
parents = {key: graph.get(key).parent_keys for key in graph.get_all_asset_keys()}
print(json.dumps({key.to_user_string(): [each.to_user_string() for each in keys] for key, keys in parents.items()}))
"""


def _write_connection(folder: Path, name: str, module: str, config: dict[str, Any], **more: Any) -> None:
    launch = {"kind": "local", "command": ["venv/bin/python", "-m", f"dagster_airbyte_proto.testing.{module}"]}
    connection = {"connector": {"protocol": "airbyte", "launch": launch}, "config": config, **more}
    (folder / f"{name}.yaml").write_text(json.dumps(connection))


def _write_source(folder: Path, rows: list[dict[str, Any]]) -> None:
    properties = {"id": {"type": "integer"}, "name": {"type": "string"}}
    scenario = {"streams": {"users": {"rows": rows, "properties": properties}}}
    _write_connection(folder, "shop", "fake_source", {"scenario": scenario})


def _sent(folder: Path) -> list[dict[str, Any]]:
    """The rows that the destination got, and not the statuses behind them."""
    lines = [json.loads(line) for line in (folder / "sent.jsonl").read_text().splitlines()]
    return sorted((line["row"] for line in lines if "row" in line), key=lambda row: str(row["name"]))


def _rows(home: Installed, sql: str) -> list[Any]:
    rows: list[Any] = home.json("query", sql)["rows"]
    return rows


@pytest.mark.nightly
@pytest.mark.connectors
@pytest.mark.spark
def test_models_of_dbt_lie_between_streams_and_pushes(tmp_path: Path, wheel: Path) -> None:
    home = Installed(tmp_path, interpreter("3.11"))
    home.install(str(wheel), "dagster-dbt==0.29.27", "dbt-core==1.11.16", "dbt-spark==1.11.0")
    home.variables = {"DAGSTER_HOME": str(tmp_path), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    warehouse = str(tmp_path / "warehouse")
    write_files_of_page("dagster/dbt.md", tmp_path, {"/data/warehouse": warehouse})
    (tmp_path / "dbt" / "models" / "totals.sql").write_text(_KEYED)
    (tmp_path / "airbyte-proto.yaml").write_text(json.dumps({"catalog": {"warehouse": warehouse}}))
    push = {"names": {"from": "lake.marts.names", "key": ["name"]}}
    _write_connection(tmp_path, "crm", "fake_destination", {"path": str(tmp_path / "sent.jsonl")}, push=push)
    _write_source(tmp_path, _USERS)
    home.json("discover", "shop.yaml", "--save")
    home.run("dbt", "parse", "--project-dir", "dbt", "--profiles-dir", "dbt")
    assert json.loads(home.run("python", "-c", _GRAPH)) == {
        "shop/users": [],
        "marts/names": ["shop/users"],
        "marts/signups": ["shop/users"],
        "marts/top_names": ["marts/names"],
        "team/totals": ["shop/users"],
        "crm/names": ["marts/names"],
    }

    home.run("dagster", "asset", "materialize", "--select", "*", "-f", "definitions.py")
    assert _sent(tmp_path) == [{"name": "Ada", "users": 2}, {"name": "Bob", "users": 1}]
    (tmp_path / "sent.jsonl").unlink()

    _write_source(tmp_path, [*_USERS, {"id": 4, "name": "Ada"}, {"id": 5, "name": "Cyd"}])
    home.run("dagster", "asset", "materialize", "--select", "*", "-f", "definitions.py")
    assert _sent(tmp_path) == [{"name": "Ada", "users": 3}, {"name": "Cyd", "users": 1}]
    signups = _rows(home, "SELECT id, name, sync_id FROM lake.marts.signups ORDER BY id")
    assert signups == [[1, "Ada", 1], [2, "Ada", 1], [3, "Bob", 1], [4, "Ada", 2], [5, "Cyd", 2]]
    assert _rows(home, "SELECT name FROM lake.marts.top_names ORDER BY users DESC LIMIT 1") == [["Ada"]]
