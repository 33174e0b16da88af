"""Judges the one result by which a destination proves all rows of its process."""

from dagster_airbyte_proto.certification.rule import Outcome, Ruling, Sample, holds
from dagster_airbyte_proto.certification.writes.write_evidence import DestinationEvidence


def result_comes(evidence: DestinationEvidence) -> Ruling:
    write = evidence.first.required
    if write.result is None:
        return Ruling(Outcome.BROKEN, f"no result came of {write.rows} rows: none of them counts as delivered")
    return holds(f"one result for {write.rows} rows")


def result_counts_rows(evidence: DestinationEvidence) -> Ruling:
    write = evidence.first.required
    result = write.result
    if result is None:
        return Ruling(Outcome.BROKEN, "no result came")
    if result.received is None:
        return Ruling(Outcome.BROKEN, f"it does not count the {write.rows} rows: none of them counts as delivered")
    if result.received != write.rows:
        found = f"it received {result.received} rows, and {write.rows} were sent: none of them counts as delivered"
        return Ruling(Outcome.BROKEN, found)
    if result.failed or result.skipped:
        samples = (Sample("result", f"{result.failed} failed, {result.skipped} were skipped, of {write.rows} rows"),)
        return Ruling(Outcome.WARNING, "it did not take all rows of certify", samples)
    return holds(f"it counts {write.rows} rows")
