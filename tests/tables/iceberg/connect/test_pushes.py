"""Pushes of tables of a Connect server, each in a process of its own, as users have it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from tests.support.connect_server import Connect, ConnectServer, run_alone
from tests.sync.push.pushed_table import PushedTable, Row, person

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("_functions_of_connect")]

_PUSH = """
import json, sys
from pathlib import Path
from dagster_airbyte_proto import Connection, push
home, connection, settings = sys.argv[1:]
report = push(Connection.from_file(Path(connection)), home=home, settings=Path(settings))
print(json.dumps(report.as_json()), flush=True)
"""


class RemotePushedTable(PushedTable):
    def __init__(self, folder: Path, server: ConnectServer, connect: Connect, **options: Any) -> None:
        super().__init__(folder, **options)
        self._session = connect()
        # The delivered tables of all connections of one name would be the same.
        self.name = f"crm_{uuid4().hex[:8]}"
        self.source = f"lake.shop.people_{self.name}"
        self.push["from"] = self.source
        settings = {
            "catalog": {"format": "iceberg", "warehouse": str(server.warehouse)},
            "spark": {"spark.remote": server.url},
        }
        self.settings_file.write_text(yaml.safe_dump(settings))

    def fill(self, rows: Sequence[Row]) -> None:
        self._session.sql("create namespace if not exists lake.shop")
        values = ", ".join(f"({row['id']}, '{row['name']}')" for row in rows)
        self._session.sql(
            f"create or replace table {self.source} using iceberg as "
            f"select cast(id as bigint) as id, name from values {values} as t(id, name)"
        )

    def change(self, *statements: str) -> None:
        for statement in statements:
            self._session.sql(statement.format(table=self.source))

    def pushed(self) -> Row:
        file = self.connection_file().rename(self.folder / f"{self.name}.yaml")
        ended = run_alone(_PUSH, self.home, file, self.settings_file)
        assert ended.returncode == 0, ended.stderr[-2000:]
        report: Row = json.loads(ended.stdout.splitlines()[-1])
        assert report["status"] == "complete", report
        stream: Row = report["streams"]["contacts"]
        return stream

    def names(self) -> dict[int, str]:
        """The names that the destination has, by key."""
        return {number: row["name"] for number, row in self.held().items()}

    def tags(self) -> list[str]:
        rows = self._session.sql(f"select name from {self.source}.refs where type = 'TAG'").collect()
        return [row["name"] for row in rows]


def test_a_mirror_gets_what_is_new_changed_and_gone(
    tmp_path: Path, connect: Connect, connect_server: ConnectServer
) -> None:
    table = RemotePushedTable(tmp_path, connect_server, connect, mode="mirror")
    table.push["changes"] = "snapshots"
    table.fill([person(number) for number in range(1, 8)])
    assert table.pushed()["acknowledged"] == 7
    assert table.pushed()["sent"] == 0
    table.change(
        "insert into {table} values (8, 'new')",
        "delete from {table} where id = 2",
        "update {table} set name = 'changed' where id = 3",
    )
    report = table.pushed()
    assert (report["planned"]["added"], report["planned"]["changed"], report["planned"]["removed"]) == (1, 1, 1)
    kept = {number: f"person {number}" for number in (1, 4, 5, 6, 7)}
    assert table.names() == {**kept, 3: "changed", 8: "new"}
    assert len(table.tags()) == 1
    assert table.pushed()["sent"] == 0
