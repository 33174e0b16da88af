"""Members of nested mappings by dotted names, which is how Meltano names its settings."""

from collections.abc import Mapping, Sequence
from typing import Any


def flattened(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Returns members by dotted name, which is how Meltano names settings. An empty mapping is a value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= flattened(value, f"{path}{key}.")
        else:
            flat[f"{path}{key}"] = value
    return flat


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flattened`."""
    members: dict[str, Any] = {}
    for name, value in flat.items():
        put_member(members, name.split("."), value)
    return members


def put_member(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Sets the member at a path, and makes the mappings above it."""
    for step in path[:-1]:
        inner = values.get(step)
        if not isinstance(inner, dict):
            inner = values[step] = {}
        values = inner
    values[path[-1]] = value
