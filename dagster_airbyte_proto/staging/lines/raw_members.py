"""Cuts the raw text of members and elements out of JSON. The text stays as it came and is not parsed further.

msgspec does this for all but odd texts: NaN, half a surrogate pair, nesting of thousands of levels. Those are split
here with the standard library's scanner; where even that recurses too deep, by counting brackets.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]  # it is there, undocumented since Python 2.6
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

Raw = msgspec.Raw
MISSING = Raw(b"")
_NULL = np.frombuffer(b"null", np.uint8)
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ELEMENTS = msgspec.json.Decoder(list[Raw])
# Numbers stay text, so that one of a million digits costs nothing.
_SCANNER = json.JSONDecoder(parse_int=str, parse_float=str, strict=True)
_SPACE = re.compile(r"[ \t\r\n]*")
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]')


def members(text: Raw | bytes) -> Mapping[str, Raw]:
    """Returns the members of a JSON object; of equal names the last. Raises ValueError for anything else."""
    try:
        return _MEMBERS.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return dict(_scan(bytes(text), "{"))


def elements(text: Raw) -> Sequence[Raw]:
    """Returns the elements of a JSON array. Raises ValueError for anything else."""
    try:
        return _ELEMENTS.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [element for _, element in _scan(bytes(text), "[")]


def members_struct(names: Sequence[str]) -> Any:
    """Returns a struct for msgspec that cuts out the members of these names, as its attributes `field0`, `field1`, …

    None if msgspec does not find a member by one of the names: it compares them as they are written, so no name may
    have a character that JSON escapes. Decode a dictionary then.
    """
    fields = {f"field{number}": name for number, name in enumerate(names)}
    try:
        return msgspec.defstruct("Members", [(field, Raw, MISSING) for field in fields], rename=fields, gc=False)
    except ValueError:
        return None


def text_array(raws: Sequence[Raw]) -> pa.Array:
    """Returns the texts as one Arrow array, in one copy; missing texts and JSON nulls are null.

    The caller must validate the array: it may hold bytes that are not UTF-8.
    """
    lengths = np.fromiter(map(len, raws), dtype=np.int32, count=len(raws))
    offsets = np.zeros(len(raws) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    joined = b"".join(raws)
    validity = lengths != 0
    fours = np.flatnonzero(lengths == len(_NULL))
    letters = np.frombuffer(joined, np.uint8)[offsets[fours, None] + np.arange(len(_NULL))]
    validity[fours] = (letters != _NULL).any(axis=1)
    return pa.StringArray.from_buffers(
        len(raws),
        pa.py_buffer(offsets),
        pa.py_buffer(joined),
        None if validity.all() else pa.py_buffer(np.packbits(validity, bitorder="little")),
    )


def _scan(raw: bytes, opening: str) -> Iterable[tuple[str, Raw]]:
    text = raw.decode("utf-8", "surrogateescape")
    at = _after_space(text, 0)
    if text[at : at + 1] != opening:
        raise ValueError("neither an object nor an array, as expected")
    closing = "}" if opening == "{" else "]"
    at = _after_space(text, at + 1)
    is_empty = text[at : at + 1] == closing
    while not is_empty:
        key = ""
        if opening == "{":
            if text[at : at + 1] != '"':
                raise ValueError("a member without a name")
            key, at = scanstring(text, at + 1, True)
            at = _after_space(text, at)
            if text[at : at + 1] != ":":
                raise ValueError("a member without a value")
            at = _after_space(text, at + 1)
        end = _value_end(text, at)
        yield key, Raw(text[at:end].encode("utf-8", "surrogateescape"))
        at = _after_space(text, end)
        if text[at : at + 1] == closing:
            break
        if text[at : at + 1] != ",":
            raise ValueError("neither a next value nor the end")
        at = _after_space(text, at + 1)
    if _after_space(text, at + 1) != len(text):
        raise ValueError("text after the end")


def _after_space(text: str, at: int) -> int:
    if text[at : at + 1] not in " \t\r\n":
        return at
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value_end(text: str, at: int) -> int:
    try:
        return _SCANNER.raw_decode(text, at)[1]
    except RecursionError:
        return _bracketed_end(text, at)
    except StopIteration:
        raise ValueError("no value") from None


def _bracketed_end(text: str, at: int) -> int:
    depth = 0
    for match in _BRACKETS.finditer(text, at):
        bracket = match[0]
        if bracket in "[{":
            depth += 1
        elif bracket in "]}":
            depth -= 1
            if depth == 0:
                return match.end()
    raise ValueError("brackets without an end")
