"""The columns of a stream's table: their names, the fields their values come from, and their Arrow types.

Each value type has two Arrow types. `table_type` is the column's type in the table. `wire_type` is the type that
`pyarrow.json` reads: text wherever that parser is too lenient or cannot read the value at all. `staging` converts the
one to the other.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.model import FieldPath, Ordering, PartitionField, RelayTarget
from dagster_airbyte_proto.schema.conditions import Condition

RAW_ID = "_airbyte_raw_id"
EXTRACTED_AT = "_airbyte_extracted_at"
META = "_airbyte_meta"
GENERATION_ID = "_airbyte_generation_id"
WHOLE_RECORD = "_airbyte_data"
"""The only column of a stream that declares no fields. It holds each record as it came."""

SDC_DELETED_AT = "_sdc_deleted_at"
DELETION_FIELDS = ("_ab_cdc_deleted_at", SDC_DELETED_AT)
"""The fields by which a source that follows a database's log marks a deleted row: with any value but null."""

DECIMAL_SCALE = 9
"""The digits behind the point that a table keeps of a DECIMAL."""

INSTANT = pa.timestamp("us", "UTC")
VARIANT = pa.struct([pa.field(name, pa.binary(), nullable=False) for name in ("metadata", "value")])
"""The VARIANTs of a table that Spark wrote them to. Streams have none, so staged files have only nulls there. No other
struct in a table has members that cannot be null, so the type is recognised by that."""
CHANGES = pa.list_(pa.struct([("field", pa.string()), ("change", pa.string()), ("reason", pa.string())]))
METADATA = pa.schema(
    [
        pa.field(RAW_ID, pa.string(), metadata={"comment": "Unique id of the row"}),
        pa.field(EXTRACTED_AT, INSTANT, metadata={"comment": "Time when the source emitted the record"}),
        pa.field(
            META,
            pa.struct([("sync_id", pa.int64()), ("changes", CHANGES)]),
            metadata={"comment": "Sync that loaded the row, and values that did not fit their column"},
        ),
        pa.field(
            GENERATION_ID,
            pa.int64(),
            metadata={"comment": "Generation of the row: grows by one with each full refresh"},
        ),
    ]
)

SDC = pa.schema(
    [
        pa.field("_sdc_extracted_at", INSTANT, metadata={"comment": "Time when the source emitted the record"}),
        pa.field("_sdc_received_at", INSTANT, metadata={"comment": "Time when the record was received"}),
        pa.field(
            "_sdc_batched_at", INSTANT, metadata={"comment": "Time when the first record of its batch was received"}
        ),
        pa.field(
            "_sdc_sequence", pa.int64(), metadata={"comment": "Time when the record was received, in ms since 1970"}
        ),
        pa.field(
            "_sdc_table_version", pa.int64(), metadata={"comment": "Version of the table that the source declared"}
        ),
        pa.field(
            "_sdc_sync_started_at", pa.int64(), metadata={"comment": "Time when the sync started, in ms since 1970"}
        ),
    ]
)
"""Optional metadata columns with the names and the meaning that Singer targets give them, for users who come from
those."""

_RECORD_FORM_KEY = b"airbyte_proto.record_form"


class ValueKind(StrEnum):
    """The kinds of values.

    STRUCT is an object with a column for each member. JSON is any value, stored as its JSON text.
    """

    STRING = "string"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    BIG_INTEGER = "big_integer"
    NUMBER = "number"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    LOCAL_TIMESTAMP = "local_timestamp"
    BINARY = "binary"
    STRUCT = "struct"
    JSON = "json"


_TABLE_TYPES = {
    ValueKind.STRING: pa.string(),
    ValueKind.BOOLEAN: pa.bool_(),
    ValueKind.INTEGER: pa.int64(),
    ValueKind.BIG_INTEGER: pa.decimal128(38, 0),
    ValueKind.NUMBER: pa.float64(),
    ValueKind.DECIMAL: pa.decimal128(38, DECIMAL_SCALE),
    ValueKind.DATE: pa.date32(),
    ValueKind.TIME: pa.string(),
    ValueKind.TIMESTAMP: INSTANT,
    ValueKind.LOCAL_TIMESTAMP: pa.timestamp("us"),
    ValueKind.BINARY: pa.binary(),
    ValueKind.JSON: pa.string(),
}
_PARSED_BY_ARROW = {
    ValueKind.STRING,
    ValueKind.BOOLEAN,
    ValueKind.INTEGER,
    ValueKind.BIG_INTEGER,
    ValueKind.NUMBER,
    ValueKind.DECIMAL,
}
# Arrow's parser crashes on a decimal such as 1e-99: it reads beyond the end of its powers of ten.
_PARSED_FROM_RAW_TEXT = {ValueKind.JSON, ValueKind.BIG_INTEGER, ValueKind.DECIMAL}


class ValueType(NamedTuple):
    """A kind of value, nested in `depth` lists. A STRUCT has at least one of `members`.

    `skipped_members` are members that the schema declares and that are not read, by the source's names.
    """

    kind: ValueKind
    depth: int = 0
    members: "tuple[Member, ...]" = ()
    skipped_members: frozenset[str] = frozenset()

    @property
    def table_type(self) -> pa.DataType:
        if self.kind is ValueKind.STRUCT:
            return _listed(pa.struct([(member.name, member.type.table_type) for member in self.members]), self.depth)
        return _listed(_TABLE_TYPES[self.kind], self.depth)

    @property
    def wire_type(self) -> pa.DataType:
        """The type that the JSON parser reads: text where the parser is too lenient or cannot read the value."""
        if self.kind is ValueKind.STRUCT:
            return _listed(pa.struct([(member.source, member.type.wire_type) for member in self.members]), self.depth)
        return _listed(_TABLE_TYPES[self.kind] if self.kind in _PARSED_BY_ARROW else pa.string(), self.depth)

    @property
    def element_type(self) -> "ValueType":
        """The type of a list's elements. Only for lists."""
        return self._replace(depth=self.depth - 1)

    @property
    def reads_every_member(self) -> bool:
        """True if no member is skipped, at any depth."""
        return not self.skipped_members and all(member.type.reads_every_member for member in self.members)

    @property
    def is_json_text(self) -> bool:
        return self.kind is ValueKind.JSON and not self.depth

    @property
    def needs_raw_text(self) -> bool:
        """True if the value, or a part of it, must be taken as raw text and kept from the JSON parser."""
        return self.kind in _PARSED_FROM_RAW_TEXT or any(member.type.needs_raw_text for member in self.members)


class Member(NamedTuple):
    """A member of an object that lands as a struct. `name` is its name in the table, `source` its name in records."""

    name: str
    source: str
    type: ValueType


class Column(NamedTuple):
    """A column. `path` leads to its value in a record. It has several steps only for a key inside an object."""

    name: str
    path: FieldPath
    type: ValueType
    comment: str = ""

    @property
    def is_nested(self) -> bool:
        return len(self.path) > 1

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.type.table_type, metadata={"comment": self.comment} if self.comment else None)


class Pruning(NamedTuple):
    """The selection of members of an object that is read as JSON text. The paths start inside the object.

    The members at the paths in `keep` stay, or all if it is empty, without those in `drop`.
    """

    keep: tuple[FieldPath, ...] = ()
    drop: tuple[FieldPath, ...] = ()


class ShapingPlan(NamedTuple):
    """The steps from parsed fields to a table's rows, for a stream whose columns are shaped.

    - `parsed_columns` are the record fields to parse, with the source's types. Each has the name of its column in the
      table. A field that only the `condition` needs has a name that no column has.
    - `skipped_fields` are declared and not parsed.
    - `hashed` and `pruned` use names in the table. `condition` uses the source's names.
    """

    parsed_columns: tuple[Column, ...]
    skipped_fields: frozenset[str] = frozenset()
    hashed: frozenset[str] = frozenset()
    pruned: Mapping[str, Pruning] = {}
    condition: Condition | None = None


class RecordForm(msgspec.Struct, frozen=True):
    """The form of the records that staged rows become again, for a relay, and the schema that their destination gets.

    Each row is sent with the fields of `columns`. Those of `json_columns` hold JSON text, which is sent as it is. With
    a `record_column` that column holds the JSON text of whole records, and there are no others. `marks` are undeclared
    fields that mark deleted rows (columns too, without a `record_column`): a plan that has such rows declares them.
    """

    target: RelayTarget
    json_schema: Mapping[str, Any]
    columns: tuple[str, ...] = ()
    json_columns: frozenset[str] = frozenset()
    record_column: str = ""
    marks: tuple[str, ...] = ()

    def in_schema(self, schema: pa.Schema) -> pa.Schema:
        """Returns the schema of files whose rows have this form."""
        return schema.with_metadata({**(schema.metadata or {}), _RECORD_FORM_KEY: msgspec.json.encode(self)})

    @staticmethod
    def of_schema(schema: pa.Schema) -> "RecordForm | None":
        """The form of the rows of a file; None for a file that was not staged for a relay."""
        encoded = (schema.metadata or {}).get(_RECORD_FORM_KEY)
        return None if encoded is None else decoded_form(encoded)


_FORM_DECODER = msgspec.json.Decoder(RecordForm)


def decoded_form(encoded: bytes) -> RecordForm:
    """Returns a form that was written as JSON."""
    return _FORM_DECODER.decode(encoded)


class Columns(msgspec.Struct, frozen=True, dict=True):
    """All columns of a table except the metadata columns. `keys` are column names; `cursor` is a path in a record.

    - `partitioning` and `ordering` use names in the table.
    - A stream that `is_schemaless` has one field, WHOLE_RECORD, which holds each record.
    - `sdc` are the names of the SDC columns that the table has.
    - A stream of a relay has the form of the records that its rows become again.
    - With transforms, `before_transforms` are the columns in which its records are parsed.
    - `undeclared_marks` are fields that mark deleted rows and that the source does not declare. Of them only the
      `sent_marks` land, and go to a destination.
    """

    all: tuple[Column, ...]
    keys: tuple[str, ...] = ()
    cursor: FieldPath = ()
    shaping_plan: ShapingPlan | None = None
    partitioning: tuple[PartitionField, ...] = ()
    ordering: Ordering = Ordering()
    is_schemaless: bool = False
    sdc: tuple[str, ...] = ()
    record_form: RecordForm | None = None
    before_transforms: "Columns | None" = None
    undeclared_marks: tuple[Column, ...] = ()
    sent_marks: tuple[Column, ...] = ()

    @property
    def as_parsed(self) -> "Columns":
        """The columns in which records are parsed: those before the stream's transforms, if it has any."""
        return self.before_transforms or self

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's schema, with the metadata columns last. It has no field ids: the table assigns those."""
        return pa.schema([*(column.field for column in self.all), *self.metadata])

    @property
    def metadata(self) -> pa.Schema:
        """The columns that are no fields of the stream: metadata, and marks that are sent."""
        marks = (mark.field for mark in self.sent_marks)
        return pa.schema([*METADATA, *(SDC.field(name) for name in self.sdc), *marks])

    @cached_property
    def parsed_columns(self) -> tuple[Column, ...]:
        """The declared top-level fields of a record that are parsed."""
        if self.shaping_plan is not None:
            return self.shaping_plan.parsed_columns
        return tuple(column for column in self.all if not column.is_nested)

    @cached_property
    def parsed_fields(self) -> tuple[Column, ...]:
        """All top-level fields of a record that are parsed: those of `parsed_columns`, then `undeclared_marks`."""
        return (*self.parsed_columns, *self.undeclared_marks)

    @property
    def skipped_fields(self) -> frozenset[str]:
        """The fields of a record that are declared and not parsed."""
        return frozenset() if self.shaping_plan is None else self.shaping_plan.skipped_fields

    @cached_property
    def reads_every_field(self) -> bool:
        """True if no declared field of a record is skipped, at any depth."""
        return not self.skipped_fields and all(column.type.reads_every_member for column in self.parsed_columns)

    @cached_property
    def cursor_column(self) -> Column | None:
        """The column that holds the cursor, or an object with the cursor inside. None without a cursor, and for a list,
        which has no order."""
        found = (column for column in self.all if column.path == self.cursor[:1])
        return next((column for column in found if not column.type.depth), None)

    @cached_property
    def deletion_columns(self) -> tuple[Column, ...]:
        """The columns that mark deleted rows."""
        return tuple(column for column in self.all if len(column.path) == 1 and column.path[0] in DELETION_FIELDS)

    @cached_property
    def nested(self) -> tuple[Column, ...]:
        """The columns that were added for keys inside objects."""
        return tuple(column for column in self.all if column.is_nested)


def null_array(length: int, data_type: pa.DataType) -> pa.Array:
    """Returns nulls of a table's type. A null VARIANT has members that are not null, because Parquet requires them."""
    if data_type == VARIANT:
        parts = [pa.repeat(pa.scalar(b"", field.type), length) for field in data_type]
    elif pa.types.is_struct(data_type):
        parts = [null_array(length, field.type) for field in data_type]
    else:
        return pa.nulls(length, data_type)
    return pa.StructArray.from_arrays(parts, fields=list(data_type), mask=pa.repeat(True, length))


def member_at(kind: ValueType, path: FieldPath) -> tuple[ValueType, FieldPath]:
    """Returns the type at `path` inside structs, and the rest of the path.

    The rest is not empty if the path leads into a value that is no struct. The type is then that value's.
    """
    while path and kind.kind is ValueKind.STRUCT and not kind.depth:
        inside = {member.source: member.type for member in kind.members}
        if path[0] not in inside:
            break
        kind, path = inside[path[0]], path[1:]
    return kind, path


def _listed(item: pa.DataType, depth: int) -> pa.DataType:
    for _ in range(depth):
        item = pa.list_(item)
    return item


_SQL_TYPES = {
    pa.string(): "string",
    pa.large_string(): "string",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
    VARIANT: "variant",
}


def column_type(kind: pa.DataType) -> str:
    """The Spark SQL name of an Arrow type."""
    if isinstance(kind, pa.JsonType):
        return "variant"
    if (plain := _SQL_TYPES.get(kind)) is not None:
        return plain
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{column_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{column_type(kind.key_type)},{column_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        fields = (kind.field(number) for number in range(kind.num_fields))
        return f"struct<{','.join(f'{field.name}:{column_type(field.type)}' for field in fields)}>"
    return str(kind)
