"""Where a `"$ref"` within a document leads: a JSON pointer behind `#`, with its escapes."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote


def pointed_at(root: Any, reference: str) -> Any:
    """What a reference within `root` leads to. LookupError where that is nothing, or another document."""
    document, _, pointer = reference.partition("#")
    if document:
        raise LookupError(reference)
    found = root
    for step in pointer.split("/")[1:]:
        step = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and step in found:
            found = found[step]
        elif isinstance(found, list | tuple) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            raise LookupError(reference)
    return found


def schema_at(root: Any, reference: str) -> Any:
    """The schema that a reference within `root` leads to. What leads nowhere is `{}`, which says nothing."""
    try:
        return pointed_at(root, reference)
    except LookupError:
        return {}
