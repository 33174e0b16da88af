"""The columns of a stream's table once its transforms have changed its rows.

- A column that the transforms pass on keeps its field, its description and its type, also under another name.
- Any other column is described by its Arrow type, like a column of a connector that sends Arrow.
- Key, cursor and the mark of deleted rows must be passed on where rows replace each other: else a row would not find
  its older versions.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import PlannedStream
from dagster_airbyte_proto.schema.arrow_schema import json_schema_of
from dagster_airbyte_proto.schema.columns import WHOLE_RECORD, Column, Columns, RecordForm
from dagster_airbyte_proto.schema.json_schema import source_key_fault, stream_columns, table_columns, with_record_form
from dagster_airbyte_proto.schema.names import case_folded
from dagster_airbyte_proto.schema.shaping import merges_by_key, with_layout
from dagster_airbyte_proto.schema.value_types import declared_properties, value_type
from dagster_airbyte_proto.transforms.transform import RowShape, TransformChain
from dagster_airbyte_proto.transforms.transform_choice import transform_chain

_DOING = "planning the columns behind the transforms"


def landed_columns(planned: PlannedStream) -> Columns:
    """Returns the columns in which the stream is staged, behind its transforms.

    Raises ConfigError for a transform that does not fit the stream.
    """
    if not planned.transforms:
        return stream_columns(planned)
    given = table_columns(_without_layout(planned))
    shape = transformed_shape(transform_chain(planned.transforms), given, planned)
    made = _Landed(planned, given, shape).columns()
    if planned.shaping is not None:
        made = with_layout(made, planned, planned.shaping)
    if planned.relay is None:
        return made
    if given.is_schemaless and shape.passed_on == {WHOLE_RECORD: WHOLE_RECORD}:
        form = RecordForm(planned.relay, planned.stream.json_schema, record_column=WHOLE_RECORD)
        return msgspec.structs.replace(made, record_form=form)
    target = planned.relay
    if not {column.path[0] for column in made.all}.issuperset(target.keys):
        target = msgspec.structs.replace(target, keys=())  # An upsert was refused: here nothing needs the key.
    if given.cursor_column is None or given.cursor_column.name not in shape.passed_on.values():
        target = msgspec.structs.replace(target, cursor=None)  # A column of its name has other values.
    return with_record_form(made, _with_declared(planned, made, shape), target)


def columns_in_tables(planned: PlannedStream) -> Columns:
    """Returns the columns that a table of the stream has, also where it goes to a destination."""
    return landed_columns(_in_table(planned))


def columns_of_asset(planned: PlannedStream) -> Columns | None:
    """Returns the columns of the stream's asset. None as long as its source names a key that cannot be one: then each
    sync refuses the stream, and it alone, so the assets of the others must not wait for it."""
    try:
        return columns_in_tables(planned)
    except ConfigError:
        if key_fault_in_table(planned) is None:
            raise
        return None


def key_fault_in_table(planned: PlannedStream) -> ConfigError | None:
    """Returns the error of a key that the source names, and that no table of the stream could have."""
    return source_key_fault(_in_table(planned))


def _in_table(planned: PlannedStream) -> PlannedStream:
    return msgspec.structs.replace(planned, relay=None)


def transformed_shape(chain: TransformChain, given: Columns, planned: PlannedStream) -> RowShape:
    """Returns the shape of the rows behind the transforms. Raises ConfigError, which names the stream."""
    try:
        return chain.shape(RowShape.of_input(pa.schema([(each.name, each.type.table_type) for each in given.all])))
    except ConfigError as error:
        raise ConfigError(error.doing, error.found, remedy=error.remedy, stream=str(planned.id)) from error


def _without_layout(planned: PlannedStream) -> PlannedStream:
    """Returns the stream without the layout of its table, which may name columns that only a transform makes."""
    if planned.shaping is None:
        return planned
    shaping = msgspec.structs.replace(planned.shaping, partition_by=(), sort_by=(), cluster=())
    return msgspec.structs.replace(planned, shaping=shaping)


class _Landed:
    """Makes the columns of one stream. `given` are those before its transforms."""

    def __init__(self, planned: PlannedStream, given: Columns, shape: RowShape) -> None:
        self._planned, self._given, self._shape = planned, given, shape
        self._before = {column.name: column for column in given.all}

    def columns(self) -> Columns:
        every = tuple(self._all())
        self._check_names(every)
        # A new column may be called like a column of the stream, and be none of the same values.
        by_path = {column.path: column.name for column in every if self._is_passed_on(column)}
        self._check_passed_on(by_path)
        keys = tuple(by_path[path] for path in self._key_paths if path in by_path)
        return Columns(
            every,
            keys if len(keys) == len(self._given.keys) else (),
            self._given.cursor,
            is_schemaless=self._given.is_schemaless,
            sdc=self._given.sdc,
            before_transforms=self._given,
            sent_marks=self._sent_marks({case_folded(column.name) for column in every}),
        )

    @property
    def _key_paths(self) -> Sequence[tuple[str, ...]]:
        return [self._before[name].path for name in self._given.keys]

    def _is_passed_on(self, column: Column) -> bool:
        before = self._before.get(self._shape.passed_on.get(column.name, ""))
        return before is not None and before.path == column.path

    def _sent_marks(self, made: Collection[str]) -> tuple[Column, ...]:
        """The marks that pass the transforms with their rows, but where these make a column of the name themselves."""
        return tuple(mark for mark in self._given.sent_marks if case_folded(mark.name) not in made)

    def _all(self) -> Iterator[Column]:
        paths: set[tuple[str, ...]] = set()
        types = _json_schemas(self._shape.schema)
        for field in self._shape.schema:
            before = self._before.get(self._shape.passed_on.get(field.name, ""))
            if before is not None and before.path not in paths:
                paths.add(before.path)
                yield before._replace(name=field.name)
                continue
            if before is not None:  # The second column of one field: the first one has its path.
                yield Column(field.name, (field.name,), before.type)
                continue
            yield Column(field.name, (field.name,), value_type(types[field.name], {}, self._planned.types))

    def _check_names(self, every: Sequence[Column]) -> None:
        if not every:
            self._refuse("no column is left", "Select some.")
        taken = {case_folded(name) for name in self._given.metadata.names}
        taken -= {case_folded(mark.name) for mark in self._given.sent_marks}
        paths: set[tuple[str, ...]] = set()
        for column in every:
            name = case_folded(column.name)
            if name in taken:
                remedy = "Tables ignore the case of names, and have metadata columns of their own. Choose another name."
                self._refuse(f"two columns would be called {column.name}", remedy)
            if column.path in paths:
                found = f"{column.name} is a new column, and the source calls another one so"
                self._refuse(found, "Choose another name.")
            taken.add(name)
            paths.add(column.path)

    def _check_passed_on(self, by_path: Mapping[tuple[str, ...], str]) -> None:
        planned, given = self._planned, self._given
        if not merges_by_key(planned):
            return
        needed = [(self._before[name], "part of the primary key") for name in given.keys]
        if given.cursor_column is not None:
            needed.append((given.cursor_column, "the cursor"))
        needed += [(column, "the mark of deleted rows") for column in given.deletion_columns]
        for column, role in needed:
            if column.path not in by_path:
                self._refuse(
                    f"{column.name} is {role}, and the transforms do not pass it on",
                    f"Select {column.name} as it is, or use write: append or overwrite.",
                )

    def _refuse(self, found: str, remedy: str) -> NoReturn:
        raise ConfigError(_DOING, found, remedy=remedy, stream=str(self._planned.id))


def _json_schemas(schema: pa.Schema) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json_schema_of(schema)["properties"]
    return found


def _with_declared(planned: PlannedStream, made: Columns, shape: RowShape) -> PlannedStream:
    """Returns the stream as if it declared the columns that its transforms made."""
    types, root = _json_schemas(shape.schema), planned.stream.json_schema
    own = {
        column.path[0]: _nullable(types[column.name])
        for column in made.all
        if not column.is_nested and shape.passed_on.get(column.name) is None
    }
    properties = {**declared_properties(root, root), **own}
    stream = msgspec.structs.replace(planned.stream, json_schema={**root, "properties": properties})
    return msgspec.structs.replace(planned, stream=stream)


def _nullable(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**schema, "type": ["null", schema["type"]]} if "type" in schema else schema
