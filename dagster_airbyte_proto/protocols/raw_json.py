"""JSON whose parts stay the bytes they were.

Two ways to the same answer. msgspec takes a line apart in one pass and leaves the parts alone; it refuses what a
strict reader must refuse, and connectors print some of that all the same: NaN and Infinity (Python's json), half
of a surrogate pair (JavaScript, orjson's callers), raw control characters, nesting beyond the stack. For those
there is a scanner that knows strings and brackets and nothing else: it keeps no stack, so depth does not matter
to it, and it looks at no value, so a bad value does not either. Bytes that are cut off satisfy neither.
"""

import json
import re
from typing import Any

import msgspec

PLAIN_TEXT = (
    rb"(?:[ !#-\[\]-\x7f]++|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    rb"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*+"
)
PLAIN_STRING = rb'"' + PLAIN_TEXT + rb'"'
"""A string of well-formed UTF-8 with no escape in it: whatever it matches can be decoded without a further look."""

# What msgspec raises on bytes that it will not take; the last is nesting deeper than the C stack allows.
_REFUSALS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_KEY = re.compile(rb"\s*+(" + _STRING + rb")\s*+:\s*+", re.DOTALL)
_SCALAR = re.compile(_STRING + rb'|[^\s"\[\]{},:]++', re.DOTALL)
_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+([\[\]{}])", re.DOTALL)
_SPACE = re.compile(rb"\s*+")


class PartError(ValueError):
    """A part of a message is not what it should be. The text says which, and never quotes a record."""


def members(raw: bytes | msgspec.Raw) -> dict[str, bytes] | None:
    """An object's values as they were written, by name; None for what is no object. The last of equal names wins."""
    try:
        return {name: bytes(part) for name, part in _members_decoder.decode(raw).items()}
    except _REFUSALS:
        return _scan_members(bytes(raw))


def items(raw: bytes) -> list[bytes] | None:
    """An array's items as they were written; None for what is no array."""
    try:
        return [bytes(part) for part in _items_decoder.decode(raw)]
    except _REFUSALS:
        return _scan_items(raw)


def value(raw: bytes) -> Any:
    """What the bytes mean, for reading and showing. Raises PartError when nothing can be made of them.

    Bad UTF-8 comes out as U+FFFD and half a surrogate pair as `?`, so that the text can be printed.
    """
    try:
        return msgspec.json.decode(raw)
    except _REFUSALS:
        pass
    try:
        lenient = json.loads(raw.decode("utf-8", "replace"), strict=False)
        return json.loads(json.dumps(lenient, ensure_ascii=False).encode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise PartError("its JSON cannot be read") from error


def with_member(raw: bytes, name: str, part: bytes) -> bytes:
    """The object with one value put in or replaced; every other value keeps its bytes."""
    parts = {**(members(raw) or {}), name: part}
    return b"{" + b",".join(json.dumps(key).encode() + b":" + kept for key, kept in parts.items()) + b"}"


def array(parts: list[bytes]) -> bytes:
    return b"[" + b",".join(parts) + b"]"


def _scan_members(raw: bytes) -> dict[str, bytes] | None:
    found: dict[str, bytes] = {}
    position = _opened(raw, b"{")
    if position is not None and raw[position : position + 1] == b"}":
        return found if _ends(raw, position + 1) else None
    while position is not None:
        key = _KEY.match(raw, position)
        end = _value_end(raw, key.end()) if key else None
        if key is None or end is None:
            return None
        try:
            found[str(value(key[1]))] = raw[key.end() : end]
        except PartError:
            return None
        position, closed = _separated(raw, end, b"}")
        if closed:
            return found
    return None


def _scan_items(raw: bytes) -> list[bytes] | None:
    found: list[bytes] = []
    position = _opened(raw, b"[")
    if position is not None and raw[position : position + 1] == b"]":
        return found if _ends(raw, position + 1) else None
    while position is not None:
        end = _value_end(raw, position)
        if end is None:
            return None
        found.append(raw[position:end])
        position, closed = _separated(raw, end, b"]")
        if closed:
            return found
    return None


def _opened(raw: bytes, bracket: bytes) -> int | None:
    """Where the first token after the opening bracket stands."""
    start = _after_space(raw, 0)
    return _after_space(raw, start + 1) if raw[start : start + 1] == bracket else None


def _separated(raw: bytes, position: int, bracket: bytes) -> tuple[int | None, bool]:
    """Where the next part stands, or None with whether the closing bracket ended the bytes as it should."""
    position = _after_space(raw, position)
    token = raw[position : position + 1]
    if token == b",":
        return _after_space(raw, position + 1), False
    return None, token == bracket and _ends(raw, position + 1)


def _value_end(raw: bytes, position: int) -> int | None:
    if raw[position : position + 1] not in (b"{", b"["):
        scalar = _SCALAR.match(raw, position)
        return scalar.end() if scalar else None
    depth, position = 1, position + 1
    while depth and (bracket := _BRACKET.match(raw, position)):
        depth += 1 if bracket[1] in b"{[" else -1
        position = bracket.end()
    return None if depth else position


def _after_space(raw: bytes, position: int) -> int:
    space = _SPACE.match(raw, position)
    return space.end() if space else position


def _ends(raw: bytes, position: int) -> bool:
    return _after_space(raw, position) == len(raw)
