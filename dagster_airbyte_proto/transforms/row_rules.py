"""The transform `validate`: rows that break a rule are rejected, dropped (`skip`), or fail their stream.

- A null breaks `assert_not_null` alone.
- `assert_unique` compares the rows of one sync, in the order in which they come: the first row with a value stays.
- A row by which the source deletes its key keeps every rule: often it has nothing but its key.
"""

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_airbyte_proto.errors import ConfigError, TransformError
from dagster_airbyte_proto.model import RowRule, RuleKind, RuleSpec
from dagster_airbyte_proto.transforms.transform import DROPPED, Rejection, Rows, RowShape, TransformedRows

MAX_UNIQUE_VALUES = 10_000_000
"""The values of a column that `assert_unique` remembers: 8 bytes each."""

_DOING = "validating rows"


class RowValidation:
    """Checks the rows of one stream against rules."""

    def __init__(self, spec: RuleSpec, *, max_unique_values: int = MAX_UNIQUE_VALUES) -> None:
        self._spec = spec
        self._checks = [(rule, _check_of(rule, max_unique_values)) for rule in spec.rules]

    def shape(self, given: RowShape) -> RowShape:
        for rule in self._spec.rules:
            if rule.column not in given.schema.names:
                there = ", ".join(given.schema.names)
                raise _misfit(rule, f"there is no column {rule.column}", f"The columns are {there}.")
            _check_type(rule, given.schema.field(rule.column).type)
        return given

    def transform(self, rows: Rows) -> TransformedRows:
        batch = rows.batch
        stays = np.ones(batch.num_rows, dtype=bool)
        exempt = np.zeros(batch.num_rows, dtype=bool) if rows.is_deletion is None else _as_numpy(rows.is_deletion)
        rejections = []
        for rule, breaks_rule in self._checks:
            # A row that broke an earlier rule is looked at no more: its values are not among those seen.
            open_rows = np.flatnonzero(stays & ~exempt)
            values = batch.column(rule.column)
            if len(open_rows) < len(values):
                values = values.take(pa.array(open_rows))
            broken = open_rows[breaks_rule(values)]
            if len(broken):
                rejections.append(Rejection(_reason(rule), broken))
                stays[broken] = False
        if stays.all():
            return TransformedRows(batch, np.arange(batch.num_rows))
        if self._spec.on_error == "fail":
            raise _failure(rejections)
        kept = np.flatnonzero(stays)
        if self._spec.on_error == "skip":
            rejections = [each._replace(reason=DROPPED) for each in rejections]
        return TransformedRows(batch.take(pa.array(kept)), kept, rejections)


_Check = Callable[[pa.Array], np.ndarray[tuple[int], np.dtype[np.bool_]]]


def _check_of(rule: RowRule, max_unique_values: int) -> _Check:
    """Returns a function that marks the values which break the rule."""
    if rule.kind is RuleKind.NOT_NULL:
        return lambda values: _as_numpy(values.is_null())
    if rule.kind is RuleKind.UNIQUE:
        return _SeenValues(rule, max_unique_values).marks_of_repeated
    if rule.kind is RuleKind.REGEX:
        return lambda values: _claims(pc.invert(pc.match_substring_regex(values, rule.pattern)))
    return lambda values: _out_of_range(rule, values)


class _SeenValues:
    """The values of a column that the rows of a sync have had so far, as hashes of 64 bits.

    They lie in sorted runs, each at least twice as long as the next. So a batch is looked up in a few runs, and a hash
    is merged a few times, however many values there are.
    """

    def __init__(self, rule: RowRule, max_values: int) -> None:
        self._rule, self._max_values = rule, max_values
        self._runs: list[_Hashes] = []

    def marks_of_repeated(self, values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        encoded = values.dictionary_encode()
        hashes = np.array([_hash(value) for value in encoded.dictionary.to_pylist()], np.uint64)
        is_new = np.ones(len(hashes), dtype=bool)
        for run in self._runs:
            places = np.searchsorted(run, hashes)
            is_new &= run.take(places, mode="clip") != hashes
        valid = np.flatnonzero(_as_numpy(values.is_valid()))
        codes = encoded.indices.drop_null().to_numpy()
        _, first = np.unique(codes, return_index=True)
        marks = np.zeros(len(values), dtype=bool)
        marks[valid] = True
        marks[valid[first]] = ~is_new[codes[first]]
        self._remember(hashes[is_new])
        if sum(map(len, self._runs)) > self._max_values:
            found = f"more than {self._max_values:,} values of {self._rule.column}, which are too many to compare"
            remedy = "Take the rule out, and find repeated values in the table."
            raise TransformError(_DOING, found, remedy=remedy)
        return marks

    def _remember(self, hashes: "_Hashes") -> None:
        if not len(hashes):
            return
        self._runs.append(np.sort(hashes))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            self._runs[-2:] = [np.sort(np.concatenate(self._runs[-2:]), kind="stable")]


_Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]


def _hash(value: Any) -> int:
    # Not Python's own hash: that of a number is the number, and equal for many.
    return int.from_bytes(hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _check_type(rule: RowRule, kind: pa.DataType) -> None:
    if rule.kind is RuleKind.UNIQUE and pa.types.is_nested(kind):
        raise _misfit(rule, f"{rule.column} is {kind}, and only plain values can be compared")
    if rule.kind is RuleKind.REGEX:
        if not pa.types.is_string(kind):
            raise _misfit(rule, f"{rule.column} is {kind}, and only text has patterns")
        try:
            pc.match_substring_regex(pa.array([""]), rule.pattern)
        except pa.ArrowInvalid as error:
            raise _misfit(rule, f"{rule.pattern!r} is no regular expression: {error}") from error
    if rule.kind is RuleKind.RANGE:
        try:
            _out_of_range(rule, pa.nulls(1, kind))
        except (pa.ArrowException, ValueError, ArithmeticError) as error:
            remedy = "Ranges are for numbers, dates and times."
            raise _misfit(rule, f"its bounds do not fit {rule.column}, which is {kind}", remedy) from error


def _out_of_range(rule: RowRule, values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    kind = values.type
    out = np.zeros(len(values), dtype=bool)
    bound_of: Callable[[Any], pa.Scalar]
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return out | _out_of_exact_range(rule, values)
    if pa.types.is_floating(kind):
        out |= _claims(pc.is_nan(values))
        values, bound_of = values.cast(pa.float64()), lambda bound: pa.scalar(float(bound))
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        values, bound_of = _as_instants(values), _instant
    else:
        raise ValueError(f"a range of {kind}")
    if rule.minimum is not None:
        out |= _claims(pc.less(values, bound_of(rule.minimum)))
    if rule.maximum is not None:
        out |= _claims(pc.greater(values, bound_of(rule.maximum)))
    return out


def _out_of_exact_range(rule: RowRule, values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Compares whole numbers and decimals digit by digit: as floats, numbers past 2^53 would be equal to others."""
    out = np.zeros(len(values), dtype=bool)
    limits = ((rule.minimum, ROUND_CEILING, pc.less), (rule.maximum, ROUND_FLOOR, pc.greater))
    for bound, rounding, is_beyond in limits:
        if bound is None:
            continue
        exact = _decimal(bound, getattr(values.type, "scale", 0), rounding)
        try:
            out |= _claims(is_beyond(values, pa.scalar(exact, values.type)))
        except (pa.ArrowInvalid, OverflowError):  # No value of the column's type reaches the bound.
            if (exact > 0) == (is_beyond is pc.less):
                out |= _as_numpy(values.is_valid())
    return out


def _decimal(bound: int | float | str, scale: int, rounding: str) -> int | Decimal:
    """Returns the nearest bound that a column of this scale can have: no value lies between it and the given one."""
    with localcontext(prec=400):
        exact = Decimal(str(bound))
        if not exact.is_finite():
            raise ValueError(f"{bound} is no bound")
        return (
            exact.quantize(Decimal(1).scaleb(-scale), rounding=rounding)
            if scale
            else int(exact.to_integral_value(rounding))
        )


def _as_instants(values: pa.Array) -> pa.Array:
    """Returns dates or times as times in UTC."""
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        return values.cast(pa.timestamp("us", "UTC"))
    return pc.assume_timezone(values.cast(pa.timestamp("us")), "UTC")


def _instant(bound: Any) -> pa.Scalar:
    """Returns the time that a text names: in UTC, unless it names another zone."""
    found = datetime.fromisoformat(str(bound))
    return pa.scalar(found if found.tzinfo else found.replace(tzinfo=UTC), pa.timestamp("us", "UTC"))


def _claims(marks: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return _as_numpy(pc.fill_null(marks, False))


def _as_numpy(marks: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = marks.to_numpy(zero_copy_only=False)
    return found


def _reason(rule: RowRule) -> str:
    if rule.kind is RuleKind.RANGE:
        bounds = (("at least", rule.minimum), ("at most", rule.maximum))
        wanted = " and ".join(f"{words} {bound}" for words, bound in bounds if bound is not None)
        return f"{rule.column} is not {wanted}"
    broken = {RuleKind.NOT_NULL: "is null", RuleKind.UNIQUE: "is not unique"}
    return f"{rule.column} {broken.get(rule.kind, f'does not match {rule.pattern}')}"


def _failure(rejections: Sequence[Rejection]) -> TransformError:
    found = "; ".join(f"{len(each.positions):,} rows of a batch break a rule: {each.reason}" for each in rejections)
    remedy = "Correct the source or the rule. With on_error: reject, rows that break one are counted and left out."
    return TransformError(_DOING, found, remedy=remedy)


def _misfit(rule: RowRule, found: str, remedy: str = "") -> ConfigError:
    return ConfigError(f"planning the rule {rule.kind}", found, remedy=remedy)
