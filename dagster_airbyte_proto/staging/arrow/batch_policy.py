"""Holds the batches of a stream against the schema that its connector gave, by the policy for that stream.

| difference | answers |
|---|---|
| a column that the schema lacks | add, ignore: staging leaves it out, and counts its values; fail |
| a column of the schema that lacks | ignore: it is null; fail |
| a column of another type | coerce: staging casts it, value by value; null: none of its values is taken; fail |
| nulls where the schema has none | allow; fail |

`add` and `ignore` are the same here: they tell the connector whether to send such a column. A table gets it once the
catalog has it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dagster_airbyte_proto.errors import ConnectorError, outdated_catalog_remedy
from dagster_airbyte_proto.protocols.rapidbyte.changes import DELETE, DELETED_AT, OPERATION
from dagster_airbyte_proto.protocols.rapidbyte.stream_context import SourcePolicies
from dagster_airbyte_proto.schema.arrow_schema import written_out
from dagster_airbyte_proto.staging.arrow.typed_text import TEXT_FORMS

NEW, REMOVED, NULLABILITY, TYPE = "new_column", "removed_column", "nullability_change", "type_change"
DIFFERENCES: Mapping[str, str] = MappingProxyType(
    {
        NEW: "new",
        REMOVED: "not there",
        NULLABILITY: "null in some rows, and never was",
        TYPE: "of another type",
    }
)
"""What a column is that differs from the schema, by the kind of difference."""
_DOING = "reading an Arrow batch"
_KNOWN = ("insert", "update", DELETE, None)
_OPERATIONS = "It has to be insert, update or delete; null is a row that is there."


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def _is(*kinds: pa.DataType) -> Callable[[pa.DataType], bool]:
    return lambda kind: kind in kinds


def _is_timestamp(unit: str) -> Callable[[pa.DataType], bool]:
    return lambda kind: bool(types.is_timestamp(kind)) and kind.unit == unit


_MATCHES: Mapping[str, Callable[[pa.DataType], bool]] = MappingProxyType(
    {
        "Boolean": _is(pa.bool_()),
        **{
            f"{sign}{bits}": _is(getattr(pa, f"{sign.lower()}{bits}")())
            for sign in ("Int", "UInt")
            for bits in (8, 16, 32, 64)
        },
        "Float16": _is(pa.float16()),
        "Float32": _is(pa.float32()),
        "Float64": _is(pa.float64()),
        "Utf8": _is_text,
        "LargeUtf8": _is_text,
        "Binary": _is_bytes,
        "LargeBinary": _is_bytes,
        "Date32": _is(pa.date32()),
        "Date64": _is(pa.date64()),
        "TimestampMillis": _is_timestamp("ms"),
        "TimestampMicros": _is_timestamp("us"),
        "TimestampNanos": _is_timestamp("ns"),
        "Decimal128": lambda kind: types.is_decimal(kind) or _is_text(kind),
    }
)


class BatchPolicy:
    """The policy for the batches of one stream, and for the records that its connector rejects.

    `columns` are those of its schema; without any, all batches pass. `fields` are the only ones that were to be sent.
    Of a stream that `sends_changes`, deleted rows are marked as those of other sources are.
    """

    def __init__(
        self,
        stream: str,
        columns: Sequence[Mapping[str, Any]],
        policies: SourcePolicies,
        fields: frozenset[str] | None = None,
        *,
        sends_changes: bool = False,
    ) -> None:
        self._stream, self._policies = stream, policies
        self._columns = {str(each["name"]): each for each in columns}
        self._wanted = [name for name in self._columns if fields is None or name in fields]
        self._sends_changes = sends_changes

    def check_rejected(self, reason: str) -> None:
        """Raises ConnectorError where a record that the connector rejects has to fail the stream."""
        if self._policies.on_error == "fail":
            raise ConnectorError(
                "reading its records",
                f"the connector rejected one: {reason}",
                remedy="With on_error: reject, such records are counted and kept.",
                stream=self._stream,
            )

    def differences(self, batch: pa.RecordBatch) -> Mapping[str, Sequence[str]]:
        """Returns the columns in which a batch differs from the schema, by the kind of difference."""
        if not self._columns:
            return {}
        names = [name for name in batch.schema.names if not self._is_operation(name)]
        known, deleted = [name for name in names if name in self._columns], self._deleted_rows(batch)
        return {
            NEW: [name for name in names if name not in self._columns],
            REMOVED: [name for name in self._wanted if name not in names],
            NULLABILITY: [
                name for name in known if self._is_never_null(name) and _has_null(batch.column(name), deleted)
            ],
            TYPE: [name for name in known if not self._has_its_type(name, batch.schema.field(name).type)],
        }

    def applied(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the batch as it may be staged. Raises ConnectorError where the stream has to fail."""
        if not self._columns:
            return batch
        differences = self.differences(batch)
        for difference, found in differences.items():
            self._check(difference, found)
        if self._policies.evolution.type_change == "null":
            for name in differences.get(TYPE, ()):
                # Not nulls of its own type: a value that is there and does not fit has an entry in the row's changes.
                batch = batch.set_column(batch.schema.names.index(name), name, _unfit(batch.column(name)))
        batch = self._with_typed_text(batch)
        if not (self._sends_changes and OPERATION in batch.schema.names):
            return batch
        operations = batch.column(OPERATION)
        if self._is_operation(OPERATION):
            batch = batch.drop_columns([OPERATION])
        return _with_deletions(batch, operations)

    def _with_typed_text(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the batch with the text of JSON and of decimals marked as what it stands for."""
        for at, name in enumerate(batch.schema.names):
            form = TEXT_FORMS.get(str(self._columns.get(name, {}).get("data_type")))
            if form is not None and not isinstance(batch.column(at), pa.ExtensionArray):
                text = _decoded(batch.column(at))
                if types.is_string(text.type):
                    batch = batch.set_column(at, name, pa.ExtensionArray.from_storage(form, text))
        return batch

    def _deleted_rows(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        """Returns which rows are deleted, of which a source may know the key alone. None where no row can be."""
        if not self._sends_changes or OPERATION not in batch.schema.names:
            return None
        operations = _decoded(batch.column(OPERATION))
        return pc.fill_null(pc.equal(operations, DELETE), False) if _is_text(operations.type) else None

    def _is_operation(self, name: str) -> bool:
        """True for a column that is the connector's word on each row, and none of its values."""
        return name == OPERATION and self._sends_changes and name not in self._columns

    def _check(self, difference: str, found: Sequence[str]) -> None:
        if found and getattr(self._policies.evolution, difference) == "fail":
            raise ConnectorError(
                _DOING,
                f"column {', '.join(sorted(found)[:20])} is {DIFFERENCES[difference]}, and schema_evolution says"
                f" {difference}: fail",
                remedy=f"{outdated_catalog_remedy()} If the column should not be so, give another answer.",
                stream=self._stream,
            )

    def _is_never_null(self, name: str) -> bool:
        return self._columns[name].get("nullable") is False

    def _has_its_type(self, name: str, kind: pa.DataType) -> bool:
        matches = _MATCHES.get(str(self._columns[name].get("data_type")))
        value = kind.value_type if types.is_dictionary(kind) or types.is_run_end_encoded(kind) else kind
        return matches is None or types.is_null(kind) or bool(matches(value))


def _with_deletions(batch: pa.RecordBatch, operations: pa.Array) -> pa.RecordBatch:
    """Returns the batch with the time of now where a row is deleted, and null in all others."""
    if DELETED_AT in batch.schema.names:
        return batch
    operations = _decoded(operations)
    if not _is_text(operations.type):
        raise ConnectorError(_DOING, f"column {OPERATION} is {operations.type}, and no text", remedy=_OPERATIONS)
    if not pc.all(pc.is_in(operations, pa.array(_KNOWN, pa.string()))).as_py():
        raise ConnectorError(_DOING, f"column {OPERATION} has another word in some rows", remedy=_OPERATIONS)
    now = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
    times = pc.if_else(pc.fill_null(pc.equal(operations, DELETE), False), now, pa.scalar(None, now.type))
    return batch.append_column(DELETED_AT, times)


def _has_null(array: pa.Array, deleted: pa.BooleanArray | None) -> bool:
    """True if a value is null in a row that is not deleted."""
    array = written_out(array)
    if deleted is None or not array.null_count:
        return bool(array.null_count)
    return bool(pc.any(pc.and_not(array.is_null(), deleted)).as_py())


def _decoded(operations: pa.Array) -> pa.Array:
    """The texts of the rows, each written out, and none of them a view."""
    operations = written_out(operations)
    return operations.cast(pa.string()) if _is_text(operations.type) else operations


def _unfit(array: pa.Array) -> pa.Array:
    """An array that fits no column of a plain type, null where this one is."""
    return pa.StructArray.from_arrays([array], ["value"], mask=array.is_null())
