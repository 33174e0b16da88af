"""A rule of a protocol, and the ruling on one connector.

Rules are values, in a list for each protocol (`rules/`). Each looks at the same evidence and starts nothing, so that a
ruling can be repeated. A rule that cannot be judged says so: no ruling is a guess.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

from dagster_airbyte_proto.certification.evidence import Evidence
from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.masking import Mask

# A rule on any connector is one on sources too.
AnyEvidence = TypeVar("AnyEvidence", bound=Evidence, contravariant=True)

MAX_SAMPLES = 5
_MAX_SAMPLE_CHARACTERS = 300


class Outcome(StrEnum):
    """The outcomes of a rule. A warning breaks no rule: it is what a host of connectors can live with."""

    HOLDS = "holds"
    DOES_NOT_APPLY = "does not apply"
    CANNOT_TELL = "cannot tell"
    WARNING = "warning"
    BROKEN = "broken"


class Sample(NamedTuple):
    """A piece of evidence, and the place where it was met: a run and a line of its output."""

    where: str
    text: str


class Ruling(NamedTuple):
    """The outcome of one rule: what was met, samples of it, and what to do about it."""

    outcome: Outcome
    met: str
    samples: tuple[Sample, ...] = ()
    remedy: str = ""

    def masked(self, mask: Mask) -> "Ruling":
        """The same without secrets; long samples are cut."""
        samples = tuple(Sample(each.where, _cut(mask.text(each.text))) for each in self.samples[:MAX_SAMPLES])
        return Ruling(self.outcome, mask.text(self.met), samples, mask.text(self.remedy))


class Rule(NamedTuple, Generic[AnyEvidence]):
    """A demand on a connector. `quote` is the protocol's own sentence, `origin` the place where it stands.

    `remedy` tells the connector's author what to do where the ruling does not.
    """

    name: str
    subject: str
    demand: str
    quote: str
    origin: str
    judge: Callable[[AnyEvidence], Ruling]
    remedy: str = ""


class JudgedRule(NamedTuple):
    rule: Rule[Any]
    ruling: Ruling


def judged(rules: Sequence[Rule[AnyEvidence]], evidence: AnyEvidence) -> tuple[JudgedRule, ...]:
    """Judges each rule. One whose evidence is missing cannot be told."""
    return tuple(JudgedRule(rule, _ruling(rule, evidence).masked(evidence.mask)) for rule in rules)


def holds(met: str) -> Ruling:
    return Ruling(Outcome.HOLDS, met)


def does_not_apply(why: str) -> Ruling:
    return Ruling(Outcome.DOES_NOT_APPLY, why)


def cannot_tell(why: str, remedy: str = "") -> Ruling:
    return Ruling(Outcome.CANNOT_TELL, why, remedy=remedy)


def _ruling(rule: Rule[AnyEvidence], evidence: AnyEvidence) -> Ruling:
    try:
        ruling = rule.judge(evidence)
    except ConnectorError as error:
        return cannot_tell(error.found)
    needs_remedy = ruling.outcome in (Outcome.BROKEN, Outcome.WARNING) and not ruling.remedy
    return ruling._replace(remedy=rule.remedy) if needs_remedy else ruling


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SAMPLE_CHARACTERS else f"{text[:_MAX_SAMPLE_CHARACTERS]}…"
