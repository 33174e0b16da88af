"""A filter as a user writes it: `amount > 0 and country in ['DE', 'AT'] and deleted_at is null`.

    any        all ("or" all)*
    all        one ("and" one)*
    one        "not" one | "(" any ")" | column test
    test       ("=" "==" "!=" "<>" "<" "<=" ">" ">=") value | "not"? "in" list | "is" "not"? "null"
    list       "[" value ("," value)* "]", or in round brackets
    value      number | 'text' | "text" | true | false

A column is a word, or anything in backticks. A value must be of its column's type: dates and times are written as text.
Words of the language may be written in any case. There is no arithmetic, and no column stands on the right.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.schema.columns import Column, Kind
from dagster_airbyte_proto.schema.conditions import (
    COMPARISONS,
    Absence,
    Comparison,
    Condition,
    Either,
    Every,
    Membership,
    Negation,
)

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    |(?P<column>`(?:[^`]|``)+`)
    |(?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w))
    |(?P<word>[^\W\d]\w*)
    |(?P<sign><=|>=|!=|<>|==|[=<>(),\[\]]))""",
    re.VERBOSE,
)
_WORDS = frozenset(("and", "or", "not", "in", "is", "null", "true", "false"))
_SAME = {"==": "=", "<>": "!="}
_CLOSING = {"[": "]", "(": ")"}
_SHOWN_COLUMNS = 20


class _Token(NamedTuple):
    """`what` is a group of the pattern, "end", or a word of the language itself. `at` counts from 0."""

    what: str
    text: str
    at: int


def parsed_filter(text: str, fields: Mapping[str, Column], stream: StreamId) -> Condition:
    """What the text asks. Raises ConfigError that tells where it is wrong, and what there is."""
    return _Parser(text, fields, stream).whole()


class _Parser:
    def __init__(self, text: str, fields: Mapping[str, Column], stream: StreamId) -> None:
        self._text = text
        self._fields = fields
        self._stream = stream
        self._tokens = self._split()
        self._next = 0

    def whole(self) -> Condition:
        condition = self._any()
        if self._peek().what != "end":
            raise self._refusal(self._peek(), f"expected `and`, `or` or the end, found {self._shown(self._peek())}")
        return condition

    def _split(self) -> list[_Token]:
        tokens, at, end = [], 0, len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None:
                at += len(self._text[at:]) - len(self._text[at:].lstrip())
                raise self._refusal(_Token("sign", self._text[at], at), f"{self._text[at]!r} is not understood")
            group = str(match.lastgroup)
            what, text = group, match[group]
            if what == "word":
                what = text.lower() if text.lower() in _WORDS else "column"
            elif what in ("text", "column"):
                text = text[1:-1].replace(text[0] * 2, text[0])
            tokens.append(_Token(what if what != "sign" else _SAME.get(text, text), text, match.start(group)))
            at = match.end()
        return [*tokens, _Token("end", "", end)]

    def _any(self) -> Condition:
        parts = [self._all()]
        while self._took("or"):
            parts.append(self._all())
        return Either(tuple(parts)) if len(parts) > 1 else parts[0]

    def _all(self) -> Condition:
        parts = [self._one()]
        while self._took("and"):
            parts.append(self._one())
        return Every(tuple(parts)) if len(parts) > 1 else parts[0]

    def _one(self) -> Condition:
        if self._took("not"):
            return Negation(self._one())
        if self._took("("):
            inner = self._any()
            self._expect(")")
            return inner
        return self._test(self._column())

    def _column(self) -> Column:
        token = self._take()
        if token.what != "column":
            raise self._refusal(token, f"expected a column, found {self._shown(token)}")
        if token.text not in self._fields:
            near = difflib.get_close_matches(token.text, self._fields, n=1, cutoff=0.0)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise self._refusal(token, f"there is no column {token.text!r}{meant}")
        return self._fields[token.text]

    def _test(self, column: Column) -> Condition:
        field, token = column.path[0], self._take()
        if token.what in COMPARISONS:
            return Comparison(field, token.what, self._value(column, token))
        if token.what == "is":
            is_not = self._took("not")
            self._expect("null")
            return Negation(Absence(field)) if is_not else Absence(field)
        if token.what == "not":
            self._expect("in")
            return Negation(Membership(field, self._values(column, token)))
        if token.what == "in":
            return Membership(field, self._values(column, token))
        raise self._refusal(
            token, f"expected a comparison, `in` or `is null` after {field!r}, found {self._shown(token)}"
        )

    def _values(self, column: Column, operator: _Token) -> pa.Array:
        opening = self._take()
        if opening.what not in _CLOSING:
            raise self._refusal(opening, f"expected a list such as [1, 2], found {self._shown(opening)}")
        values = [self._value(column, operator)]
        while self._took(","):
            values.append(self._value(column, operator))
        self._expect(_CLOSING[opening.what])
        return pa.array([value.as_py() for value in values], column.type.in_table)

    def _value(self, column: Column, operator: _Token) -> pa.Scalar:
        comparable = _comparable(column)
        if comparable is None:
            raise self._refusal(operator, f"column {column.path[0]!r} can only be asked whether it `is null`")
        if comparable.is_ordered is False and operator.what in ("<", "<=", ">", ">="):
            raise self._refusal(operator, f"column {column.path[0]!r} is true or false, and neither is the greater")
        token = self._take()
        if token.what == "null":
            raise self._refusal(token, "nothing is equal to null: write `is null` or `is not null`")
        if token.what not in comparable.tokens:
            raise self._refusal(
                token, f"column {column.path[0]!r} is compared with {comparable.words}, found {self._shown(token)}"
            )
        try:
            return comparable.scalar(token.text, column.type.in_table)
        except (pa.ArrowInvalid, ValueError, ArithmeticError) as error:
            problem = f"{token.text!r} is not {comparable.words}, or more than the column holds"
            raise self._refusal(token, problem) from error

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek()
        if token.what != "end":
            self._next += 1
        return token

    def _took(self, what: str) -> bool:
        is_there = self._peek().what == what
        self._next += is_there
        return is_there

    def _expect(self, what: str) -> None:
        token = self._take()
        if token.what != what:
            raise self._refusal(token, f"expected `{what}`, found {self._shown(token)}")

    @staticmethod
    def _shown(token: _Token) -> str:
        return "the end" if token.what == "end" else repr(token.text)

    def _refusal(self, token: _Token, problem: str) -> ConfigError:
        known = list(self._fields)
        more = ", …" if len(known) > _SHOWN_COLUMNS else ""
        return ConfigError(
            "plan the filter",
            f"at character {token.at + 1} of {self._text!r}: {problem}",
            remedy=f"The columns: {', '.join(known[:_SHOWN_COLUMNS])}{more}.",
            stream=str(self._stream),
        )


class _Comparable(NamedTuple):
    """How values of a type are written, and made."""

    tokens: frozenset[str]
    words: str
    scalar: Callable[[str, pa.DataType], pa.Scalar]
    is_ordered: bool = True


def _comparable(column: Column) -> _Comparable | None:
    kind = column.type.in_table
    if column.type.kind is Kind.JSON:
        return None
    return next((comparable for is_such, comparable in _COMPARABLE if is_such(kind)), None)


def _whole(text: str, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(int(text), kind)


def _decimal(text: str, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(Decimal(text), kind)


def _float(text: str, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(float(text), kind)


def _truth(text: str, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(text.lower() == "true", kind)


def _cast(text: str, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(text).cast(kind)


def _time(text: str, kind: pa.DataType) -> pa.Scalar:
    """Without a zone it is of UTC."""
    if kind.tz is None:
        return _cast(text, kind)
    try:
        return _cast(text, kind)
    except pa.ArrowInvalid:
        return _cast(text, pa.timestamp(kind.unit)).cast(kind)


_NUMBER, _TEXT = frozenset(("number",)), frozenset(("text",))
_COMPARABLE: tuple[tuple[Callable[[pa.DataType], bool], _Comparable], ...] = (
    (pa.types.is_boolean, _Comparable(frozenset(("true", "false")), "true or false", _truth, is_ordered=False)),
    (pa.types.is_integer, _Comparable(_NUMBER, "a whole number", _whole)),
    (pa.types.is_decimal, _Comparable(_NUMBER, "a number", _decimal)),
    (pa.types.is_floating, _Comparable(_NUMBER, "a number", _float)),
    (pa.types.is_string, _Comparable(_TEXT, "a text in quotes", _cast)),
    (pa.types.is_date, _Comparable(_TEXT, "a date such as '2026-01-31'", _cast)),
    (pa.types.is_timestamp, _Comparable(_TEXT, "a time such as '2026-01-31T12:00:00Z'", _time)),
)
