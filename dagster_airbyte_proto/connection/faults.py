"""The faults in a file that a user wrote, and the one error that names them all.

- A reader collects every fault before it raises, so that the user can fix a file in one go.
- A fault never shows a value, which may be secret. It names the place, the type of the value, and the allowed values.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from dagster_airbyte_proto.errors import ConfigError

KeyPath = tuple[str | int, ...]


class Fault(NamedTuple):
    """One fault. `path` is its place in the document, empty for the document as a whole. Lines count from 1."""

    path: KeyPath
    problem: str
    line: int | None = None

    def __str__(self) -> str:
        line = f"line {self.line}" if self.line else ""
        place = ", ".join(part for part in (line, path_text(self.path)) if part)
        return f"{place}: {self.problem}" if place else self.problem


def config_error(where: str, faults: Sequence[Fault], *, remedy: str = "") -> ConfigError:
    """Returns the error to raise. `where` names the source in the user's terms, such as the file."""
    if len(faults) == 1:
        return ConfigError(where, str(faults[0]), remedy=remedy)
    lines = "".join(f"\n  {fault}" for fault in faults)
    return ConfigError(where, f"{len(faults)} faults{lines}", remedy=remedy)


def path_text(path: Iterable[str | int]) -> str:
    """Returns a path as text: `streams.users.primary_key[0]`.

    A key that would be misread is put in brackets and quotes.
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not part or set(part) & set(".[]\n"):
            text += f"[{json.dumps(part)}]"
        else:
            text += f".{part}" if text else part
    return text


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Returns the known word that was probably meant."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def unknown_key(key: str, known: Sequence[str]) -> str:
    """Describes the problem with an unknown key."""
    meant = nearest(key, known)
    if meant is not None:
        return f'is not a known key; did you mean "{meant}"?'
    return f"is not a known key; known here: {', '.join(known)}" if known else "is not a known key"


def not_allowed(found: object, allowed: Sequence[object]) -> str:
    """Describes the problem with a value that is not in a list. `found` is compared and never shown."""
    words = [word if isinstance(word, str) else json.dumps(word, default=str) for word in allowed]
    must = f"must be {words[0]}" if len(words) == 1 else f"must be one of {', '.join(words)}"
    meant = nearest(found, words) if isinstance(found, str) and len(words) > 1 else None
    return f'{must}; did you mean "{meant}"?' if meant is not None else must


def kind_of(value: object) -> str:
    """Returns the type of a value in plain words, without the value."""
    kinds: tuple[tuple[Any, str], ...] = (
        (bool, "true or false"),
        (int, "a whole number"),
        (float, "a number"),
        (str, "text"),
        (Mapping, "a mapping"),
        (Sequence, "a list"),
    )
    if value is None:
        return "nothing"
    return next((words for kind, words in kinds if isinstance(value, kind)), f"a {type(value).__name__}")


_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}


def type_words(types: Sequence[str]) -> str:
    """Returns the types of a JSON schema in plain words."""
    return " or ".join(dict.fromkeys(_TYPES.get(name, name) for name in types))
