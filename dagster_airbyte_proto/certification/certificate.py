"""The certificate of a connector: every rule of its protocol with its ruling, and what was measured."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dagster_airbyte_proto.certification.evidence import Evidence, SourceEvidence, Step
from dagster_airbyte_proto.certification.gathering import gather
from dagster_airbyte_proto.certification.rule import JudgedRule, Outcome, Rule, judged
from dagster_airbyte_proto.certification.rules.airbyte import AIRBYTE_RULES
from dagster_airbyte_proto.certification.rules.destinations.airbyte_destinations import AIRBYTE_DESTINATION_RULES
from dagster_airbyte_proto.certification.rules.destinations.component_destinations import COMPONENT_DESTINATION_RULES
from dagster_airbyte_proto.certification.rules.destinations.singer_targets import SINGER_TARGET_RULES
from dagster_airbyte_proto.certification.rules.destinations.syncmaven_destinations import SYNCMAVEN_DESTINATION_RULES
from dagster_airbyte_proto.certification.rules.rapidbyte import RAPIDBYTE_RULES
from dagster_airbyte_proto.certification.rules.singer import SINGER_RULES
from dagster_airbyte_proto.certification.watching.watched_program import Gathering
from dagster_airbyte_proto.certification.writes.destination_gathering import gather_destination
from dagster_airbyte_proto.certification.writes.write_evidence import DestinationEvidence
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.sync.engine import Engine

_RULES: Mapping[str, Sequence[Rule[SourceEvidence]]] = {
    "airbyte": AIRBYTE_RULES,
    "singer": SINGER_RULES,
    "rapidbyte": RAPIDBYTE_RULES,
}
_DESTINATION_RULES: Mapping[str, Sequence[Rule[DestinationEvidence]]] = {
    "airbyte": AIRBYTE_DESTINATION_RULES,
    "singer": SINGER_TARGET_RULES,
    "syncmaven": SYNCMAVEN_DESTINATION_RULES,
    "rapidbyte": COMPONENT_DESTINATION_RULES,
}


class Measures(NamedTuple):
    """The cost of the first read, or of the long write, and the greatest memory of all runs. None where there is
    nothing to measure.

    `silent_seconds` are those until the first output; of a destination, those that it takes to start and to end.
    """

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
    """The rulings on one connector. `connector` names its exact version.

    `objects` are those that certify wrote to at a destination; a source has none. Where `fixed_names` of the config
    name the place of all rows, that is where they are.
    """

    connection: str
    role: str
    protocol: str
    connector: str
    rules: tuple[JudgedRule, ...]
    measures: Measures | None
    steps: tuple[Step, ...]
    seconds: float
    objects: tuple[str, ...] = ()
    fixed_names: tuple[str, ...] = ()

    @property
    def written_to(self) -> tuple[str, ...]:
        """The places that certify wrote to, for people."""
        return (*self.objects, *(f"what {name} in the config names" for name in self.fixed_names))

    @property
    def is_destination(self) -> bool:
        return self.role == "destination"

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
            "role": self.role,
            "connector": self.connector,
            "written_to": list(self.written_to),
            "counts": {outcome.value: count for outcome, count in self.counts.items()},
            "measures": self.measures.value if self.measures else None,
            "runs": [_step_value(each) for each in self.steps],
            "rules": [_rule_value(each) for each in self.rules],
            "seconds": round(self.seconds, 1),
        }


def certify(engine: Engine, connection: Connection, options: Gathering) -> Certificate:
    """Holds a connector to the rules of its protocol. Raises ConfigError if the connection's own config is bad.

    That of a connection with a push is a destination, and gets rows.
    """
    protocol = connection.connector.protocol
    if connection.push is None:
        source = gather(engine, connection, options)
        return _certificate(connection, source, judged(_RULES[protocol], source), _measures(source))
    destination = gather_destination(engine, connection, options)
    rules = judged(_DESTINATION_RULES[protocol], destination)
    found = _certificate(connection, destination, rules, _measures_of_writes(destination))
    objects, fixed_names = tuple(destination.objects), tuple(destination.fixed_names)
    return found._replace(role="destination", objects=objects, fixed_names=fixed_names)


def _certificate(
    connection: Connection, evidence: Evidence, rules: tuple[JudgedRule, ...], measures: Measures | None
) -> Certificate:
    protocol, steps = connection.connector.protocol, tuple(evidence.steps)
    return Certificate(
        connection.name, "source", protocol, evidence.connector, rules, measures, steps, evidence.seconds
    )


def _measures(evidence: SourceEvidence) -> Measures | None:
    read = evidence.first_read.answer
    if read is None or evidence.is_replay:
        return None
    run = read.run
    return Measures(read.rows, run.size_bytes, run.seconds, run.silent_seconds, _peak(evidence))


def _measures_of_writes(evidence: DestinationEvidence) -> Measures | None:
    write, empty = evidence.long.answer, evidence.empty.answer
    if write is None or not write.ended_well or not write.marks:
        return None
    start = min(empty.run.seconds, write.run.seconds) if empty else 0.0
    return Measures(write.rows, write.marks[-1].size_bytes, write.run.seconds, start, _peak(evidence))


def _peak(evidence: Evidence) -> int | None:
    """The greatest memory of any run."""
    peaks = [step.run.peak_memory_bytes for step in evidence.steps if step.run.peak_memory_bytes]
    return max(peaks, default=None)


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
