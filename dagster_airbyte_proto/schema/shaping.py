"""Applies a stream's shaping to its columns: some are left out, some renamed, some hashed.

- A column keeps the name that it has among all columns, so that selecting another column never renames it.
- A field that no column and no filter needs is not parsed.
- A column that the table needs (its key, its cursor, the mark of deleted rows) is never left out silently.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

import msgspec

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import DEDUPLICATING, FieldPath, PlannedStream, PushMode, Shaping, WriteMode
from dagster_airbyte_proto.schema.columns import (
    DELETION_FIELDS,
    EXTRACTED_AT,
    METADATA,
    Column,
    Columns,
    Pruning,
    ShapingPlan,
    ValueKind,
    ValueType,
)
from dagster_airbyte_proto.schema.conditions import Condition, condition_fields
from dagster_airbyte_proto.schema.filters import parsed_filter
from dagster_airbyte_proto.schema.members import NoSuchMember, without_pruned
from dagster_airbyte_proto.schema.names import RESERVED_COLUMNS, case_folded, column_name, unique_names
from dagster_airbyte_proto.schema.ordering import check_clustering, parsed_ordering
from dagster_airbyte_proto.schema.partitioning import partition_fields

PLAN_COLUMNS = "planning the columns"
_EMITTED = Column(EXTRACTED_AT, (EXTRACTED_AT,), ValueType(ValueKind.TIMESTAMP))
_HASHED = ValueType(ValueKind.STRING)
_RESERVED = frozenset(map(case_folded, RESERVED_COLUMNS))
_KEYED_MODES = frozenset((WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP, WriteMode.SOFT_DELETE))


def merges_by_key(planned: PlannedStream) -> bool:
    """True if a row takes the place of older ones of its key, in a table or at the destination of a relay."""
    return planned.write in DEDUPLICATING or (planned.relay is not None and planned.relay.mode is PushMode.UPSERT)


def named_fields(planned: PlannedStream) -> Iterator[FieldPath]:
    """Returns the fields that a stream's shaping names, except those in its filter."""
    shaping = planned.shaping or Shaping()
    yield from (*shaping.select, *shaping.exclude, *((name,) for name, _ in shaping.renames), *shaping.hashed)


def apply_shaping(columns: Columns, planned: PlannedStream) -> Columns:
    """Returns the columns with the stream's shaping applied. Raises ConfigError if that is not possible."""
    if planned.shaping is None:
        return columns
    made = columns
    if msgspec.structs.replace(planned.shaping, partition_by=(), sort_by=(), cluster=()) != Shaping():
        made = _Shaper(columns, planned, planned.shaping).columns()
    return with_layout(made, planned, planned.shaping)


def with_layout(columns: Columns, planned: PlannedStream, shaping: Shaping) -> Columns:
    """Returns the columns with the table's partitioning and ordering."""
    if planned.slice is not None and shaping.partition_by:
        found = "partition_by, and a run of one partition: a table of slices is partitioned by its slices alone"
        remedy = "Leave out partition_by, or sync without partitions."
        raise ConfigError(PLAN_COLUMNS, found, remedy=remedy, stream=str(planned.id))
    fields = {column.path[0]: column for column in (*columns.all, _EMITTED) if not column.is_nested}
    partitioning = partition_fields(shaping.partition_by, fields, planned.id)
    ordering = parsed_ordering(shaping.sort_by, shaping.cluster, fields, planned.id)
    check_clustering(ordering, partitioning, planned.id)
    return msgspec.structs.replace(columns, partitioning=partitioning, ordering=ordering)


class _Shaper:
    """Applies the shaping of one stream. `unshaped` are its columns without any shaping."""

    def __init__(self, unshaped: Columns, planned: PlannedStream, shaping: Shaping) -> None:
        self._unshaped = unshaped
        self._planned = planned
        self._shaping = shaping
        self._fields = {column.path[0]: column for column in unshaped.parsed_columns}
        self._hashed = {path[0] for path in shaping.hashed}

    def columns(self) -> Columns:
        kept = [column for column in self._unshaped.parsed_columns if self._is_kept(column.path[0])]
        self._check_selection({column.path[0] for column in kept})
        kept = [self._with_members(column) for column in kept]
        condition = self._parsed_condition()
        names = self._table_names(kept)
        parsed = [column._replace(name=names[column.path[0]]) for column in kept]
        table = [self._table_column(column) for column in parsed]
        only_filtered = sorted(condition_fields(condition) - names.keys() if condition else ())
        # Such a field gets a name that no column of the table has: its own may be another column's new name.
        free_names = unique_names(((field, field) for field in only_filtered), taken=[*METADATA.names, *names.values()])
        parsed += [self._fields[f]._replace(name=name) for f, name in zip(only_filtered, free_names, strict=True)]
        plan = ShapingPlan(
            tuple(parsed),
            frozenset(self._fields.keys() - {column.path[0] for column in parsed}),
            frozenset(names[field] for field in self._hashed),
            self._pruned(names),
            condition,
        )
        nested = self._unshaped.nested
        return Columns(
            (*table, *nested),
            self._key_names([*table, *nested]),
            self._unshaped.cursor,
            plan,
            is_schemaless=self._unshaped.is_schemaless,
        )

    def _is_kept(self, field: str) -> bool:
        is_selected = not self._shaping.select or any(path[0] == field for path in self._shaping.select)
        return is_selected and (field,) not in self._shaping.exclude

    def _covers(self, path: FieldPath) -> bool:
        """True if the whole value at the path is kept."""
        selects, excludes = self._shaping.select, self._shaping.exclude
        is_selected = not selects or any(path[: len(one)] == one for one in selects)
        return is_selected and not any(path[: len(one)] == one for one in excludes)

    def _check_selection(self, kept: set[str]) -> None:
        if not kept:
            self._reject("no column is left", "Select some, or exclude fewer.")
        named = {"rename_columns": [name for name, _ in self._shaping.renames], "hash": sorted(self._hashed)}
        for option, fields in named.items():
            for field in fields:
                if field not in kept:
                    self._reject(f"{option} names {field}, which is left out", f"Remove it from {option}, or keep it.")
        for path in self._shaping.hashed:
            self._check_hashable(path)
        for path, what in self._required_fields():
            if not self._covers(path):
                write = self._planned.write if self._planned.relay is None else WriteMode.APPEND_DEDUP
                found = f"{'.'.join(path)} is {what}, and write: {write} needs it"
                self._reject(found, "Keep it, or use a write mode that needs no key.")

    def _required_fields(self) -> Iterator[tuple[FieldPath, str]]:
        if self._planned.write not in _KEYED_MODES and not merges_by_key(self._planned):
            return
        yield from ((path, "part of the primary key") for path in self._planned.primary_key)
        if self._planned.cursor and self._planned.relay is None:
            yield self._planned.cursor, "the cursor"
        yield from (((name,), "the mark of deleted rows") for name in DELETION_FIELDS if name in self._fields)

    def _check_hashable(self, path: FieldPath) -> None:
        name = ".".join(path)
        if len(path) > 1:
            remedy = f"Exclude it, or hash {path[0]} as a whole."
            self._reject(f"{name} is inside an object, which can only be hashed as a whole", remedy)
        if self._fields[name].type.kind is ValueKind.STRUCT:
            self._reject(f"{name} lands as a struct, which has no hash", "Add types: {objects: json}, or exclude it.")
        if self._planned.write in _KEYED_MODES and self._planned.cursor[:1] == path:
            self._reject(f"{name} is the cursor, and a hash has no order", "Remove it from hash.")
        if any(column.path[0] == name for column in self._unshaped.nested):
            self._reject(f"{name} holds a key, which has a column of its own that is not hashed", "Do not hash it.")

    def _parsed_condition(self) -> Condition | None:
        text = self._shaping.filter
        return parsed_filter(text, self._fields, self._planned.id) if text else None

    def _table_names(self, kept: Sequence[Column]) -> Mapping[str, str]:
        """Maps the source's names to the table's."""
        wanted = dict(self._shaping.renames)
        names = {column.path[0]: wanted.get(column.path[0], column.name) for column in kept}
        for field, name in wanted.items():
            is_reserved = case_folded(name) in _RESERVED and self._planned.relay is None  # A relay has no table.
            if is_reserved or column_name(name) != name:
                found = f"rename_columns calls {field} {name!r}, which no column can be called"
                self._reject(found, "Choose a name without control characters that no table format has for itself.")
        fixed = [*METADATA.names, *(column.name for column in self._unshaped.nested)]
        counts = Counter(name.casefold() for name in (*fixed, *names.values()))
        for field, name in names.items():
            if field in wanted and counts[name.casefold()] > 1:
                remedy = "Tables ignore the case of names. Choose another name."
                self._reject(f"rename_columns calls {field} {name!r}, as another column is named already", remedy)
        return names

    def _table_column(self, column: Column) -> Column:
        field = column.path[0]
        source = f"the source calls it {json.dumps(field, ensure_ascii=False)}"
        notes = [source] if field in dict(self._shaping.renames) and source not in column.comment else []
        if field in self._hashed:
            notes.append("hashed")
            column = column._replace(type=_HASHED._replace(depth=column.type.depth))
        if not notes:
            return column
        return column._replace(comment="; ".join(filter(None, (column.comment, *notes))))

    def _key_names(self, table: Iterable[Column]) -> tuple[str, ...]:
        """Returns no key if a part of it was left out. Only write modes that need no key allow that."""
        names = {column.path: column.name for column in table}
        keys = tuple(names[path] for path in self._planned.primary_key if path in names)
        return keys if len(keys) == len(self._unshaped.keys) else ()

    def _pruned(self, names: Mapping[str, str]) -> Mapping[str, Pruning]:
        found = {}
        for field, name in names.items():
            pruning, kind = self._pruning(field), self._fields[field].type
            if pruning == Pruning() or kind.kind is ValueKind.STRUCT:
                continue
            if not kind.is_json_text:
                self._reject(f"{field} has no members to choose from", f"Name {field} as a whole.")
            found[name] = pruning
        return found

    def _pruning(self, field: str) -> Pruning:
        keep = tuple(path[1:] for path in self._shaping.select if path[0] == field)
        drop = tuple(path[1:] for path in self._shaping.exclude if path[0] == field)
        return Pruning(() if () in keep else keep, drop)

    def _with_members(self, column: Column) -> Column:
        """Returns a struct without its pruned members, which are not parsed. Other columns stay as they are."""
        field = column.path[0]
        pruning = self._pruning(field)
        if column.type.kind is not ValueKind.STRUCT or pruning == Pruning():
            return column
        for key in self._unshaped.nested:
            if key.path[0] == field and not self._covers(key.path):
                self._reject(f"{'.'.join(key.path)} is a key, which has a column of its own", "Keep it.")
        try:
            return column._replace(type=without_pruned(column.type, pruning, column.path))
        except NoSuchMember as error:
            self._reject(str(error), f"Name {field} as a whole, or members that it has.")

    def _reject(self, found: str, remedy: str) -> NoReturn:
        raise ConfigError(PLAN_COLUMNS, found, remedy=remedy, stream=str(self._planned.id))
