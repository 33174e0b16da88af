"""Splits JSON objects and arrays into parts that keep their bytes.

There are two readers with the same answer:

1. msgspec splits a line in one pass and leaves the parts undecoded. It is strict, and connectors print JSON that a
   strict reader refuses: NaN and Infinity (Python's json), half of a surrogate pair (JavaScript, orjson's callers),
   raw control characters, nesting beyond the C stack.
2. For those there is a scanner that knows only strings and brackets. It keeps no stack, so depth does not matter; it
   decodes no value, so a bad value does not matter either.

Both refuse bytes that are cut off.
"""

import json
import math
import re
from decimal import Decimal
from typing import Any

import msgspec

PLAIN_TEXT = (
    rb"(?:[ !#-\[\]-\x7f]++|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    rb"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*+"
)
PLAIN_STRING = rb'"' + PLAIN_TEXT + rb'"'
"""Matches a string of well-formed UTF-8 without escapes. A match can be decoded without further checks."""

# What msgspec raises for JSON it refuses. RecursionError: nesting deeper than the C stack allows.
_STRICT_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_exact_encoder = msgspec.json.Encoder(decimal_format="number")

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_KEY = re.compile(rb"\s*+(" + _STRING + rb")\s*+:\s*+", re.DOTALL)
_SCALAR = re.compile(_STRING + rb'|[^\s"\[\]{},:]++', re.DOTALL)
_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+([\[\]{}])", re.DOTALL)
_SPACE = re.compile(rb"\s*+")


class MemberError(ValueError):
    """A member of a message is missing or invalid. The text names the member and never quotes a record."""


def members(raw: bytes | msgspec.Raw) -> dict[str, bytes] | None:
    """The undecoded values of an object by name; None if `raw` is no object. Of equal names the last wins."""
    try:
        return {name: bytes(part) for name, part in _members_decoder.decode(raw).items()}
    except _STRICT_ERRORS:
        return _scan_members(bytes(raw))


def items(raw: bytes) -> list[bytes] | None:
    """The undecoded items of an array; None if `raw` is no array."""
    try:
        return [bytes(part) for part in _items_decoder.decode(raw)]
    except _STRICT_ERRORS:
        return _scan_items(raw)


def value(raw: bytes) -> Any:
    """Decodes the bytes for reading and showing. Raises MemberError if that is impossible.

    Bad UTF-8 becomes U+FFFD and half a surrogate pair becomes `?`, so that the text can be printed.
    """
    try:
        return msgspec.json.decode(raw)
    except _STRICT_ERRORS:
        pass
    return json.loads(_lenient_json(raw), strict=False)


def strict_json(raw: bytes) -> bytes:
    """The JSON on one line, as every reader takes it: NaN and Infinity become null, and text is read as by `value`.
    Raises MemberError if that is impossible."""
    try:
        msgspec.json.decode(raw)
        return msgspec.json.format(raw, indent=-1)
    except _STRICT_ERRORS:
        pass
    return _lenient_json(raw, parse_constant=lambda _: None, parse_float=_finite)


def _lenient_json(raw: bytes, **numbers: Any) -> bytes:
    """The JSON with text that can be printed. `numbers` are hooks of `json.loads`."""
    try:
        found = json.loads(raw.decode("utf-8", "replace"), strict=False, **numbers)
        return json.dumps(found, ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError) as error:
        raise MemberError("its JSON cannot be read") from error


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def exact_number(text: str) -> Decimal | msgspec.Raw:
    """A number with a point or an exponent, for a decoder's `float_hook`: `exact_json` writes all its digits."""
    try:
        return Decimal(text)
    except ArithmeticError:  # Its exponent is beyond those of a Decimal.
        return msgspec.Raw(text.encode())


_exact_decoder = msgspec.json.Decoder(float_hook=exact_number)


def exact_value(raw: bytes) -> Any:
    """As `value`, except that a number with a point or an exponent is a Decimal: a float has 17 digits of it."""
    try:
        return _exact_decoder.decode(raw)
    except _STRICT_ERRORS:
        return value(raw)


def exact_json(value: Any) -> bytes:
    """The JSON of what `exact_value` returned, with all digits."""
    return _exact_encoder.encode(value)


def number_text(number: Any) -> str:
    """The JSON of a number of `exact_value` that is no int. Raises TypeError for anything else, as `json` does."""
    if isinstance(number, msgspec.Raw):
        return bytes(number).decode()
    if isinstance(number, Decimal):
        return str(number)
    raise TypeError(f"{type(number).__name__} has no form in JSON")


def with_member(raw: bytes, name: str, part: bytes) -> bytes:
    """Returns the object with one member added or replaced. All other values keep their bytes."""
    parts = {**(members(raw) or {}), name: part}
    return b"{" + b",".join(json.dumps(key).encode() + b":" + kept for key, kept in parts.items()) + b"}"


def array(parts: list[bytes]) -> bytes:
    return b"[" + b",".join(parts) + b"]"


def _scan_members(raw: bytes) -> dict[str, bytes] | None:
    found: dict[str, bytes] = {}
    position = _first_token(raw, b"{")
    if position is not None and raw[position : position + 1] == b"}":
        return found if _is_at_end(raw, position + 1) else None
    while position is not None:
        key = _KEY.match(raw, position)
        end = _value_end(raw, key.end()) if key else None
        if key is None or end is None:
            return None
        try:
            found[str(value(key[1]))] = raw[key.end() : end]
        except MemberError:
            return None
        position, closed = _next_part(raw, end, b"}")
        if closed:
            return found
    return None


def _scan_items(raw: bytes) -> list[bytes] | None:
    found: list[bytes] = []
    position = _first_token(raw, b"[")
    if position is not None and raw[position : position + 1] == b"]":
        return found if _is_at_end(raw, position + 1) else None
    while position is not None:
        end = _value_end(raw, position)
        if end is None:
            return None
        found.append(raw[position:end])
        position, closed = _next_part(raw, end, b"]")
        if closed:
            return found
    return None


def _first_token(raw: bytes, bracket: bytes) -> int | None:
    """The position of the first token after the opening bracket; None if `raw` does not begin with it."""
    start = _after_space(raw, 0)
    return _after_space(raw, start + 1) if raw[start : start + 1] == bracket else None


def _next_part(raw: bytes, position: int, bracket: bytes) -> tuple[int | None, bool]:
    """The position of the next part; or None, and True if the closing bracket is the last token."""
    position = _after_space(raw, position)
    token = raw[position : position + 1]
    if token == b",":
        return _after_space(raw, position + 1), False
    return None, token == bracket and _is_at_end(raw, position + 1)


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


def _is_at_end(raw: bytes, position: int) -> bool:
    return _after_space(raw, position) == len(raw)
