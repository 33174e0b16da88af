"""A table of rows of 500 bytes, and its push to a program."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.meter import cpu_seconds
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.push.push_context import PushRequest
from dagster_airbyte_proto.sync.push.run import push_connection
from dagster_airbyte_proto.sync.push_report import PushedStreamReport

FOLDER = Path(__file__).parent.parent.parent / ".bench" / "pushes"
# The columns of the rows that were measured first: 515 bytes in an Airbyte record line.
_COLUMNS = """id, concat('name ', id) AS name, concat('user', id, '@example.com') AS email,
    cast(id * 37 % 1000000007 / 100 AS decimal(18,2)) AS amount, cast(id / 7 AS decimal(38,9)) AS price,
    cast(id % 1000 AS int) AS quantity, id * 0.37 AS score, timestamp_seconds(id * 1000) AS created_at,
    timestamp_seconds(1700000000 + id) AS updated_at,
    named_struct('street', concat('a street of some length ', id % 977), 'city', 'a city',
                 'zip', cast(id % 99999 AS int), 'geo', named_struct('lat', id * 0.01, 'lon', id * 0.02)) AS address,
    array('alpha', 'beta') AS tags,
    IF(id % 10 = 0, NULL, concat('a "note" of nine words or so \\\\ ', sha2(cast(id AS string), 224))) AS note"""
FEW_COLUMNS = "id, concat('name ', id) AS name, id * 0.37 AS score"
_ON_READ = (
    "'write.update.mode'='merge-on-read', 'write.delete.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"
)


class Pushed:
    """A table of so many rows, and its push."""

    def __init__(self, engine: Engine, session: SparkSession, name: str, rows: int, *, columns: str = _COLUMNS) -> None:
        self.table, self.rows = f"{engine.settings.catalog.name}.bench.{name}", rows
        self._engine, self._session, self._name, self._columns = engine, session, name, columns
        session.sql(f"CREATE NAMESPACE IF NOT EXISTS {engine.settings.catalog.name}.bench")
        session.sql(
            f"CREATE TABLE {self.table} USING iceberg TBLPROPERTIES ({_ON_READ}) AS SELECT {columns} FROM range({rows})"
        )

    def push(
        self,
        *,
        command: list[str] | None = None,
        plans: bool = False,
        more: Mapping[str, Any] = MappingProxyType({}),
        **options: Any,
    ) -> PushedStreamReport:
        """Pushes to a program, or to one that only reads. `options` are those of the stream, `more` is of the file."""
        document = {
            "name": f"{self._name}_{options.get('mode', 'mirror')}",
            "connector": {
                "protocol": "singer",
                "launch": {"kind": "local", "command": command or [str(reader())]},
            },
            "config": {"destination_path": str(FOLDER)},
            "push": {
                "rows": {"from": self.table, **(options or {"key": ["id"], "mode": "mirror", "changes": "snapshots"})}
            },
        }
        if command is None:
            document["acknowledge"] = "exit"
        document |= more
        file = FOLDER / f"{document['name']}.yaml"
        file.write_text(json.dumps(document))
        report = push_connection(self._engine, Connection.from_file(file), PushRequest(only_plans=plans))
        stream = report.streams["rows"]
        if stream.status != "complete" or stream.sent != stream.acknowledged:
            raise RuntimeError(f"the push of {self.table} is {stream.status}: {stream.error}")
        return stream

    def change(self) -> int:
        """Changes eight rows of a thousand, adds two for each of these, and removes a half."""
        changed, added, removed = self.rows * 8 // 1000, self.rows * 2 // 1000, max(1, self.rows // 2000)
        step = self.rows // changed
        self._session.sql(f"UPDATE {self.table} SET name = 'changed' WHERE id % {step} = 0 AND id > {removed}")
        self._session.sql(
            f"INSERT INTO {self.table} SELECT {self._columns} FROM range({self.rows}, {self.rows + added})"
        )
        self._session.sql(f"DELETE FROM {self.table} WHERE id < {removed}")
        return added

    def frame(self) -> DataFrame:
        self._session.catalog.refreshTable(self.table)
        return self._session.table(self.table)


def reader() -> Path:
    """A Singer target that reads its input, and nothing else."""
    script = FOLDER / "reader"
    about = json.dumps({"name": "reader", "settings": {"type": "object", "properties": {}}})
    script.write_text(f"#!/bin/sh\ncase \"$*\" in *--about*) echo '{about}' ;; *) exec cat > /dev/null ;; esac\n")
    script.chmod(0o755)
    return script


def cpu_of(work: Callable[[], object]) -> float:
    began = cpu_seconds()
    work()
    return cpu_seconds() - began
