"""The terms that more than one folder must agree on. Values only: frozen, comparable, encodable as JSON.

- A *stream* is one data set that a connector offers. One stream lands in one table.
- A *state* is a connector's checkpoint. It is opaque to us.
- A *load* is the unit of commit and of recovery: staged files of streams, and the states that they free.

Digests of plans, and older databases, hold these structs as JSON. A renamed field keeps its old name: `field(name=…)`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

FieldPath = tuple[str, ...]
PartitionValue = bool | int | str | None
"""The value of one field of a partition. Dates and times are counted from 1970."""


def double_quoted(name: str) -> str:
    """The name in double quotes, as SQL quotes names."""
    return '"' + name.replace('"', '""') + '"'


class StreamId(NamedTuple):
    """A stream's name within a connection.

    A null namespace and an empty one are the same, as in Airbyte's protocol: both stand for the destination's own.
    As text, a name with a dot stands in quotes behind its namespace. So `a` with `b.c` and `a.b` with `c` differ.
    """

    namespace: str | None
    name: str

    @classmethod
    def of(cls, name: str, namespace: str | None = None) -> "StreamId":
        return cls(namespace or None, name)

    def __str__(self) -> str:
        if self.namespace is None:
            return self.name
        return f"{self.namespace}.{double_quoted(self.name) if '.' in self.name else self.name}"


class ReadMode(StrEnum):
    FULL_REFRESH = "full_refresh"
    INCREMENTAL = "incremental"


class WriteMode(StrEnum):
    APPEND = "append"
    OVERWRITE = "overwrite"
    APPEND_DEDUP = "append_dedup"
    OVERWRITE_DEDUP = "overwrite_dedup"
    SOFT_DELETE = "soft_delete"


REPLACING = frozenset((WriteMode.OVERWRITE, WriteMode.OVERWRITE_DEDUP))
"""The modes in which a part replaces all rows of a table, or of its slice. A part without files empties it."""

DEDUPLICATING = frozenset((WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP))
"""The modes that leave one row of each key."""


class PushMode(StrEnum):
    """The effect of a push at its destination.

    APPEND adds each new or changed row. INSERT adds the rows whose key is new. UPDATE changes rows that the destination
    has. UPSERT does both. MIRROR removes rows too. OVERWRITE replaces all rows.
    """

    APPEND = "append"
    INSERT = "insert"
    UPDATE = "update"
    UPSERT = "upsert"
    MIRROR = "mirror"
    OVERWRITE = "overwrite"


IDEMPOTENT = frozenset((PushMode.UPDATE, PushMode.UPSERT, PushMode.MIRROR, PushMode.OVERWRITE))
"""The modes in which a row that is sent twice stands at the destination once."""


class ChangesBy(StrEnum):
    """The ways to find new rows: all against those delivered, the table's snapshots, a growing column; or send all."""

    DIFF = "diff"
    SNAPSHOTS = "snapshots"
    CURSOR = "cursor"
    ALL = "all"


BY_KEY = frozenset((ChangesBy.DIFF, ChangesBy.SNAPSHOTS))
"""The ways that compare rows with those delivered, by key: they need the table that remembers them."""


class MergeMode(StrEnum):
    """The ways to replace rows by newer ones of their key.

    ON_READ leaves deletes of the kind that the format chooses, which readers merge with the data files. POSITIONS
    leaves the positions of the old rows, EQUALITY_DELETES their keys. COPY_ON_WRITE rewrites data files without them.
    """

    ON_READ = "merge_on_read"
    POSITIONS = "positions"
    EQUALITY_DELETES = "equality_deletes"
    COPY_ON_WRITE = "copy_on_write"


class ObjectsAs(StrEnum):
    """The column type of JSON objects. With STRUCT, an object that declares no properties still lands as JSON text."""

    JSON = "json"
    STRUCT = "struct"


class IntegersAs(StrEnum):
    BIGINT = "bigint"
    DECIMAL = "decimal"


class NumbersAs(StrEnum):
    DOUBLE = "double"
    DECIMAL = "decimal"


class TypeChoices(msgspec.Struct, frozen=True):
    """The column types of a stream's values, where there is a choice."""

    objects: ObjectsAs = ObjectsAs.JSON
    integers: IntegersAs = IntegersAs.BIGINT
    numbers: NumbersAs = NumbersAs.DOUBLE


class NamingPolicy(StrEnum):
    """The names of tables and columns: as the SOURCE has them, or in SNAKE case, which needs no quotes in SQL."""

    SOURCE = "source"
    SNAKE = "snake"


class SchemaPolicy(StrEnum):
    """The treatment of a column that the stream has and its table lacks.

    EVOLVE adds it. FREEZE refuses the stream. DISCARD_COLUMN leaves it out of every row. DISCARD_ROW rejects the rows
    that have a value there.
    """

    EVOLVE = "evolve"
    FREEZE = "freeze"
    DISCARD_COLUMN = "discard_column"
    DISCARD_ROW = "discard_row"


class ColumnName(NamedTuple):
    """The column name of a field, which is identified by its path in a record. A name that was given once stays."""

    path: FieldPath
    name: str


class Stream(msgspec.Struct, frozen=True):
    """A stream as `discover` offers it. `raw` is the connector's own JSON for it, handed back as it came.

    A stream that `supports_log_replication` can be read incrementally without a cursor, if the user asks for it.
    `unsupported_fields` never arrive in records and get no columns, even if the schema declares them.
    """

    id: StreamId
    json_schema: Mapping[str, Any]
    read_modes: tuple[ReadMode, ...] = (ReadMode.FULL_REFRESH,)
    primary_key: tuple[FieldPath, ...] = ()
    cursor: FieldPath = ()
    is_cursor_fixed: bool = False
    is_resumable: bool = False
    is_file_based: bool = False
    supports_log_replication: bool = msgspec.field(default=False, name="may_follow_log")
    unsupported_fields: tuple[str, ...] = msgspec.field(default=(), name="unsent")
    raw: bytes = b"{}"


class Catalog(msgspec.Struct, frozen=True):
    """The streams that a connector offers, each id once. `duplicates` are further entries with the id of a stream. The
    schemas of `unreadable` streams are no objects: here they have none."""

    streams: tuple[Stream, ...]
    duplicates: tuple[Stream, ...] = ()
    unreadable: tuple[StreamId, ...] = ()


class TableName(NamedTuple):
    """A table within the writer's catalog."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


IDENTITY = "identity"
TRANSFORMS = frozenset((IDENTITY, "year", "month", "day", "hour", "bucket", "truncate"))
"""The partition transforms, by their names in Iceberg."""


class PartitionField(NamedTuple):
    """A partition field of a table: a column, or a transform of it.

    `width` is the number of buckets, or the width of a truncation; 0 for other transforms.
    """

    transform: str
    column: str
    width: int = 0

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return f"{self.transform}({f'{self.width}, ' if self.width else ''}{self.column})"


class SortField(NamedTuple):
    """A column that rows are sorted by. Null sorts below any value."""

    column: str
    is_descending: bool = False

    def __str__(self) -> str:
        return f"{self.column} desc" if self.is_descending else self.column


class Ordering(NamedTuple):
    """The order of rows within the files of a table: sorted, or clustered (z-order) by the columns of `clustered`."""

    sorted: tuple[SortField, ...] = ()
    clustered: tuple[str, ...] = ()


class Shaping(msgspec.Struct, frozen=True):
    """The user's choices for a stream's columns and rows. Columns have the names that the source gives them.

    An empty `select` means all columns. `renames` are pairs of the source's name and the table's.
    """

    select: tuple[FieldPath, ...] = ()
    exclude: tuple[FieldPath, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    hashed: tuple[FieldPath, ...] = ()
    filter: str = ""
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()


class RuleKind(StrEnum):
    NOT_NULL = "assert_not_null"
    UNIQUE = "assert_unique"
    REGEX = "assert_regex"
    RANGE = "assert_range"


class RowRule(msgspec.Struct, frozen=True):
    """A rule that each row must keep. `pattern` is for REGEX; the bounds, both inclusive, are for RANGE."""

    kind: RuleKind
    column: str
    pattern: str = ""
    minimum: int | float | str | None = None
    maximum: int | float | str | None = None


class QuerySpec(msgspec.Struct, frozen=True, tag="sql"):
    """A transform by a query on the table `input`, which holds one batch of rows."""

    sql: str


class RuleSpec(msgspec.Struct, frozen=True, tag="validate"):
    """A transform by rules. `on_error` says what happens to a row that breaks one: skip, fail or reject."""

    rules: tuple[RowRule, ...]
    on_error: str = "reject"


class EnrichmentCalls(msgspec.Struct, frozen=True):
    """The way of rows to the connector of an enrichment. It does not decide what they become.

    A process gets at most so many `rows`, or a batch, and all processes `rows_per_second` together. What came of a row
    is used again for `cached_seconds`, for rows that are the same in the columns of `cached_by`, or in all.
    """

    rows: int | None = None
    rows_per_second: float | None = None
    is_one_at_a_time: bool = False
    cached_seconds: float | None = None
    cached_by: tuple[str, ...] = ()


class EnrichmentSpec(msgspec.Struct, frozen=True, tag="connector"):
    """A transform by a connector, the one with this `number` among the transforms of its connection.

    `columns` are the names and SQL types of the columns that it fills. A reply finds its row by the fields of `key`;
    without them by the row's number, which is sent with it. `options` are JSON, and those of the connector.
    """

    number: int
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...] = ()
    options: str = "{}"
    on_error: str = "reject"
    calls: EnrichmentCalls = EnrichmentCalls()


class ComponentSpec(msgspec.Struct, frozen=True, tag="component"):
    """A transform by a component, which fills `columns`, each with the name of its type.

    `number` is its place among a connection's transforms. `on_error` is for rows that it rejects, or that do not fit.
    """

    number: int
    columns: tuple[tuple[str, str], ...]
    on_error: str = "reject"


TransformSpec = QuerySpec | RuleSpec | EnrichmentSpec | ComponentSpec


class RelayTarget(msgspec.Struct, frozen=True):
    """The stream of a destination to which a relayed stream goes. `keys` and `cursor` are fields of its records.

    Records go as they came, or `by_columns` where one end has Arrow. Those of one `fingerprint` are shaped alike. It
    covers `connectors`, a digest of those of the stream's transforms.
    """

    stream: StreamId
    mode: PushMode
    keys: tuple[str, ...] = ()
    by_columns: bool = False
    cursor: str | None = None
    fingerprint: str = ""
    connectors: str = ""


class PlannedStream(msgspec.Struct, frozen=True):
    """A stream with all choices for one sync. `slice` is the partition that it is read for, if any.

    - `soft_delete` is planned as `append_dedup` with `keeps_deleted`: the row by which the source deletes a key stays.
    - `preferred_table` is the name its table would have if no other table had it.
    - `column_names` are the names that its columns have had before, `member_names` those of members of its structs.
    - `formerly` maps each field that the source renamed to its old name. A key that `is_key_configured` is the user's.
    - With `sdc_columns` the table has the `_sdc_…` columns too. With a `relay` it is a destination, and no table.
    - `transforms` change its rows, in this order, between the source and the table or destination.
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
    merge: MergeMode = MergeMode.ON_READ
    types: TypeChoices = TypeChoices()
    schema_policy: SchemaPolicy = msgspec.field(default=SchemaPolicy.EVOLVE, name="policy")
    preferred_table: TableName | None = msgspec.field(default=None, name="wish")
    column_names: tuple[ColumnName, ...] = msgspec.field(default=(), name="names")
    formerly: Mapping[str, str] = {}
    sdc_columns: bool = False
    naming: NamingPolicy = NamingPolicy.SOURCE
    relay: RelayTarget | None = None
    transforms: tuple[TransformSpec, ...] = ()
    member_names: tuple[ColumnName, ...] = ()
    is_key_configured: bool = False

    @property
    def id(self) -> StreamId:
        return self.stream.id


class StateScope(StrEnum):
    STREAM = "stream"
    GLOBAL = "global"
    LEGACY = "legacy"


class State(msgspec.Struct, frozen=True):
    """A checkpoint. `message` is the connector's own JSON, stored byte for byte and handed back as it came.

    `stream` is set for the STREAM scope alone. With `is_reset` the connector asks to start from nothing.
    """

    scope: StateScope
    message: bytes
    stream: StreamId | None = None
    is_reset: bool = False
