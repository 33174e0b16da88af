"""Judges the check: it succeeds on the good config, fails on bad ones, and never hangs."""

from dagster_airbyte_proto.certification.evidence import BadCheck, Evidence
from dagster_airbyte_proto.certification.rule import Outcome, Ruling, Sample, cannot_tell, holds
from dagster_airbyte_proto.certification.rules.answers import is_hung, reply_ruling
from dagster_airbyte_proto.masking import Mask


def check_succeeds(evidence: Evidence) -> Ruling:
    evidence.spec.required  # noqa: B018 - without the spec nobody asked it
    ruling = reply_ruling(evidence.check, "the verdict")
    answer = evidence.check.answer
    if answer is not None and not answer.succeeded:
        sample = Sample("check", evidence.mask.text(answer.message))
        return Ruling(Outcome.BROKEN, "the check of the good config failed", (sample,))
    return ruling


def check_refuses_bad_configs(evidence: Evidence) -> Ruling:
    return _refusal_ruling(evidence, host_has_schema=False)


def schema_or_check_refuses_bad_configs(evidence: Evidence) -> Ruling:
    """The host holds a config to its schema before a component gets it: what that refuses need not be refused twice."""
    return _refusal_ruling(evidence, host_has_schema=True)


def _refusal_ruling(evidence: Evidence, *, host_has_schema: bool) -> Ruling:
    evidence.check.required  # noqa: B018 - nothing follows from a check that refuses the good config by a crash
    if evidence.check.answer is not None and not evidence.check.answer.succeeded:
        return cannot_tell("it refuses the good config too")
    if not evidence.bad_checks:
        return cannot_tell(_why_no_bad_checks(evidence))
    accepted = [each for each in evidence.bad_checks if each.reply.answer and each.reply.answer.succeeded]
    certain = [each for each in accepted if each.bad.is_certain]
    if certain and not host_has_schema:
        return Ruling(Outcome.BROKEN, f"the check succeeded {_words(certain)}", _samples(certain, evidence.mask))
    silent = [each for each in evidence.bad_checks if each.reply.answer is None and not is_hung(each.reply)]
    if silent:
        found = f"the connector ended {_words(silent)} without a verdict"
        remedy = "Answer with a failed verdict and a message for the user."
        return Ruling(Outcome.WARNING, found, _samples(silent, evidence.mask), remedy)
    refused = [each for each in evidence.bad_checks if each.reply.answer and not each.reply.answer.succeeded]
    if accepted and not (refused or certain):
        return cannot_tell(f"the check succeeded {_words(accepted)}, and the spec allows it")
    met = [f"the check failed {_words(refused)}"] if refused else []
    met += [f"the schema refuses a config {_words(certain)}"] if certain else []
    return holds("; ".join(met)) if met else cannot_tell("no check of a bad config ended")


def check_ends(evidence: Evidence) -> Ruling:
    evidence.check.required  # noqa: B018 - it may be the same fault
    hung = [each for each in evidence.bad_checks if is_hung(each.reply)]
    if hung:
        found = f"the check did not end {_words(hung)}: it was stopped"
        return Ruling(Outcome.BROKEN, found, _samples(hung, evidence.mask))
    if not evidence.bad_checks:
        return cannot_tell(_why_no_bad_checks(evidence))
    slowest = max(run.seconds for each in evidence.bad_checks for run in each.reply.runs)
    return holds(f"{len(evidence.bad_checks)} checks of bad configs ended, the slowest after {slowest:.1f} s")


def _why_no_bad_checks(evidence: Evidence) -> str:
    if evidence.is_replay:
        return "a recording gives its answers whatever the config"
    return "the spec requires and types nothing that a bad config could lack"


def _words(checks: list[BadCheck]) -> str:
    return "; ".join(each.bad.description for each in checks)


def _samples(checks: list[BadCheck], mask: Mask) -> tuple[Sample, ...]:
    return tuple(Sample(f"check {each.bad.description}", _verdict_text(each, mask)) for each in checks)


def _verdict_text(check: BadCheck, mask: Mask) -> str:
    if (answer := check.reply.answer) is not None:
        return f"{'SUCCEEDED' if answer.succeeded else 'FAILED'} {mask.text(answer.message)}".rstrip()
    return check.reply.error.found if check.reply.error else ""
