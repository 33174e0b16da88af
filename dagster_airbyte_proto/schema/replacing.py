"""What columns a table is to have once a generation of its stream takes the place of all its rows. It touches nothing.

Under `evolve` these are the stream's, and no others: what the stream lacks is gone, and a type may become any other.
The values of older rows need not fit, for none is left; so a column of another type is another column under the same
name, with an id of its own. A column that stays, or is widened, keeps its id. Under the other policies it is as without
a replacement (`evolution.py`).

What a table was ever parted or sorted by (`Before.fixed`) stays as it is, for its files and its orders speak of it by
id: such a column is null where the stream lacks it, and the stream is refused where its type is another.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from dagster_airbyte_proto.model import FieldPath, SchemaPolicy
from dagster_airbyte_proto.schema.evolution import (
    Change,
    Columns,
    Misfit,
    Numbering,
    Terms,
    Type,
    Verdict,
    What,
    decided,
    mates,
    renamed,
    said,
    widens,
)
from dagster_airbyte_proto.schema.names import folded

_IDS = frozenset(("id", "element-id", "key-id", "value-id"))


class Before(NamedTuple):
    """A table that is to be replaced. `known` are all columns that it knows of by their numbers, the readers' and those
    of generations; `begun` is the number of those that the generation was begun with, if it was."""

    columns: Columns
    last_id: int
    known: Mapping[int, Columns] = {}
    begun: int | None = None
    fixed: Collection[str] = ()


class Replacement(NamedTuple):
    """`number` is that of the columns, where the table knows of them already."""

    verdict: Verdict
    number: int | None = None


def replacement(before: Before, wanted: Columns, terms: Terms) -> Replacement:
    """What a stream of the `wanted` columns makes of a table. Asked again it finds the same, ids and all: also for a
    generation that is gone on with, whatever has become of the table since that was begun."""
    verdict = _replaced(before, before.columns, wanted, terms)
    base = before.columns
    if before.begun is not None and before.begun in before.known:
        base = before.known[before.begun]
        verdict = _replaced(before, base, wanted, terms)._replace(changes=verdict.changes)
    if verdict.refused:
        return Replacement(verdict)
    taken = ids_of(base)
    for number in sorted(before.known, reverse=True):
        if _is_same(before.known[number]["fields"], verdict.columns["fields"], taken):
            return Replacement(verdict._replace(columns=before.known[number], last_id=before.last_id), number)
    return Replacement(verdict)


def ids_of(kind: Any) -> set[int]:
    """All ids in a type, or in what holds types."""
    if isinstance(kind, list):
        return set().union(*map(ids_of, kind))
    if not isinstance(kind, dict):
        return set()
    return {int(kind[name]) for name in _IDS & kind.keys()}.union(*map(ids_of, kind.values()))


def _replaced(before: Before, existing: Columns, wanted: Columns, terms: Terms) -> Verdict:
    if terms.policy is not SchemaPolicy.EVOLVE or not existing["fields"]:
        return decided(existing, wanted, before.last_id, terms)
    renamed_columns, renames, _ = renamed(existing, wanted, terms.formerly)
    now = dict(renames)
    taking = _Taking(Numbering(before.last_id), [now.get(column, column) for column in before.fixed])
    columns = taking.struct(renamed_columns, wanted, ())
    if taking.refused:
        return Verdict(existing, before.last_id, refused=tuple(taking.refused))
    changes = [Change(What.COLUMN_RENAMED, new, old, new) for old, new in renames]
    return Verdict(columns, taking.numbering.last_id, tuple(renames), (*changes, *taking.changes))


class _Taking:
    """One comparison: what it finds on its way through the columns."""

    def __init__(self, numbering: Numbering, fixed: Collection[str]) -> None:
        self.numbering = numbering
        self._fixed = set(map(folded, fixed))
        self.changes: list[Change] = []
        self.refused: list[Misfit] = []

    def struct(self, old: Columns, new: Columns, path: FieldPath) -> Columns:
        """`new`, with the ids of what `old` has of it, in the order of that."""
        found = mates(old["fields"], new["fields"])
        fields: list[Columns] = []
        for number, field in enumerate(old["fields"]):
            fields += self._field(field, found.get(number), (*path, field["name"]))
        mated = {id(field) for field in found.values()}
        for field in new["fields"]:
            if id(field) not in mated:
                self._note(What.COLUMN_ADDED, (*path, field["name"]), "", said(field["type"]))
                fields.append(self.numbering.field(field))
        return {**old, "fields": fields}

    def _field(self, old: Columns, new: Columns | None, path: FieldPath) -> list[Columns]:
        is_fixed = folded(path[0]) in self._fixed
        if new is None:
            if is_fixed:
                return [{**old, "required": False}]
            self._note(What.COLUMN_DROPPED, path, said(old["type"]), "")
            return []
        if (kind := self._kept(old["type"], new["type"], path)) is not None:
            if old["required"]:
                self._note(What.COLUMN_WIDENED, path, f"{said(old['type'])} not null", said(old["type"]))
            return [{**old, "required": False, "type": kind}]
        if is_fixed:
            self.refused.append(Misfit(path, said(old["type"]), said(new["type"])))
            return [old]
        self._note(What.COLUMN_RETYPED, path, said(old["type"]), said(new["type"]))
        return [self.numbering.field({**new, "name": old["name"]})]

    def _kept(self, old: Type, new: Type, path: FieldPath) -> Type | None:
        """The type of a column that stays the one that it is; None where it has to be another."""
        if isinstance(old, str) or isinstance(new, str):
            if old != new and widens(old, new):
                self._note(What.COLUMN_WIDENED, path, said(old), said(new))
            return new if old == new or widens(old, new) else None
        if old["type"] != new["type"]:
            return None
        if old["type"] == "struct":
            return self.struct(old, new, path)
        part = "element" if old["type"] == "list" else "value"
        if part == "value" and said(old["key"]) != said(new["key"]):
            return None
        kind = self._kept(old[part], new[part], (*path, part))
        return None if kind is None else {**old, part: kind, f"{part}-required": False}

    def _note(self, what: What, path: FieldPath, before: str, after: str) -> None:
        self.changes.append(Change(what, ".".join(path), before, after))


def _is_same(known: Any, columns: Any, taken: Collection[int]) -> bool:
    """Whether the two differ at the most in the ids of fields that are new, whose ids are not among the `taken`, and in
    what a format notes beside."""
    if isinstance(columns, list):
        return len(known) == len(columns) and all(
            _is_same(mine, other, taken) for mine, other in zip(known, columns, strict=True)
        )
    if not (isinstance(columns, dict) and isinstance(known, dict)):
        return bool(known == columns)
    return columns.keys() <= known.keys() and all(
        (known[name] == value or not {known[name], value} & set(taken))
        if name in _IDS
        else _is_same(known[name], value, taken)
        for name, value in columns.items()
    )
