"""Names in a table. A source's name stays as it is, unless the table cannot hold it or tell it from another.

Spark compares names ignoring case, so two that differ in case alone would be one column. The first keeps its name, and
a name that was given once stays with its field (`kept`), so that a column that came later never takes one that is in
the table already, wherever it stands in the source's order.

What a name may not hold becomes `_`: control characters and broken surrogates anywhere; in tables and namespaces, which
are folders in many catalogs, also what parts a path or a URL. A name that is too long is cut, and always marked.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping

LONGEST_COLUMN_BYTES = 255
"""Glue, Snowflake and Unity Catalog take as much; Hive and Iceberg more."""

LONGEST_TABLE_BYTES = 128
"""Of tables and of namespaces: Hive's limit for databases. A folder's name, which may need escapes, has 255."""

RESERVED_COLUMNS = (
    # Iceberg's metadata columns: Spark refuses to read a table that has one of these as its own.
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
    "_change_type",
    "_change_ordinal",
    "_commit_snapshot_id",
    # Delta's change feed.
    "_commit_version",
    "_commit_timestamp",
    # The column that tells slices apart.
    "_airbyte_partition",
)
_UNFIT_FOR_PATHS = re.compile(r'[/\\:*?"<>|%#]')
_MARK_LENGTH = 6


def unique_names(
    wishes: Iterable[tuple[str, str]],
    *,
    taken: Iterable[str] = (),
    kept: Mapping[str, str] | None = None,
    longest_bytes: int | None = None,
    hands_on: bool = False,
) -> tuple[str, ...]:
    """One name for each `(name, identity)`, in order: no two equal ignoring case, none of them among `taken`.

    `kept` are the names that identities have had before: those of wishes stand, those of others are taken too. With
    `hands_on` the name of an identity that is gone goes on to a new one that differs in case alone. A name that is
    taken, or too long, gets a mark made of its identity, the same in every run.
    """
    wishes = list(wishes)
    seen = set(map(folded, taken))
    kept = {identity: name for identity, name in (kept or {}).items() if folded(name) not in seen}
    known = _handed_on(kept, [identity for _, identity in wishes]) if hands_on else kept
    seen.update(map(folded, kept.values()))
    result = []
    for wish, identity in wishes:
        name = known.get(identity) or _free_name(wish or "_", identity, seen, longest_bytes)
        seen.add(folded(name))
        result.append(name)
    return tuple(result)


def column_name(name: str) -> str:
    """A field's name as a column can have it. Empty stays empty."""
    return "".join("_" if unicodedata.category(letter) in ("Cc", "Cs") else letter for letter in name)


def table_name(name: str) -> str:
    """A name of a table or a namespace as catalogs that keep them in folders can have it."""
    safe = _UNFIT_FOR_PATHS.sub("_", column_name(name)).strip(" ")
    return safe if safe.strip(".") else safe.replace(".", "_")


def folded(name: str) -> str:
    """Equal for names that Spark, or anybody else who ignores case, may take for one and the same.

    Java compares letter by letter, by their capitals and then by their small letters: dotted and dotless I are both
    equal to I there.
    """
    return name.upper().lower().replace("\u0307", "").casefold()


def _handed_on(kept: Mapping[str, str], identities: list[str]) -> dict[str, str]:
    known = {identity: kept[identity] for identity in identities if identity in kept}
    present = set(identities)
    gone = {folded(identity): name for identity, name in kept.items() if identity not in present}
    for identity in identities:
        if identity not in known and (name := gone.pop(folded(identity), None)) is not None:
            known[identity] = name
    return known


def shortened(name: str, identity: str, longest_bytes: int | None) -> str:
    """The name, cut and marked where it is too long."""
    is_short = longest_bytes is None or len(_utf8(name)) <= longest_bytes
    return name if is_short else _marked(name, identity, longest_bytes)


def _free_name(wish: str, identity: str, seen: set[str], longest_bytes: int | None) -> str:
    name = shortened(wish, identity, longest_bytes)
    while folded(name) in seen:
        name = _marked(wish, identity, longest_bytes)
        identity += "+"
    return name


def _marked(wish: str, identity: str, longest_bytes: int | None) -> str:
    mark = hashlib.sha256(_utf8(identity)).hexdigest()[:_MARK_LENGTH]
    if longest_bytes is not None:
        wish = _utf8(wish)[: longest_bytes - _MARK_LENGTH - 1].decode("utf-8", "ignore")
    return f"{wish}_{mark}"


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
