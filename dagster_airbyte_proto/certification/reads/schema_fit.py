"""Holds records to the JSON schema of their stream: types, required properties, dates and times.

jsonschema takes a tenth of a millisecond for a record. So it sees only records whose shape (the names and types of all
that they hold) has not been seen before; the ruling on a shape counts for every record that has it.
"""

import re
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from jsonschema import Draft7Validator, SchemaError, ValidationError, validators
from referencing import Registry
from referencing.exceptions import Unresolvable

from dagster_airbyte_proto.sync.connector.config_check import matches_pattern

_MAX_SHAPES = 50_000
_MAX_OUTLINE_CHARACTERS = 40
# Rules on values (a minimum, a pattern) cannot be told from a shape.
_RULES_ON_TYPES = frozenset(("type", "required", "anyOf", "oneOf"))
_DATE = r"\d{4,}-\d\d-\d\d"
_TIME = r"\d\d:\d\d:\d\d(\.\d+)?"
_ZONE = r" ?([Zz]|[+-]\d\d(:?\d\d)?)"
_FORMATS = {
    "date": re.compile(rf"{_DATE}( BC)?"),
    "date-time": re.compile(rf"{_DATE}[Tt ]{_TIME}({_ZONE})?( BC)?"),
    "time": re.compile(rf"{_TIME}({_ZONE})?"),
}


class Misfit(NamedTuple):
    """A value that does not fit. `found` outlines it: letters are shown as `a`, digits as `9`."""

    field: str
    fault: str
    found: str


class SchemaFit:
    """The schema of one stream. A schema that is not valid fits everything: another rule has it."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._shapes: dict[Hashable, tuple[ValidationError, ...]] = {}
        self._formats = tuple(_formats(schema))
        try:
            Draft7Validator.check_schema(schema)
            self._validator: Any = _Validator(schema, registry=Registry())
        except SchemaError:
            self._validator = None

    def misfits(self, record: Mapping[str, Any]) -> Iterator[Misfit]:
        shape = _shape(record)
        errors = self._shapes.get(shape)
        if errors is None:
            errors = self._errors(record)
            if len(self._shapes) < _MAX_SHAPES:
                self._shapes[shape] = errors
        for error in errors:
            yield _misfit(error, record)
        for name, wanted in self._formats:
            found = record.get(name)
            if isinstance(found, str) and not _FORMATS[wanted].fullmatch(found):
                yield Misfit(name, f"the schema says {wanted}", outline(found))

    def _errors(self, record: Mapping[str, Any]) -> tuple[ValidationError, ...]:
        if self._validator is None:
            return ()
        try:
            return tuple(each for each in self._validator.iter_errors(record) if each.validator in _RULES_ON_TYPES)
        except (Unresolvable, RecursionError, re.error):
            return ()


def _pattern(_: Any, pattern: str, found: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(found, str) and matches_pattern(pattern, found) is False:
        yield ValidationError("does not match the pattern")


def _pattern_properties(validator: Any, patterns: Any, found: Any, _: Any) -> Iterator[ValidationError]:
    for pattern, rule in patterns.items() if isinstance(found, dict) else ():
        for name, item in found.items():
            if matches_pattern(pattern, name):
                yield from validator.descend(item, rule, path=name, schema_path=pattern)


def _additional(validator: Any, rule: Any, found: Any, schema: Any) -> Iterator[ValidationError]:
    declared, patterns = schema.get("properties") or {}, schema.get("patternProperties") or {}
    for name, item in found.items() if isinstance(found, dict) else ():
        if name in declared or any(matches_pattern(each, name) is not False for each in patterns):
            continue
        if rule is False:
            yield ValidationError(f"{name} is not expected")
        elif isinstance(rule, dict):
            yield from validator.descend(item, rule, path=name)


# A connector's pattern must not take for ever: one that RE2 does not know fits everything.
_Validator: Any = validators.extend(  # type: ignore[no-untyped-call]  # jsonschema has no types for it
    Draft7Validator,
    {"pattern": _pattern, "patternProperties": _pattern_properties, "additionalProperties": _additional},
)


def outline(value: Any) -> str:
    """A value without its content: texts keep their form, containers their kind."""
    if isinstance(value, str):
        form = re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "9", value[:_MAX_OUTLINE_CHARACTERS]))
        return f'"{form}"' if len(value) <= _MAX_OUTLINE_CHARACTERS else f'"{form}…"'
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    return re.sub(r"\d", "9", str(value)[:_MAX_OUTLINE_CHARACTERS])


def _shape(value: Any) -> Hashable:
    if isinstance(value, dict):
        return tuple((name, _shape(item)) for name, item in value.items())
    if isinstance(value, list):
        return frozenset(map(_shape, value))
    # JSON Schema takes 1.0 for an integer.
    return "int" if isinstance(value, float) and value.is_integer() else type(value).__name__


def _formats(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    properties = schema.get("properties")
    for name, rule in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(rule, Mapping) and rule.get("format") in _FORMATS:
            yield name, rule["format"]


def _misfit(error: ValidationError, record: Any) -> Misfit:
    path = ".".join("*" if isinstance(part, int) else part for part in error.absolute_path)
    if error.validator == "required":
        # The message has the name of the property, and nothing of the record.
        return Misfit(path or "the record", error.message, outline(error.instance))
    if error.validator == "type":
        wanted: Any = error.validator_value
        words = wanted if isinstance(wanted, str) else " or ".join(map(str, wanted))
        return Misfit(path or "the record", f"the schema says {words}", outline(_at(record, error)))
    return Misfit(path or "the record", "it fits none of the schema's choices", outline(_at(record, error)))


def _at(record: Any, error: ValidationError) -> Any:
    """The value in this record, which has the shape of the one that was validated. Lists of one shape may differ."""
    for part in error.absolute_path:
        try:
            record = record[part]
        except (IndexError, KeyError):
            return error.instance
    return record
