"""Finds the fields of a record that its stream does not declare. They do not land; they are counted."""

from collections.abc import Iterable, Iterator, Mapping, Set

from dagster_airbyte_proto.schema.columns import Columns, Member, ValueKind, ValueType
from dagster_airbyte_proto.staging.lines.raw_members import Raw, elements, members


class DeclaredFields:
    """The fields that a stream declares.

    Objects that land as structs are searched too. JSON text lands whole, so nothing inside it is undeclared; the same
    is true of the records of a stream that declares no field.
    """

    def __init__(self, columns: Columns) -> None:
        self._is_whole = columns.is_schemaless
        self._names = {column.path[0] for column in columns.parsed_fields} | columns.skipped_fields
        self._objects = [
            Member(c.name, c.path[0], c.type) for c in columns.parsed_fields if c.type.kind is ValueKind.STRUCT
        ]

    def undeclared_in(self, record: Mapping[str, Raw]) -> Set[str]:
        """Returns the undeclared fields of a record; nested ones by their dotted path, without positions in lists."""
        if self._is_whole:
            return frozenset()
        unknown: Set[str] = frozenset() if self._names.issuperset(record) else record.keys() - self._names
        return {*unknown, *_undeclared_inside(record, self._objects, "")} if self._objects else unknown


def _undeclared_inside(found: Mapping[str, Raw], objects: Iterable[Member], prefix: str) -> Iterator[str]:
    for member in objects:
        raw = found.get(member.source)
        if raw is not None:
            path = f"{prefix}{member.source}."
            known = {each.source for each in member.type.members} | member.type.skipped_members
            deeper = [each for each in member.type.members if each.type.kind is ValueKind.STRUCT]
            for inside in _objects(raw, member.type):
                yield from (path + name for name in inside.keys() - known)
                yield from _undeclared_inside(inside, deeper, path)


def _objects(raw: Raw, kind: ValueType) -> Iterator[Mapping[str, Raw]]:
    """Yields the objects in a value. A value of another type has no ignored field: it becomes null, with an entry."""
    try:
        if not kind.depth:
            yield members(raw)
            return
        inside = elements(raw)
    except ValueError:
        return
    for element in inside:
        yield from _objects(element, kind.element_type)
