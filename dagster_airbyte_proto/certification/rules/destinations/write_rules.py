"""Judges writes: they end well, by key again, with each kind of value, and fail loudly where they fail."""

from dagster_airbyte_proto.certification.evidence import Reply
from dagster_airbyte_proto.certification.rule import Outcome, Ruling, Sample, cannot_tell, does_not_apply, holds
from dagster_airbyte_proto.certification.writes.scratch_rows import MISFIT_ID
from dagster_airbyte_proto.certification.writes.write_evidence import (
    DestinationEvidence,
    TypeWrite,
    WriteEvidence,
    WriteMark,
)
from dagster_airbyte_proto.model import PushMode

_SIGKILL = 9
_MANY_BYTES = 8 << 20
_SHORT_SECONDS = 2.0
_SLOWER = 3.0
_SLOW_SHARE = 0.5
_MIN_MARKS = 2
_PIPE_BYTES = 2 << 20


def write_ends(evidence: DestinationEvidence) -> Ruling:
    return _end_ruling(evidence.first.required)


def empty_write_ends(evidence: DestinationEvidence) -> Ruling:
    write = evidence.empty.required
    if write.received:
        found = f"it sent {len(write.received)} states back, and was sent none"
        return Ruling(Outcome.BROKEN, found, remedy="Send back only states that came in.")
    return _end_ruling(write)


def _end_ruling(write: WriteEvidence) -> Ruling:
    if write.has_records:
        remedy = "Is it a source or a tap? Name a destination."
        return Ruling(Outcome.BROKEN, "it sent records itself, as a source does", remedy=remedy)
    if not write.ended_well:
        return Ruling(Outcome.BROKEN, write.how_it_failed, _stderr(write))
    if write.run.was_stopped:
        remedy = "End with exit code 0 after the result, when stdin ends."
        return Ruling(Outcome.WARNING, "its result came, and it did not end: it was stopped", remedy=remedy)
    rows = f"{write.rows:,} rows, and " if write.rows else ""
    return holds(f"{rows}it ended {write.end_seconds:.1f} s after the end of its input, with exit code 0")


def lines_are_messages(evidence: DestinationEvidence) -> Ruling:
    write = evidence.first.required
    if write.plain_lines:
        return Ruling(Outcome.WARNING, f"{write.plain_lines} lines of stdout are no messages")
    return holds("every line of stdout is one")


def same_rows_again(evidence: DestinationEvidence) -> Ruling:
    write, first = evidence.again.required, evidence.first.required
    if evidence.mode is PushMode.APPEND:
        return does_not_apply("it has no mode by key: the rows went in the mode append")
    if not write.ended_well:
        return Ruling(Outcome.BROKEN, f"the second time {write.how_it_failed}", _stderr(write))
    if write.rejected_rows:
        return Ruling(Outcome.BROKEN, f"the second time it rejected {write.rejected_rows} of {write.rows} rows")
    if first.proves_all and not write.proves_all:
        found = f"the second time it ended well, and acknowledged {write.proved_rows} of {write.rows} rows"
        return Ruling(Outcome.BROKEN, found, remedy="Acknowledge rows that are there already, too.")
    return holds(f"{write.rows:,} rows were taken again, without an error")


def types_are_taken(evidence: DestinationEvidence) -> Ruling:
    if not evidence.takes_any_rows:
        return does_not_apply("its objects have fields of their own")
    together = evidence.all_types.required
    first = evidence.first.required
    if not evidence.types:
        return holds(f"all of {len(evidence.kinds)} kinds, in one write: {'; '.join(evidence.kinds)}")
    silent = [each for each in evidence.types if each.write.answer and _is_silent(each.write.answer, first)]
    if silent:
        samples = tuple(Sample(each.kind, _loss(each.write.required)) for each in silent)
        return Ruling(Outcome.BROKEN, f"kinds of values that it dropped: {_kinds(silent)}", samples)
    refused = [each for each in evidence.types if not _was_taken(each.write)]
    if refused:
        samples = tuple(Sample(each.kind, _why(each.write)) for each in refused)
        taken = len(evidence.types) - len(refused)
        return Ruling(Outcome.WARNING, f"{taken} kinds were taken, and it refused: {_kinds(refused)}", samples)
    return Ruling(Outcome.WARNING, f"each kind was taken by itself, and all together were not: {_why_of(together)}")


def misfit_is_loud(evidence: DestinationEvidence) -> Ruling:
    if not evidence.takes_any_rows:
        return does_not_apply("its objects have fields of their own, to which rows are held before they are sent")
    write = evidence.misfit.required
    if not write.ended_well:
        if write.reported or not (write.is_late or _had_to_be_stopped(write)):
            return holds(f"the write failed: {write.how_it_failed}")
        if not write.is_late or _is_slow(write, evidence.first.required):
            return cannot_tell(write.how_it_failed)
        return Ruling(Outcome.BROKEN, write.how_it_failed, _stderr(write), "Fail, or reject the row: it hangs.")
    if write.rejected_rows:
        return holds(f"{write.rejected_rows} of {write.rows} rows were rejected, and counted so")
    counted = [each.records for each in write.received if each.records is not None]
    if counted and sum(counted) < write.rows and not evidence.first.required.miscounts:
        found = f"it acknowledged {write.rows} rows, counted {sum(counted):.0f} of them, and rejected none"
        return Ruling(Outcome.BROKEN, f"the row is lost: {found}")
    scratch = evidence.objects[-1] if evidence.objects else "the object of certify"
    return cannot_tell(
        f"it acknowledged all {write.rows} rows, and does not say what became of the score that is text: look for the "
        f"row with id {MISFIT_ID} in {scratch}"
    )


def cut_write_ends(evidence: DestinationEvidence) -> Ruling:
    write = evidence.cut.required
    if write.is_late and _is_slow(write, evidence.first.required):
        return cannot_tell(f"{write.how_it_failed}; a whole write is slow too: take more --write-seconds")
    if _had_to_be_stopped(write):
        return Ruling(Outcome.BROKEN, write.how_it_failed, _stderr(write))
    if write.ended_well:
        found = "it ended with exit code 0, though its input ended in the middle of a line"
        return Ruling(Outcome.WARNING, found, remedy="Fail where a line cannot be read: its rows are lost.")
    return holds(f"{write.how_it_failed}; {write.proved_rows} of {write.rows} rows were acknowledged")


def cancelled_write_ends(evidence: DestinationEvidence) -> Ruling:
    write = evidence.cancelled.required
    report = write.run.report
    if report is None:
        return Ruling(Outcome.BROKEN, "it did not end, not even when it was killed")
    if report.signal == _SIGKILL:
        return Ruling(Outcome.WARNING, "it did not end on SIGTERM, and was killed")
    if not report.stopped:
        return cannot_tell("it had ended by itself before the signal")
    left = write.rows - write.proved_rows
    late = [each for each in write.received if not each.is_open]
    drained = "it drained: states came back after the signal, and " if late else ""
    rest = "all rows were acknowledged" if not left else f"{left} of {write.rows} rows are unknown, and go again"
    return holds(f"it {report.how_it_ended} {write.end_seconds:.1f} s after SIGTERM; {drained}{rest}")


def memory_is_flat(evidence: DestinationEvidence) -> Ruling:
    write = evidence.long.required
    peak = write.run.peak_memory_bytes
    if len(write.marks) < _MIN_MARKS:
        return cannot_tell("too few rows were sent")
    middle, last = write.marks[len(write.marks) // 2 - 1], write.marks[-1]
    if middle.peak_memory_bytes is None or peak is None:
        return cannot_tell("its memory could not be measured")
    if not _is_long(middle, last):
        return cannot_tell(f"{_shown_size(last.size_bytes)} were sent, too few to compare: try more --rows")
    grown, sent = peak - middle.peak_memory_bytes, last.size_bytes - middle.size_bytes
    text = f"{_shown_size(grown)} more at the end than after half of {write.rows:,} rows, at most {_shown_size(peak)}"
    if grown > sent and grown > _MANY_BYTES:
        found = f"{text}, while {_shown_size(sent)} were sent: it keeps what it gets"
        return Ruling(Outcome.WARNING, found, remedy="Write what has gathered at each state, or at a fixed size.")
    return holds(text)


def speed_is_flat(evidence: DestinationEvidence) -> Ruling:
    write = evidence.long.required
    if write.is_late:
        # A slow service is no fault: that it ends at all is proved by shorter writes.
        return cannot_tell(
            f"{write.rows:,} rows and no end in {write.run.seconds:.0f} s: take fewer --rows, or more --write-seconds"
        )
    if not write.ended_well:
        return Ruling(Outcome.BROKEN, write.how_it_failed, _stderr(write))
    if len(write.marks) < _MIN_MARKS:
        return cannot_tell("too few rows were sent")
    middle, last = write.marks[len(write.marks) // 2 - 1], write.marks[-1]
    if not _is_long(middle, last):
        return cannot_tell(f"{_shown_size(last.size_bytes)} were sent, too few to compare: try more --rows")
    first_half, second_half = middle.seconds, last.seconds - middle.seconds
    if last.seconds < _SHORT_SECONDS:
        return cannot_tell(
            f"it took {write.rows:,} rows in {last.seconds:.1f} s, too short to compare: try more --rows"
        )
    met = f"the first half of {write.rows:,} rows took {first_half:.1f} s, the second {second_half:.1f} s"
    if second_half > _SLOWER * first_half:
        return Ruling(Outcome.WARNING, met, remedy="Does each batch cost more, the more rows there are?")
    return holds(met)


def _is_long(middle: WriteMark, last: WriteMark) -> bool:
    """True if both halves are longer than a pipe: it may not have started when one lies in there."""
    return min(middle.size_bytes, last.size_bytes - middle.size_bytes) >= _PIPE_BYTES


def _had_to_be_stopped(write: WriteEvidence) -> bool:
    report = write.run.report
    return report is None or report.stopped


def _is_slow(write: WriteEvidence, first: WriteEvidence) -> bool:
    """True if a write that did not end in time may end yet: the first one took half of that time."""
    return first.run.seconds > _SLOW_SHARE * write.run.seconds


def _is_silent(write: WriteEvidence, first: WriteEvidence) -> bool:
    """True if it ended well and proved nothing, or counts too few rows, where it does better else."""
    proves_less = first.proves_all and not write.proves_all
    return write.ended_well and not write.rejected_rows and (proves_less or write.loses_rows(first))


def _loss(write: WriteEvidence) -> str:
    if write.miscounts:
        return f"it ended well, and counted {write.counted_rows} of {write.rows} rows"
    return "it ended well, and acknowledged no row"


def _was_taken(reply: Reply[WriteEvidence]) -> bool:
    write = reply.answer
    return write is not None and write.ended_well and not write.rejected_rows and not write.refused


def _why(reply: Reply[WriteEvidence]) -> str:
    if reply.answer is None:
        return reply.error.found if reply.error else "it was not sent"
    return _why_of(reply.answer)


def _why_of(write: WriteEvidence) -> str:
    if write.refused:
        return f"it cannot be sent: {write.refused[0]}"
    if write.rejected_rows:
        reason = f": {write.rejections[0]}" if write.rejections else ""
        return f"{write.rejected_rows} rows were rejected{reason}"
    return write.how_it_failed


def _kinds(found: list[TypeWrite]) -> str:
    return "; ".join(each.kind for each in found)


def _stderr(write: WriteEvidence) -> tuple[Sample, ...]:
    report = write.run.report
    return tuple(Sample("end of stderr", line) for line in (report.stderr_tail[-3:] if report else ()))


def _shown_size(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):.1f} MiB"
