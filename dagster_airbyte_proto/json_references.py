"""Reads JSON schemas. A `"$ref"` within a document is a JSON pointer (RFC 6901) behind `#`, percent-encoded as in a
URL."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

_MOST_DIGITS = 10


def referenced_value(root: Any, reference: str) -> Any:
    """Returns the value that a reference within `root` points to.

    Raises LookupError if there is none, or if the reference points into another document. An anchor (`#address`) is no
    pointer, and is not looked up.
    """
    document, _, pointer = reference.partition("#")
    if document or (pointer and not pointer.startswith("/")):
        raise LookupError(reference)
    found = root
    for step in pointer.split("/")[1:]:
        # RFC 6901 sets this order: "~01" is "~1", and not "/".
        step = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and step in found:
            found = found[step]
        elif isinstance(found, list | tuple) and _is_index(step) and int(step) < len(found):
            found = found[int(step)]
        else:
            raise LookupError(reference)
    return found


def _is_index(step: str) -> bool:
    """True for a number of a list's size: Python refuses to read one of thousands of digits."""
    return step.isdecimal() and len(step) < _MOST_DIGITS


def referenced_schema(root: Any, reference: str) -> Any:
    """Returns the schema that a reference within `root` points to.

    A reference that points nowhere gives `{}`, the schema that allows anything.
    """
    try:
        return referenced_value(root, reference)
    except LookupError:
        return {}


def names_in(word: Any) -> tuple[str, ...]:
    """Returns the texts in a word that has one or a list of them, as `type` and `required` of a schema, and the paths
    and keys of a catalog. Connectors write others too, such as `required: true`."""
    found = [word] if isinstance(word, str) else word if isinstance(word, list | tuple) else []
    return tuple(name for name in found if isinstance(name, str))


def properties_in(schema: Any) -> Mapping[str, Any]:
    """Returns the properties that a schema declares, by name; none if it is no schema of an object."""
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def branches_in(word: Any) -> list[Mapping[str, Any]]:
    """Returns the schemas in a word that has a list of them, as `oneOf`."""
    return [each for each in word if isinstance(each, Mapping)] if isinstance(word, list | tuple) else []
