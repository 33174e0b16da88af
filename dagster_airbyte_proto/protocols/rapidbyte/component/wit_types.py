"""The types of WIT that Rapidbyte uses, as data.

Values of them in Python: a record is a mapping, an enum its case as text, an option None or the value, a list of bytes
`bytes`, another list a list. A result and a variant are a `Tagged`.
"""

from typing import Any, NamedTuple


class WitScalar(NamedTuple):
    """A number or a bool. `code` is its letter in `struct`."""

    name: str
    code: str
    size: int


class WitList(NamedTuple):
    """A list; a string, if `item` is None."""

    item: "WitType | None"


class WitField(NamedTuple):
    """A field of a record, or a parameter of a function."""

    name: str
    type: "WitType"


class WitRecord(NamedTuple):
    name: str
    fields: tuple[WitField, ...]


class WitCase(NamedTuple):
    name: str
    payload: "WitType | None" = None


class WitVariant(NamedTuple):
    """A choice between cases. `form` is enum, option, result or variant. Only an enum and a variant have a name."""

    form: str
    cases: tuple[WitCase, ...]
    name: str = ""


class WitFunction(NamedTuple):
    name: str
    parameters: tuple[WitField, ...]
    result: "WitType | None"


class Tagged(NamedTuple):
    """A value of a result or a variant: its case, and what that case holds."""

    case: str
    payload: Any = None


WitType = WitScalar | WitList | WitRecord | WitVariant

BOOL = WitScalar("bool", "B", 1)
U8 = WitScalar("u8", "B", 1)
U16 = WitScalar("u16", "H", 2)
U32 = WitScalar("u32", "I", 4)
U64 = WitScalar("u64", "Q", 8)
STRING = WitList(None)
BYTES = WitList(U8)


def option(inner: WitType) -> WitVariant:
    return WitVariant("option", (WitCase("none"), WitCase("some", inner)))


def result(ok: WitType | None, error: WitType) -> WitVariant:
    return WitVariant("result", (WitCase("ok", ok), WitCase("err", error)))


def enum(name: str, *cases: str) -> WitVariant:
    return WitVariant("enum", tuple(map(WitCase, cases)), name)


def variant(name: str, **cases: WitType | None) -> WitVariant:
    return WitVariant("variant", tuple(WitCase(each.replace("_", "-"), kind) for each, kind in cases.items()), name)


def record(name: str, **fields: WitType) -> WitRecord:
    return WitRecord(name, parameters(**fields))


def parameters(**fields: WitType) -> tuple[WitField, ...]:
    """Fields by their names, with underscores in the place of WIT's hyphens."""
    return tuple(WitField(name.replace("_", "-"), kind) for name, kind in fields.items())
