"""Which fields of a record its stream does not declare: they are landed nowhere, and counted."""

from collections.abc import Iterable, Iterator, Mapping, Set

from dagster_airbyte_proto.schema.columns import Columns, Kind, Member, ValueType
from dagster_airbyte_proto.staging.lines.raw_members import Raw, elements, members


class Declared:
    """The names that a stream declares. Objects that land as structs are looked into; JSON text lands whole, and so do
    records of a stream that declares nothing."""

    def __init__(self, columns: Columns) -> None:
        self._is_whole = columns.is_whole
        self._names = {column.path[0] for column in columns.top} | columns.passed_over
        self._objects = [Member(c.name, c.path[0], c.type) for c in columns.top if c.type.kind is Kind.STRUCT]

    def unknown(self, record: Mapping[str, Raw]) -> Set[str]:
        """The fields of a record that are not declared, nested ones by their path without the places in lists."""
        if self._is_whole:
            return frozenset()
        unknown: Set[str] = frozenset() if self._names.issuperset(record) else record.keys() - self._names
        return {*unknown, *_unknown_inside(record, self._objects, "")} if self._objects else unknown


def _unknown_inside(found: Mapping[str, Raw], objects: Iterable[Member], prefix: str) -> Iterator[str]:
    for member in objects:
        raw = found.get(member.source)
        if raw is not None:
            path = f"{prefix}{member.source}."
            known = {each.source for each in member.type.members} | member.type.passed_over
            deeper = [each for each in member.type.members if each.type.kind is Kind.STRUCT]
            for inside in _objects(raw, member.type):
                yield from (path + name for name in inside.keys() - known)
                yield from _unknown_inside(inside, deeper, path)


def _objects(raw: Raw, kind: ValueType) -> Iterator[Mapping[str, Raw]]:
    """The objects there. What is none is no field that is ignored: it is nulled, and noted."""
    try:
        if not kind.depth:
            yield members(raw)
            return
        inside = elements(raw)
    except ValueError:
        return
    for element in inside:
        yield from _objects(element, kind.item)
