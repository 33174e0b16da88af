"""What is left of an object that lands as a struct, where a stream chooses among its members."""

import difflib

from dagster_airbyte_proto.model import FieldPath
from dagster_airbyte_proto.schema.columns import Kind, Pruning, ValueType


class NoMember(Exception):
    """It cannot be chosen so: in words that follow the object's name."""


def left_of(kind: ValueType, pruning: Pruning, path: FieldPath) -> ValueType:
    """The type with the members that are left, of each element where it is a list of objects; the others are passed
    over. Raises NoMember where there is none to choose, or none is left."""
    if kind.kind is not Kind.STRUCT:
        raise NoMember(f"{'.'.join(path)} has no members to choose from")
    sources = [member.source for member in kind.members]
    if unknown := next((each[0] for paths in pruning for each in paths if each[0] not in sources), None):
        near = difflib.get_close_matches(unknown, sources, n=1, cutoff=0.0)
        raise NoMember(f"the schema has no field {'.'.join((*path, unknown))}; did you mean {near[0]}?")
    left = []
    for member in kind.members:
        keep, drop = (tuple(each[1:] for each in paths if each[0] == member.source) for paths in pruning)
        if () in drop or (pruning.keep and not keep):
            continue
        inside = Pruning(() if () in keep else keep, drop)
        if inside != Pruning():
            member = member._replace(type=left_of(member.type, inside, (*path, member.source)))
        left.append(member)
    if not left:
        raise NoMember(f"nothing of {'.'.join(path)} is left")
    gone = set(sources) - {member.source for member in left}
    return kind._replace(members=tuple(left), passed_over=kind.passed_over | gone)
