"""Plans pushes of folder tables, in plain Python: what Spark does for real ones, for tests that need no JVM."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.loads.plan_query import (
    CHANGE,
    HASH,
    PARTITION,
    PlannedRows,
    PlanQuery,
    RowChange,
    lacking_column,
)
from dagster_airbyte_proto.loads.push import TableSnapshot
from dagster_airbyte_proto.loads.storage import is_local
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.staging.files.staging_folder import raising_staging_error
from dagster_airbyte_proto.transforms.transform import DROPPED

_Row = Mapping[str, Any]
_MAX_FILES = 30
_FILE_ROWS = 7  # Small, so that tests cross the border of a file.


class FolderPlanner:
    """The PushPlanner of folder tables. It knows columns and constants, no SQL."""

    def __init__(self, rows: Callable[[TableName], pa.Table]) -> None:
        self._rows = rows

    def fields(self, query: PlanQuery) -> pa.Schema:
        return self._mapped(query).schema

    def snapshot(self, table: str) -> TableSnapshot | None:
        """The snapshot of a folder table is a digest of its rows."""
        rows = self._table(table).to_pylist()
        return TableSnapshot(table, table, hashlib.sha256(repr(rows).encode()).hexdigest()[:12])

    def keep_snapshot(self, tag: str, snapshot: TableSnapshot) -> None:
        """Does nothing: folder tables keep no snapshots, and all rows are compared where one has changed."""

    def writes_to(self, location: str) -> bool:
        return is_local(location)

    def write(self, query: PlanQuery, folder: str) -> PlannedRows:
        mapped = self._mapped(query)
        rows = mapped.to_pylist()
        keys = [tuple(row[key] for key in query.keys) for row in rows]
        if query.keys and (len(set(keys)) < len(keys) or any(None in key for key in keys)):
            raise TableError(
                "planning the rows", f"rows share their key ({', '.join(query.keys)}) with others, or lack it"
            )
        known = {tuple(row[key] for key in query.keys): row for row in self._delivered(query)}
        hashes = [_hash(query.fingerprint, row) for row in rows]
        changes = [_change(query, known.get(key), number) for key, number in zip(keys, hashes, strict=True)]
        found = mapped.append_column(HASH, pa.array(hashes, pa.int64()))
        found = found.append_column(CHANGE, pa.array(changes, pa.string()))
        to_send = found.filter(pa.array([change is not None for change in changes], pa.bool_()))
        _write(to_send, Path(folder, "rows"))
        written = to_send.num_rows
        partition = query.partition.key if query.partition else None
        there = {
            key: row for key, row in known.items() if row["_reason"] != DROPPED and partition in (None, row[PARTITION])
        }
        if query.finds_removed:
            gone = [dict(zip(query.keys, key, strict=True)) for key in there if key not in set(keys)]
            schema = pa.schema([mapped.schema.field(key) for key in query.keys])
            _write(pa.Table.from_pylist(gone, schema), Path(folder, "removed"))
            written += len(gone)
        note = None if query.since is None else "folder tables keep no snapshots"
        return PlannedRows(len(rows), len(there), self._greatest(query), note=note, written=written)

    def _mapped(self, query: PlanQuery) -> pa.Table:
        table = self._in_partition(self._after_cursor(query), query)
        names = [field.name for field in query.fields] or query.fields_among(table.column_names)
        if lacking := [key for key in query.keys if key not in names]:
            raise ConfigError("planning the rows", f"key {', '.join(lacking)} is no field that the destination gets")
        if not query.fields:
            return table.select(names)
        columns = {}
        for field in query.fields:
            if field.sql is not None or (field.column is not None and field.column not in table.column_names):
                raise ConfigError("planning the rows", f"there is no column {field.column or field.sql}")
            constant = pa.array([field.constant] * table.num_rows)
            columns[field.name] = constant if field.column is None else table.column(field.column)
        return pa.table(columns)

    def _in_partition(self, table: pa.Table, query: PlanQuery) -> pa.Table:
        column = query.partition.column if query.partition else None
        if query.partition is None or column is None:
            return table
        if column not in table.column_names:
            raise lacking_column(query, column, table.column_names)
        in_it = [str(value) == query.partition.key for value in table.column(column).to_pylist()]
        return table.filter(pa.array(in_it, pa.bool_()))

    def _after_cursor(self, query: PlanQuery) -> pa.Table:
        if query.table is None:
            raise ConfigError("planning the rows", "folder tables know no SQL: name one by `from`", stream=query.stream)
        table = self._table(query.table)
        if not table.column_names:
            raise ConfigError("planning the rows", f"there is no table {query.table}", stream=query.stream)
        if query.cursor is not None and query.cursor not in table.column_names:
            raise lacking_column(query, query.cursor, table.column_names)
        if query.cursor is None or query.after is None:
            return table
        cursor = table.column(query.cursor)
        return table.filter(pc.greater(cursor, pa.scalar(query.after).cast(cursor.type)))

    def _greatest(self, query: PlanQuery) -> str | None:
        """The greatest value of the cursor, as text."""
        if query.cursor is None:
            return None
        greatest = pc.max(self._after_cursor(query).column(query.cursor)).as_py()
        return None if greatest is None else str(greatest)

    def _delivered(self, query: PlanQuery) -> list[_Row]:
        return self._table(query.delivered).to_pylist() if query.delivered else []

    def _table(self, name: str | None) -> pa.Table:
        namespace, _, table = (name or "").replace("`", "").rpartition(".")
        return self._rows(TableName(namespace.rpartition(".")[2], table))


def _change(query: PlanQuery, known: _Row | None, row_hash: int) -> str | None:
    if known is None or (query.sends_all and not query.marks_known):
        return RowChange.ADDED
    was_rejected, differs = known["_status"] == "rejected", known[HASH] != row_hash
    moved = query.partition is not None and known[PARTITION] != query.partition.key
    is_sent = (query.retries_rejected or differs) if was_rejected else query.sends_changed and differs
    if not query.sends_all and not is_sent and not (query.sends_changed and moved):
        return None
    return RowChange.ADDED if known["_reason"] == DROPPED else RowChange.CHANGED


def _hash(fingerprint: str, row: _Row) -> int:
    text = json.dumps([fingerprint, row], default=str, sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)


def _write(rows: pa.Table, folder: Path) -> None:
    file_rows = max(_FILE_ROWS, rows.num_rows // _MAX_FILES)
    with raising_staging_error("write the plan of a push", str(folder)):
        folder.mkdir(parents=True)
        for number, start in enumerate(range(0, rows.num_rows, file_rows)):
            pq.write_table(rows.slice(start, file_rows), folder / f"part-{number:05d}.parquet")
