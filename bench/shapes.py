"""The streams that the benchmarks read: a small shop, and wide streams of any number of columns.

A column is a piece of template and the pools that fill it. Pools are repeated; their lengths are different primes, so
that columns of several pools repeat only after millions of records.
"""

import json
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

Pool = Sequence[int] | Sequence[str] | Sequence[int | str] | Sequence[list[str]]

_SYLLABLES = ("ka", "lo", "mi", "ren", "tas", "vel", "dor", "bri", "gal", "sho", "pen", "ter", "ion", "zé", "ström")
_EPOCH_DAYS = [
    f"20{year:02d}-{month:02d}-{day:02d}" for year in (24, 25) for month in range(1, 13) for day in (3, 11, 27)
]

_MISFITS = {"integer": '"n/a"', "boolean": '"maybe"', "date-time": "soon, "}
"""By the kind of a column: what takes the place of its first pool's value."""


class Leaf(NamedTuple):
    """A column of one value. `template` has one `%s` for each pool; together they are JSON."""

    name: str
    schema: dict[str, Any]
    template: str
    pools: tuple[Pool, ...]


class Group(NamedTuple):
    """A column that is an object."""

    name: str
    columns: tuple[Leaf, ...]

    @property
    def schema(self) -> dict[str, Any]:
        properties = {column.name: column.schema for column in self.columns}
        return {"type": ["null", "object"], "properties": properties}


class StreamShape(NamedTuple):
    name: str
    columns: tuple[Leaf | Group, ...]

    @property
    def json_schema(self) -> dict[str, Any]:
        return {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {column.name: column.schema for column in self.columns},
        }


def shop(names: int = 3) -> list[StreamShape]:
    """`users` with an object, `purchases` with an array and nulls, `products` with long text; then the same again."""
    draw = random.Random(470)
    shapes = (("users", _users(draw)), ("purchases", _purchases(draw)), ("products", _products(draw)))
    return [
        StreamShape(shapes[i % 3][0] if i < 3 else f"{shapes[i % 3][0]}_{i // 3}", shapes[i % 3][1])
        for i in range(names)
    ]


def wide(names: int, columns: int) -> list[StreamShape]:
    """Streams of `columns` columns each: a key, then every kind of scalar in turn."""
    draw = random.Random(500)
    made: list[Leaf | Group] = [_key("id")]
    kinds = (_integer, _number, _word, _flag, _moment)
    made += [kinds[i % len(kinds)](draw, f"column_{i:03d}") for i in range(columns - 1)]
    return [StreamShape("wide" if i == 0 else f"wide_{i}", tuple(made)) for i in range(names)]


def unruly(shape: StreamShape, share: float) -> StreamShape:
    """The same stream where that share of the records has a value that does not fit: of three kinds, one a record."""
    every = round(len(_MISFITS) / share)
    left = {kind: (value, place * every // len(_MISFITS)) for place, (kind, value) in enumerate(_MISFITS.items())}

    def column(leaf: Leaf | Group) -> Leaf | Group:
        if isinstance(leaf, Group) or (misfit := left.pop(_kind(leaf), None)) is None:
            return leaf
        value, first = misfit
        pool = [
            value if number % every == first else fitting for number, fitting in enumerate([*leaf.pools[0]] * every)
        ]
        return leaf._replace(pools=(pool, *leaf.pools[1:]))

    return shape._replace(columns=tuple(map(column, shape.columns)))


def _kind(leaf: Leaf) -> str:
    """Nothing for a key."""
    return str(leaf.schema.get("format") or leaf.schema["type"][1]) if leaf.schema["type"] != "integer" else ""


def _users(draw: random.Random) -> tuple[Leaf | Group, ...]:
    parts = "street_number", "street_name", "city", "state", "province", "postal_code", "country_code"
    return (
        _key("id"),
        _word(draw, "name", syllables=5),
        _email(draw),
        _word(draw, "nickname", missing=0.3),
        _integer(draw, "age"),
        _number(draw, "score"),
        _flag(draw, "is_active"),
        Group("address", tuple(_word(draw, part) for part in parts)),
        _moment(draw, "created_at"),
        _moment(draw, "updated_at"),
    )


def _purchases(draw: random.Random) -> tuple[Leaf | Group, ...]:
    return (
        _key("id"),
        _integer(draw, "user_id"),
        _integer(draw, "product_id"),
        _integer(draw, "quantity"),
        _number(draw, "amount"),
        _number(draw, "tax"),
        _flag(draw, "is_gift"),
        _word(draw, "channel"),
        _word(draw, "note", syllables=16, missing=0.2),
        _tags(draw),
        _moment(draw, "added_to_cart_at"),
        _moment(draw, "purchased_at"),
        _moment(draw, "updated_at"),
    )


def _products(draw: random.Random) -> tuple[Leaf | Group, ...]:
    return (
        _key("id"),
        _word(draw, "make"),
        _word(draw, "model", syllables=4),
        _integer(draw, "year"),
        _number(draw, "price"),
        _number(draw, "weight_kilograms"),
        _flag(draw, "is_in_stock"),
        _word(draw, "description", syllables=54),
        _moment(draw, "created_at"),
        _moment(draw, "updated_at"),
    )


def _key(name: str) -> Leaf:
    return Leaf(name, {"type": "integer"}, "%s", (range(1, 10**15),))


def _integer(draw: random.Random, name: str) -> Leaf:
    return Leaf(name, {"type": ["null", "integer"]}, "%s", (_numbers(draw, 100_000),))


def _number(draw: random.Random, name: str) -> Leaf:
    pools = _numbers(draw, 1_000), [f"{n:02d}" for n in _numbers(draw, 100) if n % 10]
    return Leaf(name, {"type": ["null", "number"]}, "%s.%s", pools)


def _flag(draw: random.Random, name: str) -> Leaf:
    return Leaf(name, {"type": ["null", "boolean"]}, "%s", (draw.choices(["true", "false"], k=_length(draw)),))


def _word(draw: random.Random, name: str, syllables: int = 3, missing: float = 0.0) -> Leaf:
    texts = [_text(draw, syllables) for _ in range(_length(draw))]
    pool = ["null" if draw.random() < missing else json.dumps(text, ensure_ascii=False) for text in texts]
    return Leaf(name, {"type": ["null", "string"]}, "%s", (pool,))


def _email(draw: random.Random) -> Leaf:
    pools = [_text(draw, 2) for _ in range(_length(draw))], _numbers(draw, 10_000)
    return Leaf("email", {"type": ["null", "string"]}, '"%s.%s@example.com"', pools)


def _tags(draw: random.Random) -> Leaf:
    pool = [[_text(draw, 2) for _ in range(draw.randrange(5))] for _ in range(_length(draw))]
    return Leaf("tags", {"type": ["null", "array"], "items": {"type": ["null", "string"]}}, "%s", (pool,))


def _moment(draw: random.Random, name: str) -> Leaf:
    clocks = [
        f"{draw.randrange(24):02d}:{draw.randrange(60):02d}:{draw.randrange(60):02d}" for _ in range(_length(draw))
    ]
    micros = [f"{n:06d}" for n in _numbers(draw, 1_000_000)]
    days = draw.sample(_EPOCH_DAYS, 67)
    schema = {"type": ["null", "string"], "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
    return Leaf(name, schema, '"%sT%s.%s+00:00"', (days, clocks, micros))


def _numbers(draw: random.Random, below: int) -> list[int]:
    return [draw.randrange(below) for _ in range(_length(draw))]


def _text(draw: random.Random, syllables: int) -> str:
    """Words as data has them: mostly ASCII, some accents, now and then a quote or a line break to escape."""
    text = "".join(draw.choice(_SYLLABLES) + (" " if draw.random() < 0.2 else "") for _ in range(syllables)).strip()
    return text + draw.choice(('"', "\n", "\\")) if syllables > 10 and draw.random() < 0.05 else text


def _length(draw: random.Random) -> int:
    return draw.choice((1009, 1451, 1999, 2503, 3001, 4001))
