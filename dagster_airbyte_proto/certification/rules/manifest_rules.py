"""Judges the manifest of a component, which says what it is before anything of it runs."""

from collections.abc import Mapping
from typing import Any

from dagster_airbyte_proto.certification.evidence import Evidence
from dagster_airbyte_proto.certification.rule import Outcome, Ruling, holds

_VERSION = "4"


def manifest_is_there(evidence: Evidence) -> Ruling:
    return _manifest_ruling(evidence, "source")


def manifest_of_destination_is_there(evidence: Evidence) -> Ruling:
    return _manifest_ruling(evidence, "destination")


def _manifest_ruling(evidence: Evidence, role: str) -> Ruling:
    manifest = _manifest(evidence)
    version, roles = manifest.get("protocol_version"), manifest.get("roles")
    named = [name for name, each in roles.items() if each not in (None, False)] if isinstance(roles, Mapping) else []
    if not named:
        return Ruling(Outcome.WARNING, "the file has no manifest that names a role, so it is granted nothing")
    if role not in named:
        return Ruling(Outcome.BROKEN, f"its manifest has the roles {', '.join(named)}, and no {role}")
    if str(version) != _VERSION:
        return Ruling(Outcome.WARNING, f"it is of version {version}, and the host of version {_VERSION}")
    return holds(f"a {role} of version {version}")


def _manifest(evidence: Evidence) -> Mapping[str, Any]:
    found = evidence.spec.required.message.get("manifest")
    return found if isinstance(found, Mapping) else {}
