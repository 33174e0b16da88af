"""Parses a filter as a user writes it: `amount > 0 and country in ['DE', 'AT'] and deleted_at is null`.

    any        all ("or" all)*
    all        one ("and" one)*
    one        "not" one | "(" any ")" | column test
    test       ("=" "==" "!=" "<>" "<" "<=" ">" ">=") value | "not"? "in" list | "is" "not"? "null"
    list       "[" value ("," value)* "]", or in round brackets
    value      number | 'text' | "text" | true | false

A column is a word, or anything in backticks. A value must be of its column's type. Dates and times are written as text.
Keywords may be written in any case. There is no arithmetic, and no column on the right side.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.schema.columns import Column, ValueKind
from dagster_airbyte_proto.schema.conditions import (
    COMPARISONS,
    And,
    Comparison,
    Condition,
    InList,
    IsNull,
    Not,
    Or,
)

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    |(?P<column>`(?:[^`]|``)+`)
    |(?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w))
    |(?P<word>[^\W\d]\w*)
    |(?P<sign><=|>=|!=|<>|==|[=<>(),\[\]]))""",
    re.VERBOSE,
)
_KEYWORDS = frozenset(("and", "or", "not", "in", "is", "null", "true", "false"))
_SYNONYMS = {"==": "=", "<>": "!="}
_CLOSING = {"[": "]", "(": ")"}
_SHOWN_COLUMNS = 20


class _Token(NamedTuple):
    """`kind` is a group of the pattern, "end", a keyword, or an operator. `at` counts from 0."""

    kind: str
    text: str
    at: int


def parsed_filter(text: str, fields: Mapping[str, Column], stream: StreamId) -> Condition:
    """Parses a filter. Raises ConfigError that names the place of a mistake and lists the columns."""
    return _Parser(text, fields, stream).parsed()


class _Parser:
    """A recursive descent parser: one method for each rule of the grammar."""

    def __init__(self, text: str, fields: Mapping[str, Column], stream: StreamId) -> None:
        self._text = text
        self._fields = fields
        self._stream = stream
        self._tokens = self._split()
        self._next = 0

    def parsed(self) -> Condition:
        condition = self._any()
        if self._peek().kind != "end":
            raise self._error(self._peek(), f"expected `and`, `or` or the end, found {self._shown(self._peek())}")
        return condition

    def _split(self) -> list[_Token]:
        tokens, at, end = [], 0, len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None:
                at += len(self._text[at:]) - len(self._text[at:].lstrip())
                raise self._error(_Token("sign", self._text[at], at), f"{self._text[at]!r} is not understood")
            group = str(match.lastgroup)
            kind, text = group, match[group]
            if kind == "word":
                kind = text.lower() if text.lower() in _KEYWORDS else "column"
            elif kind in ("text", "column"):
                text = text[1:-1].replace(text[0] * 2, text[0])
            tokens.append(_Token(kind if kind != "sign" else _SYNONYMS.get(text, text), text, match.start(group)))
            at = match.end()
        return [*tokens, _Token("end", "", end)]

    def _any(self) -> Condition:
        parts = [self._all()]
        while self._took("or"):
            parts.append(self._all())
        return Or(tuple(parts)) if len(parts) > 1 else parts[0]

    def _all(self) -> Condition:
        parts = [self._one()]
        while self._took("and"):
            parts.append(self._one())
        return And(tuple(parts)) if len(parts) > 1 else parts[0]

    def _one(self) -> Condition:
        if self._took("not"):
            return Not(self._one())
        if self._took("("):
            inner = self._any()
            self._expect(")")
            return inner
        return self._test(self._column())

    def _column(self) -> Column:
        token = self._take()
        if token.kind != "column":
            raise self._error(token, f"expected a column, found {self._shown(token)}")
        if token.text not in self._fields:
            near = difflib.get_close_matches(token.text, self._fields, n=1, cutoff=0.0)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise self._error(token, f"there is no column {token.text!r}{meant}")
        return self._fields[token.text]

    def _test(self, column: Column) -> Condition:
        field, token = column.path[0], self._take()
        if token.kind in COMPARISONS:
            return Comparison(field, token.kind, self._value(column, token))
        if token.kind == "is":
            is_not = self._took("not")
            self._expect("null")
            return Not(IsNull(field)) if is_not else IsNull(field)
        if token.kind == "not":
            self._expect("in")
            return Not(InList(field, self._values(column, token)))
        if token.kind == "in":
            return InList(field, self._values(column, token))
        raise self._error(
            token, f"expected a comparison, `in` or `is null` after {field!r}, found {self._shown(token)}"
        )

    def _values(self, column: Column, operator: _Token) -> pa.Array:
        opening = self._take()
        if opening.kind not in _CLOSING:
            raise self._error(opening, f"expected a list such as [1, 2], found {self._shown(opening)}")
        values = [self._value(column, operator)]
        while self._took(","):
            values.append(self._value(column, operator))
        self._expect(_CLOSING[opening.kind])
        return pa.array([value.as_py() for value in values], column.type.table_type)

    def _value(self, column: Column, operator: _Token) -> pa.Scalar:
        comparable = _comparable(column)
        if comparable is None:
            raise self._error(operator, f"column {column.path[0]!r} can only be tested with `is null`")
        if comparable.is_ordered is False and operator.kind in ("<", "<=", ">", ">="):
            raise self._error(operator, f"column {column.path[0]!r} is true or false, and neither is the greater")
        token = self._take()
        if token.kind == "null":
            raise self._error(token, "nothing is equal to null: write `is null` or `is not null`")
        if token.kind not in comparable.tokens:
            raise self._error(
                token,
                f"column {column.path[0]!r} is compared with {comparable.description}, found {self._shown(token)}",
            )
        try:
            return comparable.scalar(token.text, column.type.table_type)
        except (pa.ArrowInvalid, ValueError, ArithmeticError) as error:
            problem = f"{token.text!r} is not {comparable.description}, or more than the column holds"
            raise self._error(token, problem) from error

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek()
        if token.kind != "end":
            self._next += 1
        return token

    def _took(self, kind: str) -> bool:
        is_there = self._peek().kind == kind
        self._next += is_there
        return is_there

    def _expect(self, kind: str) -> None:
        token = self._take()
        if token.kind != kind:
            raise self._error(token, f"expected `{kind}`, found {self._shown(token)}")

    @staticmethod
    def _shown(token: _Token) -> str:
        return "the end" if token.kind == "end" else repr(token.text)

    def _error(self, token: _Token, problem: str) -> ConfigError:
        known = list(self._fields)
        more = ", …" if len(known) > _SHOWN_COLUMNS else ""
        return ConfigError(
            "planning the filter",
            f"at character {token.at + 1} of {self._text!r}: {problem}",
            remedy=f"The columns: {', '.join(known[:_SHOWN_COLUMNS])}{more}.",
            stream=str(self._stream),
        )


class _Comparable(NamedTuple):
    """The literals that are compared with columns of a type, and the conversion to a scalar of that type."""

    tokens: frozenset[str]
    description: str
    scalar: Callable[[str, pa.DataType], pa.Scalar]
    is_ordered: bool = True


def _comparable(column: Column) -> _Comparable | None:
    kind = column.type.table_type
    if column.type.kind is ValueKind.JSON:
        return None
    return next((comparable for is_such, comparable in _COMPARABLE if is_such(kind)), None)


def _integer(text: str, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(int(text), kind)


def _decimal(text: str, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(Decimal(text), kind)


def _float(text: str, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(float(text), kind)


def _boolean(text: str, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(text.lower() == "true", kind)


def _cast(text: str, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(text).cast(kind)


def _time(text: str, kind: pa.DataType) -> pa.Scalar:
    """Converts a text to a time. A time without a zone is taken as UTC."""
    if kind.tz is None:
        return _cast(text, kind)
    try:
        return _cast(text, kind)
    except pa.ArrowInvalid:
        return _cast(text, pa.timestamp(kind.unit)).cast(kind)


_NUMBER, _TEXT = frozenset(("number",)), frozenset(("text",))
_COMPARABLE: tuple[tuple[Callable[[pa.DataType], bool], _Comparable], ...] = (
    (pa.types.is_boolean, _Comparable(frozenset(("true", "false")), "true or false", _boolean, is_ordered=False)),
    (pa.types.is_integer, _Comparable(_NUMBER, "a whole number", _integer)),
    (pa.types.is_decimal, _Comparable(_NUMBER, "a number", _decimal)),
    (pa.types.is_floating, _Comparable(_NUMBER, "a number", _float)),
    (pa.types.is_string, _Comparable(_TEXT, "a text in quotes", _cast)),
    (pa.types.is_date, _Comparable(_TEXT, "a date such as '2026-01-31'", _cast)),
    (pa.types.is_timestamp, _Comparable(_TEXT, "a time such as '2026-01-31T12:00:00Z'", _time)),
)
