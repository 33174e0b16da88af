"""Checks a config against the connector's own spec before the connector is started.

1. A fault never shows the value that was found, only what is allowed in its place: any value may be secret.
2. The spec is the connector's word. Its patterns are searched by an engine without backtracking; a spec that needs
   another one, or has references, is checked in a process of its own with a deadline.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from jsonschema import Draft7Validator, SchemaError, ValidationError, validators
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

_DEADLINE_SECONDS = 10.0


class Findings(NamedTuple):
    """The faults of a config; or the reason why the spec cannot tell them."""

    faults: tuple[Fault, ...] = ()
    reason: str = ""


def check_config(
    config: Mapping[str, Any], spec_schema: Any, *, where: str, deadline_seconds: float = _DEADLINE_SECONDS
) -> tuple[str, ...]:
    """Raises ConfigError with every fault and its path. Returns warnings.

    A spec that is no valid JSON Schema, or takes longer than the deadline, is only a warning: the connector itself then
    judges the config.
    """
    if not isinstance(spec_schema, Mapping):
        return (f"{where} was not checked: the connector's spec is {kind_of(spec_schema)}, not a JSON schema",)
    found = find_faults(config, spec_schema, is_apart=False) or _faults_found_apart(
        config, spec_schema, deadline_seconds
    )
    if found.reason:
        return (f"{where} was not checked: {found.reason}",)
    if found.faults:
        raise config_error(where, sorted(found.faults, key=lambda fault: [str(part) for part in fault.path]))
    return ()


def find_faults(config: Mapping[str, Any], spec_schema: Mapping[str, Any], *, is_apart: bool) -> Findings | None:
    """Checks a config. Returns None if that may take for ever, unless it `is_apart`: in a process with a deadline."""
    try:
        Draft7Validator.check_schema(spec_schema)
        if not is_apart and _may_take_for_ever(spec_schema):
            return None
        # The empty registry keeps a "$ref" to some URL from being fetched.
        validator = _SpecValidator(spec_schema, registry=Registry())
        faults = dict.fromkeys(fault for error in validator.iter_errors(config) for fault in _faults(error))
    except (SchemaError, Unresolvable, re.error, RecursionError) as error:
        reason = error.message if isinstance(error, SchemaError) else str(error)
        return Findings(reason=f"the connector's spec is not a valid JSON schema ({reason[:200]})")
    return Findings(tuple(faults))


def _may_take_for_ever(part: Any) -> bool:
    """True for a schema whose check is not bounded by its size: with references, which may double at each level, or
    with a pattern for an engine that backtracks."""
    if isinstance(part, list | tuple):
        return any(map(_may_take_for_ever, part))
    if not isinstance(part, Mapping):
        return False
    pattern = part.get("pattern")
    if (
        "$ref" in part
        or "patternProperties" in part
        or (isinstance(pattern, str) and matches_pattern(pattern, "") is None)
    ):
        return True
    return any(map(_may_take_for_ever, part.values()))


def matches_pattern(pattern: str, text: str) -> bool | None:
    """Searches for a schema's pattern by RE2, whose time is linear; like ECMA 262, it has ASCII digits and a `$` that
    is the end. None if it does not know the pattern: it has no look-around and no back references."""
    try:
        found = pc.match_substring_regex(pa.array([text.encode("utf-8", "replace")]), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return None
    return bool(found[0].as_py())


def _pattern(_: Any, pattern: str, found: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(found, str):
        matches = matches_pattern(pattern, found)
        if not (re.search(pattern, found) if matches is None else matches):
            yield ValidationError("does not match the pattern")


_SpecValidator: Any = validators.extend(  # type: ignore[no-untyped-call]  # jsonschema has no types for it
    Draft7Validator, {"pattern": _pattern}
)


def _faults_found_apart(config: Mapping[str, Any], spec_schema: Any, deadline_seconds: float) -> Findings:
    # A thread would not do: Python's regex engine holds the interpreter while it backtracks, so that nothing else runs
    # in this process, not even what renews the lease.
    request = json.dumps([config, spec_schema]).encode()
    command = [sys.executable, "-m", "dagster_airbyte_proto.sync.connector.config_check_process"]
    try:
        ended = subprocess.run(command, input=request, capture_output=True, timeout=deadline_seconds, check=True)
    except subprocess.TimeoutExpired:
        return Findings(reason=f"that took longer than {deadline_seconds:.0f} s by the connector's spec")
    except subprocess.CalledProcessError as error:
        return Findings(reason=f"the process that checked it ended with code {error.returncode}")
    faults, reason = json.loads(ended.stdout)
    return Findings(tuple(Fault(tuple(path), problem) for path, problem in faults), reason)


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


def _found_value(error: ValidationError) -> Any:
    return error.instance


def _faults(error: ValidationError) -> Iterator[Fault]:
    path: KeyPath = tuple(error.absolute_path)
    rule, expected, found = error.validator, _expected(error), _found_value(error)
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
    meant = nearest(name, [key for key in _found_value(error) if key not in known])
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
            for name in [name for name in _expected(each) if name not in _found_value(each)]:
                rule = _mapping(_mapping(each.schema, "properties"), name)
                single = [rule["const"]] if "const" in rule else rule.get("enum", [])
                if len(single) == 1 and single[0] not in allowed.setdefault(name, []):
                    allowed[name].append(single[0])
    return next(((name, values) for name, values in allowed.items() if len(values) == len(branches)), None)
