"""Names of columns, tables and namespaces, made from a source's names.

- A source's name stays as it is, unless the table cannot hold it or it equals another name; with the naming policy
  `snake`, tables and top-level columns are called in snake case.
- Spark ignores case, so two names that differ in case alone would be one column. The first keeps its name.
- A name that was assigned once stays with its field (`assigned`). A field that arrives later never takes the name of a
  column that exists, wherever it is in the source's order.
- Forbidden characters become `_`: control characters and broken surrogates in every name; separators of paths and URLs
  in names of tables and namespaces too, because many catalogs make folders of these.
- A name that is too long is cut, and always gets a mark.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping

from dagster_airbyte_proto.model import NamingPolicy

MAX_COLUMN_NAME_BYTES = 255
"""The limit of Glue, Snowflake and Unity Catalog. Hive and Iceberg take more."""

MAX_TABLE_NAME_BYTES = 128
"""Hive's limit for databases, used for tables and namespaces.

A folder's name may have 255 bytes, but may need escapes.
"""

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
    # Our own column that holds the slice of a row.
    "_airbyte_partition",
)
_UNFIT_FOR_PATHS = re.compile(r'[/\\:*?"<>|%#]')
_MARK_LENGTH = 6
_MARK = re.compile(rf"_[0-9a-f]{{{_MARK_LENGTH}}}$")


def unique_names(
    preferred: Iterable[tuple[str, str]],
    *,
    taken: Iterable[str] = (),
    assigned: Mapping[str, str] | None = None,
    max_bytes: int | None = None,
    follow_case_changes: bool = False,
) -> tuple[str, ...]:
    """Returns one name for each `(name, identity)`, in order. No two are equal ignoring case, and none is in `taken`.

    `assigned` are the names that identities had before. An identity that is still there keeps its name, and the names
    of others count as taken. With `follow_case_changes`, a new identity that differs from a lost one in case alone
    takes over its name. A name that is taken or too long gets a mark, which is a hash of its identity and thus the
    same in every run.
    """
    preferred = list(preferred)
    seen = set(map(case_folded, taken))
    assigned = {identity: name for identity, name in (assigned or {}).items() if case_folded(name) not in seen}
    names = _with_case_changes(assigned, [identity for _, identity in preferred]) if follow_case_changes else assigned
    seen.update(map(case_folded, assigned.values()))
    result: dict[str, None] = {}
    for name, identity in preferred:
        name = names.get(identity) or _free_name(name or "_", identity, seen, max_bytes)
        if name in result:  # Two identities had it, one after the other, and both are there now.
            name = _free_name(name, identity, seen, max_bytes)
        seen.add(case_folded(name))
        result[name] = None
    return tuple(result)


def column_name(name: str, naming: NamingPolicy = NamingPolicy.SOURCE) -> str:
    """Returns a field's name without the characters that a column's name may not have. Empty stays empty."""
    if naming is NamingPolicy.SNAKE:
        return snake_name(name)
    return "".join("_" if unicodedata.category(letter) in ("Cc", "Cs") else letter for letter in name)


def snake_name(name: str) -> str:
    """Returns the name in lower case, with `_` between its words: of ASCII letters, digits and `_` alone, and not
    beginning with a digit, so that no SQL wants it in quotes. Accents are taken off; `ß`, or `名`, becomes `_`."""
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plain)
    snake = re.sub(r"[^a-z0-9_]+", "_", words.lower())
    return f"_{snake}" if snake[:1].isdigit() else snake


def table_name(name: str) -> str:
    """Returns a name for a table or namespace that is safe as the name of a folder, too."""
    safe = _UNFIT_FOR_PATHS.sub("_", column_name(name)).strip(" ")
    # A folder cannot be called `.` or `..`.
    return safe if safe.strip(".") else safe.replace(".", "_")


def case_folded(name: str) -> str:
    """Returns a key that is equal for names that Spark, or any system that ignores case, may treat as the same.

    Java's equalsIgnoreCase compares letter by letter, first in upper case and then in lower case. Dotted and dotless I
    both equal I there.
    """
    return name.upper().lower().replace("\u0307", "").casefold()


def differ_by_mark(name: str, other: str) -> bool:
    """True for names that are equal but for the case of their letters, and the mark that keeps like names apart."""
    return _without_mark(name) == _without_mark(other)


def _without_mark(name: str) -> str:
    return case_folded(_MARK.sub("", name))


def _with_case_changes(assigned: Mapping[str, str], identities: list[str]) -> dict[str, str]:
    names = {identity: assigned[identity] for identity in identities if identity in assigned}
    present = set(identities)
    lost = {case_folded(identity): name for identity, name in assigned.items() if identity not in present}
    for identity in identities:
        if identity not in names and (name := lost.pop(case_folded(identity), None)) is not None:
            names[identity] = name
    return names


def shortened(name: str, identity: str, max_bytes: int | None) -> str:
    """Returns the name, cut and marked if it is too long."""
    is_short = max_bytes is None or len(_utf8(name)) <= max_bytes
    return name if is_short else _marked(name, identity, max_bytes)


def _free_name(preferred: str, identity: str, seen: set[str], max_bytes: int | None) -> str:
    name = shortened(preferred, identity, max_bytes)
    while case_folded(name) in seen:
        name = _marked(preferred, identity, max_bytes)
        identity += "+"
    return name


def _marked(name: str, identity: str, max_bytes: int | None) -> str:
    mark = hashlib.sha256(_utf8(identity)).hexdigest()[:_MARK_LENGTH]
    if max_bytes is not None:
        name = _utf8(name)[: max_bytes - _MARK_LENGTH - 1].decode("utf-8", "ignore")
    return f"{name}_{mark}"


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
