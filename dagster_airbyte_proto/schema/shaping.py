"""What becomes of a stream's columns on their way: some left out, some called otherwise, some hashed.

A column keeps the name that it would have if all were there, so that what is selected beside it never renames it.
Fields that nobody needs are not read at all. What a table cannot do without (its key, its cursor, the mark of deleted
rows) is not left out quietly: the error says so.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

import msgspec

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import FieldPath, PlannedStream, Shaping, WriteMode
from dagster_airbyte_proto.schema.columns import (
    DELETED_AT,
    EXTRACTED_AT,
    METADATA,
    Column,
    Columns,
    Kind,
    Pruning,
    Shape,
    ValueType,
)
from dagster_airbyte_proto.schema.conditions import Condition, fields_of
from dagster_airbyte_proto.schema.filters import parsed_filter
from dagster_airbyte_proto.schema.members import NoMember, left_of
from dagster_airbyte_proto.schema.names import unique_names
from dagster_airbyte_proto.schema.ordering import ordering_of, refuse_parted
from dagster_airbyte_proto.schema.partitioning import partition_fields

SHAPING = "plan the columns"
_EMITTED = Column(EXTRACTED_AT, (EXTRACTED_AT,), ValueType(Kind.TIMESTAMP))
_HASHED = ValueType(Kind.STRING)
_BY_KEY = frozenset((WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP, WriteMode.SOFT_DELETE))


def named_fields(planned: PlannedStream) -> Iterator[FieldPath]:
    """The fields that a stream's shaping names, but for those in its filter."""
    shaping = planned.shaping or Shaping()
    yield from (*shaping.select, *shaping.exclude, *((name,) for name, _ in shaping.renames), *shaping.hashed)


def shaped(columns: Columns, planned: PlannedStream) -> Columns:
    """The columns as the stream's shaping has them. Raises ConfigError where that cannot be."""
    if planned.shaping is None:
        return columns
    made = columns
    if msgspec.structs.replace(planned.shaping, partition_by=(), sort_by=(), cluster=()) != Shaping():
        made = _Shaped(columns, planned, planned.shaping).columns()
    return _placed(made, planned, planned.shaping)


def _placed(columns: Columns, planned: PlannedStream, shaping: Shaping) -> Columns:
    """With what says where in the table a row lies."""
    if planned.slice is not None and shaping.partition_by:
        found = "partition_by, and a run of one partition: a table of slices is parted by them alone"
        remedy = "Leave out partition_by, or sync without partitions."
        raise ConfigError(SHAPING, found, remedy=remedy, stream=str(planned.id))
    fields = {column.path[0]: column for column in (*columns.all, _EMITTED) if not column.is_nested}
    partitioning = partition_fields(shaping.partition_by, fields, planned.id)
    ordering = ordering_of(shaping.sort_by, shaping.cluster, fields, planned.id)
    refuse_parted(ordering, partitioning, planned.id)
    return msgspec.structs.replace(columns, partitioning=partitioning, ordering=ordering)


class _Shaped:
    def __init__(self, whole: Columns, planned: PlannedStream, shaping: Shaping) -> None:
        self._whole = whole
        self._planned = planned
        self._shaping = shaping
        self._fields = {column.path[0]: column for column in whole.top}
        self._hashed = {path[0] for path in shaping.hashed}

    def columns(self) -> Columns:
        kept = [column for column in self._whole.top if self._is_kept(column.path[0])]
        self._refuse_what_is_missed({column.path[0] for column in kept})
        kept = [self._with_members(column) for column in kept]
        condition = self._condition()
        names = self._names(kept)
        read = [column._replace(name=names[column.path[0]]) for column in kept]
        table = [self._in_table(column) for column in read]
        aside = fields_of(condition) - names.keys() if condition else frozenset()
        called = unique_names(((field, field) for field in sorted(aside)), taken=[*METADATA.names, *names.values()])
        read += [self._fields[f]._replace(name=name) for f, name in zip(sorted(aside), called, strict=True)]
        shape = Shape(
            tuple(read),
            frozenset(self._fields.keys() - {column.path[0] for column in read}),
            frozenset(names[field] for field in self._hashed),
            self._pruned(names),
            condition,
        )
        nested = self._whole.nested
        return Columns(
            (*table, *nested), self._keys([*table, *nested]), self._whole.cursor, shape, is_whole=self._whole.is_whole
        )

    def _is_kept(self, field: str) -> bool:
        is_selected = not self._shaping.select or any(path[0] == field for path in self._shaping.select)
        return is_selected and (field,) not in self._shaping.exclude

    def _covers(self, path: FieldPath) -> bool:
        """Whether all that stands at the path is left."""
        selects, excludes = self._shaping.select, self._shaping.exclude
        is_selected = not selects or any(path[: len(one)] == one for one in selects)
        return is_selected and not any(path[: len(one)] == one for one in excludes)

    def _refuse_what_is_missed(self, kept: set[str]) -> None:
        if not kept:
            self._refuse("no column is left", "Select some, or exclude fewer.")
        named = {"rename_columns": [name for name, _ in self._shaping.renames], "hash": sorted(self._hashed)}
        for option, fields in named.items():
            for field in fields:
                if field not in kept:
                    self._refuse(f"{option} names {field}, which is left out", f"Take it out of {option}, or keep it.")
        for path in self._shaping.hashed:
            self._refuse_to_hash(path)
        for path, what in self._needed():
            if not self._covers(path):
                found = f"{'.'.join(path)} is {what}, and write: {self._planned.write} cannot do without"
                self._refuse(found, "Keep it, or use a write mode that does not look at keys.")

    def _needed(self) -> Iterator[tuple[FieldPath, str]]:
        if self._planned.write not in _BY_KEY:
            return
        yield from ((path, "part of the primary key") for path in self._planned.primary_key)
        if self._planned.cursor:
            yield self._planned.cursor, "the cursor"
        yield from (((name,), "what tells that a row was deleted") for name in DELETED_AT if name in self._fields)

    def _refuse_to_hash(self, path: FieldPath) -> None:
        name = ".".join(path)
        if len(path) > 1:
            remedy = f"Exclude it, or hash {path[0]} as a whole."
            self._refuse(f"{name} lies inside an object, which is hashed as a whole or not at all", remedy)
        if self._fields[name].type.kind is Kind.STRUCT:
            self._refuse(f"{name} lands as a struct, which has no hash", "Add types: {objects: json}, or exclude it.")
        if self._planned.write in _BY_KEY and self._planned.cursor[:1] == path:
            self._refuse(f"{name} is the cursor, and a hash has no order", "Take it out of hash.")
        if any(column.path[0] == name for column in self._whole.nested):
            self._refuse(f"{name} holds a key, which would be in a column of its own all the same", "Do not hash it.")

    def _condition(self) -> Condition | None:
        text = self._shaping.filter
        return parsed_filter(text, self._fields, self._planned.id) if text else None

    def _names(self, kept: Sequence[Column]) -> Mapping[str, str]:
        """By the source's names, those in the table."""
        wanted = dict(self._shaping.renames)
        names = {column.path[0]: wanted.get(column.path[0], column.name) for column in kept}
        fixed = [*METADATA.names, *(column.name for column in self._whole.nested)]
        counts = Counter(name.casefold() for name in (*fixed, *names.values()))
        for field, name in names.items():
            if field in wanted and counts[name.casefold()] > 1:
                remedy = "Tables do not tell names apart that differ in case alone. Give it another."
                self._refuse(f"rename_columns calls {field} {name!r}, as another column is called already", remedy)
        return names

    def _in_table(self, column: Column) -> Column:
        field = column.path[0]
        source = f"the source calls it {json.dumps(field, ensure_ascii=False)}"
        notes = [source] if field in dict(self._shaping.renames) and source not in column.comment else []
        if field in self._hashed:
            notes.append("hashed")
            column = column._replace(type=_HASHED._replace(depth=column.type.depth))
        if not notes:
            return column
        return column._replace(comment="; ".join(filter(None, (column.comment, *notes))))

    def _keys(self, table: Iterable[Column]) -> tuple[str, ...]:
        """None where a part was left out, which only modes allow that look at no keys."""
        names = {column.path: column.name for column in table}
        keys = tuple(names[path] for path in self._planned.primary_key if path in names)
        return keys if len(keys) == len(self._whole.keys) else ()

    def _pruned(self, names: Mapping[str, str]) -> Mapping[str, Pruning]:
        found = {}
        for field, name in names.items():
            pruning, kind = self._pruning(field), self._fields[field].type
            if pruning == Pruning() or kind.kind is Kind.STRUCT:
                continue
            if not kind.is_json_text:
                self._refuse(f"{field} has no members to choose from", f"Name {field} as a whole.")
            found[name] = pruning
        return found

    def _pruning(self, field: str) -> Pruning:
        keep = tuple(path[1:] for path in self._shaping.select if path[0] == field)
        drop = tuple(path[1:] for path in self._shaping.exclude if path[0] == field)
        return Pruning(() if () in keep else keep, drop)

    def _with_members(self, column: Column) -> Column:
        """A struct with those that are left; anything else as it is. What is not left is not read."""
        field = column.path[0]
        pruning = self._pruning(field)
        if column.type.kind is not Kind.STRUCT or pruning == Pruning():
            return column
        for key in self._whole.nested:
            if key.path[0] == field and not self._covers(key.path):
                self._refuse(f"{'.'.join(key.path)} is a key, which has a column of its own", "Keep it.")
        try:
            return column._replace(type=left_of(column.type, pruning, column.path))
        except NoMember as error:
            self._refuse(str(error), f"Name {field} as a whole, or members of it that are there.")

    def _refuse(self, found: str, remedy: str) -> NoReturn:
        raise ConfigError(SHAPING, found, remedy=remedy, stream=str(self._planned.id))
