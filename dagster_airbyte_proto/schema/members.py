"""The members of structs: their names, and their removal where a stream selects among them."""

import difflib
from collections.abc import Iterator

from dagster_airbyte_proto.model import ColumnName, FieldPath
from dagster_airbyte_proto.schema.columns import Pruning, ValueKind, ValueType


class NoSuchMember(Exception):
    """A selection of members is not possible. The message is a sentence about the object."""


def member_names(kind: ValueType, path: FieldPath) -> Iterator[ColumnName]:
    """Yields the names of all members, at any depth, of the values at `path`."""
    for member in kind.members:
        inside = (*path, member.source)
        yield ColumnName(inside, member.name)
        yield from member_names(member.type, inside)


def without_pruned(kind: ValueType, pruning: Pruning, path: FieldPath) -> ValueType:
    """Returns the type without the pruned members, also within lists of objects. Those become `skipped_members`.

    Raises NoSuchMember if the type has no such member, or if none is left.
    """
    if kind.kind is not ValueKind.STRUCT:
        raise NoSuchMember(f"{'.'.join(path)} has no members to choose from")
    sources = [member.source for member in kind.members]
    if unknown := next((each[0] for paths in pruning for each in paths if each[0] not in sources), None):
        near = difflib.get_close_matches(unknown, sources, n=1, cutoff=0.0)
        raise NoSuchMember(f"the schema has no field {'.'.join((*path, unknown))}; did you mean {near[0]}?")
    left = []
    for member in kind.members:
        keep, drop = (tuple(each[1:] for each in paths if each[0] == member.source) for paths in pruning)
        if () in drop or (pruning.keep and not keep):
            continue
        inside = Pruning(() if () in keep else keep, drop)
        if inside != Pruning():
            member = member._replace(type=without_pruned(member.type, inside, (*path, member.source)))
        left.append(member)
    if not left:
        raise NoSuchMember(f"nothing of {'.'.join(path)} is left")
    skipped = set(sources) - {member.source for member in left}
    return kind._replace(members=tuple(left), skipped_members=kind.skipped_members | skipped)
