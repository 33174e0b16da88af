"""What the values of a (sub)schema are: JSON Schema as sources write it, draft 4 to 2020-12 and OpenAPI's `nullable`.

What a schema leaves open is JSON text: unions, arrays of unknown items, anything unknown, anything without an end.
Nothing here fails on a schema that is odd, and nothing runs on for ever: a reference that leads back to itself, nesting
beyond `_DEEPEST` and a schema of more than `_MOST_PARTS` parts all end in JSON text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dagster_airbyte_proto.model import IntegersAs, NumbersAs, ObjectsAs, TypeChoices
from dagster_airbyte_proto.references import schema_at
from dagster_airbyte_proto.schema.columns import Kind, Member, ValueType
from dagster_airbyte_proto.schema.names import unique_names

Schema = Mapping[str, Any]

JSON = ValueType(Kind.JSON)
_PLAIN = TypeChoices()
_DEEPEST = 32
_MOST_PARTS = 10_000
_STRING_FORMATS = {"date": Kind.DATE, "date-time": Kind.TIMESTAMP, "time": Kind.TIME}
_AIRBYTE_TYPES = {
    "timestamp_with_timezone": Kind.TIMESTAMP,
    "timestamp_without_timezone": Kind.LOCAL_TIMESTAMP,
    "time_with_timezone": Kind.TIME,
    "time_without_timezone": Kind.TIME,
    "integer": Kind.INTEGER,
    "big_integer": Kind.BIG_INTEGER,
}
# The protocol's version 1 refers to types by name instead of spelling them out.
_WELL_KNOWN = {
    "String": Kind.STRING,
    "BinaryData": Kind.BINARY,
    "Date": Kind.DATE,
    "TimestampWithTimezone": Kind.TIMESTAMP,
    "TimestampWithoutTimezone": Kind.LOCAL_TIMESTAMP,
    "TimeWithTimezone": Kind.TIME,
    "TimeWithoutTimezone": Kind.TIME,
    "Number": Kind.NUMBER,
    "Integer": Kind.INTEGER,
    "Boolean": Kind.BOOLEAN,
}
# Multiples of these are what databases call numeric(p, s): no double holds them all, and a decimal of ours does.
_EXACT_STEPS = tuple(float(f"1e-{digits}") for digits in range(1, 10))
_UNIONS = ("oneOf", "anyOf")
_TEXTS = {Kind.STRING, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.LOCAL_TIMESTAMP, Kind.BINARY}
_NUMBERS = {Kind.INTEGER, Kind.BIG_INTEGER, Kind.NUMBER, Kind.DECIMAL}
# By what a schema without `type` still says which type it means.
_TELLING = {
    "object": ("properties", "patternProperties", "additionalProperties", "required"),
    "array": ("items", "prefixItems", "additionalItems"),
}


class _Way(NamedTuple):
    """How a part of the schema was reached: the references that were followed, and how deep it lies."""

    references: frozenset[str] = frozenset()
    depth: int = 0

    def deeper(self) -> "_Way":
        return self._replace(depth=self.depth + 1)


class _Flat(NamedTuple):
    """A schema without `allOf` and without references into the document: what they bring is merged in."""

    schema: Schema
    way: _Way


def value_type(schema: Any, root: Schema, choices: TypeChoices = _PLAIN) -> ValueType:
    """What the values of a (sub)schema are. References start at `root`."""
    return _Reader(root, choices).type_of(schema, _Way())


def declared_properties(schema: Any, root: Schema) -> Mapping[str, Any]:
    """The properties that a (sub)schema declares, also by a reference, in `allOf`, or in one of its alternatives."""
    return _Reader(root, _PLAIN).properties(schema, _Way())


class _Reader:
    """Reads one part of a document; for the next part there is a new one."""

    def __init__(self, root: Schema, choices: TypeChoices) -> None:
        self._root = root
        self._choices = choices
        self._parts_left = _MOST_PARTS

    def type_of(self, schema: Any, way: _Way) -> ValueType:
        flat = self._flat(schema, way)
        if flat is None:
            return JSON
        known = _WELL_KNOWN.get(str(flat.schema.get("$ref", "")).rpartition("/")[2])
        if known is not None:
            return self._chosen(known)
        alternatives = _alternatives(flat.schema)
        return self._type_named(flat) if alternatives is None else self._union(alternatives, flat.way)

    def properties(self, schema: Any, way: _Way) -> Mapping[str, Any]:
        flat = self._flat(schema, way)
        if flat is None:
            return {}
        found = dict(_mapping(flat.schema.get("properties")))
        own = frozenset(found)
        for alternative in _listed(flat.schema, _UNIONS):
            for name, each in self.properties(alternative, flat.way.deeper()).items():
                if name not in own:
                    found[name] = {"anyOf": [found[name], each]} if name in found else each
        return found

    def _type_named(self, flat: _Flat) -> ValueType:
        types = _types(flat.schema)
        match tuple(sorted((types or frozenset()) - {"null"})):
            case ("string",):
                return self._chosen(_string_kind(flat.schema))
            case ("boolean",):
                return ValueType(Kind.BOOLEAN)
            case ("integer",):
                return self._chosen(_number_kind(flat.schema, Kind.INTEGER))
            case ("number",) | ("integer", "number"):
                return self._chosen(_number_kind(flat.schema, Kind.NUMBER))
            case ("array",):
                return self._array(flat)
            case ("object",):
                return self._object(flat)
            case _:
                return JSON

    def _chosen(self, kind: Kind) -> ValueType:
        if kind is Kind.INTEGER and self._choices.integers is IntegersAs.DECIMAL:
            return ValueType(Kind.BIG_INTEGER)
        if kind is Kind.NUMBER and self._choices.numbers is NumbersAs.DECIMAL:
            return ValueType(Kind.DECIMAL)
        return ValueType(kind)

    def _array(self, flat: _Flat) -> ValueType:
        items, first = flat.schema.get("items"), flat.schema.get("prefixItems")
        parts = [*_sequence(first), *_sequence(items)]
        for rest in (items, flat.schema.get("additionalItems") if _sequence(items) else None):
            if isinstance(rest, Mapping) and rest:
                parts.append(rest)
        if not parts:
            return JSON
        item = self._union(parts, flat.way.deeper())
        return item._replace(depth=item.depth + 1)

    def _object(self, flat: _Flat) -> ValueType:
        """A struct only where all that such an object may hold has a name."""
        if self._choices.objects is ObjectsAs.VARIANT:
            return ValueType(Kind.VARIANT)
        properties = _mapping(flat.schema.get("properties"))
        is_open = any(_mapping(flat.schema.get(word)) for word in ("additionalProperties", "patternProperties"))
        if self._choices.objects is not ObjectsAs.STRUCT or is_open or not properties:
            return JSON
        names = unique_names((name, name) for name in properties)
        members = [
            Member(name, source, self.type_of(schema, flat.way.deeper()))
            for name, (source, schema) in zip(names, properties.items(), strict=True)
        ]
        return ValueType(Kind.STRUCT, members=tuple(members))

    def _union(self, alternatives: Sequence[Any], way: _Way) -> ValueType:
        """The one type of several alternatives, not counting null; JSON text where they have no type in common."""
        found: dict[ValueType, None] = {}
        for alternative in alternatives:
            flat = self._flat(alternative, way.deeper())
            if flat is None:
                return JSON
            if _types(flat.schema) != frozenset(["null"]):
                found[self.type_of(flat.schema, flat.way)] = None
        if len(found) == 1:
            return next(iter(found))
        return self._common([*found])

    def _common(self, types: Sequence[ValueType]) -> ValueType:
        kinds = {each.kind for each in types}
        if not types or any(each.depth for each in types):
            return JSON
        if kinds <= _TEXTS:
            return ValueType(Kind.STRING)
        if kinds <= {Kind.INTEGER, Kind.BIG_INTEGER}:
            return ValueType(Kind.BIG_INTEGER)
        return self._chosen(Kind.NUMBER) if kinds <= _NUMBERS else JSON

    def _flat(self, schema: Any, way: _Way) -> _Flat | None:
        """None for what has no end, or none within reason."""
        self._parts_left -= 1
        if self._parts_left < 0 or way.depth > _DEEPEST:
            return None
        schema = _mapping(schema)
        if "$ref" not in schema and "allOf" not in schema:
            return _Flat(schema, way)
        parts = list(_sequence(schema.get("allOf")))
        merged = {name: value for name, value in schema.items() if name != "allOf"}
        references = way.references
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            if reference in references:
                return None
            references |= {reference}
            del merged["$ref"]
            parts.insert(0, schema_at(self._root, reference))
        seen = references
        for part in parts:
            flat = self._flat(part, _Way(references, way.depth + 1))
            if flat is None:
                return None
            merged = _merged(merged, flat.schema)
            seen |= flat.way.references
        return _Flat(merged, _Way(seen, way.depth))


def _alternatives(schema: Schema) -> list[Any] | None:
    """What a union may be, each with what its surroundings say. None where it is no union."""
    for union in _UNIONS:
        if union in schema and (parts := _sequence(schema[union])):
            around = {name: value for name, value in schema.items() if name != union}
            return [{**around, "allOf": [part]} for part in parts]
    return None


def _merged(one: Schema, other: Schema) -> dict[str, Any]:
    """What is said of both: types in common, all properties. What cannot be merged is said by the first."""
    both = {**other, **one}
    if "type" in one and "type" in other:
        both["type"] = _common_types(_types(one) or frozenset(), _types(other) or frozenset())
    properties, others = _mapping(one.get("properties")), _mapping(other.get("properties"))
    if properties and others:
        shared = {name: {"allOf": [properties[name], others[name]]} for name in properties.keys() & others.keys()}
        both["properties"] = {**properties, **others, **shared}
    items, other_items = one.get("items"), other.get("items")
    if isinstance(items, Mapping) and isinstance(other_items, Mapping):
        both["items"] = {"allOf": [items, other_items]}
    return both


def _common_types(one: frozenset[str], other: frozenset[str]) -> list[str]:
    """A whole number is a number too."""
    wide = [types | ({"integer"} if "number" in types else set()) for types in (one, other)]
    return sorted((one | other) & wide[0] & wide[1])


def _types(schema: Schema) -> frozenset[str] | None:
    """The JSON types that it names, or that it plainly means; None where it may be anything."""
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset([_type_name(declared)])
    if isinstance(declared, list | tuple):
        return frozenset(_type_name(each) for each in declared if isinstance(each, str))
    if "const" in schema:
        return frozenset([_type_of_value(schema["const"])])
    if values := _sequence(schema.get("enum")):
        return frozenset(map(_type_of_value, values))
    for name, words in _TELLING.items():
        if any(word in schema for word in words):
            return frozenset([name])
    return _types_by_format(schema)


def _types_by_format(schema: Schema) -> frozenset[str] | None:
    declared = _AIRBYTE_TYPES.get(str(schema.get("airbyte_type")))
    if declared in _NUMBERS:
        return frozenset(["integer"])
    is_text = declared or schema.get("contentEncoding") == "base64" or str(schema.get("format")) in _STRING_FORMATS
    return frozenset(["string"]) if is_text else None


def _type_name(declared: str) -> str:
    return "integer" if declared == "int" else declared


def _type_of_value(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case _:
            return "object" if isinstance(value, Mapping) else "array"


def _number_kind(schema: Schema, plain: Kind) -> Kind:
    declared = _AIRBYTE_TYPES.get(str(schema.get("airbyte_type")), plain)
    if declared in (Kind.INTEGER, Kind.BIG_INTEGER):
        return declared
    return Kind.DECIMAL if plain is Kind.NUMBER and schema.get("multipleOf") in _EXACT_STEPS else plain


def _string_kind(schema: Schema) -> Kind:
    if schema.get("contentEncoding") == "base64":
        return Kind.BINARY
    by_format = _STRING_FORMATS.get(str(schema.get("format")), Kind.STRING)
    declared = _AIRBYTE_TYPES.get(str(schema.get("airbyte_type")), by_format)
    return by_format if declared is Kind.INTEGER else declared


def _listed(schema: Schema, words: Iterable[str]) -> list[Any]:
    return [part for word in words for part in _sequence(schema.get(word))]


def _mapping(value: Any) -> Schema:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
