"""The columns of a relayed stream: its rows are staged, and become records again.

- Where the user chose nothing about its fields, a record is staged as one column of JSON text, and sent as it came,
  byte for byte. Its declared schema goes to the destination, and is not applied to it.
- Where the user chose fields, renamed, hashed or filtered them, a record is staged in columns as for a table. Only
  declared fields are sent.
"""

from typing import Any

import msgspec

from dagster_airbyte_proto.model import PlannedStream, RelayTarget
from dagster_airbyte_proto.schema.columns import WHOLE_RECORD, Column, Columns, RecordForm, ValueKind
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.schema.value_types import Schema, declared_properties, value_type


def stream_columns(planned: PlannedStream) -> Columns:
    """Returns the columns in which the stream is staged. Raises ConfigError as `table_columns` does."""
    if planned.relay is None:
        return table_columns(planned)
    return _whole_records(planned, planned.relay) if planned.shaping is None else _fields(planned, planned.relay)


def _whole_records(planned: PlannedStream, target: RelayTarget) -> Columns:
    stream = msgspec.structs.replace(planned.stream, json_schema={}, primary_key=(), cursor=())
    columns = table_columns(msgspec.structs.replace(planned, stream=stream, primary_key=(), cursor=()))
    form = RecordForm(target, planned.stream.json_schema, record_column=WHOLE_RECORD)
    return msgspec.structs.replace(columns, record_form=form)


def _fields(planned: PlannedStream, target: RelayTarget) -> Columns:
    columns = table_columns(planned)
    root = planned.stream.json_schema
    declared = declared_properties(root, root)
    sent = [column for column in columns.all if not column.is_nested]
    properties = {column.name: _described(column, declared.get(column.path[0], {}), root) for column in sent}
    names = {column.path[0]: column.name for column in sent}
    form = RecordForm(
        msgspec.structs.replace(target, keys=tuple(names.get(key, key) for key in target.keys)),
        {**{name: part for name, part in root.items() if name != "required"}, "properties": properties},
        columns=tuple(properties),
        json_columns=frozenset(column.name for column in sent if column.type.kind is ValueKind.JSON),
    )
    return msgspec.structs.replace(columns, record_form=form)


def _described(column: Column, declared: Any, root: Schema) -> Any:
    """The schema of a field. A hashed one is text, whatever it was."""
    was = value_type(declared, root)
    is_hashed = column.type.kind is ValueKind.STRING and was.kind is not ValueKind.STRING
    return {"type": ["null", "string"]} if is_hashed else declared
