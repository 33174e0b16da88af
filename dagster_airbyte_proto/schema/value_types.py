"""Derives value types from JSON Schema as sources write it: draft 4 to 2020-12, and OpenAPI's `nullable`.

- Values whose type a schema leaves open are JSON text: unions, arrays of unknown items, unknown types.
- Nothing here fails on an odd schema.
- Every schema ends: a reference that leads back to itself, nesting beyond `_MAX_DEPTH` and a schema of more than
  `_MAX_PARTS` parts all become JSON text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dagster_airbyte_proto.json_references import referenced_schema
from dagster_airbyte_proto.model import (
    ColumnName,
    FieldPath,
    IntegersAs,
    NumbersAs,
    ObjectsAs,
    PlannedStream,
    TypeChoices,
)
from dagster_airbyte_proto.schema.columns import Member, ValueKind, ValueType
from dagster_airbyte_proto.schema.names import unique_names

Schema = Mapping[str, Any]
_MemberNames = Mapping[FieldPath, Mapping[str, str]]
"""The names that the members of each object have had before, by their names in the source."""

JSON = ValueType(ValueKind.JSON)
_PLAIN = TypeChoices()
_NO_NAMES: _MemberNames = {}
_MAX_DEPTH = 32
_MAX_PARTS = 10_000
_STRING_FORMATS = {"date": ValueKind.DATE, "date-time": ValueKind.TIMESTAMP, "time": ValueKind.TIME}
_AIRBYTE_TYPES = {
    "timestamp_with_timezone": ValueKind.TIMESTAMP,
    "timestamp_without_timezone": ValueKind.LOCAL_TIMESTAMP,
    "time_with_timezone": ValueKind.TIME,
    "time_without_timezone": ValueKind.TIME,
    "integer": ValueKind.INTEGER,
    "big_integer": ValueKind.BIG_INTEGER,
}
# The protocol's version 1 refers to types by name instead of spelling them out.
_WELL_KNOWN = {
    "String": ValueKind.STRING,
    "BinaryData": ValueKind.BINARY,
    "Date": ValueKind.DATE,
    "TimestampWithTimezone": ValueKind.TIMESTAMP,
    "TimestampWithoutTimezone": ValueKind.LOCAL_TIMESTAMP,
    "TimeWithTimezone": ValueKind.TIME,
    "TimeWithoutTimezone": ValueKind.TIME,
    "Number": ValueKind.NUMBER,
    "Integer": ValueKind.INTEGER,
    "Boolean": ValueKind.BOOLEAN,
}
# `multipleOf` one of these is numeric(p, s) of a database. No double holds all such numbers, and decimal(38, 9) does.
_EXACT_STEPS = tuple(float(f"1e-{digits}") for digits in range(1, 10))
_UNIONS = ("oneOf", "anyOf")
_TEXT_KINDS = {
    ValueKind.STRING,
    ValueKind.DATE,
    ValueKind.TIME,
    ValueKind.TIMESTAMP,
    ValueKind.LOCAL_TIMESTAMP,
    ValueKind.BINARY,
}
_NUMBER_KINDS = {ValueKind.INTEGER, ValueKind.BIG_INTEGER, ValueKind.NUMBER, ValueKind.DECIMAL}
# Keywords that imply a type in a schema without `type`.
_IMPLYING_KEYWORDS = {
    "object": ("properties", "patternProperties", "additionalProperties", "required"),
    "array": ("items", "prefixItems", "additionalItems"),
}


class _Route(NamedTuple):
    """The route to a part of the schema: the references that were followed, the depth, and the path in a record."""

    references: frozenset[str] = frozenset()
    depth: int = 0
    path: FieldPath = ()

    def deeper(self) -> "_Route":
        return self._replace(depth=self.depth + 1)

    def member(self, name: str) -> "_Route":
        return self.deeper()._replace(path=(*self.path, name))


class _FlatSchema(NamedTuple):
    """A schema whose `allOf` and references into the document are merged into it."""

    schema: Schema
    route: _Route


def value_type(schema: Any, root: Schema, choices: TypeChoices = _PLAIN) -> ValueType:
    """Returns the type of the values of a (sub)schema. References start at `root`."""
    return _Reader(root, choices).type_of(schema, _Route())


def field_types(properties: Mapping[str, Any], planned: PlannedStream) -> Sequence[ValueType]:
    """Returns the types of fields of the stream's records. Members of objects keep the names that they had before."""
    root, member_names = planned.stream.json_schema, _by_object(planned.member_names)
    return [
        _Reader(root, planned.types, member_names).type_of(schema, _Route(path=(name,)))
        for name, schema in properties.items()
    ]


def declared_properties(schema: Any, root: Schema) -> Mapping[str, Any]:
    """Returns the properties that a (sub)schema declares, also by a reference, in `allOf`, or in an alternative."""
    return _Reader(root, _PLAIN).properties(schema, _Route())


class _Reader:
    """Reads one part of a document. Its budget of parts is for that part alone."""

    def __init__(self, root: Schema, choices: TypeChoices, member_names: _MemberNames = _NO_NAMES) -> None:
        self._root, self._choices, self._member_names = root, choices, member_names
        self._parts_left = _MAX_PARTS

    def type_of(self, schema: Any, route: _Route) -> ValueType:
        flat = self._flatten(schema, route)
        if flat is None:
            return JSON
        known = _WELL_KNOWN.get(str(flat.schema.get("$ref", "")).rpartition("/")[2])
        if known is not None:
            return self._with_choices(known)
        alternatives = _alternatives(flat.schema)
        return self._type_named(flat) if alternatives is None else self._union(alternatives, flat.route)

    def properties(self, schema: Any, route: _Route) -> Mapping[str, Any]:
        flat = self._flatten(schema, route)
        if flat is None:
            return {}
        found = dict(_mapping(flat.schema.get("properties")))
        own = frozenset(found)
        for alternative in _parts_of(flat.schema, _UNIONS):
            for name, each in self.properties(alternative, flat.route.deeper()).items():
                if name not in own:
                    found[name] = {"anyOf": [found[name], each]} if name in found else each
        return found

    def _type_named(self, flat: _FlatSchema) -> ValueType:
        types = _types(flat.schema)
        match tuple(sorted((types or frozenset()) - {"null"})):
            case ("string",):
                return self._with_choices(_string_kind(flat.schema))
            case ("boolean",):
                return ValueType(ValueKind.BOOLEAN)
            case ("integer",):
                return self._with_choices(_number_kind(flat.schema, ValueKind.INTEGER))
            case ("number",) | ("integer", "number"):
                return self._with_choices(_number_kind(flat.schema, ValueKind.NUMBER))
            case ("array",):
                return self._array(flat)
            case ("object",):
                return self._object(flat)
            case _:
                return JSON

    def _with_choices(self, kind: ValueKind) -> ValueType:
        if kind is ValueKind.INTEGER and self._choices.integers is IntegersAs.DECIMAL:
            return ValueType(ValueKind.BIG_INTEGER)
        if kind is ValueKind.NUMBER and self._choices.numbers is NumbersAs.DECIMAL:
            return ValueType(ValueKind.DECIMAL)
        return ValueType(kind)

    def _array(self, flat: _FlatSchema) -> ValueType:
        items, first = flat.schema.get("items"), flat.schema.get("prefixItems")
        parts = [*_sequence(first), *_sequence(items)]
        for rest in (items, flat.schema.get("additionalItems") if _sequence(items) else None):
            if isinstance(rest, Mapping) and rest:
                parts.append(rest)
        if not parts:
            return JSON
        item = self._union(parts, flat.route.deeper())
        return item._replace(depth=item.depth + 1)

    def _object(self, flat: _FlatSchema) -> ValueType:
        """Returns a struct only if every member that the object may have is declared."""
        properties = _mapping(flat.schema.get("properties"))
        is_open = any(_mapping(flat.schema.get(word)) for word in ("additionalProperties", "patternProperties"))
        if self._choices.objects is not ObjectsAs.STRUCT or is_open or not properties:
            return JSON
        assigned = self._member_names.get(flat.route.path)
        names = unique_names(((name, name) for name in properties), assigned=assigned, follow_case_changes=True)
        members = [
            Member(name, source, self.type_of(schema, flat.route.member(source)))
            for name, (source, schema) in zip(names, properties.items(), strict=True)
        ]
        return ValueType(ValueKind.STRUCT, members=tuple(members))

    def _union(self, alternatives: Sequence[Any], route: _Route) -> ValueType:
        """Returns the common type of the alternatives, ignoring null. JSON text if there is none."""
        found: dict[ValueType, None] = {}
        for alternative in alternatives:
            flat = self._flatten(alternative, route.deeper())
            if flat is None:
                return JSON
            if _types(flat.schema) != frozenset(["null"]):
                found[self.type_of(flat.schema, flat.route)] = None
        if len(found) == 1:
            return next(iter(found))
        return self._common([*found])

    def _common(self, types: Sequence[ValueType]) -> ValueType:
        kinds = {each.kind for each in types}
        if not types or any(each.depth for each in types):
            return JSON
        if kinds <= _TEXT_KINDS:
            return ValueType(ValueKind.STRING)
        if kinds <= {ValueKind.INTEGER, ValueKind.BIG_INTEGER}:
            return ValueType(ValueKind.BIG_INTEGER)
        return self._with_choices(ValueKind.NUMBER) if kinds <= _NUMBER_KINDS else JSON

    def _flatten(self, schema: Any, route: _Route) -> _FlatSchema | None:
        """Merges references and `allOf`. Returns None for a schema that is endless or too large."""
        self._parts_left -= 1
        if self._parts_left < 0 or route.depth > _MAX_DEPTH:
            return None
        schema = _mapping(schema)
        if "$ref" not in schema and "allOf" not in schema:
            return _FlatSchema(schema, route)
        parts = list(_sequence(schema.get("allOf")))
        merged = {name: value for name, value in schema.items() if name != "allOf"}
        references = route.references
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            if reference in references:
                return None
            references |= {reference}
            del merged["$ref"]
            parts.insert(0, referenced_schema(self._root, reference))
        seen = references
        for part in parts:
            flat = self._flatten(part, _Route(references, route.depth + 1))
            if flat is None:
                return None
            merged = _merged(merged, flat.schema)
            seen |= flat.route.references
        return _FlatSchema(merged, route._replace(references=seen))


def _by_object(member_names: Iterable[ColumnName]) -> _MemberNames:
    found: dict[FieldPath, dict[str, str]] = {}
    for path, name in member_names:
        found.setdefault(path[:-1], {})[path[-1]] = name
    return found


def _alternatives(schema: Schema) -> list[Any] | None:
    """Returns the alternatives of a union, each combined with the keywords around it. None if it is no union."""
    for union in _UNIONS:
        if union in schema and (parts := _sequence(schema[union])):
            around = {name: value for name, value in schema.items() if name != union}
            return [{**around, "allOf": [part]} for part in parts]
    return None


def _merged(one: Schema, other: Schema) -> dict[str, Any]:
    """Merges two schemas: the types in common, and all properties. For other keywords the first schema wins."""
    both = {**other, **one}
    if "type" in one and "type" in other:
        both["type"] = _common_types(_types(one) or frozenset(), _types(other) or frozenset())
    properties, others = _mapping(one.get("properties")), _mapping(other.get("properties"))
    if others:
        shared = {name: {"allOf": [properties[name], others[name]]} for name in properties.keys() & others.keys()}
        both["properties"] = {**properties, **others, **shared}
    items, other_items = one.get("items"), other.get("items")
    if isinstance(items, Mapping) and isinstance(other_items, Mapping):
        both["items"] = {"allOf": [items, other_items]}
    return both


def _common_types(one: frozenset[str], other: frozenset[str]) -> list[str]:
    """Returns the types that both allow. An integer is a number too."""
    wide = [types | ({"integer"} if "number" in types else set()) for types in (one, other)]
    return sorted((one | other) & wide[0] & wide[1])


def _types(schema: Schema) -> frozenset[str] | None:
    """Returns the JSON types that a schema names or implies. None if it may be anything."""
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset([_type_name(declared)])
    if isinstance(declared, list | tuple):
        return frozenset(_type_name(each) for each in declared if isinstance(each, str))
    if "const" in schema:
        return frozenset([_type_of_value(schema["const"])])
    if values := _sequence(schema.get("enum")):
        return frozenset(map(_type_of_value, values))
    for name, words in _IMPLYING_KEYWORDS.items():
        if any(word in schema for word in words):
            return frozenset([name])
    return _types_by_format(schema)


def _types_by_format(schema: Schema) -> frozenset[str] | None:
    declared = _AIRBYTE_TYPES.get(str(schema.get("airbyte_type")))
    if declared in _NUMBER_KINDS:
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


def _number_kind(schema: Schema, plain: ValueKind) -> ValueKind:
    declared = _AIRBYTE_TYPES.get(str(schema.get("airbyte_type")), plain)
    if declared in (ValueKind.INTEGER, ValueKind.BIG_INTEGER):
        return declared
    return ValueKind.DECIMAL if plain is ValueKind.NUMBER and schema.get("multipleOf") in _EXACT_STEPS else plain


def _string_kind(schema: Schema) -> ValueKind:
    if schema.get("contentEncoding") == "base64":
        return ValueKind.BINARY
    by_format = _STRING_FORMATS.get(str(schema.get("format")), ValueKind.STRING)
    declared = _AIRBYTE_TYPES.get(str(schema.get("airbyte_type")), by_format)
    return by_format if declared is ValueKind.INTEGER else declared


def _parts_of(schema: Schema, words: Iterable[str]) -> list[Any]:
    return [part for word in words for part in _sequence(schema.get(word))]


def _mapping(value: Any) -> Schema:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
