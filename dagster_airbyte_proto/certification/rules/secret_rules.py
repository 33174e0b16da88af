"""Judges whether secrets of the config stay out of what the connector writes."""

from dagster_airbyte_proto.certification.evidence import Evidence
from dagster_airbyte_proto.certification.rule import Outcome, Ruling, Sample, does_not_apply, holds


def secrets_are_not_written(evidence: Evidence) -> Ruling:
    evidence.spec.required  # noqa: B018 - it names the secrets
    if not evidence.has_secrets and not evidence.leaks:
        return does_not_apply("the config has no secrets")
    if evidence.leaks:
        samples = tuple(Sample(each.where, each.text) for each in evidence.leaks)
        return Ruling(Outcome.BROKEN, f"lines with a secret of the config: {len(samples)}", samples)
    return holds("no secret of the config is in what the connector wrote")
