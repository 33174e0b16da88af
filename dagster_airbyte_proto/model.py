"""The words that more than one folder must agree on. Values only: frozen, comparable, writable as JSON.

A *stream* is what a connector offers; one stream, one table. A *state* is a connector's checkpoint,
opaque to us. A *load* is a slice of a sync that ends at states: the staged files of its streams and the
states that they free. It is the unit of commit and of recovery.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

FieldPath = tuple[str, ...]
PartitionValue = bool | int | str | None
"""Of one field of a partition: dates and times counted from 1970."""


class StreamId(NamedTuple):
    """A stream's name within a connection. Null and empty namespaces are one and the same."""

    namespace: str | None
    name: str

    @classmethod
    def of(cls, name: str, namespace: str | None = None) -> "StreamId":
        return cls(namespace or None, name)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


class ReadMode(StrEnum):
    FULL_REFRESH = "full_refresh"
    INCREMENTAL = "incremental"


class WriteMode(StrEnum):
    APPEND = "append"
    OVERWRITE = "overwrite"
    APPEND_DEDUP = "append_dedup"
    OVERWRITE_DEDUP = "overwrite_dedup"
    SOFT_DELETE = "soft_delete"


class Merge(StrEnum):
    """How rows of a table are replaced by newer ones of their key: by deletes beside the files that hold them, which
    readers merge; or by copies of those files that lack them."""

    ON_READ = "merge_on_read"
    COPY_ON_WRITE = "copy_on_write"


class ObjectsAs(StrEnum):
    """What objects land as. A STRUCT is one with declared properties; any other is JSON text then."""

    JSON = "json"
    STRUCT = "struct"
    VARIANT = "variant"


class IntegersAs(StrEnum):
    BIGINT = "bigint"
    DECIMAL = "decimal"


class NumbersAs(StrEnum):
    DOUBLE = "double"
    DECIMAL = "decimal"


class TypeChoices(msgspec.Struct, frozen=True):
    """What a stream's values land as, where there is a choice."""

    objects: ObjectsAs = ObjectsAs.JSON
    integers: IntegersAs = IntegersAs.BIGINT
    numbers: NumbersAs = NumbersAs.DOUBLE


class SchemaPolicy(StrEnum):
    """What becomes of what a stream has and its table lacks: added; the stream refused; left out of each row; or the
    rows rejected that have a value there."""

    EVOLVE = "evolve"
    FREEZE = "freeze"
    DISCARD_COLUMN = "discard_column"
    DISCARD_ROW = "discard_row"


class ColumnName(NamedTuple):
    """What a field of a stream, by its path in a record, is called in the table: once given, for good."""

    path: FieldPath
    name: str


class Stream(msgspec.Struct, frozen=True):
    """A stream as `discover` offers it. `raw` is the connector's own JSON for it, handed back as it came.

    What `may_follow_log` is read incrementally without a cursor too, where the user says so. Fields that are `unsent`
    never come, and are no columns, whatever is told of them.
    """

    id: StreamId
    json_schema: Mapping[str, Any]
    read_modes: tuple[ReadMode, ...] = (ReadMode.FULL_REFRESH,)
    primary_key: tuple[FieldPath, ...] = ()
    cursor: FieldPath = ()
    is_cursor_fixed: bool = False
    is_resumable: bool = False
    is_file_based: bool = False
    may_follow_log: bool = False
    unsent: tuple[str, ...] = ()
    raw: bytes = b"{}"


class Catalog(msgspec.Struct, frozen=True):
    streams: tuple[Stream, ...]


class TableName(NamedTuple):
    """A table within the writer's catalog."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


class PartitionField(NamedTuple):
    """What a table's rows are parted by: a column, or what a transform makes of it. `width` is the number of buckets,
    or what is truncated to; 0 for the others."""

    transform: str
    column: str
    width: int = 0

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return f"{self.transform}({f'{self.width}, ' if self.width else ''}{self.column})"


class SortField(NamedTuple):
    """A column that rows are ordered by. Null is less than any value."""

    column: str
    is_descending: bool = False

    def __str__(self) -> str:
        return f"{self.column} desc" if self.is_descending else self.column


class Ordering(NamedTuple):
    """How a table's rows lie in its files: sorted by one column after the other, or with rows together that have
    much in common in all columns of `clustered`."""

    sorted: tuple[SortField, ...] = ()
    clustered: tuple[str, ...] = ()


class Shaping(msgspec.Struct, frozen=True):
    """What is to become of a stream's columns and rows on their way. Columns are named as the source names them.

    An empty `select` is all of them. `renames` are pairs: the source's name, and the table's.
    """

    select: tuple[FieldPath, ...] = ()
    exclude: tuple[FieldPath, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    hashed: tuple[FieldPath, ...] = ()
    filter: str = ""
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()


class PlannedStream(msgspec.Struct, frozen=True):
    """A stream with all that was chosen for it in one sync. `slice` is the partition that it is read for, if any.

    `soft_delete` is planned as `append_dedup` that `keeps_deleted`: the row with which the source deletes a key stays.

    `wish` is what the table would be called if there was no other. `names` are those that its columns have had before;
    `formerly` has the old name of each field that the source renamed. `sdc_columns`: the table has those beside ours.
    """

    stream: Stream
    table: TableName
    read: ReadMode
    write: WriteMode
    primary_key: tuple[FieldPath, ...] = ()
    cursor: FieldPath = ()
    generation_id: int = 0
    minimum_generation_id: int = 0
    slice: str | None = None
    shaping: Shaping | None = None
    keeps_deleted: bool = False
    merge: Merge = Merge.ON_READ
    types: TypeChoices = TypeChoices()
    policy: SchemaPolicy = SchemaPolicy.EVOLVE
    wish: TableName | None = None
    names: tuple[ColumnName, ...] = ()
    formerly: Mapping[str, str] = {}
    sdc_columns: bool = False

    @property
    def id(self) -> StreamId:
        return self.stream.id


class StateScope(StrEnum):
    STREAM = "stream"
    GLOBAL = "global"
    LEGACY = "legacy"


class State(msgspec.Struct, frozen=True):
    """A checkpoint. `message` is the connector's own JSON, kept byte for byte and handed back as it came.

    `stream` is set for the STREAM scope alone. `is_reset` says that the connector wants to start anew.
    """

    scope: StateScope
    message: bytes
    stream: StreamId | None = None
    is_reset: bool = False
