"""Judges the discover: it is answered, twice the same, and its streams are whole."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from jsonschema import Draft7Validator, SchemaError

from dagster_airbyte_proto.certification.evidence import SourceEvidence
from dagster_airbyte_proto.certification.rule import Outcome, Ruling, Sample, cannot_tell, holds
from dagster_airbyte_proto.certification.rules.answers import reply_ruling
from dagster_airbyte_proto.json_references import properties_in
from dagster_airbyte_proto.model import Catalog, FieldPath, Stream


def discover_is_answered(evidence: SourceEvidence) -> Ruling:
    evidence.spec.required  # noqa: B018 - without the spec nobody asked it
    ruling = reply_ruling(evidence.discover, "the catalog")
    if evidence.discover.answer is not None and not evidence.discover.answer.streams:
        return Ruling(Outcome.BROKEN, "the catalog has no stream")
    return ruling


def discover_is_stable(evidence: SourceEvidence) -> Ruling:
    first = evidence.discover.required
    if evidence.second_discover.answer is None:
        return Ruling(Outcome.BROKEN, f"the second discover failed: {evidence.second_discover.required}")
    if not evidence.discover.runs:
        return cannot_tell("the catalog is a file that the connection names")
    one, other = _by_stream(first), _by_stream(evidence.second_discover.answer)
    differences = [*_differences(one, other)]
    if differences:
        return Ruling(Outcome.BROKEN, f"two discovers differ in {len(differences)} streams", tuple(differences))
    return holds(f"two discovers agree on {len(one)} streams")


def catalog_is_valid(evidence: SourceEvidence) -> Ruling:
    catalog = evidence.discover.required
    faults = [Sample(f"stream {each.id}", "the catalog has it twice") for each in catalog.duplicates]
    faults += [Sample(f"stream {stream}", "its schema is no object") for stream in catalog.unreadable]
    faults += [Sample(f"stream {stream.id}", fault) for stream in catalog.streams for fault in _faults(stream)]
    if faults:
        streams = len({each.where for each in faults})
        return Ruling(Outcome.BROKEN, f"{len(faults)} faults in {streams} of its streams", tuple(faults))
    return holds(f"{len(catalog.streams)} streams, each with a valid schema that has its keys and cursors")


def _by_stream(catalog: Catalog) -> Mapping[str, Any]:
    """The connector's own JSON of each stream. Their order means nothing, and neither does that of members."""
    return {str(stream.id): msgspec.json.decode(stream.raw) for stream in catalog.streams}


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Sample]:
    for name in sorted(one.keys() | other.keys()):
        if name not in other or name not in one:
            yield Sample(f"stream {name}", f"only in the {'first' if name in one else 'second'} discover")
        elif one[name] != other[name]:
            yield Sample(f"stream {name}", "; ".join(_changed(one[name], other[name], "")))


def _changed(one: Any, other: Any, path: str) -> Iterator[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in sorted(one.keys() | other.keys()):
            yield from _changed(one.get(name), other.get(name), f"{path}/{name}")
    elif one != other:
        yield f"{path} is {_text(one)}, then {_text(other)}"


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:80]


def _faults(stream: Stream) -> Iterator[str]:
    try:
        Draft7Validator.check_schema(stream.json_schema)
    except SchemaError as error:
        yield f"its json_schema is no valid JSON schema: {error.message}"
        return
    if not stream.read_modes:
        yield "it has no read mode"
    for key in stream.primary_key:
        if not _declares(stream.json_schema, key):
            yield f"the primary key {'.'.join(key)} is not in its schema"
    if stream.cursor and not _declares(stream.json_schema, stream.cursor):
        yield f"the cursor {'.'.join(stream.cursor)} is not in its schema"


def _declares(schema: Any, path: FieldPath) -> bool:
    """True if the schema declares the field, or properties that nobody can tell."""
    for name in path:
        properties = properties_in(schema)
        if not properties:
            return True
        if name not in properties:
            return False
        schema = properties[name]
    return True
