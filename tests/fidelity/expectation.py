"""What a value that was sent should be in its table: written from the table of types alone, one value at a time.

Shares no code with staging, on purpose: it is slow, and plain enough to be believed.
"""

import base64
import binascii
import datetime as dt
import json
import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, NamedTuple

from dagster_airbyte_proto.schema.columns import ValueKind

NULLED = "NULLED"
TRUNCATED = "TRUNCATED"


class NotANumber:
    """NaN or an infinity, which some print as if it were JSON."""


class Expected(NamedTuple):
    """`change` is the entry that there must be; None: no entry."""

    value: Any
    change: str | None = None


_MISFIT = Expected(None, NULLED)
_LONGEST_INTEGER = 4000
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MIDNIGHT = re.compile(r"([T ]00:00(:00(\.0+)?)?(Z|[+-]00(:?00)?)?)?")
_CLOCK = r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?"
_ZONE = r"\s?(Z|UTC|GMT|[+\u2212-]\d\d(?::?\d\d)?)?(?:\[[\w/+-]+\])?"
_MOMENT = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)[T ]{_CLOCK}{_ZONE}", re.IGNORECASE)
_TIME = re.compile(rf"{_CLOCK}\s?(?:Z|[+-](\d\d)(?::?(\d\d))?)?", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_BROKEN = re.compile("[\udc80-\udcff]")
_WIDE = Context(prec=60, Emin=-999_999_999, Emax=999_999_999)


def parsed(text: str) -> Any:
    """JSON with every digit kept."""
    return json.loads(text, parse_float=Decimal, parse_int=_integer, parse_constant=lambda _: NotANumber())


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < _LONGEST_INTEGER else Decimal(digits)


def expected(sent: Any, kind: ValueKind) -> Expected:
    """A plain value, neither null nor inside of anything."""
    match kind:
        case ValueKind.JSON:
            return _MISFIT if _has(sent, (NotANumber,)) or _is_broken(sent) else Expected(sent)
        case ValueKind.STRING:
            return _string(sent)
        case ValueKind.BOOLEAN:
            return Expected(sent) if isinstance(sent, bool) else _MISFIT
        case ValueKind.INTEGER | ValueKind.BIG_INTEGER:
            return _whole(sent, kind)
        case ValueKind.NUMBER:
            return _real(sent)
        case ValueKind.DECIMAL:
            return _decimal(sent)
    return _of_text(sent, kind) if isinstance(sent, str) else _MISFIT


def _of_text(sent: str, kind: ValueKind) -> Expected:
    match kind:
        case ValueKind.DATE:
            return _date(sent)
        case ValueKind.TIME:
            padded = f"0{sent}" if sent[1:2] == ":" else sent
            return Expected(padded) if _is_time(padded) else _MISFIT
        case ValueKind.BINARY:
            return _binary(sent)
    return _moment(sent, is_local=kind is ValueKind.LOCAL_TIMESTAMP)


def _string(sent: Any) -> Expected:
    if isinstance(sent, str):
        return _MISFIT if _SURROGATE.search(sent) else Expected(sent)
    return expected(sent, ValueKind.JSON)


def _whole(sent: Any, kind: ValueKind) -> Expected:
    if kind is ValueKind.BIG_INTEGER and isinstance(sent, str) and re.fullmatch(r"[+-]?\d+", sent):
        sent = int(sent)
    if not _is_number(sent):
        return _MISFIT
    number = Decimal(sent)
    if number.adjusted() > 40 or number != number.to_integral_value(context=_WIDE):
        return _MISFIT
    if kind is ValueKind.BIG_INTEGER:
        return Expected(number) if abs(number) < Decimal(10) ** 38 else _MISFIT
    return Expected(int(number)) if -(1 << 63) <= number < 1 << 63 else _MISFIT


def _real(sent: Any) -> Expected:
    if not _is_number(sent):
        return _MISFIT
    number = float(str(sent))
    return _MISFIT if number in (float("inf"), float("-inf")) else Expected(number)


def _decimal(sent: Any) -> Expected:
    if not _is_number(sent) or Decimal(sent).adjusted() > 30:
        return _MISFIT
    number = Decimal(sent)
    if abs(number) >= Decimal(10) ** 29:
        return _MISFIT
    rounded = number.quantize(Decimal("1E-9"), ROUND_HALF_EVEN, _WIDE)
    return Expected(rounded, None if rounded == number else TRUNCATED)


def _date(sent: str) -> Expected:
    try:
        is_day = _DAY.fullmatch(sent[:10]) and _MIDNIGHT.fullmatch(sent[10:])
        return Expected(dt.date.fromisoformat(sent[:10])) if is_day else _MISFIT
    except ValueError:
        return _MISFIT


def _moment(sent: str, *, is_local: bool) -> Expected:
    match = _MOMENT.fullmatch(sent)
    if match is None:
        return _MISFIT
    year, month, day, hour, minute, second, digits, zone = match.groups()
    try:
        clock = (int(part) for part in (year, month, day, hour, minute, second or 0))
        moment = dt.datetime(*clock, microsecond=int((digits or "").ljust(6, "0")[:6]))  # type: ignore[misc, arg-type]  # six of them
        moment -= _shift(zone)
    except (ValueError, OverflowError):
        return _MISFIT
    if is_local and _shift(zone):
        return _MISFIT
    is_cut = bool((digits or "")[6:].strip("0"))
    return Expected(moment if is_local else moment.replace(tzinfo=dt.UTC), TRUNCATED if is_cut else None)


def _shift(zone: str | None) -> dt.timedelta:
    if zone is None or zone.upper() in ("Z", "UTC", "GMT"):
        return dt.timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError("no offset")
    shift = dt.timedelta(hours=hours, minutes=minutes)
    return shift if zone[0] == "+" else -shift


def _is_time(sent: str) -> bool:
    match = _TIME.fullmatch(sent)
    if match is None:
        return False
    hour, minute, second, _, offset_hour, offset_minute = match.groups()
    return all(
        int(part or 0) < limit
        for part, limit in ((hour, 24), (minute, 60), (second, 60), (offset_hour, 24), (offset_minute, 60))
    )


def _binary(sent: str) -> Expected:
    try:
        return Expected(base64.b64decode(sent.translate({10: None, 13: None}), validate=True))
    except (binascii.Error, ValueError):
        return _MISFIT


def _is_number(sent: Any) -> bool:
    return isinstance(sent, int | Decimal) and not isinstance(sent, bool)


def _has(sent: Any, kinds: tuple[type, ...]) -> bool:
    if isinstance(sent, dict):
        return any(_has(each, kinds) for each in sent.values())
    return any(_has(each, kinds) for each in sent) if isinstance(sent, list) else isinstance(sent, kinds)


def _is_broken(sent: Any) -> bool:
    """Bytes that are no UTF-8. Half a surrogate pair that is spelled out is JSON, and lands as it is spelled."""
    if isinstance(sent, dict):
        return any(_is_broken(name) or _is_broken(each) for name, each in sent.items())
    if isinstance(sent, list):
        return any(map(_is_broken, sent))
    return isinstance(sent, str) and bool(_BROKEN.search(sent))


def alike(one: Any, other: Any) -> bool:
    """Equal, and of one kind: True is not 1 and no text is a number."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    kinds = [
        bool if isinstance(each, bool) else int if isinstance(each, int | float | Decimal) else type(each)
        for each in (one, other)
    ]
    return kinds[0] is kinds[1] and bool(one == other)
