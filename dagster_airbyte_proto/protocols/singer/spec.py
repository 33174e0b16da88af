"""What a tap says of itself: which flags it takes, and what config.

Taps of meltano's SDK answer `--about --format=json`; of others the usage that `--help` prints tells the flags. What was
learnt is kept as one message, in which the schema of the config lies where those of other protocols have it.
"""

import re
from collections.abc import Mapping
from typing import Any

from dagster_airbyte_proto.protocols.events import SpecEvent
from dagster_airbyte_proto.protocols.raw_json import PartError, members, value

_SCHEMA, _FLAGS = "connectionSpecification", "flags"
_FLAG = re.compile(r"(?<![\w-])--(catalog|properties|state|discover|test)\b")
_UNIONS = ("anyOf", "oneOf", "allOf")


def about(document: bytes) -> SpecEvent | None:
    """From the answer to `--about --format=json`; None where it is none."""
    try:
        told = value(document)
    except PartError:
        return None
    return _about(told)


def usage(text: str) -> SpecEvent | None:
    """From what `--help` printed; None where it names no flag of a tap."""
    flags = sorted({match[0] for match in _FLAG.finditer(text)})
    return spec({_SCHEMA: {}, _FLAGS: flags}) if flags else None


def spec(message: Mapping[str, Any]) -> SpecEvent:
    return SpecEvent(message.get(_SCHEMA, {}), message)


def flags_of(found: SpecEvent) -> frozenset[str]:
    told = found.message.get(_FLAGS)
    return frozenset(told) if isinstance(told, list) else frozenset()


def document_in(output: bytes) -> bytes | None:
    """The one JSON object that an output is, whatever chatter stands before it."""
    starts = (match.start() for match in re.finditer(rb"^\s*\{", output, re.MULTILINE))
    return next((output[start:] for start in starts if members(output[start:]) is not None), None)


def _about(document: Mapping[str, Any]) -> SpecEvent | None:
    settings, capabilities = document.get("settings"), document.get("capabilities")
    if not isinstance(settings, dict):
        return None
    told = capabilities if isinstance(capabilities, list) else ["catalog", "state", "discover"]
    # All taps of the SDK can be tested, and none lists it.
    flags = sorted({f"--{each}" for each in told if _FLAG.fullmatch(f"--{each}")} | {"--test"})
    rest = {name: part for name, part in document.items() if name != "settings"}
    title = {"title": document["name"]} if isinstance(document.get("name"), str) else {}
    return spec({_SCHEMA: {**title, **_schema(settings)}, _FLAGS: flags, "about": rest})


def _schema(written: Any) -> Any:
    """A schema in which secrets are marked as the rest of the house knows them.

    The SDK fills in a default before it looks for what is missing. Where its union of null and something else is "null"
    itself, no validator would take the schema (0.53).
    """
    if isinstance(written, list):
        return [_schema(each) for each in written]
    if not isinstance(written, dict):
        return written
    found = {name: _schema(part) for name, part in written.items()}
    for union in _UNIONS:
        if isinstance(found.get(union), list):
            found[union] = [each for each in found[union] if isinstance(each, dict | bool)]
    properties, required = found.get("properties"), found.get("required")
    if isinstance(properties, dict) and isinstance(required, list):
        found["required"] = [name for name in required if "default" not in (properties.get(name) or {})]
    if found.get("secret") is True or found.get("writeOnly") is True:
        found["airbyte_secret"] = True
    return found
