"""The specification of a tap: the flags it takes, and the schema of its config.

Taps of meltano's SDK answer `--about --format=json`. For other taps the usage text of `--help` shows the flags. The
result is saved as one message, with the schema of the config in the same member as in Airbyte's specification.

Targets show the flags of a tap too where they are on singer-python, which has one parser for both (`target-redshift`,
`singer-target-postgres`). So a usage text tells a tap by the program's name alone.
"""

import re
from collections.abc import Mapping
from typing import Any

from dagster_airbyte_proto.protocols.events import SpecEvent
from dagster_airbyte_proto.protocols.raw_json import MemberError, members, value

_SCHEMA, _FLAGS, _PROGRAM = "connectionSpecification", "flags", "program"
_FLAG = re.compile(r"(?<![\w-])--(catalog|properties|state|discover|test)\b")
_USAGE = re.compile(r"^usage:\s+(?:python\S*\s+)?(\S+)", re.IGNORECASE | re.MULTILINE)
_TAP = re.compile(r"tap(?![a-z0-9])", re.IGNORECASE)
_UNIONS = ("anyOf", "oneOf", "allOf")


def spec_from_about(document: bytes) -> SpecEvent | None:
    """The specification in the answer to `--about --format=json`; None if it holds none."""
    try:
        decoded = value(document)
    except MemberError:
        return None
    return _spec_from_settings(decoded)


def spec_from_help(text: str) -> SpecEvent | None:
    """The specification in the output of `--help`; None if it shows no flag of a tap."""
    flags = sorted({match[0] for match in _FLAG.finditer(text)})
    return spec({_SCHEMA: {}, _FLAGS: flags, **_program_in(text)}) if flags else None


def target_spec_from_help(text: str) -> SpecEvent:
    """The specification of a target: its usage text does not say what belongs into its config."""
    return spec_from_help(text) or spec(_program_in(text))


def spec(message: Mapping[str, Any]) -> SpecEvent:
    return SpecEvent(message.get(_SCHEMA, {}), message)


def flags_in_spec(found: SpecEvent) -> frozenset[str]:
    flags = found.message.get(_FLAGS)
    return frozenset(flags) if isinstance(flags, list) else frozenset()


def is_of_tap(found: SpecEvent) -> bool:
    """True if it lists the capability of a tap, as those on the SDK do, or has the name of a tap."""
    about = found.message.get("about")
    if isinstance(about, dict) and isinstance(about.get("capabilities"), list):
        return "--discover" in flags_in_spec(found)
    name = about.get("name") if isinstance(about, dict) else found.message.get(_PROGRAM)
    return isinstance(name, str) and _TAP.match(name) is not None


def _program_in(usage: str) -> Mapping[str, str]:
    found = _USAGE.search(usage)
    return {_PROGRAM: re.split(r"[/\\]", found[1])[-1]} if found else {}


def find_object(output: bytes) -> bytes | None:
    """Finds the one JSON object at the end of an output. Taps may print other lines before it."""
    starts = (match.start() for match in re.finditer(rb"^\s*\{", output, re.MULTILINE))
    return next((output[start:] for start in starts if members(output[start:]) is not None), None)


def _spec_from_settings(document: Mapping[str, Any]) -> SpecEvent | None:
    settings, capabilities = document.get("settings"), document.get("capabilities")
    if not isinstance(settings, dict):
        return None
    supported = capabilities if isinstance(capabilities, list) else ["catalog", "state", "discover"]
    # All taps of the SDK take --test, but none lists it among its capabilities.
    flags = sorted({f"--{each}" for each in supported if _FLAG.fullmatch(f"--{each}")} | {"--test"})
    rest = {name: part for name, part in document.items() if name != "settings"}
    title = {"title": document["name"]} if isinstance(document.get("name"), str) else {}
    return spec({_SCHEMA: {**title, **_normalized_schema(settings)}, _FLAGS: flags, "about": rest})


def _normalized_schema(written: Any) -> Any:
    """The SDK's schema in the form that the rest of the package expects.

    - Secrets are marked as in Airbyte's schemas.
    - A property with a default is not required: the SDK fills in the default before it checks.
    - SDK 0.53 writes some union members as the bare string "null", which no validator accepts: these are dropped.
    """
    if isinstance(written, list):
        return [_normalized_schema(each) for each in written]
    if not isinstance(written, dict):
        return written
    found = {name: _normalized_schema(part) for name, part in written.items()}
    for union in _UNIONS:
        if isinstance(found.get(union), list):
            found[union] = [each for each in found[union] if isinstance(each, dict | bool)]
    properties, required = found.get("properties"), found.get("required")
    if isinstance(properties, dict) and isinstance(required, list):
        found["required"] = [name for name in required if "default" not in (properties.get(name) or {})]
    if found.get("secret") is True or found.get("writeOnly") is True:
        found["airbyte_secret"] = True
    return found
