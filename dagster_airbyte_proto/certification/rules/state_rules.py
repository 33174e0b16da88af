"""Judges states: they come, they count right, and a read resumes from them without loss or repeat."""

from collections.abc import Sequence

from dagster_airbyte_proto.certification.evidence import Reply, SourceEvidence
from dagster_airbyte_proto.certification.reads.resumption import Continuation, StreamComparison, comparisons
from dagster_airbyte_proto.certification.rule import Outcome, Ruling, Sample, cannot_tell, does_not_apply, holds
from dagster_airbyte_proto.model import ReadMode


def states_come(evidence: SourceEvidence) -> Ruling:
    read = evidence.first_read.required
    incremental = [planned.id for planned in read.requested if planned.read is ReadMode.INCREMENTAL]
    if not incremental:
        return does_not_apply("no stream is read incrementally")
    if not read.states:
        return Ruling(Outcome.BROKEN, f"no state came, and {', '.join(map(str, incremental))} are incremental")
    stated = {point.state.stream for point in read.states}
    silent = [stream for stream in incremental if stated.isdisjoint((stream, None))]
    if silent:
        return Ruling(Outcome.BROKEN, f"no state came of {', '.join(map(str, silent))}")
    return holds(f"{len(read.states):,} states")


def states_count_their_records(evidence: SourceEvidence) -> Ruling:
    read = evidence.first_read.required
    counted = [point for point in read.states if point.declared is not None]
    if not counted:
        return does_not_apply("no state has a record count")
    wrong = [point for point in counted if point.declared != point.counted]
    if wrong:
        samples = tuple(
            Sample(f"line {point.line}", f"it says {point.declared:.0f} records, and {point.counted} came")
            for point in wrong
        )
        return Ruling(Outcome.BROKEN, f"{len(wrong)} of {len(counted)} states miscount", samples)
    return holds(f"{len(counted):,} states agree with the records before them")


def read_resumes(evidence: SourceEvidence) -> Ruling:
    return _continuation_ruling(evidence, evidence.resumed)


def read_resumes_at_the_end(evidence: SourceEvidence) -> Ruling:
    return _continuation_ruling(evidence, evidence.resumed_at_end)


def cancelled_read_resumes(evidence: SourceEvidence) -> Ruling:
    return _continuation_ruling(evidence, evidence.cancelled)


def cancelled_read_ends(evidence: SourceEvidence) -> Ruling:
    read = evidence.cancelled_read.required
    report = read.run.report
    if report is None:
        return Ruling(Outcome.BROKEN, "it did not end, not even when it was killed")
    if not report.stopped:
        return cannot_tell("it had ended by itself before the signal: it sends too little")
    if report.signal == _SIGKILL:
        return Ruling(Outcome.WARNING, "it did not end on SIGTERM, and was killed")
    return holds(f"it {report.how_it_ended} after SIGTERM")


_SIGKILL = 9


def _continuation_ruling(evidence: SourceEvidence, reply: Reply[Continuation]) -> Ruling:
    first, second = evidence.first_read.required, evidence.second_read.required
    if evidence.is_replay:
        return cannot_tell("a recording gives its answers whatever the state")
    if not any(planned.read is ReadMode.INCREMENTAL for planned in first.requested):
        return does_not_apply("no stream is read incrementally")
    continuation = reply.required
    if continuation.read.error is not None:
        return Ruling(Outcome.BROKEN, f"the resumed read failed: {continuation.read.error.found}")
    if not continuation.read.is_whole:
        return Ruling(Outcome.BROKEN, f"the resumed read {continuation.read.run.how_it_ended}")
    found = comparisons(evidence.states, (first, second), continuation)
    return _ruling(found, f"the state in line {continuation.point.line}")


def _ruling(found: Sequence[StreamComparison], state: str) -> Ruling:
    unforeseeable = [each for each in found if not each.compared_by]
    comparable = [each for each in found if each.compared_by]
    # A row that comes with another content looks lost and strange at once.
    broken = [each for each in comparable if each.repeated or each.lost > each.strange]
    if broken:
        lost, repeated = sum(each.lost for each in broken), sum(each.repeated for each in broken)
        met = f"from {state}: {lost:,} records are lost, {repeated:,} come again"
        return Ruling(Outcome.BROKEN, met, tuple(_sample(each) for each in broken))
    strange = [each for each in comparable if each.strange]
    if strange:
        names = ", ".join(str(each.stream) for each in strange)
        return cannot_tell(f"the resumed read has records of {names} that no other read had")
    if comparable and not any(each.covered for each in found):
        return cannot_tell(f"{state} covers no record")
    if not any(each.covered for each in comparable):
        return cannot_tell("two uninterrupted reads differ: the source sends what nobody can foresee")
    resumed, boundary = sum(each.resumed for each in comparable), sum(each.on_boundary for each in comparable)
    left_out = f"; cannot tell of {', '.join(str(each.stream) for each in unforeseeable)}" if unforeseeable else ""
    by = "" if all(each.compared_by == "content" for each in comparable) else ", compared by key"
    return holds(f"from {state}: {resumed:,} records, none lost, {boundary:,} again on the boundary{by}{left_out}")


def _sample(each: StreamComparison) -> Sample:
    text = (
        f"{each.covered:,} records were covered by the state, {each.resumed:,} came after it: {each.lost:,} lost, "
        f"{each.repeated:,} again beyond {each.on_boundary:,} on the boundary (compared by {each.compared_by})"
    )
    return Sample(f"stream {each.stream}", text)
