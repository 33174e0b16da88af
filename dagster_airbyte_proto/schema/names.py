"""Names in a table. A source's name stays as it is, unless the table cannot tell it from another.

Spark and most catalogs compare names ignoring case, so two that differ in case alone would be one column. The
first keeps its name, so that a column that came later never renames one that is in the table already.
"""

import hashlib
from collections.abc import Iterable


def unique_names(wishes: Iterable[tuple[str, str]], *, taken: Iterable[str] = ()) -> tuple[str, ...]:
    """One name for each `(name, identity)`, in order: no two equal ignoring case, none of them among `taken`.

    A name that is taken gets a mark made of its identity, the same in every run.
    """
    seen = {name.casefold() for name in taken}
    result = []
    for wish, identity in wishes:
        name = wish or "_"
        while name.casefold() in seen:
            name = f"{wish or '_'}_{_mark(identity)}"
            identity += "+"
        seen.add(name.casefold())
        result.append(name)
    return tuple(result)


def _mark(identity: str) -> str:
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:6]
