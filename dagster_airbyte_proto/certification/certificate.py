"""The certificate of a connector: every rule of its protocol with its ruling, and what was measured."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dagster_airbyte_proto.certification.evidence import Evidence, Step
from dagster_airbyte_proto.certification.gathering import gather
from dagster_airbyte_proto.certification.rule import JudgedRule, Outcome, Rule, judged
from dagster_airbyte_proto.certification.rules.airbyte import AIRBYTE_RULES
from dagster_airbyte_proto.certification.rules.rapidbyte import RAPIDBYTE_RULES
from dagster_airbyte_proto.certification.rules.singer import SINGER_RULES
from dagster_airbyte_proto.certification.watching.watched_source import Gathering
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.sync.engine import Engine

_RULES: Mapping[str, Sequence[Rule]] = {
    "airbyte": AIRBYTE_RULES,
    "singer": SINGER_RULES,
    "rapidbyte": RAPIDBYTE_RULES,
}


class Measures(NamedTuple):
    """The cost of the first read, and the greatest memory of all runs. None where there is nothing to measure."""

    records: int
    size_bytes: int
    seconds: float
    silent_seconds: float
    peak_memory_bytes: int | None

    @property
    def records_per_second(self) -> float:
        return self.records / max(self.seconds - self.silent_seconds, 0.001)

    @property
    def bytes_per_second(self) -> float:
        return self.size_bytes / max(self.seconds - self.silent_seconds, 0.001)

    @property
    def value(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "bytes": self.size_bytes,
            "seconds": round(self.seconds, 3),
            "seconds_to_first_output": round(self.silent_seconds, 3),
            "records_per_second": round(self.records_per_second),
            "bytes_per_second": round(self.bytes_per_second),
            "peak_memory_bytes": self.peak_memory_bytes,
        }


class Certificate(NamedTuple):
    """The rulings on one connector. `connector` names its exact version."""

    connection: str
    protocol: str
    connector: str
    rules: tuple[JudgedRule, ...]
    measures: Measures | None
    steps: tuple[Step, ...]
    seconds: float

    @property
    def is_broken(self) -> bool:
        return any(each.ruling.outcome is Outcome.BROKEN for each in self.rules)

    @property
    def counts(self) -> Mapping[Outcome, int]:
        return {outcome: sum(each.ruling.outcome is outcome for each in self.rules) for outcome in Outcome}

    @property
    def value(self) -> dict[str, Any]:
        """The certificate as JSON."""
        return {
            "connection": self.connection,
            "status": "broken" if self.is_broken else "holds",
            "protocol": self.protocol,
            "connector": self.connector,
            "counts": {outcome.value: count for outcome, count in self.counts.items()},
            "measures": self.measures.value if self.measures else None,
            "runs": [_step_value(each) for each in self.steps],
            "rules": [_rule_value(each) for each in self.rules],
            "seconds": round(self.seconds, 1),
        }


def certify(engine: Engine, connection: Connection, options: Gathering) -> Certificate:
    """Holds a connector to the rules of its protocol. Raises ConfigError if the connection's own config is bad."""
    evidence = gather(engine, connection, options)
    protocol = connection.connector.protocol
    return _certificate(connection.name, protocol, evidence)


def _certificate(connection: str, protocol: str, evidence: Evidence) -> Certificate:
    rules = judged(_RULES[protocol], evidence)
    return Certificate(
        connection, protocol, evidence.connector, rules, _measures(evidence), tuple(evidence.steps), evidence.seconds
    )


def _measures(evidence: Evidence) -> Measures | None:
    read = evidence.first_read.answer
    if read is None or evidence.is_replay:
        return None
    run = read.run
    peaks = [step.run.peak_memory_bytes for step in evidence.steps if step.run.peak_memory_bytes]
    return Measures(read.rows, run.size_bytes, run.seconds, run.silent_seconds, max(peaks, default=None))


def _step_value(step: Step) -> dict[str, Any]:
    run = step.run
    return {
        "purpose": step.purpose,
        "seconds": round(run.seconds, 3),
        "bytes": run.size_bytes,
        "exit_code": run.report.code if run.report else None,
        "stopped": run.was_stopped,
        "peak_memory_bytes": run.peak_memory_bytes,
    }


def _rule_value(each: JudgedRule) -> dict[str, Any]:
    rule, ruling = each
    return {
        "rule": rule.name,
        "subject": rule.subject,
        "outcome": ruling.outcome.value,
        "demand": rule.demand,
        "quote": rule.quote,
        "origin": rule.origin,
        "met": ruling.met,
        "samples": [sample._asdict() for sample in ruling.samples],
        "remedy": ruling.remedy,
    }
