"""The actions of Delta's log as JSON: `metaData`, `add` and `txn`.

- Columns have Delta's ids, and readers find columns in files by id (`delta.columnMapping.mode` is `id`). So files that
  are added by reference are read right whatever the columns are called in SQL.
- Delta gives no id to the elements of arrays and maps. They get one from 1 << 30 up, in files only.
- The columns that a generation will bring with its rows (*proposed* columns) are a property of the table until then.
  Their ids count as given out, so that no other column gets them.
"""

import datetime
import itertools
import json
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast
from urllib.parse import quote

import msgspec

from dagster_airbyte_proto.loads.table import SLICE_COLUMN
from dagster_airbyte_proto.model import PartitionValue
from dagster_airbyte_proto.schema.evolution import IcebergSchema, IcebergType
from dagster_airbyte_proto.schema.names import case_folded
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
# The empty text by Delta's protocol, the other by Spark, which uses it as a folder's name for NULL.
_READ_AS_NULL = ("", "__HIVE_DEFAULT_PARTITION__")
_PROPOSED = "airbyte-proto.columns."
TABLE_PROPERTIES = {
    "delta.columnMapping.mode": "id",
    "delta.enableDeletionVectors": "true",
    "delta.parquet.compression.codec": "zstd",
}


class TableMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """The `metaData` action, as far as we read it. `schema_string` is JSON within JSON."""

    id: str = ""
    schema_string: str = '{"type": "struct", "fields": []}'
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = {}

    @property
    def columns(self) -> IcebergSchema:
        return _parse_schema(self.schema_string)

    @property
    def proposed_columns(self) -> dict[int, IcebergSchema]:
        """The columns of generations that are not published yet, by their numbers."""
        return {
            int(key.removeprefix(_PROPOSED)): _parse_schema(text)
            for key, text in self.configuration.items()
            if key.startswith(_PROPOSED)
        }

    @property
    def last_column_id(self) -> int:
        return int(self.configuration.get("delta.columnMapping.maxColumnId", "0"))

    @property
    def slice_column(self) -> str | None:
        """The column of the table's slices, or None where it has none."""
        return SLICE_COLUMN if self.partition_columns == (SLICE_COLUMN,) else None

    @property
    def partitioning(self) -> tuple[str, ...]:
        """The columns that the table is partitioned by, the slice column left out."""
        return () if self.slice_column else self.partition_columns

    @property
    def has_deletion_vectors(self) -> bool:
        """Whether files may have deletion vectors."""
        return self.configuration.get("delta.enableDeletionVectors") == "true"

    @property
    def has_change_feed(self) -> bool:
        """Whether Delta keeps the rows of each version as they were and as they are."""
        return self.configuration.get("delta.enableChangeDataFeed", "").lower() == "true"

    @property
    def maps_columns_by_id(self) -> bool:
        """Whether readers find columns in files by id, as files added by reference need."""
        return self.configuration.get("delta.columnMapping.mode") == "id"

    @property
    def physical_names(self) -> dict[str, str]:
        """The name in the log and in statistics of each column of the table."""
        return {field["name"]: field["metadata"].get(_PHYSICAL, field["name"]) for field in self.columns["fields"]}


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    meta_data: TableMetadata


_ENTRY = msgspec.json.Decoder(_Entry)


def read_metadata(action: str) -> TableMetadata:
    return _ENTRY.decode(action).meta_data


def new_table_metadata(columns: IcebergSchema, comment: str, partition_columns: Sequence[str]) -> str:
    """Returns the `metaData` action of a new table."""
    return json.dumps(
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "description": comment or None,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(delta_schema(columns, has_older_files=False)),
                "partitionColumns": list(partition_columns),
                "configuration": {**TABLE_PROPERTIES, "delta.columnMapping.maxColumnId": str(_highest_id(columns))},
                "createdTime": _now_ms(),
            }
        }
    )


def metadata_with_columns(action: str, columns: IcebergSchema, last_column_id: int) -> str:
    """Returns the `metaData` action with other columns."""
    entry = json.loads(action)
    before = {field["name"]: field["id"] for field in read_metadata(action).columns["fields"]}
    names = {field["id"]: field["name"] for field in columns["fields"]}
    entry["metaData"]["partitionColumns"] = [names[before[each]] for each in entry["metaData"]["partitionColumns"]]
    entry["metaData"]["schemaString"] = json.dumps(delta_schema(columns))
    entry["metaData"].setdefault("configuration", {})["delta.columnMapping.maxColumnId"] = str(last_column_id)
    return json.dumps(entry)


def metadata_with_proposed_columns(action: str, columns: IcebergSchema, last_column_id: int, number: int) -> str:
    """Returns the `metaData` action that proposes columns under a number. Readers keep the columns that they have."""
    entry, before = json.loads(action), read_metadata(action).columns
    columns = _with_names_of(before, columns, frozenset(_physical_names(columns)))
    entry["metaData"].setdefault("configuration", {})
    entry["metaData"]["configuration"] |= {
        f"{_PROPOSED}{number}": json.dumps(delta_schema(columns, has_older_files=False)),
        "delta.columnMapping.maxColumnId": str(last_column_id),
    }
    return json.dumps(entry)


def metadata_with_published_columns(action: str, number: int) -> str | None:
    """Returns the `metaData` action that publishes the proposal of that number and ends all proposals.

    None if there is none.
    """
    metadata = read_metadata(action)
    columns = metadata.proposed_columns.get(number)
    if columns is None:
        return None
    entry = json.loads(metadata_with_columns(action, columns, metadata.last_column_id))
    kept = {key: text for key, text in entry["metaData"]["configuration"].items() if not key.startswith(_PROPOSED)}
    entry["metaData"]["configuration"] = kept
    return json.dumps(entry)


def delta_schema(columns: IcebergSchema, *, has_older_files: bool = True) -> dict[str, Any]:
    """Returns Spark's JSON for a schema, with ids. Other metadata of the columns stays.

    With `has_older_files` rows of before stay beside those that come with the schema.
    """
    # Spark does not tell names apart that differ in case alone.
    taken = None if has_older_files else frozenset(map(case_folded, _physical_names(columns)))
    return cast(dict[str, Any], spark_type(columns, partial(_field_metadata, taken)))


def txn_action(load_id: str, version: int) -> str:
    """Returns the `txn` action that records a load in the table.

    `version` is the one that the commit is expected to get.
    """
    return json.dumps({"txn": {"appId": load_id, "version": version, "lastUpdated": _now_ms()}})


def partition_value_text(value: PartitionValue, kind: str) -> str | None:
    """Returns a partition value as the log writes it. Raises ValueError for a value that readers take for NULL."""
    if value in _READ_AS_NULL:
        raise ValueError("the empty text" if value == "" else str(value))
    if kind == "date" and isinstance(value, int):
        return (_EPOCH + datetime.timedelta(days=value)).isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def add_action(
    path: str,
    *,
    size_bytes: int,
    stats: Mapping[str, Any],
    partition: Mapping[str, str | None],
    deletes: Mapping[str, Any] | None = None,
) -> str:
    """Returns the `add` action of a file. `path` is relative to the table's folder, `deletes` its deletion vector."""
    entry = {
        "path": quote(path),
        "partitionValues": dict(partition),
        "size": size_bytes,
        "modificationTime": _now_ms(),
        "dataChange": True,
        # The bounds are those of all rows in the file, deleted ones too, so they may be wider than need be.
        "stats": json.dumps({**stats, "tightBounds": False} if deletes else dict(stats)),
    }
    return json.dumps({"add": {**entry, "deletionVector": dict(deletes)} if deletes else entry})


def with_data_change(add: str) -> str:
    """Returns an `add` action with `dataChange` set. In the actions that describe a table's files it is not."""
    entry = json.loads(add)
    entry["add"]["dataChange"] = True
    return json.dumps(entry)


def widened_columns(
    existing: IcebergSchema, wider: IcebergSchema, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields each column whose type is wider in `wider`, by its path in SQL, with the wider type."""
    for old, new in zip(existing["fields"], wider["fields"], strict=False):  # added columns come last
        yield from _widened_type(old["type"], new["type"], (*above, str(old["name"])))


def contains_columns(columns: IcebergSchema, older: IcebergSchema) -> bool:
    """Returns whether `columns` has all of the `older` ones, with the same ids and types."""
    kinds = {field["id"]: field["type"] for field in columns["fields"]}
    return all(_contains_type(kinds.get(field["id"]), field["type"]) for field in older["fields"])


def _contains_type(kind: IcebergType | None, older: IcebergType) -> bool:
    if isinstance(kind, str) or isinstance(older, str) or kind is None:
        return kind == older
    if kind["type"] != older["type"]:
        return False
    return (
        contains_columns(kind, older)
        if kind["type"] == "struct"
        else all(_contains_type(kind[p], older[p]) for p in _nested_types(kind))
    )


def _nested_types(kind: Mapping[str, Any]) -> tuple[str, ...]:
    return ("element",) if kind["type"] == "list" else ("key", "value")


def _widened_type(old: IcebergType, new: IcebergType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(old, str) or isinstance(new, str):
        if old != new:
            yield path, str(new)
    elif old["type"] == "struct":
        yield from widened_columns(old, new, path)
    else:
        for part in _nested_types(old):
            yield from _widened_type(old[part], new[part], (*path, part))


def _parse_schema(schema_string: str) -> IcebergSchema:
    return _schema_from_spark(json.loads(schema_string), itertools.count(1))


def _schema_from_spark(schema: Mapping[str, Any], ids: Iterator[int]) -> IcebergSchema:
    fields = []
    for field in schema["fields"]:
        metadata = dict(field.get("metadata", {}))
        # A column from before the table had ids is found by its name, and any id will do.
        number = int(metadata.get(_ID) or next(ids))
        column = {
            "id": number,
            "name": field["name"],
            "required": not field.get("nullable", True),
            "type": _type_from_spark(
                field["type"], ids, itertools.count(_FIRST_UNKNOWN_ID + number * _UNKNOWN_IDS_OF_A_FIELD)
            ),
            "metadata": metadata,
        }
        fields.append(column | ({"doc": metadata["comment"]} if "comment" in metadata else {}))
    return {"type": "struct", "fields": fields}


def _type_from_spark(kind: SparkType, ids: Iterator[int], unknown: Iterator[int]) -> Any:
    if isinstance(kind, str):
        return _FROM_SPARK.get(kind, kind.replace(",", ", "))
    if kind["type"] == "struct":
        return _schema_from_spark(kind, ids)
    if kind["type"] == "array":
        return {
            "type": "list",
            "element-id": next(unknown),
            "element": _type_from_spark(kind["elementType"], ids, unknown),
            "element-required": not kind["containsNull"],
        }
    return {
        "type": "map",
        "key-id": next(unknown),
        "key": _type_from_spark(kind["keyType"], ids, unknown),
        "value-id": next(unknown),
        "value": _type_from_spark(kind["valueType"], ids, unknown),
        "value-required": not kind["valueContainsNull"],
    }


def _field_metadata(taken: Collection[str] | None, field: IcebergSchema) -> dict[str, Any]:
    """Returns the metadata of a field: its id, and its physical name, by which the log knows it.

    That of a new field is its own name where every reader can take that and no other field has it. That one may have
    been renamed since, and Delta refuses two of a name. Beside older files (`taken` is None) it is one that no field
    ever had: by the statistics of a column that was dropped readers would skip files for the new one.
    """
    name = field["name"]
    is_free = taken is not None and case_folded(name) not in taken and name.isascii() and name.isidentifier()
    physical = name if is_free else f"col-{uuid.uuid4()}"
    return {_ID: field["id"], _PHYSICAL: physical, **field.get("metadata", {})}


def _with_names_of(before: Any, kind: Any, taken: Collection[str]) -> Any:
    """Returns a type in which each field that takes the place of one of `before` has the physical name of that one too.

    By these names Delta finds out whether a column is dropped. It refuses that together with rows where there is a
    change data feed.
    """
    if isinstance(kind, str) or isinstance(before, str) or kind["type"] != before["type"]:
        return kind
    if kind["type"] != "struct":
        parts = {part: _with_names_of(before[part], kind[part], taken) for part in _nested_types(kind)}
        return {**kind, **parts}
    known = {field["name"]: field for field in before["fields"]}
    return {**kind, "fields": [_with_name_of(known.get(each["name"]), each, taken) for each in kind["fields"]]}


def _with_name_of(before: IcebergSchema | None, field: IcebergSchema, taken: Collection[str]) -> IcebergSchema:
    if before is None:
        return field
    field = {**field, "type": _with_names_of(before["type"], field["type"], taken)}
    name, metadata = before.get("metadata", {}).get(_PHYSICAL), field.get("metadata", {})
    is_free = name is not None and name not in taken and _PHYSICAL not in metadata
    return {**field, "metadata": {**metadata, _PHYSICAL: name}} if is_free else field


def _physical_names(kind: IcebergType) -> Iterator[str]:
    """Yields the physical names of the fields in a type, as far as they have one."""
    if isinstance(kind, str):
        return
    for field in kind.get("fields", ()):
        if name := field.get("metadata", {}).get(_PHYSICAL):
            yield name
        yield from _physical_names(field["type"])
    for part in ("element", "key", "value"):
        yield from _physical_names(kind.get(part, ""))


def _highest_id(columns: IcebergSchema) -> int:
    """Returns the highest id of any struct field. Ids of elements are not in the log."""
    highest = 0
    for field in columns["fields"]:
        highest = max(highest, field["id"], _highest_id_in(field["type"]))
    return highest


def _highest_id_in(kind: Any) -> int:
    if isinstance(kind, str):
        return 0
    if kind["type"] == "struct":
        return _highest_id(kind)
    return max(_highest_id_in(kind[part]) for part in ("element", "key", "value") if part in kind)


def _now_ms() -> int:
    return int(time.time() * 1000)
