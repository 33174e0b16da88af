"""The calls of the state server, in both dialects: what is asked, and how the answer is written.

| | specification | packages |
|---|---|---|
| `state.get` | `{"value": …}`, or `{}` | the value itself, or `{}` |
| drop a value | `state.delete`: `{"rowsDeleted": …}` | `state.del`: `{}` |
| drop a prefix | `state.deleteAll`: `{"rowsDeleted": …}` | `state.deleteByPrefix`: `{}` |
| `state.size` | | `{"size": …}` |
| `state.list` | an array | a line each |

A call of either is answered. Only `state.get` and `state.list` do not say which dialect they are of: the connector's
description tells.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

_BODY = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KEY = msgspec.json.Decoder(str | list[str])
MAX_SEGMENTS = 64


class BadCall(Exception):
    """A call that cannot be understood. `status` is that of HTTP."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Values(Protocol):
    """The values that the calls are about."""

    def get(self, key: tuple[str, ...]) -> bytes | None: ...

    def set(self, key: tuple[str, ...], value: bytes) -> None: ...

    def delete(self, key: tuple[str, ...]) -> bool: ...

    def delete_all(self, prefix: tuple[str, ...]) -> int: ...

    def list(self, prefix: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], bytes]]: ...

    def size(self, prefix: tuple[str, ...]) -> int: ...


class CallAnswer(NamedTuple):
    """The answer to a call: its pieces, and their kind."""

    pieces: Iterator[bytes]
    content_type: str = "application/json"


def speaks_as_specified(description: Mapping[str, Any]) -> bool:
    """True if a connector with this description speaks the dialect of the specification."""
    return "credentialsSchema" in description and "connectionCredentials" not in description


def answer(method: str, body: bytes, values: Values, *, is_as_specified: bool) -> CallAnswer:
    """Answers a call. Raises BadCall."""
    call = _CALLS.get(method)
    if call is None:
        raise BadCall(f"there is no method {method[:80]}", 404)
    try:
        parts = _BODY.decode(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadCall(f"the body is no JSON object: {error}") from None
    found = call(parts, values, is_as_specified)
    return found if isinstance(found, CallAnswer) else CallAnswer(iter((found,)))


def _key(parts: Mapping[str, msgspec.Raw], name: str) -> tuple[str, ...]:
    try:
        found = _KEY.decode(parts.get(name, b"null"))
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadCall(f"{name} must be a text or a list of texts") from None
    segments = (found,) if isinstance(found, str) else tuple(found)
    if not 0 < len(segments) <= MAX_SEGMENTS:
        raise BadCall(f"{name} must have 1 to {MAX_SEGMENTS} segments")
    return segments


def _get(parts: Mapping[str, msgspec.Raw], values: Values, is_as_specified: bool) -> bytes:
    found = values.get(_key(parts, "key"))
    if found is None:
        return b"{}"
    return b'{"value":' + found + b"}" if is_as_specified else found


def _set(parts: Mapping[str, msgspec.Raw], values: Values, _: bool) -> bytes:
    if "value" not in parts:
        raise BadCall("value is missing")
    value = bytes(parts["value"])
    try:
        value.decode()  # msgspec looks at no byte of a string that it does not decode.
    except UnicodeDecodeError:
        raise BadCall("value is no UTF-8 text") from None
    values.set(_key(parts, "key"), value)
    return b"{}"


def _delete(parts: Mapping[str, msgspec.Raw], values: Values, _: bool) -> bytes:
    return b'{"rowsDeleted":%d}' % values.delete(_key(parts, "key"))


def _del(parts: Mapping[str, msgspec.Raw], values: Values, _: bool) -> bytes:
    values.delete(_key(parts, "key"))
    return b"{}"


def _delete_all(parts: Mapping[str, msgspec.Raw], values: Values, _: bool) -> bytes:
    return b'{"rowsDeleted":%d}' % values.delete_all(_key(parts, "prefix"))


def _delete_by_prefix(parts: Mapping[str, msgspec.Raw], values: Values, _: bool) -> bytes:
    values.delete_all(_key(parts, "prefix"))
    return b"{}"


def _size(parts: Mapping[str, msgspec.Raw], values: Values, _: bool) -> bytes:
    return b'{"size":%d}' % values.size(_key(parts, "prefix"))


def _list(parts: Mapping[str, msgspec.Raw], values: Values, is_as_specified: bool) -> CallAnswer:
    found = values.list(_key(parts, "prefix"))
    if is_as_specified:
        return CallAnswer(_array(found))
    return CallAnswer((_pair(each) + b"\n" for each in found), "application/x-ndjson")


def _array(found: Iterable[tuple[tuple[str, ...], bytes]]) -> Iterator[bytes]:
    comma = b"["
    for each in found:
        yield comma + _pair(each)
        comma = b","
    yield b"[]" if comma == b"[" else b"]"


def _pair(each: tuple[tuple[str, ...], bytes]) -> bytes:
    key, value = each
    if b"\n" in value:  # A list in lines has one line for each.
        value = msgspec.json.format(value, indent=-1)
    return b'{"key":' + msgspec.json.encode(key) + b',"value":' + value + b"}"


_Call = Callable[[Mapping[str, msgspec.Raw], Values, bool], bytes | CallAnswer]
_CALLS: Mapping[str, _Call] = {
    "state.get": _get,
    "state.set": _set,
    "state.delete": _delete,
    "state.del": _del,
    "state.deleteAll": _delete_all,
    "state.deleteByPrefix": _delete_by_prefix,
    "state.size": _size,
    "state.list": _list,
}
