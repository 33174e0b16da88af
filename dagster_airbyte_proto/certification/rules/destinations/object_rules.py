"""Judges the objects that a destination lists: each is there once in each mode, with valid schemas."""

from collections import Counter

from jsonschema import Draft7Validator, SchemaError

from dagster_airbyte_proto.certification.rule import Outcome, Ruling, Sample, does_not_apply, holds
from dagster_airbyte_proto.certification.writes.write_evidence import DestinationEvidence


def objects_are_valid(evidence: DestinationEvidence) -> Ruling:
    operations = evidence.discover.required
    if not operations:
        return does_not_apply("it lists no objects: it takes streams of any name")
    counts = Counter((each.object_name, each.mode) for each in operations)
    twice = [Sample(f"object {name}", f"mode {mode} is there twice") for (name, mode), n in counts.items() if n > 1]
    if twice:
        return Ruling(Outcome.BROKEN, f"{len(twice)} operations are there twice", tuple(twice))
    faults = []
    for each in operations:
        for schema in filter(None, (each.row_schema, each.options_schema)):
            try:
                Draft7Validator.check_schema(schema)
            except SchemaError as error:
                faults.append(Sample(f"object {each.object_name}", error.message))
    if faults:
        return Ruling(Outcome.BROKEN, f"{len(faults)} schemas are not valid", tuple(faults))
    names = {each.object_name for each in operations}
    return holds(f"{len(operations)} operations on {len(names)} objects")
