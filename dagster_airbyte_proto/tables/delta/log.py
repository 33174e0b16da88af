"""What a Delta table says of itself, and what a commit says to it: in the JSON of Delta's own log.

Columns have Delta's ids, by which readers find them in files (`delta.columnMapping.mode` is `id`): so files that are
added by reference are read right whatever the columns are called in SQL. What Delta gives no id (an array's elements)
gets one from far above, for files only.

Columns that a generation is to bring with its rows are a property of the table until then. Their ids count as given
out, so nobody gets them for another column.
"""

import datetime
import itertools
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import msgspec

from dagster_airbyte_proto.loads.table import SLICE_COLUMN
from dagster_airbyte_proto.model import PartitionValue
from dagster_airbyte_proto.schema.evolution import Columns, Type
from dagster_airbyte_proto.tables.spark.columns import SparkType, spark_type

_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_FIRST_UNKNOWN_ID, _UNKNOWN_IDS_OF_A_FIELD = 1 << 30, 64
_FROM_SPARK = {
    "integer": "int",
    "short": "int",
    "byte": "int",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
_EPOCH = datetime.date(1970, 1, 1)
# By the protocol, and by Spark, which names folders for values.
_READ_AS_NULL = ("", "__HIVE_DEFAULT_PARTITION__")
_PROPOSED = "airbyte-proto.columns."
_PROPERTIES = {
    "delta.columnMapping.mode": "id",
    "delta.enableDeletionVectors": "true",
    "delta.parquet.compression.codec": "zstd",
}


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The `metaData` action, as far as we read it. `schema_string` has JSON within JSON."""

    schema_string: str = '{"type": "struct", "fields": []}'
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = {}

    @property
    def columns(self) -> Columns:
        return _read(self.schema_string)

    @property
    def proposed(self) -> dict[int, Columns]:
        """Columns of generations that are not published, by their numbers."""
        return {
            int(key.removeprefix(_PROPOSED)): _read(text)
            for key, text in self.configuration.items()
            if key.startswith(_PROPOSED)
        }

    @property
    def last_column_id(self) -> int:
        return int(self.configuration.get("delta.columnMapping.maxColumnId", "0"))

    @property
    def slice_column(self) -> str | None:
        """The column that tells the slices of the table apart."""
        return SLICE_COLUMN if self.partition_columns == (SLICE_COLUMN,) else None

    @property
    def partitioning(self) -> tuple[str, ...]:
        """The columns by whose values it is partitioned, but for slices."""
        return () if self.slice_column else self.partition_columns

    @property
    def takes_deletes(self) -> bool:
        """Whether files may come with rows that do not count."""
        return self.configuration.get("delta.enableDeletionVectors") == "true"

    @property
    def takes_files(self) -> bool:
        """Whether a file that has our columns' ids is read right: not where readers go by names made up by others."""
        return self.configuration.get("delta.columnMapping.mode") == "id"

    @property
    def physical_names(self) -> dict[str, str]:
        """What the log calls each column of the table."""
        return {field["name"]: field["metadata"].get(_PHYSICAL, field["name"]) for field in self.columns["fields"]}


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    meta_data: Metadata


# Made here, in one thread: two that use a type for the first time at once can crash msgspec.
_ENTRY = msgspec.json.Decoder(_Entry)


def read_metadata(action: str) -> Metadata:
    return _ENTRY.decode(action).meta_data


def new_table(columns: Columns, comment: str, partition_columns: Sequence[str]) -> str:
    """The `metaData` action of a table that is to be made."""
    return json.dumps(
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "description": comment or None,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(delta_schema(columns)),
                "partitionColumns": list(partition_columns),
                "configuration": {**_PROPERTIES, "delta.columnMapping.maxColumnId": str(_last_id(columns))},
                "createdTime": _now_ms(),
            }
        }
    )


def changed_table(action: str, columns: Columns, last_column_id: int) -> str:
    """The `metaData` action with other columns."""
    entry = json.loads(action)
    before = {field["name"]: field["id"] for field in read_metadata(action).columns["fields"]}
    names = {field["id"]: field["name"] for field in columns["fields"]}
    entry["metaData"]["partitionColumns"] = [names[before[each]] for each in entry["metaData"]["partitionColumns"]]
    entry["metaData"]["schemaString"] = json.dumps(delta_schema(columns))
    entry["metaData"].setdefault("configuration", {})["delta.columnMapping.maxColumnId"] = str(last_column_id)
    return json.dumps(entry)


def proposing_table(action: str, columns: Columns, last_column_id: int, number: int) -> str:
    """The `metaData` action that tells of columns by a number, and leaves readers those that they have."""
    entry = json.loads(action)
    entry["metaData"].setdefault("configuration", {})
    entry["metaData"]["configuration"] |= {
        f"{_PROPOSED}{number}": json.dumps(delta_schema(columns)),
        "delta.columnMapping.maxColumnId": str(last_column_id),
    }
    return json.dumps(entry)


def published_table(action: str, number: int) -> str | None:
    """The `metaData` action with the columns of that number, which ends all proposals. None where there is no such."""
    metadata = read_metadata(action)
    columns = metadata.proposed.get(number)
    if columns is None:
        return None
    entry = json.loads(changed_table(action, columns, metadata.last_column_id))
    kept = {key: text for key, text in entry["metaData"]["configuration"].items() if not key.startswith(_PROPOSED)}
    entry["metaData"]["configuration"] = kept
    return json.dumps(entry)


def delta_schema(columns: Columns) -> dict[str, Any]:
    """Spark's JSON with ids. What a column's metadata had stays there."""
    return cast(dict[str, Any], spark_type(columns, _mapped))


def transaction(load_id: str, version: int) -> str:
    """The `txn` action, by which the table knows the load. `version` is where the load is about to come in."""
    return json.dumps({"txn": {"appId": load_id, "version": version, "lastUpdated": _now_ms()}})


def partition_text(value: PartitionValue, kind: str) -> str | None:
    """A value of a partition as the log has it, in a column of a type. Raises ValueError for what readers take for
    NULL."""
    if value in _READ_AS_NULL:
        raise ValueError("the empty text" if value == "" else str(value))
    if kind == "date" and isinstance(value, int):
        return (_EPOCH + datetime.timedelta(days=value)).isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def added_file(
    path: str,
    *,
    size_bytes: int,
    stats: Mapping[str, Any],
    partition: Mapping[str, str | None],
    deletes: Mapping[str, Any] | None = None,
) -> str:
    """The `add` action. `path` starts at the table's folder. With `deletes` some of its rows do not count."""
    entry = {
        "path": quote(path),
        "partitionValues": dict(partition),
        "size": size_bytes,
        "modificationTime": _now_ms(),
        "dataChange": True,
        # Bounds are of all rows in the file.
        "stats": json.dumps({**stats, "tightBounds": False} if deletes else dict(stats)),
    }
    return json.dumps({"add": {**entry, "deletionVector": dict(deletes)} if deletes else entry})


def changing(add: str) -> str:
    """The `add` action of a file that brings rows: as a table has its files, none of them does."""
    entry = json.loads(add)
    entry["add"]["dataChange"] = True
    return json.dumps(entry)


def widened(existing: Columns, wider: Columns, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The columns that are of a wider type in the other, by their paths as SQL has them, and that type."""
    for old, new in zip(existing["fields"], wider["fields"], strict=False):  # what was added stands behind
        yield from _widened_type(old["type"], new["type"], (*above, str(old["name"])))


def holds(columns: Columns, older: Columns) -> bool:
    """Whether all of the older columns are among the others, with their types."""
    kinds = {field["id"]: field["type"] for field in columns["fields"]}
    return all(_holds_type(kinds.get(field["id"]), field["type"]) for field in older["fields"])


def _holds_type(kind: Type | None, older: Type) -> bool:
    if isinstance(kind, str) or isinstance(older, str) or kind is None:
        return kind == older
    if kind["type"] != older["type"]:
        return False
    return holds(kind, older) if kind["type"] == "struct" else all(_holds_type(kind[p], older[p]) for p in _parts(kind))


def _parts(kind: Mapping[str, Any]) -> tuple[str, ...]:
    return ("element",) if kind["type"] == "list" else ("key", "value")


def _widened_type(old: Type, new: Type, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(old, str) or isinstance(new, str):
        if old != new:
            yield path, str(new)
    elif old["type"] == "struct":
        yield from widened(old, new, path)
    else:
        for part in _parts(old):
            yield from _widened_type(old[part], new[part], (*path, part))


def _read(schema_string: str) -> Columns:
    return _columns(json.loads(schema_string), itertools.count(1))


def _columns(schema: Mapping[str, Any], ids: Iterator[int]) -> Columns:
    fields = []
    for field in schema["fields"]:
        metadata = dict(field.get("metadata", {}))
        # One that came before this table had ids is known by its name, and any id will do.
        number = int(metadata.get(_ID) or next(ids))
        column = {
            "id": number,
            "name": field["name"],
            "required": not field.get("nullable", True),
            "type": _kind(field["type"], ids, itertools.count(_FIRST_UNKNOWN_ID + number * _UNKNOWN_IDS_OF_A_FIELD)),
            "metadata": metadata,
        }
        fields.append(column | ({"doc": metadata["comment"]} if "comment" in metadata else {}))
    return {"type": "struct", "fields": fields}


def _kind(kind: SparkType, ids: Iterator[int], unknown: Iterator[int]) -> Any:
    if isinstance(kind, str):
        return _FROM_SPARK.get(kind, kind.replace(",", ", "))
    if kind["type"] == "struct":
        return _columns(kind, ids)
    if kind["type"] == "array":
        return {
            "type": "list",
            "element-id": next(unknown),
            "element": _kind(kind["elementType"], ids, unknown),
            "element-required": not kind["containsNull"],
        }
    return {
        "type": "map",
        "key-id": next(unknown),
        "key": _kind(kind["keyType"], ids, unknown),
        "value-id": next(unknown),
        "value": _kind(kind["valueType"], ids, unknown),
        "value-required": not kind["valueContainsNull"],
    }


def _mapped(field: Columns) -> dict[str, Any]:
    """The metadata of a field: its id, and a name for the log that any reader can take."""
    name = field["name"]
    physical = name if name.isascii() and name.isidentifier() else f"c{field['id']}"
    return {_ID: field["id"], _PHYSICAL: physical, **field.get("metadata", {})}


def _last_id(columns: Columns) -> int:
    """The highest id of a struct's field; others are not in the log."""
    highest = 0
    for field in columns["fields"]:
        highest = max(highest, field["id"], _last_id_in(field["type"]))
    return highest


def _last_id_in(kind: Any) -> int:
    if isinstance(kind, str):
        return 0
    if kind["type"] == "struct":
        return _last_id(kind)
    return max(_last_id_in(kind[part]) for part in ("element", "key", "value") if part in kind)


def _now_ms() -> int:
    return int(time.time() * 1000)
