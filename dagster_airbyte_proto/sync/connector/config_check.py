"""Checks a config against the connector's own spec before the connector is started.

A fault never shows the value that was found, only what is allowed in its place: any value may be secret.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft7Validator, SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from dagster_airbyte_proto.connection.faults import (
    Fault,
    KeyPath,
    config_error,
    kind_of,
    nearest,
    not_allowed,
    type_words,
    unknown_key,
)


def check_config(config: Mapping[str, Any], spec_schema: Any, *, where: str) -> tuple[str, ...]:
    """Raises ConfigError with every fault and its path. Returns warnings.

    A spec that is no valid JSON Schema is only a warning: the connector itself then judges the config.
    """
    try:
        if not isinstance(spec_schema, Mapping):
            return (f"{where} was not checked: the connector's spec is {kind_of(spec_schema)}, not a JSON schema",)
        Draft7Validator.check_schema(spec_schema)
        # The empty registry keeps a "$ref" to some URL from being fetched.
        validator = Draft7Validator(spec_schema, registry=Registry())
        faults = list(dict.fromkeys(fault for error in validator.iter_errors(config) for fault in _faults(error)))
    except (SchemaError, Unresolvable, re.error, RecursionError) as error:
        reason = error.message if isinstance(error, SchemaError) else str(error)
        return (f"{where} was not checked: the connector's spec is not a valid JSON schema ({reason[:200]})",)
    if faults:
        raise config_error(where, sorted(faults, key=lambda fault: [str(part) for part in fault.path]))
    return ()


_BOUNDS = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be more than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "minProperties": "must have at least {} keys",
    "maxProperties": "must have at most {} keys",
    "format": "must have the format {}",
}


def _expected(error: ValidationError) -> Any:
    """The value of the schema's rule. jsonschema types it as possibly unset, which it never is here."""
    return error.validator_value


def _found(error: ValidationError) -> Any:
    return error.instance


def _faults(error: ValidationError) -> Iterator[Fault]:
    path: KeyPath = tuple(error.absolute_path)
    rule, expected, found = error.validator, _expected(error), _found(error)
    if rule in ("oneOf", "anyOf"):
        yield from _branch_faults(error, path)
    elif rule == "required":
        yield from (Fault((*path, name), _missing(name, error)) for name in expected if name not in found)
    elif rule == "additionalProperties" and expected is False:
        known = _known(error.schema)
        patterns = list(_mapping(error.schema, "patternProperties"))
        extra = [key for key in found if key not in known and not any(re.search(each, key) for each in patterns)]
        yield from (Fault((*path, key), unknown_key(key, known)) for key in extra)
    else:
        yield Fault(path, _problem(error, found))


def _problem(error: ValidationError, found: object) -> str:
    rule, expected = error.validator, _expected(error)
    if rule == "type":
        words = type_words([expected] if isinstance(expected, str) else expected)
        return f"must be {words}; found {kind_of(found)}"
    if rule in ("enum", "const"):
        return not_allowed(found, [expected] if rule == "const" else expected)
    if rule == "pattern":
        described = error.schema.get("pattern_descriptor") if isinstance(error.schema, Mapping) else None
        return f"must look like {described}" if described else f"must match the pattern {expected}"
    if rule == "uniqueItems":
        return "must not hold the same item twice"
    if isinstance(rule, str) and rule in _BOUNDS:
        return _BOUNDS[rule].format(expected)
    return f"breaks the rule {rule} of the connector's spec"


def _missing(name: str, error: ValidationError) -> str:
    known = _known(error.schema)
    meant = nearest(name, [key for key in _found(error) if key not in known])
    return f'is missing; there is an unknown "{meant}", is it meant?' if meant else "is missing"


def _known(schema: Any) -> list[str]:
    return list(_mapping(schema, "properties"))


def _mapping(schema: Any, keyword: str) -> Mapping[str, Any]:
    found = schema.get(keyword) if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _branch_faults(error: ValidationError, path: KeyPath) -> Iterator[Fault]:
    """The faults of the `oneOf` branch that the user most likely meant. "Fits none of them" would help nobody.

    In this order: branches for another kind of value are left out; then those whose discriminator has another value. If
    several remain, the key that would tell them apart is missing, or the branch with the fewest faults is meant.
    """
    branches: dict[int, list[ValidationError]] = {}
    for inner in error.context or ():
        branches.setdefault(int(inner.relative_schema_path[0]), []).append(inner)
    of_right_type = [errors for errors in branches.values() if not any(_is_own_type(each) for each in errors)]
    meant = [errors for errors in of_right_type if not any(_is_discriminator(each) for each in errors)]
    missing = _missing_discriminator(meant) if len(meant) > 1 else None
    if not branches:
        yield Fault(path, "fits more than one of the choices that the connector's spec gives")
    elif not of_right_type:
        yield Fault(path, _wrong_type(branches, error.instance))
    elif not meant:
        yield from _wrong_discriminator(of_right_type, path)
    elif missing is not None:
        name, allowed = missing
        yield Fault((*path, name), f"is missing; {not_allowed(None, allowed)}")
    else:
        closest = min(meant, key=len)
        yield from (fault for inner in closest for fault in _faults(inner))


def _is_own_type(error: ValidationError) -> bool:
    """True if the whole branch is for values of another type."""
    return error.validator == "type" and not error.relative_path


def _is_discriminator(error: ValidationError) -> bool:
    """True if a discriminator key says that another branch is meant. It is a `const`, or in older specs an `enum` of
    one value."""
    is_single = error.validator == "const" or (error.validator == "enum" and len(_expected(error)) == 1)
    return is_single and len(error.relative_path) == 1


def _allowed(error: ValidationError) -> Any:
    return _expected(error) if error.validator == "const" else _expected(error)[0]


def _wrong_type(branches: Mapping[int, list[ValidationError]], found: object) -> str:
    names = [_expected(each) for errors in branches.values() for each in errors if _is_own_type(each)]
    flat = [name for each in names for name in ([each] if isinstance(each, str) else each)]
    return f"must be {type_words(flat)}; found {kind_of(found)}"


def _wrong_discriminator(branches: list[list[ValidationError]], path: KeyPath) -> Iterator[Fault]:
    wrong = [each for errors in branches for each in errors if _is_discriminator(each)]
    name = wrong[0].relative_path[0]
    same = [each for each in wrong if each.relative_path[0] == name]
    yield Fault((*path, name), not_allowed(same[0].instance, [_allowed(each) for each in same]))


def _missing_discriminator(branches: list[list[ValidationError]]) -> tuple[str, list[Any]] | None:
    """The discriminator that is missing for every branch, with the values that it may have."""
    allowed: dict[str, list[Any]] = {}
    for each in (each for errors in branches for each in errors):
        if each.validator == "required" and not each.relative_path:
            for name in [name for name in _expected(each) if name not in _found(each)]:
                rule = _mapping(_mapping(each.schema, "properties"), name)
                single = [rule["const"]] if "const" in rule else rule.get("enum", [])
                if len(single) == 1 and single[0] not in allowed.setdefault(name, []):
                    allowed[name].append(single[0])
    return next(((name, values) for name, values in allowed.items() if len(values) == len(branches)), None)
