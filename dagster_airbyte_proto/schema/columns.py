"""The columns of a stream's table: what they are called, where their values come from, what they are in Arrow."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.model import FieldPath, Ordering, PartitionField
from dagster_airbyte_proto.schema.conditions import Condition

RAW_ID = "_airbyte_raw_id"
EXTRACTED_AT = "_airbyte_extracted_at"
META = "_airbyte_meta"
GENERATION_ID = "_airbyte_generation_id"
WHOLE_RECORD = "_airbyte_data"
"""The one column of a stream that declares no field: what each record holds, as it came."""

SDC_DELETED_AT = "_sdc_deleted_at"
DELETED_AT = ("_ab_cdc_deleted_at", SDC_DELETED_AT)
"""By which of these fields a source that follows a database's log says that a row was deleted: any value but null."""

INSTANT = pa.timestamp("us", "UTC")
VARIANT = pa.struct([pa.field(name, pa.binary(), nullable=False) for name in ("metadata", "value")])
"""Any value at all in a binary encoding, as Parquet files have it. No struct of ours has parts that cannot be null."""
CHANGES = pa.list_(pa.struct([("field", pa.string()), ("change", pa.string()), ("reason", pa.string())]))
METADATA = pa.schema(
    [
        pa.field(RAW_ID, pa.string(), metadata={"comment": "a name for this very row"}),
        pa.field(EXTRACTED_AT, INSTANT, metadata={"comment": "when the source emitted the record"}),
        pa.field(
            META,
            pa.struct([("sync_id", pa.int64()), ("changes", CHANGES)]),
            metadata={"comment": "the sync that landed it, and what did not fit"},
        ),
        pa.field(GENERATION_ID, pa.int64(), metadata={"comment": "counts the stream's full refreshes"}),
    ]
)

SDC = pa.schema(
    [
        pa.field("_sdc_extracted_at", INSTANT, metadata={"comment": "when the source emitted the record"}),
        pa.field("_sdc_received_at", INSTANT, metadata={"comment": "when the record came"}),
        pa.field("_sdc_batched_at", INSTANT, metadata={"comment": "when the first record of its batch came"}),
        pa.field("_sdc_sequence", pa.int64(), metadata={"comment": "when the record came, in milliseconds since 1970"}),
        pa.field("_sdc_table_version", pa.int64(), metadata={"comment": "which version of its rows the source said"}),
        pa.field("_sdc_sync_started_at", pa.int64(), metadata={"comment": "of the sync, in milliseconds since 1970"}),
    ]
)
"""Metadata columns as other loaders have them, by choice: who comes from those finds them, of the same meaning."""


class Kind(StrEnum):
    """What a value is. STRUCT is an object that has a column of its own for each member; JSON is any value at all, kept
    as its own text, and VARIANT one whose text is encoded."""

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
    VARIANT = "variant"


_IN_TABLE = {
    Kind.STRING: pa.string(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    Kind.BIG_INTEGER: pa.decimal128(38, 0),
    Kind.NUMBER: pa.float64(),
    Kind.DECIMAL: pa.decimal128(38, 9),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.string(),
    Kind.TIMESTAMP: INSTANT,
    Kind.LOCAL_TIMESTAMP: pa.timestamp("us"),
    Kind.BINARY: pa.binary(),
    Kind.JSON: pa.string(),
    Kind.VARIANT: VARIANT,
}
_READ_AS_IS = {Kind.STRING, Kind.BOOLEAN, Kind.INTEGER, Kind.BIG_INTEGER, Kind.NUMBER, Kind.DECIMAL}
# Arrow's parser dies of a decimal such as 1e-99: it looks beyond the end of its powers of ten.
_READ_RAW = {Kind.JSON, Kind.VARIANT, Kind.BIG_INTEGER, Kind.DECIMAL}


class ValueType(NamedTuple):
    """A kind, inside as many lists as `depth` says. `members` are those of a STRUCT, one at least; those that are known
    by their source's names in `passed_over` and not read are none of them."""

    kind: Kind
    depth: int = 0
    members: "tuple[Member, ...]" = ()
    passed_over: frozenset[str] = frozenset()

    @property
    def in_table(self) -> pa.DataType:
        if self.kind is Kind.STRUCT:
            return _listed(pa.struct([(member.name, member.type.in_table) for member in self.members]), self.depth)
        return _listed(_IN_TABLE[self.kind], self.depth)

    @property
    def on_wire(self) -> pa.DataType:
        """What the JSON parser reads it as: text where the parser is too lenient, or cannot read it at all."""
        if self.kind is Kind.STRUCT:
            return _listed(pa.struct([(member.source, member.type.on_wire) for member in self.members]), self.depth)
        return _listed(_IN_TABLE[self.kind] if self.kind in _READ_AS_IS else pa.string(), self.depth)

    @property
    def item(self) -> "ValueType":
        """What its elements are. Only for what is a list."""
        return self._replace(depth=self.depth - 1)

    @property
    def is_read_whole(self) -> bool:
        """Whether no member is passed over, however deep."""
        return not self.passed_over and all(member.type.is_read_whole for member in self.members)

    @property
    def is_json_text(self) -> bool:
        """Whether it is read as JSON text, whatever its table makes of that."""
        return self.kind in (Kind.JSON, Kind.VARIANT) and not self.depth

    @property
    def is_raw(self) -> bool:
        """Whether its raw text is wanted, or that of a part of it: the JSON parser must not read it."""
        return self.kind in _READ_RAW or any(member.type.is_raw for member in self.members)


class Member(NamedTuple):
    """A member of an object that lands as a struct. `name` is the table's, `source` the source's own."""

    name: str
    source: str
    type: ValueType


class Column(NamedTuple):
    """A column. `path` leads to its value in a record; longer than one only for a key inside an object."""

    name: str
    path: FieldPath
    type: ValueType
    comment: str = ""

    @property
    def is_nested(self) -> bool:
        return len(self.path) > 1

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.type.in_table, metadata={"comment": self.comment} if self.comment else None)


class Pruning(NamedTuple):
    """What stays of an object that is read as JSON text: members at the paths in `keep`, or all where it is empty, but
    for those in `drop`. The paths start inside the object."""

    keep: tuple[FieldPath, ...] = ()
    drop: tuple[FieldPath, ...] = ()


class Shape(NamedTuple):
    """How a table's rows are made of what is read, where they are not the same.

    `read` are a record's fields that are parsed, with the source's types. One has the name of its column in the table,
    or a name like no other's if it is read for the `condition` alone, in which fields are called as the source calls
    them. What is `passed_over` is known and not parsed. `hashed` and `pruned` are by names in the table.
    """

    read: tuple[Column, ...]
    passed_over: frozenset[str] = frozenset()
    hashed: frozenset[str] = frozenset()
    pruned: Mapping[str, Pruning] = {}
    condition: Condition | None = None


class Columns(msgspec.Struct, frozen=True, dict=True):
    """All columns of a table but the metadata ones. `keys` are names of columns; `cursor` is a path in a record.

    `partitioning` is what the table's rows are parted by, and `ordering` how they lie in its files, in its own names.
    Of a stream that `is_whole` a record is one field, WHOLE_RECORD, that has all of it inside. `sdc` are the names of
    those of SDC that the table has.
    """

    all: tuple[Column, ...]
    keys: tuple[str, ...] = ()
    cursor: FieldPath = ()
    shape: Shape | None = None
    partitioning: tuple[PartitionField, ...] = ()
    ordering: Ordering = Ordering()
    is_whole: bool = False
    sdc: tuple[str, ...] = ()

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's schema, with the metadata columns last. It carries no field ids: the table gives those."""
        return pa.schema([*(column.field for column in self.all), *self.metadata])

    @property
    def metadata(self) -> pa.Schema:
        """The metadata columns."""
        return pa.schema([*METADATA, *(SDC.field(name) for name in self.sdc)])

    @cached_property
    def top(self) -> tuple[Column, ...]:
        """The columns that are a record's own fields, as they are read."""
        if self.shape is not None:
            return self.shape.read
        return tuple(column for column in self.all if not column.is_nested)

    @property
    def passed_over(self) -> frozenset[str]:
        """The fields of a record that are known and not read."""
        return frozenset() if self.shape is None else self.shape.passed_over

    @cached_property
    def is_read_whole(self) -> bool:
        """Whether nothing that is known of a record is passed over."""
        return not self.passed_over and all(column.type.is_read_whole for column in self.top)

    @cached_property
    def order_column(self) -> Column | None:
        """The column that holds the cursor, or has it inside. None where there is none, or one that has no order."""
        found = (column for column in self.all if column.path == self.cursor[:1])
        return next((column for column in found if not column.type.depth), None)

    @cached_property
    def deleted_at(self) -> Column | None:
        """The column that says which records are deletions."""
        return next((column for column in self.all if len(column.path) == 1 and column.path[0] in DELETED_AT), None)

    @cached_property
    def nested(self) -> tuple[Column, ...]:
        """The columns made for keys that lie inside objects."""
        return tuple(column for column in self.all if column.is_nested)


def nulls(rows: int, kind: pa.DataType) -> pa.Array:
    """As Arrow's own, of a table's type. Of a VARIANT the whole is null, and no part: Parquet takes no other."""
    if kind == VARIANT:
        parts = [pa.repeat(pa.scalar(b"", field.type), rows) for field in kind]
    elif pa.types.is_struct(kind):
        parts = [nulls(rows, field.type) for field in kind]
    else:
        return pa.nulls(rows, kind)
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.repeat(True, rows))


def member_at(kind: ValueType, path: FieldPath) -> tuple[ValueType, FieldPath]:
    """What lies at `path` inside structs, and the rest of the path where it leads on into something else."""
    while path and kind.kind is Kind.STRUCT and not kind.depth:
        inside = {member.source: member.type for member in kind.members}
        if path[0] not in inside:
            break
        kind, path = inside[path[0]], path[1:]
    return kind, path


def _listed(item: pa.DataType, depth: int) -> pa.DataType:
    for _ in range(depth):
        item = pa.list_(item)
    return item
