"""Judges the spec: it is answered, it is a JSON schema, and it says which properties are secret."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft7Validator, SchemaError

from dagster_airbyte_proto.certification.evidence import Evidence
from dagster_airbyte_proto.certification.rule import Outcome, Ruling, Sample, does_not_apply, holds
from dagster_airbyte_proto.certification.rules.answers import reply_ruling
from dagster_airbyte_proto.masking import named_secrets

# The time, the place or the name of a secret is none.
_NO_SECRET = re.compile(
    r"(date|time|expiry|expires|expires_in|ttl|type|url|uri|endpoint|path|name|id|field)$", re.IGNORECASE
)


def spec_is_answered(evidence: Evidence) -> Ruling:
    return reply_ruling(evidence.spec, "the spec")


def spec_is_a_schema(evidence: Evidence) -> Ruling:
    schema = evidence.spec.required.config_schema
    if not schema:
        return does_not_apply("the connector does not describe its config")
    try:
        Draft7Validator.check_schema(schema)
    except SchemaError as error:
        path = "/".join(map(str, error.absolute_path))
        sample = Sample(f"spec, connectionSpecification/{path}", error.message)
        return Ruling(Outcome.BROKEN, "it is not a valid JSON schema", (sample,))
    if schema.get("type") != "object":
        found = f"its type is {schema.get('type')!r}"
        return Ruling(Outcome.BROKEN, f"the schema of a config must be of an object: {found}")
    return holds(f"a valid JSON schema of {len(schema.get('properties') or ())} properties")


def secrets_are_marked(evidence: Evidence) -> Ruling:
    schema = evidence.spec.required.config_schema
    if not schema:
        return does_not_apply("the connector does not describe its config")
    marked, unmarked = [], []
    for path, rule in _properties(schema, ""):
        # The rule's own words decide for a config whose value is a text.
        if rule.get("airbyte_secret") is True:
            marked.append(path)
        elif rule.get("type") in ("string", ["string", "null"], ["null", "string"]) and _sounds_secret(path, rule):
            unmarked.append(Sample(f"spec, {path}", "its name sounds secret, and `airbyte_secret` is missing"))
    if unmarked:
        return Ruling(
            Outcome.WARNING, f"properties that look secret and are not marked: {len(unmarked)}", tuple(unmarked)
        )
    return holds(f"marked: {', '.join(marked)}" if marked else "no property looks secret")


def _sounds_secret(path: str, rule: Mapping[str, Any]) -> bool:
    if _NO_SECRET.search(path):
        return False
    is_choice = "const" in rule or "enum" in rule or "default" in rule or rule.get("format") in ("date", "date-time")
    return not is_choice and bool(named_secrets({path.rpartition(".")[2]: "x"}))


def _properties(schema: Any, prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every declared property with its path, those of choices too."""
    if not isinstance(schema, Mapping):
        return
    properties = schema.get("properties")
    for name, rule in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(rule, Mapping):
            yield f"{prefix}{name}", rule
            yield from _properties(rule, f"{prefix}{name}.")
    for keyword in ("oneOf", "anyOf", "allOf"):
        branches = schema.get(keyword)
        for branch in branches if isinstance(branches, list) else ():
            yield from _properties(branch, prefix)
